"""Inspections: log sizes of partitions, read slowly and independently of polls.

A poll uses the results of the last inspection: a slow or failed answer costs a gauge, never a poll.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from exporter.domain.arrays import Flags, Floats, Rows
from exporter.domain.polls.inspections import Inspections, LogReplicas, SizesOfPartitions
from exporter.domain.polls.metadata import Membership, Metadata
from exporter.domain.polls.readings import GONE, PollFailure, Reason
from exporter.domain.polls.table import Snapshot
from exporter.domain.ports import Clock, SourceError
from exporter.kafka.kafka_python_answers import KafkaPythonError, log_ignored_properties
from exporter.kafka.process import RemoteClient

MAX_FAILED_INSPECTIONS = 3
"""How many inspections may fail before earlier results are dropped."""


@dataclass(frozen=True, slots=True)
class Inspection:
    """Cost and failures of one inspection of a cluster. Counts are of replicas."""

    cluster: str
    at: float | None
    """Unix seconds; None where there was nothing to inspect."""
    lookups: int = 0
    failures: Mapping[tuple[Reason, int], int] = field(default_factory=dict)
    """By reason and broker id."""
    problem: str = ""
    """Why nothing could be inspected at all; for a log line."""


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """What inspections found, as columns by one layout; times are monotonic."""

    inspections: Inspections
    topic_ids: tuple[str | None, ...]
    """By topic."""
    read_at: Floats
    """When all brokers with a replica were last asked; -inf where they were not."""

    @classmethod
    def nothing(cls, metadata: Metadata) -> _Found:
        """Return the columns of partitions that were never inspected."""
        layout = metadata.membership.layout
        ids = tuple(metadata.topics[name].topic_id for name in layout.topics)
        return cls(Inspections.nothing(layout), ids, np.full(len(layout), -math.inf))

    def laid_out(self, metadata: Metadata) -> _Found:
        """Return the same for the partitions of other metadata. Results of recreated topics are dropped."""
        moved, usable = _Found.nothing(metadata), self._usable(metadata)
        layout = metadata.membership.layout
        here, there = layout.moves_from(self.inspections.layout)
        valid = usable[there]
        moved.read_at[here[valid]] = self.read_at[there[valid]]
        inspections = replace(self.inspections.laid_out(layout, usable), there=np.ones(len(layout), dtype=np.bool_))
        return replace(moved, inspections=inspections)

    def replace_sizes(self, sizes: SizesOfPartitions, at: float) -> _Found:
        """Return these with new sizes, as of this monotonic time."""
        return replace(
            self,
            inspections=self.inspections.replace_sizes(sizes),
            read_at=np.where(sizes.complete, at, self.read_at),
        )

    def of(self, metadata: Metadata, oldest: float) -> Inspections:
        """Return those for the partitions of other metadata: of the same topics, and not older than this."""
        usable = self._usable(metadata)
        return self.inspections.laid_out(metadata.membership.layout, usable & (self.read_at >= oldest))

    def _usable(self, metadata: Metadata) -> Flags:
        """Return which rows are of a topic that has the same id in other metadata."""
        layout = self.inspections.layout
        ids = [topic.topic_id if (topic := metadata.topics.get(name)) else None for name in layout.topics]
        same = [before == now for before, now in zip(self.topic_ids, ids, strict=True)]
        return np.array(same, dtype=np.bool_)[layout.topic]


class Inspector:
    """Keeps the log sizes of one cluster.

    A sink of polls, which know the partitions. One thread polls and one inspects: shared objects are replaced, never
    changed.
    """

    def __init__(self, cluster: str, clock: Clock, *, interval: float, client: Callable[[], RemoteClient]) -> None:
        """``client`` connects the client of one inspection.

        ``interval`` is in seconds, and also the time limit of an inspection.
        """
        self._cluster = cluster
        self._clock = clock
        self._interval = interval
        self._lasts = (MAX_FAILED_INSPECTIONS + 1) * interval
        self._client = client
        self._silent: set[int] = set()
        """Brokers that gave no answer when asked last: each costs a whole time limit, so they come after all others."""
        self._lock = threading.Lock()
        """Held while ``_found`` and ``_shown`` change together; no poll waits for more."""
        self._metadata: Metadata | None = None
        self._found = _Found.nothing(Metadata({}, {}))
        self._shown: tuple[Metadata, float, Inspections] | None = None
        """What ``results`` returned last, for which metadata, until when; None once an inspection has ended since."""

    def accept(self, snapshot: Snapshot) -> None:
        """Take the partitions and their brokers."""
        self._metadata = snapshot.metadata

    def missed(self, failure: PollFailure) -> None:
        """Ignore a failed poll."""

    def results(self, metadata: Metadata) -> Inspections:
        """Return all results: the same object until an inspection ends or a result is too old.

        Sends no request.
        """
        with self._lock:
            now = self._clock.monotonic()
            if self._shown is None or self._shown[0] is not metadata or now > self._shown[1]:
                moments = self._found.read_at + self._lasts
                until = float(np.min(moments, where=moments >= now, initial=math.inf))
                self._shown = metadata, until, self._found.of(metadata, now - self._lasts)
            return self._shown[2]

    def inspect(self, stop: Callable[[], bool] = lambda: False) -> Inspection:
        """Inspect all partitions, for at most one interval or until ``stop``; return cost and failures.

        Partitions with the oldest results come first, so that the next inspection completes one that was cut short.
        """
        metadata = self._metadata
        if metadata is None or not len(metadata.membership.layout):
            return Inspection(self._cluster, None)
        found = self._found.laid_out(metadata)
        ends = self._clock.monotonic() + self._interval
        inspection = Inspection(self._cluster, self._clock.now())

        def enough() -> bool:
            return stop() or self._clock.monotonic() >= ends

        sizes = SizesRead(metadata.membership, self._clock)
        try:
            with self._client() as client:
                log_ignored_properties(self._cluster, "log sizes", client.left_out())
                sizes.ask(client, found.read_at, self._silent, enough)
                return replace(inspection, lookups=sizes.lookups, failures=sizes.failures())
        except (KafkaPythonError, SourceError) as error:
            return replace(inspection, problem=error.detail)
        finally:
            for broker, failure in sizes.answers.items():
                (self._silent.add if failure in GONE else self._silent.discard)(broker)
            # What brokers answered before the client ended counts as well.
            found = found.replace_sizes(sizes.found(), sizes.at)
            with self._lock:
                self._found, self._shown = found, None


class SizesRead:
    """The sizes of all replicas, as far as brokers have answered.

    A replica that moved since the metadata was read has no size: it is asked for where it is in the next one.
    """

    def __init__(self, membership: Membership, clock: Clock) -> None:
        self.at = -math.inf
        """When the last broker answered, in monotonic time."""
        self.lookups = 0
        """Replicas that brokers were asked for."""
        self.answers: dict[int, Reason | None] = {}
        """Broker id -> why it gave no answer, None where it did."""
        self._clock = clock
        self._membership = membership
        self._replicas = LogReplicas(membership)
        self._why: dict[int, Reason] = {}
        """Broker id -> why a replica on it has no size."""

    def ask(
        self,
        client: RemoteClient,
        before: Floats,
        last: Collection[int] = (),
        enough: Callable[[], bool] = lambda: False,
    ) -> None:
        """Ask each broker for all its replicas at once, those with the oldest results first, which are ``before`` [n].

        The brokers in ``last`` come after all others.
        """
        replicas = self._replicas

        def turn(one: tuple[int, Rows]) -> tuple[bool, float]:
            return one[0] in last, float(before[replicas.row[one[1]]].min())

        for broker, places in sorted(replicas.group_by_broker(), key=turn):
            if enough():
                return
            self.lookups += len(places)
            sizes = client.log_sizes(self._membership.layout.part(replicas.row[places]), broker)
            self.at = self._clock.monotonic()
            if isinstance(sizes, Reason):
                self.answers[broker] = self._why[broker] = sizes
            else:
                self.answers[broker], self._why[broker] = None, sizes.missing
                replicas.put(places, sizes)

    def found(self) -> SizesOfPartitions:
        """Return the sizes of partitions."""
        return self._replicas.of_partitions(self._membership.leader, self._why)

    def failures(self) -> Mapping[tuple[Reason, int], int]:
        """Return how many replicas have no size, by reason and broker."""
        lacking = {broker: self._replicas.count_unknown(places) for broker, places in self._replicas.group_by_broker()}
        return {(reason, broker): count for broker, reason in self._why.items() if (count := lacking[broker])}

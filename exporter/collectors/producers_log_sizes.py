"""Inspections: producers and sizes of partitions, read slowly and independently of polls.

A poll uses the results of the last inspection: a slow or failed answer costs a gauge, never a poll.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Flags, Floats, Rows, runs
from exporter.domain.polls.answers import rows_with
from exporter.domain.polls.inspections import Inspections
from exporter.domain.polls.layout import NO_LEADER, Layout
from exporter.domain.polls.log_sizes import Replicas, SizesOfPartitions
from exporter.domain.polls.metadata import Membership, Metadata
from exporter.domain.polls.producer_answers import OpenTransactions, ProducerAnswers, ProducersRead
from exporter.domain.polls.readings import BROKER_FAILED, GONE, PollFailure, Reason
from exporter.domain.polls.table import Snapshot
from exporter.domain.ports import Clock, SourceError
from exporter.kafka.kafka_python_answers import (
    LOG_DIRS,
    PARTITIONS_PER_CALL,
    PRODUCERS,
    KafkaPythonError,
    log_ignored_properties,
)
from exporter.kafka.process import RemoteClient

MAX_FAILED_INSPECTIONS = 3
"""How many inspections may fail before earlier results are dropped."""


@dataclass(frozen=True, slots=True)
class Inspection:
    """Cost and failures of one inspection of a cluster. Counts are of partitions."""

    cluster: str
    at: float | None
    """Unix seconds; None where there was nothing to inspect."""
    lookups: Mapping[str, int] = field(default_factory=dict)
    """By kind: PRODUCERS, LOG_DIRS; of log directories each replica counts."""
    failures: Mapping[tuple[str, Reason, int], int] = field(default_factory=dict)
    """By kind, reason and broker id."""
    problem: str = ""
    """Why nothing could be inspected at all; for a log line."""


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """What inspections found, as columns by one layout; times are monotonic."""

    inspections: Inspections
    topic_ids: tuple[str | None, ...]
    """By topic."""
    producers_at: Floats
    """When a leader was last asked; -inf where none was."""
    sizes_at: Floats
    """When all brokers with a replica were last asked; -inf where they were not."""
    opened: OpenTransactions
    """Also of partitions that could not be read last time."""

    @classmethod
    def nothing(cls, metadata: Metadata) -> _Found:
        """Return the columns of partitions that were never inspected."""
        layout = metadata.membership.layout
        never = np.full(len(layout), -math.inf)
        ids = tuple(metadata.topics[name].topic_id for name in layout.topics)
        return cls(Inspections.nothing(layout), ids, never, never, OpenTransactions.none())

    def laid_out(self, metadata: Metadata) -> _Found:
        """Return the same for the partitions of other metadata. Results of recreated topics are dropped."""
        moved, usable = _Found.nothing(metadata), self._usable(metadata)
        layout, before = metadata.membership.layout, self.inspections.layout
        here, there = layout.moves_from(before)
        here, there = here[usable[there]], there[usable[there]]
        place = np.full(len(before), -1, dtype=np.intp)
        place[there] = here
        producers_at, sizes_at = moved.producers_at.copy(), moved.sizes_at.copy()
        producers_at[here], sizes_at[here] = self.producers_at[there], self.sizes_at[there]
        inspections = replace(
            self.inspections.laid_out(layout, usable, usable), there=np.ones(len(layout), dtype=np.bool_)
        )
        return _Found(inspections, moved.topic_ids, producers_at, sizes_at, self.opened.moved(place))

    def with_sizes(self, sizes: SizesOfPartitions, at: float) -> _Found:
        """Return these with new sizes, as of this monotonic time."""
        return replace(
            self,
            inspections=self.inspections.with_sizes(sizes),
            sizes_at=np.where(sizes.complete, at, self.sizes_at),
        )

    def with_producers(self, read: ProducersRead) -> _Found:
        """Return these with what leaders answered."""
        found = read.found()
        opened = self.opened.after(read, found)
        return replace(
            self,
            inspections=self.inspections.with_producers(read, found, opened),
            producers_at=np.where(read.requested, read.at, self.producers_at),
            opened=opened,
        )

    def of(self, metadata: Metadata, oldest: float) -> Inspections:
        """Return those for the partitions of other metadata: of the same topics, and not older than this."""
        usable = self._usable(metadata)
        return self.inspections.laid_out(
            metadata.membership.layout, usable & (self.sizes_at >= oldest), usable & (self.producers_at >= oldest)
        )

    def _usable(self, metadata: Metadata) -> Flags:
        """Return which rows are of a topic that has the same id in other metadata."""
        layout = self.inspections.layout
        ids = [topic.topic_id if (topic := metadata.topics.get(name)) else None for name in layout.topics]
        same = [before == now for before, now in zip(self.topic_ids, ids, strict=True)]
        return np.array(same, dtype=np.bool_)[layout.topic]


class Inspector:
    """Keeps the results of inspections for one cluster.

    A sink of polls, which know the partitions, and an ``InspectionKnowledge``. One thread polls and one inspects:
    shared objects are replaced, never changed.
    """

    def __init__(
        self,
        cluster: str,
        clock: Clock,
        *,
        interval: float,
        producers: bool,
        log_sizes: bool,
        client: Callable[[], RemoteClient],
    ) -> None:
        """``client`` connects the client of one inspection.

        ``interval`` is in seconds, and also the time limit of an inspection.
        """
        self._cluster = cluster
        self._clock = clock
        self._interval = interval
        self._lasts = (MAX_FAILED_INSPECTIONS + 1) * interval
        self._producers = producers
        self._log_sizes = log_sizes
        self._client = client
        self._ignored_logged = False
        self._silent: set[int] = set()
        """Brokers that gave no answer when asked last: each costs a whole time limit, so they come after all others."""
        self._lock = threading.Lock()
        """Held while ``_found`` and ``_shown`` change together; no poll waits for more."""
        self._metadata: Metadata | None = None
        self._found = _Found.nothing(Metadata({}, {}))
        self._shown: tuple[Metadata, float, Inspections] | None = None
        """What ``results`` returned last, for which metadata, until when; None once an inspection has ended since."""

    @property
    def waiting(self) -> bool:
        """True until the first poll."""
        return self._metadata is None

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
                moments = np.concatenate([self._found.producers_at, self._found.sizes_at]) + self._lasts
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

        failures: Counter[tuple[str, Reason, int]] = Counter()
        sizes = SizesRead(metadata.membership, self._clock)
        silent = frozenset(self._silent)
        read = ProducersRead(len(metadata.membership.layout))
        try:
            with self._client() as client:
                if not self._ignored_logged:
                    log_ignored_properties(self._cluster, "producers and log sizes", client.left_out())
                    self._ignored_logged = True
                if self._log_sizes:
                    sizes.ask(client, found.sizes_at, lambda broker: broker not in silent, enough)
                    self._note(sizes.failure_by_broker())
                if self._producers:
                    self._read_producers(client, metadata.membership, found.producers_at, read, enough)
                    failures.update({(PRODUCERS, *which): count for which, count in read.failures().items()})
                if self._log_sizes:
                    if silent:
                        sizes.ask(client, found.sizes_at, silent.__contains__, enough)
                    failures.update(sizes.failures())
                return replace(inspection, lookups=dict(client.counts()), failures=failures)
        except (KafkaPythonError, SourceError) as error:
            return replace(inspection, failures=failures, problem=error.detail)
        finally:
            self._note(sizes.failure_by_broker())
            # What brokers answered before the client ended counts as well.
            found = found.with_sizes(sizes.found(), sizes.at).with_producers(read)
            with self._lock:
                self._found, self._shown = found, None

    def _read_producers(
        self,
        client: RemoteClient,
        membership: Membership,
        before: Floats,
        read: ProducersRead,
        enough: Callable[[], bool],
    ) -> None:
        """Ask the leader of each partition, and the new leader if it has changed in the meantime."""
        layout = membership.layout
        gone: dict[int, Reason] = {}
        calls = _calls(np.arange(len(layout)), membership.leader, before)
        self._ask_leaders(client, layout, sorted(calls, key=lambda call: call[0] in self._silent), read, gone, enough)
        refused = np.flatnonzero(rows_with(read.reason, [Reason.NOT_LEADER]))
        if len(refused) and not enough():
            now = client.partitions(layout.part(refused))
            rows = _rows(now, layout)
            moved = now.leader != membership.leader[rows]
            calls = _calls(rows[moved], now.leader[moved], before)
            self._ask_leaders(client, layout, calls, read, gone, enough)

    def _ask_leaders(
        self,
        client: RemoteClient,
        layout: Layout,
        calls: Iterable[tuple[int, Rows]],
        read: ProducersRead,
        gone: dict[int, Reason],
        enough: Callable[[], bool],
    ) -> None:
        """Make these calls; to ``gone``, leaders that give no answer, no more are made."""
        for leader, rows in calls:
            if enough():
                break
            if leader in gone:
                answers = ProducerAnswers.failed(len(rows), gone[leader])
            else:
                answers = client.producers(layout.part(rows), leader)
                self._note({leader: answers.failure})
                if (reason := answers.failure) is not None and reason in BROKER_FAILED:
                    gone[leader] = reason
            read.put(rows, leader, answers, self._clock.monotonic(), self._clock.now())

    def _note(self, failure_by_broker: Mapping[int, Reason | None]) -> None:
        """Note which of these brokers gave no answer; the value is why, None where one did."""
        for broker, failure in failure_by_broker.items():
            if failure in GONE:
                self._silent.add(broker)
            else:
                self._silent.discard(broker)


class SizesRead:
    """The sizes of all replicas, as far as brokers have answered."""

    def __init__(self, membership: Membership, clock: Clock) -> None:
        self.at = -math.inf
        """When the last broker answered, in monotonic time."""
        self._clock = clock
        self._layout, self._leader = membership.layout, membership.leader
        self._replicas = Replicas.of(membership, np.arange(len(self._layout)))
        self._why: dict[int, Reason] = {}
        """Broker id -> why a replica on it has no size."""
        self._failed: set[int] = set()

    def ask(
        self,
        client: RemoteClient,
        before: Floats,
        chosen: Callable[[int], bool],
        enough: Callable[[], bool],
    ) -> None:
        """Ask each ``chosen`` broker for all its replicas at once, and once more for those that moved to it meanwhile.

        Brokers with the oldest results, which are as of ``before`` [n], come first.
        """
        replicas = self._replicas
        answered_places: list[Rows] = []
        for broker, places in sorted(replicas.by_broker(), key=lambda one: before[replicas.row[one[1]]].min()):
            if enough():
                break
            if chosen(broker) and self._ask(client, broker, places):
                answered_places.append(places)
        missing = np.unique(np.concatenate([np.zeros(0, dtype=np.intp), *map(replicas.lacking, answered_places)]))
        if not len(missing) or enough():
            return
        now = client.partitions(self._layout.part(missing))
        present = Replicas.of(now, rows := _rows(now, self._layout))
        moved = replicas.elsewhere(present)
        self._replicas, self._leader = replicas.replaced(moved, present), self._leader.copy()
        self._leader[rows] = np.where(np.isin(rows, moved), now.leader, self._leader[rows])
        for broker, places in self._replicas.by_broker(moved):
            if broker not in self._failed and chosen(broker):
                self._ask(client, broker, places)

    def _ask(self, client: RemoteClient, broker: int, places: Rows) -> bool:
        """Ask a broker for some replicas; return whether it answered."""
        sizes = client.log_sizes(self._layout.part(self._replicas.row[places]), broker)
        self.at = self._clock.monotonic()
        if isinstance(sizes, Reason):
            self._why.setdefault(broker, sizes)
            self._failed.add(broker)
            return False
        self._why.setdefault(broker, sizes.missing)
        self._replicas.put(places, sizes)
        return True

    def failure_by_broker(self) -> Mapping[int, Reason | None]:
        """Return the brokers that were asked, and why they gave no answer, None where one did."""
        return {broker: why if broker in self._failed else None for broker, why in self._why.items()}

    def found(self) -> SizesOfPartitions:
        """Return the sizes of partitions."""
        return self._replicas.of_partitions(self._leader, self._why)

    def failures(self) -> Mapping[tuple[str, Reason, int], int]:
        """Return how many replicas have no size, by reason and broker."""
        counts = {broker: len(self._replicas.lacking(places)) for broker, places in self._replicas.by_broker()}
        return {
            (LOG_DIRS, reason, broker): count for broker, reason in self._why.items() if (count := counts.get(broker))
        }


def _rows(membership: Membership, layout: Layout) -> Rows:
    """Return the rows of some partitions in the layout of all."""
    some = membership.layout
    return layout.find(some.topics, some.topic, some.partition)


def _calls(rows: Rows, leader: NDArray[np.int32], before: Floats) -> Iterator[tuple[int, Rows]]:
    """Group partitions into calls to their leaders, which take turns, so that each broker has its own rate.

    ``leader`` is that of each of ``rows``. Partitions with the oldest results, which are as of ``before`` [n], come
    first; those of a call are in order.
    """
    rows, leader = rows[leader != NO_LEADER], leader[leader != NO_LEADER]
    order = np.lexsort((rows, before[rows], leader))
    rows, leader = rows[order], leader[order]
    turn = (np.arange(len(rows)) - np.searchsorted(leader, leader)) // PARTITIONS_PER_CALL
    order = np.lexsort((rows, leader, turn))
    rows, leader, turn = rows[order], leader[order], turn[order]
    first = runs(leader, turn)
    return zip(leader[first].tolist(), np.split(rows, first[1:]), strict=False)

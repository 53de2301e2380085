"""Inspections: producers and sizes of partitions, read slowly and independently of polls.

A poll uses the results of the last inspection: a slow or failed answer costs a gauge, never a poll.
"""

from __future__ import annotations

import math
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest

import numpy as np

from exporter.domain import PartitionInfo, PollFailure, Producers, Reason, Snapshot, TopicPartition
from exporter.domain.arrays import Floats
from exporter.domain.inspections import Inspections
from exporter.domain.metadata import Metadata
from exporter.domain.ports import Clock
from exporter.domain.readings import BROKER_FAILED
from exporter.kafka import LOG_DIRS, PRODUCERS, KafkaPythonError, RemoteInspections
from exporter.kafka.kafka_python_answers import PARTITIONS_PER_CALL, Producer, Sizes, log_ignored_properties

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


@dataclass(frozen=True, slots=True)
class _PartitionResults:
    """The results for one partition. Times are monotonic."""

    topic_id: str | None
    producers: Producers | None = None
    producers_at: float = -math.inf
    opened: Mapping[tuple[int, int], float] = field(default_factory=dict)
    """(producer id, first offset) of each open transaction -> when it was first seen."""
    log_bytes: int | None = None
    disk_bytes: int | None = None
    sizes_at: float = -math.inf


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """What inspections found, as columns by one layout; times are monotonic."""

    inspections: Inspections
    topic_ids: tuple[str | None, ...]
    """By topic."""
    producers_at: Floats
    sizes_at: Floats

    @classmethod
    def by(cls, metadata: Metadata, known: Mapping[TopicPartition, _PartitionResults]) -> _Found:
        """Return results as columns; ``known`` has one for each partition of the metadata."""
        layout = metadata.membership.layout
        found = [known[key] for key in layout]
        return cls(
            Inspections.by_row(layout, np.arange(len(layout)), found),
            tuple(metadata.topics[name].topic_id for name in layout.topics),
            np.array([each.producers_at for each in found], dtype=np.float64),
            np.array([each.sizes_at for each in found], dtype=np.float64),
        )

    def of(self, metadata: Metadata, oldest: float) -> Inspections:
        """Return those for the partitions of other metadata: of the same topics, and not older than this."""
        layout = self.inspections.layout
        ids = [topic.topic_id if (topic := metadata.topics.get(name)) else None for name in layout.topics]
        same = [before == now for before, now in zip(self.topic_ids, ids, strict=True)]
        usable = np.array(same, dtype=np.bool_)[layout.topic]
        return self.inspections.laid_out(
            metadata.membership.layout, usable & (self.sizes_at >= oldest), usable & (self.producers_at >= oldest)
        )


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
        client: Callable[[], RemoteInspections],
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
        self._lock = threading.Lock()
        """Held while ``_found`` and ``_shown`` change together; no poll waits for more."""
        self._known: dict[TopicPartition, _PartitionResults] = {}
        """For the thread that inspects."""
        self._metadata: Metadata | None = None
        self._found = _Found.by(Metadata({}, {}), {})
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
        known, infos = self._to_inspect(metadata)
        ends = self._clock.monotonic() + self._interval
        inspection = Inspection(self._cluster, self._clock.now())

        def enough() -> bool:
            return stop() or self._clock.monotonic() >= ends

        failures: Counter[tuple[str, Reason, int]] = Counter()
        try:
            with self._client() as client:
                if not self._ignored_logged:
                    log_ignored_properties(self._cluster, "producers and log sizes", client.left_out)
                    self._ignored_logged = True
                if self._log_sizes:
                    failures.update(self._ask_sizes(client, infos, known, enough))
                if self._producers:
                    failures.update(self._ask_producers(client, infos, known, enough))
                return replace(inspection, lookups=dict(client.counts), failures=failures)
        except KafkaPythonError as error:
            return replace(inspection, problem=str(error))
        finally:
            found = _Found.by(metadata, self._known)
            with self._lock:
                self._found, self._shown = found, None

    def _to_inspect(
        self, metadata: Metadata
    ) -> tuple[Mapping[TopicPartition, _PartitionResults], Mapping[TopicPartition, PartitionInfo]]:
        """Return the partitions of the last poll with earlier results; those of deleted topics are dropped."""
        infos = {key: metadata.membership.info(row) for row, key in enumerate(metadata.membership.layout)}
        known: dict[TopicPartition, _PartitionResults] = {}
        for key in infos:
            before, topic_id = self._known.get(key), metadata.topics[key.topic].topic_id
            known[key] = before if before is not None and before.topic_id == topic_id else _PartitionResults(topic_id)
        self._known = known
        return dict(known), infos

    def _ask_sizes(
        self,
        client: RemoteInspections,
        infos: Mapping[TopicPartition, PartitionInfo],
        known: Mapping[TopicPartition, _PartitionResults],
        enough: Callable[[], bool],
    ) -> Counter[tuple[str, Reason, int]]:
        """Ask for the sizes of all replicas. Sums need the answers of all brokers with a replica."""
        answers, infos = self._read_sizes(client, infos, known, enough)
        by_broker = _by_replica(infos)
        failures: Counter[tuple[str, Reason, int]] = Counter()
        for broker, sizes in answers.items():
            keys = by_broker.get(broker, [])
            if isinstance(sizes, Reason):
                failures[LOG_DIRS, sizes, broker] += len(keys)
            elif missing := len(_missing(sizes, keys)):
                failures[LOG_DIRS, sizes.missing, broker] += missing
        now = self._clock.monotonic()
        sizes_by_broker = {broker: sizes for broker, sizes in answers.items() if isinstance(sizes, Sizes)}
        for key, info in infos.items():
            if answers.keys() >= set(info.replicas):
                leader = None if info.leader is None else sizes_by_broker.get(info.leader)
                log_bytes = None if leader is None else leader.logs.get(key)
                disk_bytes = _on_disk(key, info, sizes_by_broker)
                self._known[key] = replace(known[key], log_bytes=log_bytes, disk_bytes=disk_bytes, sizes_at=now)
        return failures

    def _read_sizes(
        self,
        client: RemoteInspections,
        infos: Mapping[TopicPartition, PartitionInfo],
        known: Mapping[TopicPartition, _PartitionResults],
        enough: Callable[[], bool],
    ) -> tuple[Mapping[int, Sizes | Reason], Mapping[TopicPartition, PartitionInfo]]:
        """Return the answer of each broker, and where the partitions are now.

        A broker gets one request for all its replicas, and one more for those that moved to it since the last poll.
        """
        answers: dict[int, Sizes | Reason] = {}
        by_broker = _by_replica(infos)
        for broker, keys in sorted(by_broker.items(), key=lambda row: min(known[key].sizes_at for key in row[1])):
            if enough():
                break
            answers[broker] = client.log_sizes(keys, broker)
        missing = {key for broker, sizes in answers.items() for key in _missing(sizes, by_broker[broker])}
        if missing and not enough():
            moved = _moved(infos, client.partitions(missing), lambda info: frozenset(info.replicas))
            infos = {**infos, **moved}
            for broker, keys in _by_replica(moved).items():
                before = answers.get(broker)
                if isinstance(before, Reason):
                    continue
                found = client.log_sizes(keys, broker)
                if before is None:
                    answers[broker] = found
                elif isinstance(found, Sizes):
                    logs, moving = {**before.logs, **found.logs}, {**before.moving, **found.moving}
                    answers[broker] = replace(before, logs=logs, moving=moving)
        return answers, infos

    def _ask_producers(
        self,
        client: RemoteInspections,
        infos: Mapping[TopicPartition, PartitionInfo],
        known: Mapping[TopicPartition, _PartitionResults],
        enough: Callable[[], bool],
    ) -> Counter[tuple[str, Reason, int]]:
        """Ask the leader of each partition, and the new leader where there is another one meanwhile."""
        failed: dict[TopicPartition, tuple[str, Reason, int]] = {}
        gone: dict[int, Reason] = {}
        self._ask_leaders(client, _calls(infos, known), failed, gone, enough)
        refused = [key for key, (_, reason, _) in failed.items() if reason is Reason.NOT_LEADER]
        if refused and not enough():
            moved = _moved(infos, client.partitions(refused), lambda info: info.leader)
            self._ask_leaders(client, _calls(moved, known), failed, gone, enough)
        return Counter(failed.values())

    def _ask_leaders(
        self,
        client: RemoteInspections,
        calls: Iterable[tuple[int, Sequence[TopicPartition]]],
        failed: dict[TopicPartition, tuple[str, Reason, int]],
        gone: dict[int, Reason],
        enough: Callable[[], bool],
    ) -> None:
        """Make these calls; ``failed`` is what failed of those so far, and ``gone`` are the leaders that are."""
        for leader, keys in calls:
            if enough():
                break
            if leader in gone:
                answers: Mapping[TopicPartition, list[Producer] | Reason] = dict.fromkeys(keys, gone[leader])
            else:
                answers = client.producers(keys, leader)
                reasons = {answer if isinstance(answer, Reason) else None for answer in answers.values()}
                if len(reasons) == 1 and (reason := reasons.pop()) in BROKER_FAILED:
                    gone[leader] = reason
            now, wall = self._clock.monotonic(), self._clock.now()
            for key, found in answers.items():
                self._known[key] = _with_producers(self._known[key], found, now, wall)
                failed.pop(key, None)
                if isinstance(found, Reason):
                    failed[key] = PRODUCERS, found, leader


def _by_replica(infos: Mapping[TopicPartition, PartitionInfo]) -> dict[int, list[TopicPartition]]:
    """Return the partitions of which each broker has a replica."""
    by_broker: dict[int, list[TopicPartition]] = defaultdict(list)
    for key, info in infos.items():
        for broker in info.replicas:
            by_broker[broker].append(key)
    return by_broker


def _missing(sizes: Sizes | Reason, keys: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return the partitions that a broker does not have, though it answered."""
    return [] if isinstance(sizes, Reason) else [key for key in keys if key not in sizes.logs]


def _moved(
    infos: Mapping[TopicPartition, PartitionInfo],
    now: Mapping[TopicPartition, PartitionInfo],
    where: Callable[[PartitionInfo], object],
) -> dict[TopicPartition, PartitionInfo]:
    """Return the partitions that are elsewhere now than a poll saw them."""
    return {key: info for key, info in now.items() if where(info) != where(infos[key])}


def _calls(
    infos: Mapping[TopicPartition, PartitionInfo], known: Mapping[TopicPartition, _PartitionResults]
) -> Iterator[tuple[int, Sequence[TopicPartition]]]:
    """Group the partitions into calls to their leaders, which take turns, so that each broker has its own rate."""
    by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
    for key, info in infos.items():
        if info.leader is not None:
            by_leader[info.leader].append(key)
    rows = []
    for leader, keys in sorted(by_leader.items()):
        keys.sort(key=lambda key: (known[key].producers_at, key))
        rows.append([(leader, keys[at : at + PARTITIONS_PER_CALL]) for at in range(0, len(keys), PARTITIONS_PER_CALL)])
    return (call for call in chain.from_iterable(zip_longest(*rows)) if call is not None)


def _with_producers(
    before: _PartitionResults, found: list[Producer] | Reason, now: float, wall: float
) -> _PartitionResults:
    if isinstance(found, Reason):
        # Keep when transactions were first seen: the next answer shows whether they are the same.
        return replace(before, producers=None, producers_at=now)
    open_ones = ((one.producer_id, one.open_from) for one in found if one.open_from is not None)
    opened = {one: before.opened.get(one, now) for one in open_ones}
    writes = [one.last_write for one in found if one.last_write is not None]
    producers = Producers(
        ids=frozenset(one.producer_id for one in found),
        last_write=max(writes, default=None),
        open_transactions=frozenset(producer_id for producer_id, _ in opened),
        # By the present wall clock: setting it must not make a transaction older.
        open_since=round(wall - now + min(opened.values()), 3) if opened else None,
    )
    return replace(before, producers=producers, producers_at=now, opened=opened)


def _on_disk(key: TopicPartition, info: PartitionInfo, sizes_by_broker: Mapping[int, Sizes]) -> int | None:
    """Return the bytes of all replicas, None where one is unknown."""
    total = 0
    for broker in info.replicas:
        if broker not in sizes_by_broker or key not in sizes_by_broker[broker].logs:
            return None
        total += sizes_by_broker[broker].logs[key] + sizes_by_broker[broker].moving.get(key, 0)
    return total if info.replicas else None

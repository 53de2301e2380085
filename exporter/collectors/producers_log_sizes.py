"""Inspections: who writes to partitions and how large they are, asked slowly and beside the polls.

A poll reads here what the last inspection found: an answer that is slow or fails costs a gauge, never a poll.
"""

from __future__ import annotations

import math
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest

from exporter.domain import Inspected, PartitionInfo, PollFailure, Producers, Reason, Snapshot, TopicPartition
from exporter.domain.metadata import Metadata
from exporter.domain.ports import Clock
from exporter.kafka.kafka_python import SecondClientError, tell_left_out
from exporter.kafka.producers_log_dirs import (
    LOG_DIRS,
    PARTITIONS_PER_CALL,
    PRODUCERS,
    InspectionClient,
    Producer,
    Sizes,
)

INSPECTIONS_KEPT = 3
"""So many inspections may fail before what an earlier one found is shown no more."""

_OF_A_BROKER = frozenset(
    {
        Reason.LEADER_UNREACHABLE,
        Reason.TIMED_OUT,
        Reason.AUTHENTICATION_FAILED,
        Reason.CLUSTER_UNREACHABLE,
        Reason.UNSUPPORTED_VERSION,
    }
)
"""What one request is answered with, and every other one to that broker would be."""


@dataclass(frozen=True, slots=True)
class Inspection:
    """What one inspection of a cluster cost, and what it could not find out. Counts are of partitions."""

    cluster: str
    at: float | None
    """Unix seconds; None where there was nothing to inspect."""
    asked: Mapping[str, int] = field(default_factory=dict)
    """By what was asked: PRODUCERS, LOG_DIRS; of log directories each replica counts."""
    failures: Mapping[tuple[str, Reason, int], int] = field(default_factory=dict)
    """By what was asked, the reason and the broker id."""
    problem: str = ""
    """Why nothing could be asked at all; fit for a log line."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What is remembered of one partition. Moments are monotonic."""

    topic_id: str | None
    producers: Producers | None = None
    producers_at: float = -math.inf
    opened: Mapping[tuple[int, int], float] = field(default_factory=dict)
    """(producer id, first offset) of each open transaction -> when it was first seen."""
    log_bytes: int | None = None
    disk_bytes: int | None = None
    sizes_at: float = -math.inf


class Inspector:
    """Remembers, for one cluster, what inspections found.

    A sink of polls, which tell what there is to inspect, and ``poller.InspectionKnowledge``. One thread polls and
    one inspects: what they share is replaced, never changed.
    """

    def __init__(
        self,
        cluster: str,
        clock: Clock,
        *,
        interval: float,
        producers: bool,
        log_sizes: bool,
        client: Callable[[], InspectionClient],
    ) -> None:
        """``client`` connects, for one inspection, who answers.

        ``interval`` is in seconds and also the longest that an inspection may take.
        """
        self._cluster = cluster
        self._clock = clock
        self._interval = interval
        self._producers = producers
        self._log_sizes = log_sizes
        self._client = client
        self._told = False
        self._lock = threading.Lock()
        self._known: dict[TopicPartition, _Known] = {}
        self._infos: Mapping[TopicPartition, PartitionInfo] | None = None

    @property
    def waiting(self) -> bool:
        """True until a poll has told what there is to inspect."""
        return self._infos is None

    def accept(self, snapshot: Snapshot) -> None:
        """Take note of which partitions there are, and where."""
        topics = snapshot.metadata.topics
        membership = snapshot.metadata.membership
        infos = {key: membership.info(row) for row, key in enumerate(membership.layout)}
        with self._lock:
            known: dict[TopicPartition, _Known] = {}
            for key in infos:
                before, topic_id = self._known.get(key), topics[key.topic].topic_id
                known[key] = before if before is not None and before.topic_id == topic_id else _Known(topic_id)
            self._known, self._infos = known, infos

    def missed(self, failure: PollFailure) -> None:
        """Take note of nothing: a poll that failed says nothing of what there is."""

    def of(self, partition: TopicPartition, topic_id: str | None) -> Inspected:
        """Return what is known of a partition. Asks nobody."""
        known = self._known.get(partition)
        if known is None or known.topic_id != topic_id:
            return Inspected()
        oldest = self._clock.monotonic() - (INSPECTIONS_KEPT + 1) * self._interval
        producers = known.producers if known.producers_at >= oldest else None
        if known.sizes_at < oldest:
            return Inspected(producers)
        return Inspected(producers, known.log_bytes, known.disk_bytes)

    def known(self, metadata: Metadata) -> Mapping[TopicPartition, Inspected]:
        """Return what is known of every partition. Asks nobody."""
        ids = {name: topic.topic_id for name, topic in metadata.topics.items()}
        return {key: self.of(key, ids[key.topic]) for key in metadata.membership.layout}

    def look(self, stop: Callable[[], bool] = lambda: False) -> Inspection:
        """Inspect all partitions, for at most one interval or until ``stop``; return the bill.

        Those asked longest ago come first, so that an inspection cut short is made up for by the next one.
        """
        with self._lock:
            known, infos = dict(self._known), self._infos or {}
        if not infos:
            return Inspection(self._cluster, None)
        ends = self._clock.monotonic() + self._interval
        look = Inspection(self._cluster, self._clock.now())

        def enough() -> bool:
            return stop() or self._clock.monotonic() >= ends

        failures: Counter[tuple[str, Reason, int]] = Counter()
        try:
            with self._client() as client:
                if not self._told:
                    tell_left_out(self._cluster, "producers and log sizes", client.left_out)
                    self._told = True
                if self._log_sizes:
                    failures.update(self._ask_sizes(client, infos, known, enough))
                if self._producers:
                    failures.update(self._ask_producers(client, infos, known, enough))
                return replace(look, asked=dict(client.counts), failures=failures)
        except SecondClientError as error:
            return replace(look, problem=str(error))

    def _ask_sizes(
        self,
        client: InspectionClient,
        infos: Mapping[TopicPartition, PartitionInfo],
        known: Mapping[TopicPartition, _Known],
        enough: Callable[[], bool],
    ) -> Counter[tuple[str, Reason, int]]:
        """Ask each broker once, for all its replicas. What is summed up needs the answers of all that hold one."""
        by_broker: dict[int, list[TopicPartition]] = defaultdict(list)
        for key, info in infos.items():
            for broker in info.replicas:
                by_broker[broker].append(key)
        failures: Counter[tuple[str, Reason, int]] = Counter()
        told: dict[int, Sizes | Reason] = {}
        for broker, keys in sorted(by_broker.items(), key=lambda row: min(known[key].sizes_at for key in row[1])):
            if enough():
                break
            told[broker] = sizes = client.log_sizes(keys, broker)
            if isinstance(sizes, Reason):
                failures[LOG_DIRS, sizes, broker] += len(keys)
            elif missing := sum(key not in sizes.logs for key in keys):
                failures[LOG_DIRS, sizes.missing, broker] += missing
        now = self._clock.monotonic()
        answered = {broker: sizes for broker, sizes in told.items() if isinstance(sizes, Sizes)}
        with self._lock:
            for key, info in infos.items():
                if told.keys() >= set(info.replicas) and (before := self._still(key, known)) is not None:
                    leader = None if info.leader is None else answered.get(info.leader)
                    log_bytes = None if leader is None else leader.logs.get(key)
                    disk_bytes = _on_disk(key, info, answered)
                    self._known[key] = replace(before, log_bytes=log_bytes, disk_bytes=disk_bytes, sizes_at=now)
        return failures

    def _still(self, key: TopicPartition, known: Mapping[TopicPartition, _Known]) -> _Known | None:
        """Return what is remembered of a partition, unless its topic went, or was made again, while it was asked."""
        now = self._known.get(key)
        return now if now is not None and now.topic_id == known[key].topic_id else None

    def _ask_producers(
        self,
        client: InspectionClient,
        infos: Mapping[TopicPartition, PartitionInfo],
        known: Mapping[TopicPartition, _Known],
        enough: Callable[[], bool],
    ) -> Counter[tuple[str, Reason, int]]:
        failures: Counter[tuple[str, Reason, int]] = Counter()
        gone: dict[int, Reason] = {}
        for leader, keys in _calls(infos, known):
            if enough():
                break
            if leader in gone:
                told: Mapping[TopicPartition, list[Producer] | Reason] = dict.fromkeys(keys, gone[leader])
            else:
                told = client.producers(keys, leader)
                reasons = {answer if isinstance(answer, Reason) else None for answer in told.values()}
                if len(reasons) == 1 and (reason := reasons.pop()) in _OF_A_BROKER:
                    gone[leader] = reason
            failures.update((PRODUCERS, answer, leader) for answer in told.values() if isinstance(answer, Reason))
            now, wall = self._clock.monotonic(), self._clock.now()
            with self._lock:
                for key, found in told.items():
                    if (before := self._still(key, known)) is not None:
                        self._known[key] = _with_producers(before, found, now, wall)
        return failures


def _calls(
    infos: Mapping[TopicPartition, PartitionInfo], known: Mapping[TopicPartition, _Known]
) -> Iterator[tuple[int, Sequence[TopicPartition]]]:
    """Part the partitions into calls to their leaders; these take turns, so that each keeps its own pace."""
    by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
    for key, info in infos.items():
        if info.leader is not None:
            by_leader[info.leader].append(key)
    rows = []
    for leader, keys in sorted(by_leader.items()):
        keys.sort(key=lambda key: (known[key].producers_at, key))
        rows.append([(leader, keys[at : at + PARTITIONS_PER_CALL]) for at in range(0, len(keys), PARTITIONS_PER_CALL)])
    return (call for call in chain.from_iterable(zip_longest(*rows)) if call is not None)


def _with_producers(before: _Known, found: list[Producer] | Reason, now: float, wall: float) -> _Known:
    if isinstance(found, Reason):
        # When transactions were first seen is kept: the next answer says whether they are still the same.
        return replace(before, producers=None, producers_at=now)
    open_ones = ((one.producer_id, one.open_from) for one in found if one.open_from is not None)
    opened = {one: before.opened.get(one, now) for one in open_ones}
    writes = [one.last_write for one in found if one.last_write is not None]
    producers = Producers(
        ids=frozenset(one.producer_id for one in found),
        last_write=max(writes, default=None),
        open_transactions=frozenset(producer_id for producer_id, _ in opened),
        # By the wall clock of now: to set that must not make a transaction older.
        open_since=round(wall - now + min(opened.values()), 3) if opened else None,
    )
    return replace(before, producers=producers, producers_at=now, opened=opened)


def _on_disk(key: TopicPartition, info: PartitionInfo, told: Mapping[int, Sizes]) -> int | None:
    """Return the bytes of all replicas, None where one of them is not known."""
    total = 0
    for broker in info.replicas:
        if broker not in told or key not in told[broker].logs:
            return None
        total += told[broker].logs[key] + told[broker].moving.get(key, 0)
    return total if info.replicas else None

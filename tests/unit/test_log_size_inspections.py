"""Inspections: what is asked of whom, what is remembered, what a failure costs, and their results in columns."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest

from exporter.collectors.log_sizes import Inspector
from exporter.collectors.round import MAX_FAILED_ROUNDS
from exporter.domain.arrays import Counts
from exporter.domain.polls.inspections import LogSizes
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.metadata import Metadata, TopicInfo
from exporter.domain.polls.readings import Reason, State, TopicPartition
from exporter.domain.polls.table import Snapshot
from exporter.domain.ports import SourceError
from exporter.kafka.process import LOG_DIRS
from tests.memberships import Partition, membership_of
from tests.snapshots import snapshot_of
from tests.unit.readings import ManualClock
from tests.views import Inspected, Reading, sizes_of

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
INTERVAL = 300.0


@dataclass
class Brokers:
    """Answers for the client from tables, and notes who was asked; every request takes ``seconds``."""

    clock: ManualClock
    sizes: dict[int, Mapping[TopicPartition, int] | Reason] = field(default_factory=dict)
    requests: list[tuple[int, int]] = field(default_factory=list)
    """The broker, and how many partitions."""
    seconds: float = 0.0
    problem: str = ""
    fails: int | None = None
    """The broker whose request the client does not survive."""

    @contextlib.contextmanager
    def connect(self) -> Iterator[Brokers]:
        if self.problem:
            raise SourceError(Reason.OTHER, self.problem)
        yield self

    def log_sizes(self, wanted: Layout, broker: int) -> LogSizes:
        if broker == self.fails:
            raise SourceError(Reason.OTHER, "the process ended")
        self.requests.append((broker, len(wanted)))
        self.clock.time += self.seconds
        sizes = self.sizes.get(broker, dict.fromkeys(wanted, 100 + broker))
        if isinstance(sizes, Reason):
            return LogSizes.make_failed(len(wanted), sizes)
        there = np.array([key in sizes for key in wanted], dtype=np.bool_)
        log = Counts(np.array([sizes.get(key, 0) for key in wanted]), there)
        return LogSizes(log)


def poll(partitions: Mapping[TopicPartition, tuple[int, ...]], topic_id: str = "id-1") -> Snapshot:
    """A snapshot of partitions with these replicas, the first of which leads."""
    topics: dict[str, dict[int, Partition]] = {}
    for key, replicas in partitions.items():
        topics.setdefault(key.topic, {})[key.partition] = Partition(replicas[0], replicas, replicas)
    metadata = Metadata({}, {name: TopicInfo(topic_id) for name in topics}, membership=membership_of(topics))
    readings = {key: Reading(State.OBSERVED, replicas[0], 0, 5) for key, replicas in partitions.items()}
    return snapshot_of(readings, metadata=metadata, cluster="c", taken_at=0.0)


class Seen(Inspector):
    """An inspector that says what it inspects."""

    metadata: Metadata

    def accept(self, snapshot: Snapshot) -> None:
        super().accept(snapshot)
        self.metadata = snapshot.metadata


def polled(brokers: Brokers, partitions: Mapping[TopicPartition, tuple[int, ...]]) -> Seen:
    """An inspector after a poll of these, with the tables as the client."""
    seen = Seen("c", brokers.clock, interval=INTERVAL, client=brokers.connect)  # type: ignore[arg-type]
    seen.accept(poll(partitions))
    return seen


def of(seen: Seen, key: TopicPartition) -> Inspected:
    return sizes_of(seen.results(seen.metadata)).get(key, Inspected())


@pytest.fixture
def brokers() -> Brokers:
    return Brokers(ManualClock())


def test_sizes_of_the_leader_and_of_all_replicas_are_told_apart(brokers: Brokers) -> None:
    seen = polled(brokers, {A: (2, 1), B: (1, 3)})
    inspection = seen.inspect()
    assert (inspection.lookups, inspection.failures) == ({LOG_DIRS: 4}, {})
    assert of(seen, A) == Inspected(102, 102 + 101)
    assert of(seen, B) == Inspected(101, 101 + 103)


def test_a_broker_that_is_silent_costs_what_is_on_it(brokers: Brokers) -> None:
    brokers.sizes = {1: {A: 50}, 2: Reason.TIMED_OUT}
    seen = polled(brokers, {A: (1, 2), B: (2,)})
    inspection = seen.inspect()
    assert of(seen, A) == Inspected(50, None)
    assert of(seen, B) == Inspected()
    assert inspection.failures == {(LOG_DIRS, Reason.TIMED_OUT, 2): 2}


def test_a_topic_has_a_size_once_every_partition_has(brokers: Brokers) -> None:
    brokers.seconds = INTERVAL
    seen = polled(brokers, {A: (1,), B: (2,)})
    unknown: list[int | None] = [None, None]
    for expected in (unknown, [203, 203]):
        seen.inspect()
        assert seen.results(seen.metadata).find_sizes(A.topic, None) == expected
    brokers.clock.time += MAX_FAILED_ROUNDS * INTERVAL + 1
    assert of(seen, B) == Inspected(102, 102)
    assert seen.results(seen.metadata).find_sizes(A.topic, None) == unknown


def test_a_topic_made_again_inherits_nothing(brokers: Brokers) -> None:
    seen = polled(brokers, {A: (1,)})
    seen.inspect()
    assert of(seen, A) == Inspected(101, 101)
    seen.accept(poll({A: (1,)}, topic_id="id-2"))
    assert of(seen, A) == Inspected()


def test_what_nobody_asked_for_long_is_shown_no_more(brokers: Brokers) -> None:
    seen = polled(brokers, {A: (1,)})
    seen.inspect()
    brokers.problem = "kafka-python is not installed"
    brokers.clock.time += (MAX_FAILED_ROUNDS + 1) * INTERVAL
    assert seen.inspect().problem == "kafka-python is not installed"
    assert of(seen, A) == Inspected(101, 101)
    brokers.clock.time += 1
    assert of(seen, A) == Inspected()


def test_an_inspection_takes_one_interval_at_most_and_the_next_one_goes_on(brokers: Brokers) -> None:
    brokers.seconds = INTERVAL / 2
    seen = polled(brokers, {TopicPartition("orders", number): (number,) for number in (1, 2, 3)})
    seen.inspect()
    seen.inspect()
    assert [broker for broker, _ in brokers.requests] == [1, 2, 3, 1]


def test_what_was_moved_has_no_size_until_it_is_asked_where_it_is_now(brokers: Brokers) -> None:
    """The next inspection asks by the poll before it; a failure counts at the broker that was asked."""
    brokers.sizes = {1: {A: 101}, 2: {B: 102}}
    seen = polled(brokers, {A: (1,), B: (1,)})
    assert seen.inspect().failures == {(LOG_DIRS, Reason.MISSING_ANSWER, 1): 1}
    assert (of(seen, A).disk_bytes, of(seen, B).disk_bytes) == (101, None)
    seen.accept(poll({A: (1,), B: (2,)}))
    assert seen.inspect().failures == {}
    assert (of(seen, A).disk_bytes, of(seen, B).disk_bytes) == (101, 102)

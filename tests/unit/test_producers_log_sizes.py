"""Inspections: what is asked of whom, what is remembered, what a failure costs."""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pytest

from exporter.collectors.producers_log_sizes import MAX_FAILED_INSPECTIONS, Inspector
from exporter.domain.arrays import Counts
from exporter.domain.polls.answers import reason_code
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.log_sizes import LogSizes
from exporter.domain.polls.metadata import Membership, PartitionInfo, TopicInfo
from exporter.domain.polls.producer_answers import FoundProducers, ProducerAnswers
from exporter.domain.polls.readings import Activity, Inspected, Producers, Reading, Reason, State, TopicPartition
from exporter.domain.polls.table import Snapshot
from exporter.kafka.kafka_python_answers import LOG_DIRS, PARTITIONS_PER_CALL, PRODUCERS, KafkaPythonError
from exporter.state.cluster import Rhythm
from exporter.state.monitor import Monitor
from exporter.state.monitor_settings import MonitorSettings
from tests.snapshots import snapshot_of
from tests.unit.readings import ManualClock

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
INTERVAL = 300.0
WRITTEN = 999_000.0


class Producer(NamedTuple):
    """A producer that a leader remembers."""

    id: int
    last_write: float | None
    open_from: int | None


def answers_of(found: Sequence[list[Producer] | Reason]) -> ProducerAnswers:
    """The answer of a leader, from objects."""
    reasons = [each if isinstance(each, Reason) else None for each in found]
    rows = [(row, one) for row, each in enumerate(found) if not isinstance(each, Reason) for one in each]
    return ProducerAnswers(
        np.array([reason_code(reason) for reason in reasons], dtype=np.int8),
        FoundProducers(
            np.array([row for row, _ in rows], dtype=np.intp),
            np.array([one.id for _, one in rows], dtype=np.int64),
            np.array([one.last_write for _, one in rows], dtype=np.float64),
            np.array([-1 if one.open_from is None else one.open_from for _, one in rows], dtype=np.int64),
        ),
    )


@dataclass
class Brokers:
    """Answers for the client from tables, and notes who was asked; every request takes ``seconds``."""

    clock: ManualClock
    found: dict[TopicPartition, list[Producer] | Reason] = field(default_factory=dict)
    sizes: dict[int, Mapping[TopicPartition, int] | Reason] = field(default_factory=dict)
    moving: dict[TopicPartition, int] = field(default_factory=dict)
    replicas: dict[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    """Where partitions are now, the first broker leads."""
    requests: list[tuple[str, int, int]] = field(default_factory=list)
    """What, the broker, and how many partitions."""
    asked: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    problem: str = ""
    fails: tuple[str, int] | None = None
    """The request that the client does not survive."""

    @contextlib.contextmanager
    def connect(self) -> Iterator[Brokers]:
        if self.problem:
            raise KafkaPythonError(self.problem)
        self.asked = Counter()
        yield self

    def counts(self) -> Mapping[str, int]:
        return self.asked

    def left_out(self) -> tuple[str, ...]:
        return ()

    def partitions(self, wanted: Layout) -> Membership:
        topics: dict[str, dict[int, PartitionInfo]] = {}
        for key in wanted:
            if now := self.replicas.get(key):
                topics.setdefault(key.topic, {})[key.partition] = PartitionInfo(now[0], now, now)
        return Membership.of(topics)

    def producers(self, wanted: Layout, broker: int) -> ProducerAnswers:
        self._note(PRODUCERS, broker, len(wanted))
        return answers_of([self.found.get(key, [Producer(1, WRITTEN, None)]) for key in wanted])

    def log_sizes(self, wanted: Layout, broker: int) -> LogSizes | Reason:
        self._note(LOG_DIRS, broker, len(wanted))
        sizes = self.sizes.get(broker, dict.fromkeys(wanted, 100 + broker))
        if isinstance(sizes, Reason):
            return sizes
        there = np.array([key in sizes for key in wanted], dtype=np.bool_)
        log = Counts(np.array([sizes.get(key, 0) for key in wanted]), there)
        return LogSizes(log, np.array([self.moving.get(key, 0) for key in wanted]))

    def _note(self, what: str, broker: int, partitions: int) -> None:
        if (what, broker) == self.fails:
            raise KafkaPythonError("the process ended")
        self.requests.append((what, broker, partitions))
        self.asked[what] += partitions
        self.clock.time += self.seconds


def poll(partitions: Mapping[TopicPartition, tuple[int, ...]], topic_id: str = "id-1") -> Snapshot:
    """A snapshot of partitions with these replicas, the first of which leads."""
    topics: dict[str, dict[int, PartitionInfo]] = {}
    for key, replicas in partitions.items():
        topics.setdefault(key.topic, {})[key.partition] = PartitionInfo(replicas[0], replicas, replicas)
    infos = {name: TopicInfo(topic_id, infos) for name, infos in topics.items()}
    readings = {key: Reading(State.OBSERVED, Activity(), replicas[0], 0, 5) for key, replicas in partitions.items()}
    return snapshot_of(readings, infos, cluster="c", taken_at=0.0)


def inspector(brokers: Brokers, *, producers: bool = True, log_sizes: bool = True) -> Inspector:
    """Inspect, with the tables as the client."""
    return Inspector(
        "c",
        brokers.clock,
        interval=INTERVAL,
        producers=producers,
        log_sizes=log_sizes,
        client=brokers.connect,  # type: ignore[arg-type]
    )


def of(seen: Inspector, key: TopicPartition, topic_id: str) -> Inspected:
    """What it tells of a partition, whose topic has this id."""
    return seen.results(poll({key: (1,)}, topic_id).metadata).get(key, Inspected())


@pytest.fixture
def brokers() -> Brokers:
    """The cluster."""
    return Brokers(ManualClock())


def test_sizes_of_the_leader_and_of_all_replicas_are_told_apart(brokers: Brokers) -> None:
    """One copy is the leader's; on disk are all, with what is on its way to another disk of a broker."""
    brokers.moving = {A: 30}
    seen = inspector(brokers, producers=False)
    seen.accept(poll({A: (2, 1), B: (1, 3)}))
    inspection = seen.inspect()
    assert (dict(inspection.lookups), dict(inspection.failures)) == ({LOG_DIRS: 4}, {})
    assert of(seen, A, "id-1") == Inspected(None, 102, 102 + 101 + 2 * 30)
    assert of(seen, B, "id-1") == Inspected(None, 101, 101 + 103)


def test_a_broker_that_is_silent_costs_what_is_on_it(brokers: Brokers) -> None:
    """Sums that it has a part in are unknown, what its neighbours lead is exact, and the reason is counted for each."""
    brokers.sizes = {1: {A: 50}, 2: Reason.TIMED_OUT}
    brokers.found = {B: Reason.TIMED_OUT}
    seen = inspector(brokers)
    seen.accept(poll({A: (1, 2), B: (2,)}))
    inspection = seen.inspect()
    assert of(seen, A, "id-1") == Inspected(Producers(frozenset({1}), WRITTEN), 50, None)
    assert of(seen, B, "id-1") == Inspected()
    assert inspection.failures == {(LOG_DIRS, Reason.TIMED_OUT, 2): 2, (PRODUCERS, Reason.TIMED_OUT, 2): 1}


@pytest.mark.parametrize(("producers", "log_sizes"), [(False, True), (True, False), (True, True)])
def test_brokers_that_were_silent_are_asked_after_all_others(
    brokers: Brokers, producers: bool, log_sizes: bool
) -> None:
    """Each costs a whole time limit: with 30 of them in front no time would be left for the others.

    Not all are asked in one inspection: those that were not stay silent, and the others are asked first each time.
    """
    silent = range(1, 31)
    brokers.seconds = 20.0
    brokers.sizes = dict.fromkeys(silent, Reason.TIMED_OUT)
    brokers.found = {TopicPartition("orders", number): Reason.TIMED_OUT for number in silent}
    seen = inspector(brokers, producers=producers, log_sizes=log_sizes)
    seen.accept(poll({TopicPartition("orders", number): (number,) for number in range(1, 33)}))
    for _ in range(3):
        seen.inspect()
    kinds = [kind for kind, wanted in ((LOG_DIRS, log_sizes), (PRODUCERS, producers)) if wanted]
    for _ in range(4):
        brokers.requests.clear()
        seen.inspect()
        first = [(kind, broker) for kind, broker, _ in brokers.requests][: 2 * len(kinds)]
        assert sorted(first) == sorted((kind, broker) for kind in kinds for broker in (31, 32))


def test_a_disk_that_is_offline_is_no_size_of_zero(brokers: Brokers) -> None:
    """A replica that its broker does not list has no size, and is counted."""
    brokers.sizes = {1: {A: 50}}
    seen = inspector(brokers, producers=False)
    seen.accept(poll({A: (1,), B: (1,)}))
    inspection = seen.inspect()
    assert (of(seen, A, "id-1").log_bytes, of(seen, B, "id-1")) == (50, Inspected())
    assert inspection.failures == {(LOG_DIRS, Reason.MISSING_ANSWER, 1): 1}


def test_a_leader_that_cannot_be_asked_is_not_asked_again_in_that_inspection(brokers: Brokers) -> None:
    """A broker that is too old, or silent, gets one request; its other partitions have the same reason."""
    keys = [TopicPartition("wide", number) for number in range(2 * PARTITIONS_PER_CALL + 1)]
    brokers.found = dict.fromkeys(keys, Reason.UNSUPPORTED_VERSION)
    seen = inspector(brokers, log_sizes=False)
    seen.accept(poll(dict.fromkeys(keys, (1,)) | {A: (2,)}))
    inspection = seen.inspect()
    assert sorted(brokers.requests) == [(PRODUCERS, 1, PARTITIONS_PER_CALL), (PRODUCERS, 2, 1)]
    assert inspection.failures == {(PRODUCERS, Reason.UNSUPPORTED_VERSION, 1): len(keys)}
    assert of(seen, A, "id-1") == Inspected(Producers(frozenset({1}), WRITTEN))


def test_brokers_take_turns(brokers: Brokers) -> None:
    """So that each is asked at its own pace, and none is waited for twice in a row."""
    keys = [TopicPartition("wide", number) for number in range(4 * PARTITIONS_PER_CALL)]
    seen = inspector(brokers, log_sizes=False)
    seen.accept(poll({key: (1 + key.partition % 2,) for key in keys}))
    seen.inspect()
    assert brokers.requests == [(PRODUCERS, 1, 100), (PRODUCERS, 2, 100)] * 2


def test_the_first_sight_of_a_transaction_outlives_failures_and_clocks_that_were_set(brokers: Brokers) -> None:
    """It is kept over a failed inspection and over a clock that was set; another transaction begins anew."""
    seen = inspector(brokers, log_sizes=False)

    def since() -> float | None:
        seen.inspect()
        found = of(seen, A, "id-1")
        return None if found.producers is None else found.producers.open_since

    seen.accept(poll({A: (1,)}))
    start = brokers.clock.now()
    brokers.found[A] = [Producer(7, WRITTEN, 5), Producer(8, WRITTEN, None)]
    assert since() == start
    brokers.clock.time += 100
    brokers.found[A] = Reason.NOT_LEADER
    assert since() is None
    brokers.clock.time += 100
    brokers.clock.set_by = 3600.0
    brokers.found[A] = [Producer(7, WRITTEN, 5), Producer(9, WRITTEN, 6)]
    assert since() == start + 3600  # as old as it was
    brokers.found[A] = [Producer(7, WRITTEN, 9)]
    assert since() == brokers.clock.now()


def test_a_topic_made_again_inherits_nothing(brokers: Brokers) -> None:
    """Under another topic id neither sizes nor producers of the old one are shown."""
    seen = inspector(brokers)
    seen.accept(poll({A: (1,)}))
    seen.inspect()
    assert of(seen, A, "id-2") == Inspected()
    seen.accept(poll({A: (1,)}, topic_id="id-2"))
    assert of(seen, A, "id-2") == Inspected()


def test_what_nobody_asked_for_long_is_shown_no_more(brokers: Brokers) -> None:
    """Where inspections fail altogether, what was found goes after four intervals, not before."""
    seen = inspector(brokers)
    seen.accept(poll({A: (1,)}))
    seen.inspect()
    brokers.problem = "kafka-python is not installed"
    brokers.clock.time += (MAX_FAILED_INSPECTIONS + 1) * INTERVAL
    assert seen.inspect().problem == "kafka-python is not installed"
    assert of(seen, A, "id-1") == Inspected(Producers(frozenset({1}), WRITTEN), 101, 101)
    brokers.clock.time += 1
    assert of(seen, A, "id-1") == Inspected()


def test_an_inspection_takes_one_interval_at_most_and_the_next_one_goes_on(brokers: Brokers) -> None:
    """Slow answers cut it short; those that were left out come first in the next one."""
    brokers.seconds = INTERVAL / 2
    seen = inspector(brokers)
    seen.accept(poll({A: (1,), B: (2,)}))
    seen.inspect()
    assert [what for what, _, _ in brokers.requests] == [LOG_DIRS, LOG_DIRS]
    brokers.seconds = INTERVAL
    seen = inspector(brokers, log_sizes=False)
    seen.accept(poll({A: (1,), B: (1,), **{TopicPartition("wide", number): (1,) for number in range(99)}}))
    seen.inspect()
    assert seen.inspect().lookups == {PRODUCERS: 100}
    assert all(of(seen, key, "id-1") != Inspected() for key in (A, B, TopicPartition("wide", 98)))


def test_what_is_missing_is_logged_once_and_counted_always(brokers: Brokers, caplog: pytest.LogCaptureFixture) -> None:
    """One line names the brokers, the reason and the next step; that it is over is said too."""
    monitor = Monitor(
        MonitorSettings({"c": Rhythm(30.0)}, partition_switches=(), expectations_max_age_seconds=1.0),
        brokers.clock,
        version="0",
    )
    seen = inspector(brokers)
    seen.accept(poll({A: (1,), B: (2,)}))
    brokers.found = {A: Reason.UNSUPPORTED_VERSION, B: Reason.UNAUTHORIZED}
    caplog.set_level(logging.INFO)
    for _ in range(3):
        monitor.take_inspection(seen.inspect())
    (line,) = caplog.messages
    assert line == (
        "cluster c: not answered: producers unauthorized at broker 2 (next step: grant READ on topics, or set "
        "inspection.producers: false); producers unsupported-version at broker 1 (brokers answer from 2.8 on, KIP-664)"
    )
    counted = 'inspection_failures_total{kafka_cluster="c",reason="unsupported-version",spec="producers"} 3.0'
    assert counted in monitor.metrics().decode()
    brokers.found.clear()
    monitor.take_inspection(seen.inspect())
    assert caplog.messages[1].startswith("cluster c: resolved: not answered")


def test_what_was_moved_is_asked_where_it_is_now_and_a_failure_counts_there(brokers: Brokers) -> None:
    """One broker more is asked, of these partitions alone; one that was silent is asked once, after all others."""
    brokers.sizes = {1: {A: 101}, 2: {B: 102}, 3: Reason.TIMED_OUT}
    brokers.replicas = {B: (2, 3)}
    seen = inspector(brokers, producers=False)
    seen.accept(poll({A: (1,), B: (1,)}))
    inspection = seen.inspect()
    assert brokers.requests == [(LOG_DIRS, 1, 2), (LOG_DIRS, 2, 1), (LOG_DIRS, 3, 1)]
    assert inspection.failures == {(LOG_DIRS, Reason.TIMED_OUT, 3): 1}
    assert (of(seen, A, "id-1").disk_bytes, of(seen, B, "id-1").log_bytes, of(seen, B, "id-1").disk_bytes) == (
        101,
        102,
        None,
    )
    brokers.requests, brokers.sizes, brokers.replicas = [], {1: {}, 3: Reason.TIMED_OUT}, {A: (3,)}
    seen.accept(poll({A: (1,), B: (3,)}))
    assert seen.inspect().failures == {(LOG_DIRS, Reason.TIMED_OUT, 3): 2}
    assert brokers.requests == [(LOG_DIRS, 1, 1), (LOG_DIRS, 3, 2)]


def test_a_leader_that_refuses_a_partition_is_no_failure_where_another_one_answers(brokers: Brokers) -> None:
    """What nobody leads now, or leads as before, stays refused."""
    brokers.found = {A: Reason.NOT_LEADER, B: Reason.NOT_LEADER}
    seen = inspector(brokers, log_sizes=False)
    seen.accept(poll({A: (1,), B: (1,)}))
    brokers.replicas = {A: (1,)}
    assert seen.inspect().failures == {(PRODUCERS, Reason.NOT_LEADER, 1): 2}
    brokers.replicas = {A: (2,)}
    assert seen.inspect().failures == {
        (PRODUCERS, Reason.NOT_LEADER, 1): 1,
        (PRODUCERS, Reason.NOT_LEADER, 2): 1,
    }
    assert brokers.requests == [(PRODUCERS, 1, 2), (PRODUCERS, 1, 2), (PRODUCERS, 2, 1)]


def test_results_stay_with_their_partitions_where_others_come_and_go(brokers: Brokers) -> None:
    """Also the first sight of a transaction, if the next inspection finds the same one."""
    seen, start = inspector(brokers), brokers.clock.now()
    brokers.found[B] = [Producer(7, WRITTEN, 5)]
    seen.accept(poll({TopicPartition("gone", 0): (1,), B: (2,)}))
    seen.inspect()
    brokers.clock.time += 100
    known = Inspected(Producers(frozenset({7}), WRITTEN, frozenset({7}), start), 102, 102)
    seen.accept(poll({TopicPartition("bills", 0): (1,), A: (1,), B: (2,)}))
    brokers.problem = "kafka-python is not installed"
    seen.inspect()
    assert (of(seen, A, "id-1"), of(seen, B, "id-1")) == (Inspected(), known)
    brokers.problem = ""
    seen.inspect()
    assert (of(seen, A, "id-1").disk_bytes, of(seen, B, "id-1")) == (101, known)


def test_a_transaction_of_a_topic_made_again_is_another(brokers: Brokers) -> None:
    """Even with the same producer and offset."""
    seen = inspector(brokers, log_sizes=False)
    brokers.found[A] = [Producer(7, WRITTEN, 5)]
    for topic_id in ("id-1", "id-2"):
        seen.accept(poll({A: (1,)}, topic_id))
        seen.inspect()
        found = of(seen, A, topic_id).producers
        assert found is not None and found.open_since == brokers.clock.now()
        brokers.clock.time += 100


def test_what_was_found_stays_where_the_client_fails_meanwhile(brokers: Brokers) -> None:
    """Producers that were answered before are kept."""
    seen = inspector(brokers)
    brokers.fails = (PRODUCERS, 2)
    seen.accept(poll({A: (1,), B: (2,)}))
    assert seen.inspect().problem == "the process ended"
    assert of(seen, A, "id-1") == Inspected(Producers(frozenset({1}), WRITTEN), 101, 101)
    assert of(seen, B, "id-1") == Inspected(None, 102, 102)


def test_sizes_stay_where_the_client_fails_at_another_broker(brokers: Brokers) -> None:
    """They are those of partitions without a replica there; the next inspection reads the others."""
    seen = inspector(brokers, producers=False)
    brokers.fails = (LOG_DIRS, 2)
    seen.accept(poll({A: (1,), B: (1, 2)}))
    assert seen.inspect().problem == "the process ended"
    assert (of(seen, A, "id-1"), of(seen, B, "id-1")) == (Inspected(None, 101, 101), Inspected())
    brokers.clock.time += 100
    brokers.fails = None
    assert not seen.inspect().problem
    assert of(seen, B, "id-1") == Inspected(None, 101, 203)

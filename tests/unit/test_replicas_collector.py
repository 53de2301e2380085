"""Two polled clusters compared: what is looked up, what is remembered, and what one cluster's fate does to others."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exporter.collectors.poller import Poller
from exporter.collectors.replicas import ReplicaWatch
from exporter.domain.arrays import Offsets, Rows
from exporter.domain.polls.answers import Answers
from exporter.domain.polls.metadata import Membership, TopicConfig
from exporter.domain.polls.readings import Answer, Reason, State, TopicPartition
from exporter.domain.polls.table import Snapshot
from exporter.domain.ports import SourceError
from exporter.domain.replicas.comparison import Comparison, NotCompared, Replica, ReplicaReading, ReplicaState
from exporter.domain.replicas.matching import Naming
from exporter.factory.clusters import make_replica_watches
from exporter.factory.monitor import make_monitor
from exporter.history.published import Expectations
from exporter.metrics.replicas import Replicas, ReplicaSeries
from exporter.service.serving import Service
from exporter.settings.schema import Settings
from exporter.state.cluster import Rhythm
from exporter.state.monitor import Monitor
from exporter.state.monitor_settings import MonitorSettings
from tests.demo.broker import free_port
from tests.times import answered
from tests.unit.readings import Collected, ManualClock, TableSource, replica_table
from tests.views import readings_of

ORDERS = TopicPartition("orders", 0)
COPY = TopicPartition("east.orders", 0)
REPLICA = Replica("orders", "east.orders", 0)
T0 = 1_000_000.0


class Log:
    """The source's records as offsets-for-times sees them: a time each, from offset 0 on."""

    def __init__(self, times: Sequence[float]) -> None:
        self.times = list(times)
        self.requests: list[float] = []
        self.failing: Reason | None = None
        self.refusing = ""
        self.connected = self.open = 0
        self.while_connecting: Callable[[], None] = lambda: None

    def connect(self) -> AbstractContextManager[Log]:
        if self.refusing:
            raise ValueError(self.refusing)
        self.connected += 1
        self.while_connecting()
        return self._connection()

    @contextmanager
    def _connection(self) -> Iterator[Log]:
        self.open += 1
        yield self
        self.open -= 1

    def by_time(self, membership: Membership, rows: Rows, milliseconds: Offsets) -> Answers:
        self.requests += (milliseconds / 1000).tolist()
        return answered(membership, rows, milliseconds, lambda _, time: self._first(time))

    def _first(self, time: float) -> Answer:
        if self.failing is not None:
            return Answer(reason=self.failing)
        found = (Answer(at, one) for at, one in enumerate(self.times) if round(one * 1000) >= round(time * 1000))
        return next(found, Answer())


class Pair:
    """Clusters east and west with one topic and its copy, polled when the test says."""

    def __init__(self, times: Sequence[float], copied: int, *, stopped_after: float = 300) -> None:
        self.clock = ManualClock(T0)
        self.log = Log(times)
        self.copied = copied
        self.east, self.west = TableSource(), TableSource()
        self.watch = ReplicaWatch(
            "east",
            "west",
            Naming.of("(.*)", r"east.\1", [".*"], []),
            self.clock,
            times=self.log.connect,
            behind_after=60,
            stopped_after=stopped_after,
        )
        self.seen = Collected()
        self.pollers = {
            name: Poller(name, source, [self.watch, self.seen], self.clock)
            for name, source in (("east", self.east), ("west", self.west))
        }

    def poll(self, *names: str, after: float = 10) -> None:
        """Let time pass and poll clusters, each a second after the other."""
        self.clock.time += after
        for name in names or ("east", "west"):
            times = self.log.times if name == "east" else self.log.times[: self.copied]
            source, key = (self.east, ORDERS) if name == "east" else (self.west, COPY)
            source.offsets[key] = (0, len(times), max(times, default=None))
            self.pollers[name].poll()
            self.clock.time += 1

    def compare(self) -> Comparison:
        found = self.watch.compare()
        assert found is not None
        return found

    def reading(self) -> ReplicaReading:
        self.poll()
        return self.compare().readings[REPLICA]


def test_a_replica_is_held_against_what_its_source_had_before() -> None:
    """What came to the source after the replica was polled is not called missing."""
    pair = Pair([T0 - 9, T0 - 8, T0 - 7], copied=3)
    pair.poll("east", "west")
    pair.log.times += [T0 + 12, T0 + 13, T0 + 14]
    pair.poll("east", after=0)
    assert pair.compare().readings[REPLICA] == ReplicaReading(ReplicaState.IN_STEP, 0.0, 0)


def test_without_an_earlier_poll_of_the_source_nothing_is_compared() -> None:
    """The first poll of the target came before any of the source: there is no comparison yet."""
    pair = Pair([T0 - 9], copied=1)
    pair.poll("west", "east")
    assert pair.watch.compare() is None
    pair.poll("west")
    assert pair.compare().at == pair.seen.snapshots[-1].taken_at


def test_a_poll_is_compared_once() -> None:
    """Where no poll found anything new there is no comparison, and nobody is asked."""
    pair = Pair([T0 - 9], copied=1)
    pair.reading()
    requests = len(pair.log.requests)
    assert pair.watch.compare() is None
    assert len(pair.log.requests) == requests


def test_what_rests_is_not_asked_for_again() -> None:
    """One look-up where the replica is as new as its source, two where it lags, none while neither moves."""
    pair = Pair([T0 - 9 + number for number in range(5)], copied=5)
    pair.poll()
    assert [pair.compare().lookups, len(pair.log.requests)] == [1, 1]
    pair.poll()
    assert pair.compare().lookups == 0
    pair.log.times += [T0 + 15, T0 + 16, T0 + 17]
    pair.poll()
    assert pair.compare().lookups == 2
    pair.poll()
    lagging = pair.compare()
    assert (lagging.lookups, lagging.readings[REPLICA].at_least) == (0, 3)
    assert pair.log.connected == 1


def test_a_connection_is_made_anew_at_times() -> None:
    """So that a changed password is taken up."""
    pair = Pair([T0 - 9], copied=1)
    pair.reading()
    pair.log.times.append(T0 + 15)
    pair.copied = 2
    pair.clock.time += 601
    pair.reading()
    assert pair.log.connected == 2


def test_a_watch_that_is_closed_while_it_connects_leaves_no_connection() -> None:
    """As where the exporter ends in the middle of a comparison."""
    pair = Pair([T0 - 9], copied=1)
    pair.log.while_connecting = pair.watch.close
    pair.poll()
    with pytest.raises(SourceError, match="it is compared no more"):
        pair.watch.compare()
    assert (pair.log.connected, pair.log.open) == (1, 0)


def test_a_replica_falls_behind_stops_and_comes_back() -> None:
    """Behind once the oldest missing record is a minute old, stopped after five, in step with the last record."""
    pair = Pair([T0 - 9, T0 - 8], copied=2)
    assert pair.reading().state is ReplicaState.IN_STEP
    pair.log.times += [T0 + 20, T0 + 21, T0 + 22]
    late = pair.reading()
    assert (late.state, late.at_least) == (ReplicaState.IN_STEP, 3)
    pair.clock.time += 60
    behind = pair.reading()
    assert behind.state is ReplicaState.BEHIND
    assert behind.lag_seconds == pair.seen.snapshots[-1].taken_at - (T0 + 20)
    pair.clock.time += 300
    assert pair.reading().state is ReplicaState.STOPPED
    pair.copied = 4
    # One last record may be a marker: it is not called missing.
    assert pair.reading() == ReplicaReading(ReplicaState.IN_STEP, 0.0, 0)
    pair.copied = 5
    assert pair.reading() == ReplicaReading(ReplicaState.IN_STEP, 0.0, 0)


def test_a_look_up_that_failed_is_made_again() -> None:
    """It costs that number only, says why, and counts."""
    pair = Pair([T0 - 9], copied=1)
    pair.log.failing = Reason.TIMED_OUT
    pair.poll()
    failed = pair.compare()
    assert failed.readings[REPLICA] == ReplicaReading(ReplicaState.UNKNOWN, reason=NotCompared.LOOKUP_FAILED)
    assert failed.failures == {Reason.TIMED_OUT: 1}
    pair.log.failing = None
    assert pair.reading().state is ReplicaState.IN_STEP


def test_a_source_that_can_no_longer_be_connected_to_is_an_error_that_says_why() -> None:
    """A secret file is gone, say: nothing is compared, and when it is back what was not looked up is."""
    pair = Pair([T0 - 9], copied=1)
    pair.log.refusing = "sasl.password: no such file"
    pair.poll()
    with pytest.raises(SourceError, match="no such file"):
        pair.watch.compare()
    pair.log.refusing = ""
    assert pair.reading().state is ReplicaState.IN_STEP


def test_what_a_replica_lost_again_is_not_missing() -> None:
    """Its newest record is gone by retention, an older one that came later is there: the copy lacks nothing."""
    pair = Pair([T0 - 9, T0 - 5, T0 - 8], copied=3)
    assert pair.reading().at_least == 0
    pair.poll("east")
    pair.west.offsets[COPY] = (2, 3, T0 - 8)
    pair.clock.time += 10
    pair.pollers["west"].poll()
    found = pair.compare().readings[REPLICA]
    assert (found.state, found.at_least) == (ReplicaState.IN_STEP, 0)


def test_a_topic_made_again_is_a_new_one() -> None:
    """What was remembered of the topic before it says nothing of the one that bears its name now."""
    pair = Pair([T0 - 9, T0 - 8], copied=2, stopped_after=30)
    pair.reading()
    pair.log.times += [T0 + 20, T0 + 21]
    pair.reading()
    pair.clock.time += 40
    assert pair.reading().state is ReplicaState.STOPPED
    pair.west.topic_ids["east.orders"] = "id-2"
    assert pair.reading().state is ReplicaState.BEHIND


def test_a_partition_that_is_gone_leaves_with_the_next_comparison() -> None:
    """A deleted replica has no reading, and its source topic is reported to have none."""
    pair = Pair([T0 - 9], copied=1)
    pair.reading()
    pair.poll("east")
    del pair.west.offsets[COPY]
    pair.pollers["west"].poll()
    gone = pair.compare()
    assert (dict(gone.readings), gone.matching.without_replica) == ({}, ["orders"])
    assert "no topic of east has its replica in west" in gone.faults[0].what


def test_a_replica_stamped_by_its_brokers_is_judged_by_its_offsets_alone() -> None:
    """Unknown while it moves, with a note; stopped, still without a number, once its source goes on without it."""
    pair = Pair([T0 - 9, T0 - 8], copied=2, stopped_after=30)
    described = pair.west.described
    stamped = TopicConfig("LogAppendTime", "delete", 1e6, remote_storage=False)
    pair.west.described = lambda: replace(  # type: ignore[method-assign]
        described(), topics={name: replace(info, config=stamped) for name, info in described().topics.items()}
    )
    pair.poll()
    found = pair.compare()
    assert found.readings[REPLICA] == ReplicaReading(ReplicaState.UNKNOWN, reason=NotCompared.LOG_APPEND_TIME)
    assert not found.faults[0].matters
    pair.reading()
    pair.log.times += [T0 + 30, T0 + 31]
    pair.reading()
    pair.clock.time += 40
    assert pair.reading() == ReplicaReading(ReplicaState.STOPPED, reason=NotCompared.LOG_APPEND_TIME)


def settings(tmp_path: Path, *pairs: Mapping[str, object]) -> Settings:
    """Two clusters and these pairs of them."""
    clusters = [{"name": name, "kafka": {"bootstrap.servers": "127.0.0.1:1"}} for name in ("east", "west")]
    return Settings.model_validate({"clusters": clusters, "replicas": pairs, "history": {"folder": tmp_path / "none"}})


def test_each_configured_pair_is_compared_by_its_own_names(tmp_path: Path) -> None:
    """Settings become names; heartbeats that were copied on are no replicas either."""
    both = settings(
        tmp_path,
        {"source": "east", "target": "west", "alias": "e", "separator": "_"},
        {"source": "west", "target": "east", "policy": "regex", "pattern": "e_(.*)", "replacement": r"back-\1"},
    )
    there, back = make_replica_watches(both, ManualClock())
    assert (there.source, there.target, back.source, back.target) == ("east", "west", "west", "east")
    clock = ManualClock()
    source = TableSource(
        {TopicPartition(topic, 0): (0, 1, T0) for topic in ("orders", "west_heartbeats", "e_heartbeats")}
    )
    Poller("east", source, [there], clock).poll()
    assert there.mapped == {"e_orders", "e_west_heartbeats"}
    source = TableSource({TopicPartition(topic, 0): (0, 1, T0) for topic in ("e_orders", "e_heartbeats", "mine")})
    Poller("west", source, [back], clock).poll()
    assert back.mapped == {"back-orders"}


class Watched:
    """A monitor of two clusters that are polled by hand."""

    def __init__(self) -> None:
        self.clock = ManualClock(T0)
        rhythm = Rhythm(30.0, 3)
        self.monitor = Monitor(
            MonitorSettings({"east": rhythm, "west": rhythm}, partition_switches=(), expectations_max_age_seconds=1.0),
            self.clock,
            version="1",
        )
        self.pollers = {
            name: Poller(name, TableSource({key: (0, 5, T0)}), [self.monitor], self.clock)
            for name, key in (("east", ORDERS), ("west", COPY))
        }

    def poll(self, *names: str) -> None:
        for name in names:
            assert isinstance(self.pollers[name].poll(), Snapshot)


def compared(state: ReplicaState = ReplicaState.BEHIND) -> Comparison:
    """A comparison of one partition."""
    matching = Naming.of("(.*)", r"east.\1", [".*"], []).match({"orders"}, {"east.orders"})
    return Comparison("east", "west", T0, matching, replica_table({REPLICA: ReplicaReading(state, 90.0, 3)}), lookups=2)


PLACE = 'source_cluster="east",source_topic="orders",target_cluster="west",target_topic="east.orders",partition="0"'


def test_a_comparison_is_shown() -> None:
    """Lag and the state of each partition, and counts for the pair."""
    watched = Watched()
    watched.poll("east", "west")
    watched.monitor.take_comparison(compared())
    shown = watched.monitor.metrics().decode()
    for line in (
        f"kafka_replica_lag_seconds{{{PLACE}}} 90.0",
        f"kafka_replica_lag_records_lower_bound{{{PLACE}}} 3",
        f'kafka_replica_state{{{PLACE},state="behind",reason=""}} 1',
        'topic_liveness_replica_partitions{reason="",source_cluster="east",state="behind",target_cluster="west"} 1.0',
        'topic_liveness_lookups_total{kafka_cluster="east",spec="by-time"} 2.0',
    ):
        assert line in shown


def test_pairs_that_are_compared_at_the_same_time_are_both_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """One is rendered while another one is taken."""
    replicas, seen = Replicas(), list[str]()
    render = ReplicaSeries.__init__

    def render_beside(series: ReplicaSeries, comparison: Comparison, lines: Any) -> None:
        render(series, comparison, lines)
        if comparison.source == "east" and not seen:
            seen.append(comparison.source)
            replicas.take(replace(compared(), source="north"))

    monkeypatch.setattr(ReplicaSeries, "__init__", render_beside)
    replicas.take(compared())
    assert set(replicas.shown(lambda _: True)) == {("east", "west"), ("north", "west")}


@pytest.mark.parametrize(
    ("state", "failures", "counted"),
    [
        (ReplicaState.BEHIND, {}, 1.0),
        (ReplicaState.BEHIND, {Reason.TIMED_OUT: 3}, 1.0),
        (ReplicaState.UNKNOWN, {}, 1.0),
        (ReplicaState.UNKNOWN, {Reason.TIMED_OUT: 3}, 0.0),
    ],
)
def test_a_comparison_that_knows_nothing_for_failed_look_ups_is_not_counted(
    state: ReplicaState, failures: dict[Reason, int], counted: float
) -> None:
    """So the alert about replicas that are not compared sees it. Replicas can be unknown for good in other ways."""
    watched = Watched()
    watched.poll("east", "west")
    watched.monitor.take_comparison(replace(compared(state), failures=failures))
    shown = watched.monitor.metrics().decode()
    place = 'source_cluster="east",target_cluster="west"'
    assert f"topic_liveness_replica_comparisons_total{{{place}}} {counted}" in shown


@pytest.mark.parametrize(("polled", "reason"), [("west", "source-unreadable"), ("east", "replica-unreadable")])
def test_while_one_cluster_is_not_read_nothing_is_known_of_its_replicas(polled: str, reason: str) -> None:
    """The state is unknown, with the side that is missing, and no number is shown; with both read it is back."""
    watched = Watched()
    watched.poll("east", "west")
    watched.monitor.take_comparison(compared())
    watched.clock.time += 150
    watched.poll(polled)
    shown = watched.monitor.metrics().decode()
    assert f'kafka_replica_state{{{PLACE},state="unknown",reason="{reason}"}} 1' in shown
    assert "kafka_replica_lag" not in shown
    comparison = watched.monitor.take_comparison(compared(ReplicaState.STOPPED))
    assert set(comparison.readings.values()) == {ReplicaReading(ReplicaState.UNKNOWN, reason=NotCompared(reason))}
    assert f'kafka_replica_state{{{PLACE},state="unknown",reason="{reason}"}} 1' in watched.monitor.metrics().decode()
    watched.clock.time += 2
    watched.poll("east", "west")
    assert f"kafka_replica_lag_seconds{{{PLACE}}} 90.0" in watched.monitor.metrics().decode()


def test_a_fault_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    """A mapping that matches nothing is logged when it is found, not at each comparison, and counted."""
    caplog.set_level(logging.WARNING)
    pair = Pair([T0 - 9], copied=1)
    pair.west.offsets[TopicPartition("other", 0)] = (0, 1, T0)
    watched = Watched()
    for _ in range(2):
        pair.poll("east")
        pair.west.offsets.pop(COPY, None)
        pair.pollers["west"].poll()
        watched.monitor.take_comparison(pair.compare())
    [line] = [line for line in caplog.messages if "replica" in line]
    assert line.startswith("cluster west: replicas: no topic of east has its replica in west: 1 are expected")
    assert "next step: check policy" in line
    shown = watched.monitor.metrics().decode()
    place = 'source_cluster="east",target_cluster="west"'
    assert f'topic_liveness_replica_topics{{outcome="compared",{place}}} 0.0' in shown
    assert f'topic_liveness_replica_topics{{outcome="without-replica",{place}}} 1.0' in shown


def test_a_dead_source_excuses_a_replica_in_step_only(tmp_path: Path) -> None:
    """By the verdict of the source's partition; one that lacks records keeps its state."""
    made = settings(tmp_path, {"source": "east", "target": "west"})
    made = made.model_copy(
        update={"overrides": Settings.model_validate({"overrides": [{"topics": "orders", "retired": True}]}).overrides}
    )
    clock = ManualClock(T0)
    monitor = make_monitor(made, clock, Expectations(tmp_path))  # type: ignore[arg-type]
    for name, key in (("east", ORDERS), ("west", COPY)):
        Poller(name, TableSource({key: (0, 5, T0)}), [monitor], clock).poll()
    for state, shown in (
        (ReplicaState.IN_STEP, "source-dead-too"),
        (ReplicaState.STOPPED, "stopped"),
        (ReplicaState.BEHIND, "behind"),
    ):
        clock.time += 2
        monitor.take_comparison(compared(state))
        assert f'kafka_replica_state{{{PLACE},state="{shown}",reason=""}} 1' in monitor.metrics().decode()


def test_a_reading_without_an_answer_is_unknown_on_its_side() -> None:
    """A partition that a poll could not read is unknown; its neighbour of the same topic is compared."""
    pair = Pair([T0 - 9], copied=1)
    other = TopicPartition("orders", 1)
    pair.east.offsets[other] = (0, 1, T0 - 9)
    pair.west.offsets[TopicPartition("east.orders", 1)] = (0, 1, T0 - 9)
    pair.east.failures[other] = Answer(reason=Reason.NOT_LEADER)
    pair.poll()
    found = pair.compare()
    assert found.readings[REPLICA].state is ReplicaState.IN_STEP
    assert found.readings[Replica("orders", "east.orders", 1)].reason is NotCompared.SOURCE_UNREADABLE
    assert State.UNREADABLE in {reading.state for reading in readings_of(pair.seen.snapshots[0]).values()}


def test_a_served_comparison_that_can_no_longer_be_made_says_so_once_and_shows_no_old_numbers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What was known becomes unknown, with a reason; the same words are not logged at every interval."""
    nowhere = {"bootstrap.servers": f"127.0.0.1:{free_port()}"}
    service = Service(
        Settings.model_validate(
            {
                "clusters": [{"name": name, "kafka": nowhere} for name in ("east", "west")],
                "replicas": [{"source": "east", "target": "west", "interval": "1s"}],
                "poll": {"interval": "5s", "request_timeout": "1s"},
                "history": {"enabled": False},
                "web": {"listen": f"127.0.0.1:{free_port()}"},
            }
        )
    )
    pair = Pair([T0 - 9], copied=1)
    pair.poll()
    outcomes: list[Comparison | Exception] = [pair.compare()]
    taken: list[Mapping[Replica, ReplicaReading]] = []
    ended = threading.Event()

    def compare(*_: object) -> Comparison | None:
        if outcomes:
            outcome = outcomes.pop(0)
            if isinstance(outcome, Comparison):
                outcomes.extend([SourceError(Reason.AUTHENTICATION_FAILED, "sasl.password: no such file")] * 2)
                return outcome
            raise outcome
        ended.set()
        return None

    def take(_: Replicas, comparison: Comparison) -> None:
        taken.append(dict(comparison.readings))

    monkeypatch.setattr(ReplicaWatch, "compare", compare)
    monkeypatch.setattr(Replicas, "take", take)
    service.start()
    try:
        assert ended.wait(60)
    finally:
        service.stop()
    unknown = {REPLICA: ReplicaReading(ReplicaState.UNKNOWN, reason=NotCompared.LOOKUP_FAILED)}
    assert taken == [{REPLICA: ReplicaReading(ReplicaState.IN_STEP, 0.0, 0)}, unknown, unknown]
    pair_labels = 'source_cluster="east",target_cluster="west"'
    shown = service.monitor.metrics().decode()
    assert f"topic_liveness_replica_comparisons_total{{{pair_labels}}} 1.0" in shown
    assert f'lookup_failures_total{{reason="authentication-failed",{pair_labels}}} 2.0' in shown
    assert [record.message for record in caplog.records if "replicas of" in record.message] == [
        "replicas of east in west: sasl.password: no such file"
    ]

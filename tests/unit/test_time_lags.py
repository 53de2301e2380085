"""Time lags of sweeps: what is asked of whom, what is kept, what a failure costs, and what a scrape sees of it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from exporter.collectors.poller import Poller
from exporter.collectors.time_lags import TimeLags
from exporter.domain.arrays import Offsets, Rows
from exporter.domain.groups.consumer_groups import NoTimeLag
from exporter.domain.groups.positions import outcomes
from exporter.domain.groups.sweep import GroupSweep
from exporter.domain.polls.metadata import Membership
from exporter.domain.polls.readings import Answers, Reason, TopicPartition
from exporter.domain.polls.table import Snapshot
from exporter.metrics.catalogue import GROUP_METRICS
from exporter.metrics.groups import GroupSeries
from tests.exposed import exposed
from tests.groups import Group, GroupPartition, TimeLag, groups_of, positions_of, sweep_of
from tests.lookup_answers import Answer
from tests.timelog import Log
from tests.times import answered
from tests.unit.readings import Collected, ManualClock, TableSource

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
NOW = 1_000_000.0


def minutely() -> Log:
    """A hundred records, one a minute, the last one a minute ago."""
    return Log([(offset, round((NOW - (100 - offset) * 60) * 1000)) for offset in range(100)], 100)


@dataclass
class Times:
    """Answers offsets for times from logs; notes how many look-ups each call had."""

    logs: dict[TopicPartition, Log] = field(default_factory=lambda: {A: minutely(), B: minutely()})
    failing: dict[TopicPartition, Answer] = field(default_factory=dict)
    calls: list[int] = field(default_factory=list)
    requests: list[TopicPartition] = field(default_factory=list)

    def look_up_times(self, membership: Membership, rows: Rows, milliseconds: Offsets) -> Answers:
        self.calls.append(len(rows))
        self.requests.extend(map(membership.layout.key, rows.tolist()))
        return answered(membership, rows, milliseconds, lambda key, at: self.failing.get(key) or self._found(key, at))

    def _found(self, key: TopicPartition, seconds: float) -> Answer:
        found = self.logs[key].first_from(round(seconds * 1000))
        return Answer() if found is None else Answer(found[0], found[1] / 1000)


class Bench:
    """Time lags of one cluster, at a clock moved by the test."""

    def __init__(self) -> None:
        self.clock, self.times = ManualClock(NOW), Times()
        self.table = TableSource({A: (0, 100, None), B: (0, 100, None)})
        self.lags = TimeLags(self.clock, self.times, tolerance=1.0)
        self.most_calls = math.inf

    def snapshot(self) -> Snapshot:
        """What a poll tells now, with the newest timestamps of the logs."""
        for key, log in self.times.logs.items():
            earliest, latest, _ = self.table.offsets[key]
            self.table.offsets[key] = earliest, latest, max(time for _, time in log.records) / 1000
        sink = Collected()
        Poller("prod", self.table, [sink], self.clock).poll()
        return sink.snapshots[0]

    def measure(self, **offsets: Mapping[TopicPartition, int | GroupPartition]) -> GroupSweep:
        """Sweep: each group's committed offsets, in logs of a hundred records where nothing else is said."""

        def position(at: int | GroupPartition) -> GroupPartition:
            return at if isinstance(at, GroupPartition) else GroupPartition(at, lag=100 - at, lost=0)

        groups = {
            name: Group(partitions={key: position(at) for key, at in each.items()}, read_at=self.clock.now())
            for name, each in offsets.items()
        }
        return self.measure_groups(groups)

    def measure_groups(self, groups: Mapping[str, Group], *, missed: int = 0) -> GroupSweep:
        """Sweep over these groups, which so many sweeps could not read."""
        positions = positions_of(groups)
        positions = replace(positions, missed=np.full(len(groups), missed, dtype=np.int32))
        measured = self.lags.measure(positions, self.snapshot(), lambda: len(self.times.calls) >= self.most_calls)
        return GroupSweep(cluster="prod", positions=measured, time_lags=outcomes(measured.no_time_lag))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def lag(sweep: GroupSweep, key: TopicPartition = A, group: str = "g") -> TimeLag:
    found = groups_of(sweep)[group].partitions[key].time_lag
    assert found is not None
    return found


def test_nothing_to_read_is_zero_and_costs_nothing(bench: Bench) -> None:
    sweep = bench.measure(g={A: 100, B: GroupPartition(130, lag=0, lost=0)}, h={A: GroupPartition(10, lag=90, lost=90)})
    assert [lag(sweep), lag(sweep, B), lag(sweep, A, "h")] == [TimeLag(0.0, 0.0)] * 3
    assert bench.times.calls == []


def test_an_offset_that_has_not_moved_is_not_asked_for_again(bench: Bench) -> None:
    first = lag(bench.measure(g={A: 60}))
    calls = len(bench.times.calls)
    bench.clock.time += 3600
    second = lag(bench.measure(g={A: 60}))
    assert len(bench.times.calls) == calls
    assert second.seconds - first.seconds == pytest.approx(3600, abs=1)
    assert (first.stalled, second.stalled) == (False, True)


def test_a_group_that_had_nothing_to_read_does_not_stand(bench: Bench) -> None:
    """Where the first record has just come, the next commit may be under way: its age is shown as it was seen."""
    bench.measure(g={A: GroupPartition(99, lag=0, lost=0)})
    assert not lag(bench.measure(g={A: 99})).stalled


def test_a_group_that_could_not_be_read_is_shown_as_it_was(bench: Bench) -> None:
    groups = {"g": Group(partitions={A: GroupPartition(60, lag=40, lost=0)}, read_at=NOW)}
    first = bench.measure_groups(groups)
    calls = len(bench.times.calls)
    bench.clock.time += 60
    assert groups_of(bench.measure_groups(groups_of(first), missed=1)) == groups_of(first)
    assert len(bench.times.calls) == calls


def test_what_is_unfinished_has_no_value_and_is_gone_on_with(bench: Bench) -> None:
    bench.most_calls = 0
    sweep = bench.measure(g={A: 60})
    assert groups_of(sweep)["g"].partitions[A].no_time_lag is NoTimeLag.UNFINISHED
    assert sweep.time_lags == {NoTimeLag.UNFINISHED: 1}
    bench.most_calls = math.inf
    assert bench.measure(g={A: 60}).time_lags == {"ok": 1}


def test_what_was_asked_for_longest_ago_comes_first(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the time is not enough for all, no partition waits behind those that have moved again."""
    monkeypatch.setattr("exporter.collectors.time_lags.LOOKUPS_AT_ONCE", 1)
    bench.measure(g={A: 10, B: 10})
    bench.times.requests.clear()
    for committed in (40, 50, 60, 70):
        bench.most_calls = len(bench.times.calls) + 1
        bench.measure(g={A: committed, B: committed})
    assert bench.times.requests == [A, B, A, B]


def test_a_silent_leader_is_waited_for_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exporter.collectors.time_lags.LOOKUPS_AT_ONCE", 1)
    bench.times.failing |= dict.fromkeys([A, B], Answer(reason=Reason.TIMED_OUT))
    sweep = bench.measure(g={A: 60, B: 60})
    assert sweep.time_lags == {Reason.TIMED_OUT: 1, Reason.LEADER_UNREACHABLE: 1}
    assert bench.times.calls == [1]
    bench.times.failing.clear()
    assert bench.measure(g={A: 60, B: 60}).time_lags == {"ok": 2}


def test_a_partition_that_fails_costs_itself_alone(bench: Bench) -> None:
    bench.times.failing[A] = Answer(reason=Reason.LEADER_UNREACHABLE)
    sweep = bench.measure(g={A: 60, B: 60})
    assert groups_of(sweep)["g"].partitions[A].no_time_lag is Reason.LEADER_UNREACHABLE
    assert sweep.time_lags == {Reason.LEADER_UNREACHABLE: 1, "ok": 1}
    assert bench.times.calls == [2, *[1] * (len(bench.times.calls) - 1)]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer(reason=Reason.UNSUPPORTED_FORMAT), NoTimeLag.NO_TIMESTAMP),
        (Answer(offset=7), NoTimeLag.NO_TIMESTAMP),
        (Answer(), Reason.HIDDEN),
    ],
    ids=["old records, refused", "old records, without a time", "no look-up finds the newest record"],
)
def test_what_look_ups_do_not_date_has_no_time_lag(bench: Bench, answer: Answer, reason: NoTimeLag | Reason) -> None:
    bench.times.failing[A] = answer
    assert bench.measure(g={A: 60}).time_lags == {reason: 1}


def test_a_time_without_an_answer_proves_nothing(bench: Bench) -> None:
    """Segments without records hide what lies before a time: the lag is true within its bound, or unknown."""
    found = bench.times.logs[A].first_from
    hidden = round((NOW - 3000) * 1000), round((NOW - 1500) * 1000)
    bench.times.logs[A].first_from = lambda target: None if hidden[0] < target <= hidden[1] else found(target)  # type: ignore[method-assign]
    groups = {f"g{offset}": {A: offset} for offset in range(0, 100, 5)}
    sweep = bench.measure(**groups)
    for group, [offset] in ((name, offsets.values()) for name, offsets in groups.items()):
        position = groups_of(sweep)[group].partitions[A]
        age = (100 - offset) * 60
        if position.time_lag is None:
            assert position.no_time_lag is Reason.HIDDEN and 1400 < age < 3100
        else:
            assert abs(position.time_lag.seconds - age) <= position.time_lag.error_bound <= age / 20
    assert sweep.time_lags["ok"] >= 14
    assert len(bench.times.requests) < 20 * len(groups)


def test_where_the_end_is_not_known_there_is_no_time_lag(bench: Bench) -> None:
    sweep = bench.measure(g={A: GroupPartition(60, reason=Reason.TIMED_OUT), TopicPartition("c", 0): 60})
    assert sweep.time_lags == {Reason.TIMED_OUT: 1, Reason.NO_LEADER: 1}
    assert bench.times.calls == []


def shifted(seconds: float, latest: int = 100) -> Log:
    """Records of a minute each, all of them so much older."""
    return Log([(offset, round((NOW - (100 - offset) * 60 - seconds) * 1000)) for offset in range(latest)], latest)


@pytest.mark.parametrize(("topic_id", "latest"), [("id-2", 100), ("id-1", 80)], ids=["made again", "fell back"])
def test_a_log_of_other_records_is_searched_anew(bench: Bench, topic_id: str, latest: int) -> None:
    """Those of a topic that was made again, or after an unclean election: its offsets may look alike."""
    bench.measure(g={A: 60})
    bench.times.logs[A] = shifted(3600, latest)
    bench.table.topic_ids["a"] = topic_id
    moved = lag(bench.measure(g={A: GroupPartition(60, lag=latest - 60, lost=0)}))
    age = (100 - 60) * 60 + 3600
    assert moved.seconds == pytest.approx(age, abs=moved.error_bound)


def test_an_answer_that_contradicts_what_was_proved_costs_every_offset_of_the_partition_its_proof(bench: Bench) -> None:
    """Also those of groups that stand still: for one sweep they are unknown, and in the next they are searched anew."""
    bench.measure(g={A: 60}, h={A: 50}, i={B: 60})
    bench.times.logs[A] = shifted(3600)
    before = len(bench.times.requests)
    groups = groups_of(bench.measure(g={A: 60}, h={A: 55}, i={B: 60}))
    assert [groups[name].partitions[A].no_time_lag for name in "gh"] == [NoTimeLag.UNFINISHED] * 2
    sweep = bench.measure(g={A: 60}, h={A: 55}, i={B: 60})
    for group, committed in (("g", 60), ("h", 55)):
        found = lag(sweep, group=group)
        assert found.seconds == pytest.approx((100 - committed) * 60 + 3600, abs=found.error_bound)
    assert set(bench.times.requests[before:]) == {A}


def test_where_the_log_start_moved_what_is_left_counts(bench: Bench) -> None:
    """The newest record before the offset was the first one, and is deleted; the other partition is not asked for."""
    records = minutely().records
    bench.times.logs[A] = Log([(0, round((NOW - 300) * 1000)), *records[1:]], 100)
    assert lag(bench.measure(g={A: 60}, h={B: 60})).seconds == pytest.approx(300, abs=10)
    before = len(bench.times.requests)
    bench.table.offsets[A] = (59, 100, None)
    bench.times.logs[A] = Log(records[59:], 100)
    assert lag(bench.measure(g={A: 60}, h={B: 60})).seconds == pytest.approx(2400, abs=60)
    assert set(bench.times.requests[before:]) == {A}


def test_a_search_that_ended_at_the_present_is_made_again(bench: Bench) -> None:
    """No record behind the offset was needed for the bracket; a minute ahead of its broker, one may be later."""
    ahead = [(offset, round((NOW - 0.5 if offset < 60 else NOW + 30) * 1000)) for offset in range(100)]
    bench.times.logs[A] = Log(ahead, 100)
    assert lag(bench.measure(g={A: 60})).seconds <= 1
    bench.clock.time += 3600
    late = lag(bench.measure(g={A: 60}))
    assert abs(late.seconds - 3570) <= late.error_bound


def series(sweep: GroupSweep, now: float, *, partitions: bool = True) -> dict[str, float]:
    """The samples of time lags at a moment, by metric and partition."""
    shown = GroupSeries("prod", partitions=partitions)
    shown.update(sweep, ())
    metrics = [metric for metric in GROUP_METRICS if metric.name.startswith("kafka_consumergroup_lag_seconds")]
    lines = [line for line in exposed({"prod": shown}, now, metrics).splitlines() if not line.startswith("#")]
    samples = [line.replace('kafka_cluster="prod",consumergroup="g",', "").rsplit(" ", 1) for line in lines]
    return {name.removeprefix("kafka_consumergroup_lag_"): float(value) for name, value in samples}


def sweep_with(*lags: TimeLag | None) -> GroupSweep:
    """A group read at NOW, with these time lags in the partitions of one topic."""
    positions = {
        TopicPartition("a", number): GroupPartition(1, lag=1, time_lag=each) for number, each in enumerate(lags)
    }
    return sweep_of("prod", {"g": Group(partitions=positions, read_at=NOW)})


def test_a_scrape_sees_a_group_that_moves_as_it_was_and_one_that_stands_grow() -> None:
    """So a group that keeps up shows no saw-tooth; a clock that was set back takes nothing from a lag."""
    sweep = sweep_with(TimeLag(3.0, 0.5), TimeLag(100.0, 2.5, stalled=True), None)
    for after, stalled in ((45, 145.0), (-3600, 100.0)):
        assert series(sweep, NOW + after) == {
            'seconds{topic="a",partition="0"}': 3.0,
            'seconds{topic="a",partition="1"}': stalled,
            'seconds_max{topic="a"}': stalled,
            'seconds_max_error_bound{topic="a"}': 2.5,
        }
    assert series(sweep_with(None), NOW) == {}


def test_the_largest_of_a_topic_is_the_largest_at_every_moment() -> None:
    """One that grows overtakes one that does not; with topics alone there are the largest and its bound."""
    sweep = sweep_with(TimeLag(200.0, 0.5), TimeLag(100.0, 2.5, stalled=True))
    bound = {'seconds_max_error_bound{topic="a"}': 2.5}
    assert series(sweep, NOW + 45, partitions=False) == {'seconds_max{topic="a"}': 200.0, **bound}
    assert series(sweep, NOW + 145, partitions=False) == {'seconds_max{topic="a"}': 245.0, **bound}

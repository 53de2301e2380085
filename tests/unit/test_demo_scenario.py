"""The demo's truth table is right at any hour of any day, whoever judges by the published rule."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from exporter.demo.scenario import DAY, HISTORY_SECONDS, HOUR, TEN_YEARS, TOPICS, Topic, partitions
from exporter.model import Verdict

MONDAY = datetime(2026, 3, 2, tzinfo=UTC)
LAST_YEAR = datetime(2024, 12, 28, tzinfo=UTC)
EVERY_HOUR = [MONDAY + timedelta(hours=hour, minutes=(17 * hour) % 60, seconds=1) for hour in range(8 * 24)]
EDGES = [
    moment + timedelta(seconds=seconds)
    for moment in (
        MONDAY + timedelta(hours=8),  # the office opens after a weekend
        MONDAY + timedelta(days=4, hours=18),  # and closes for one
        MONDAY + timedelta(days=1, hours=2),  # the nightly batch begins
        MONDAY + timedelta(days=1, hours=2, minutes=20),
        MONDAY + timedelta(hours=6),  # the weekly report
        LAST_YEAR + timedelta(days=4),  # a turn of the year
    )
    for seconds in (-1, 0, 1, 60)
]
STARTS = sorted(moment.timestamp() for moment in [*EVERY_HOUR, *EDGES])

BY_NAME = {topic.name: topic for topic in TOPICS}


def judge(active_hours: set[int], censored_from: float, silence: float, started: float) -> Verdict:
    """The k-largest-silence rule in plain Python: two times the largest silence of eight weeks, in hours."""
    hours = sorted(active_hours)
    if len(hours) < 10 or started - hours[0] * HOUR < 7 * DAY:
        return Verdict.LEARNING
    gaps = [later - earlier - 1 for earlier, later in pairwise(hours)]
    known = [gap for gap, end in zip(gaps, hours[1:], strict=True) if end * HOUR < censored_from]
    largest = max([1, *known])
    if silence <= HOUR:
        return Verdict.LIVE
    if silence <= (1.5 * largest + 1) * HOUR:
        return Verdict.QUIET
    if silence <= (2 * largest + 1) * HOUR:
        return Verdict.SUSPECT
    return Verdict.RETIRED if silence >= 28 * DAY else Verdict.DEAD


def visible(topic: Topic, partition: int, started: float) -> tuple[set[int], float, float]:
    """What the broker's time index shows of a partition: (active hours, start of the hidden span, last activity)."""
    if topic.emptied:
        return set(), math.inf, -math.inf
    active: set[int] = set()
    last = -math.inf
    for moment in topic.history(partition, started):
        stamp = topic.stamp(moment, started)
        if stamp > started:
            return active, moment, started  # records at unknown moments from here to the start
        if stamp >= started - 2 * HISTORY_SECONDS:
            active.add(int(stamp // HOUR))
            last = stamp
    return active, math.inf, last


def verdicts(topic: Topic, started: float) -> dict[int | None, Verdict]:
    """The verdict of each partition, and under None that of the topic as their union."""
    seen = [visible(topic, partition, started) for partition in range(topic.partitions)]
    given: dict[int | None, Verdict] = {
        partition: judge(active, hidden, started - last, started)
        for partition, (active, hidden, last) in enumerate(seen)
    }
    union = set().union(*(active for active, _, _ in seen))
    hidden = min(hidden for _, hidden, _ in seen)
    given[None] = judge(union, hidden, started - max(last for _, _, last in seen), started)
    return given


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_truth_holds_at_every_hour_of_a_week(topic: Topic) -> None:
    """The rule gives a verdict of the truth table whenever the demo is started, before any live record."""
    wrong = {
        (datetime.fromtimestamp(started, UTC).isoformat(), partition): verdict
        for started in STARTS
        for partition, verdict in verdicts(topic, started).items()
        if verdict not in (topic.truth if partition is None else topic.partition_truth(partition))
    }
    assert not wrong


def test_the_dead_ones_are_named() -> None:
    """Exactly partition 7 of orders and the three partitions of payments-legacy may be dead, and nothing else."""
    dead = [
        (topic.name, partition) for topic, partition in partitions() if Verdict.DEAD in topic.partition_truth(partition)
    ]
    assert dead == [("orders", 7), *(("payments-legacy", partition) for partition in range(3))]
    assert [topic.name for topic in TOPICS if Verdict.DEAD in topic.truth] == ["payments-legacy"]


def test_the_same_start_gives_the_same_records() -> None:
    """Records depend on the topic, the partition and the moment only; spans agree where they overlap."""
    started = STARTS[0]
    for topic, partition in partitions():
        whole = topic.written(partition, started - 3 * DAY, started, started)
        halves = topic.written(partition, started - 3 * DAY, started - DAY, started)
        halves += topic.written(partition, started - DAY, started, started)
        assert whole == halves == sorted(whole)


def test_records_are_in_the_past_and_within_four_weeks() -> None:
    """No record of the history is written at or after the start, or more than four weeks before it."""
    for started in STARTS[:: len(STARTS) // 5]:
        for topic, partition in partitions():
            assert all(started - HISTORY_SECONDS <= at < started for at in topic.history(partition, started))


def test_a_dead_partition_is_never_written_again() -> None:
    """The live producers leave alone what died or was emptied, and never-written topics too."""
    started = STARTS[0]
    for name, partition in (("orders", 7), ("payments-legacy", 0), ("emptied", 0), ("never-written", 0)):
        assert BY_NAME[name].live(partition, started, started + DAY, started) == []
    assert max(BY_NAME["orders"].history(7, started)) < started - 3 * DAY


def test_the_dead_topic_has_a_partition_that_was_never_written() -> None:
    """It stays learning, and must not make its dead topic look alive."""
    legacy = BY_NAME["payments-legacy"]
    assert [legacy.history(3, started) for started in STARTS[::24]] == [[]] * len(STARTS[::24])
    assert legacy.partition_truth(3) == {Verdict.LEARNING}
    assert legacy.live(3, STARTS[0], STARTS[0] + DAY, STARTS[0]) == []


def test_living_topics_pulse_within_seconds() -> None:
    """The running demo writes every lively partition every few seconds, and an office only while it is open."""
    monday = MONDAY.timestamp()
    for name in ("orders", "sensor-future", "archive-copy", "account-balances"):
        assert len(BY_NAME[name].live(0, monday, monday + 10, monday)) >= 2
    office = BY_NAME["office-hours"]
    assert office.live(0, monday + 7.5 * HOUR, monday + 8 * HOUR, monday) == []
    assert len(office.live(0, monday + 9 * HOUR, monday + 9 * HOUR + 10, monday)) == 2


def test_live_spans_join_without_loss_or_double() -> None:
    """Two neighbouring live spans give the same moments as the one span over both."""
    started = STARTS[3]
    for topic, partition in partitions():
        whole = topic.live(partition, started, started + 60, started)
        middle = started + 17.3
        parts = [
            *topic.live(partition, started, middle, started),
            *topic.live(partition, middle, started + 60, started),
        ]
        assert parts == whole


def test_every_sensor_has_a_broken_clock_only_lately() -> None:
    """Each partition of sensor-future carries timestamps ten years ahead within the last five days, none before."""
    sensor = BY_NAME["sensor-future"]
    for started in STARTS[:: len(STARTS) // 5]:
        for partition in range(sensor.partitions):
            ahead = [at for at in sensor.history(partition, started) if sensor.stamp(at, started) > started]
            assert ahead and started - min(ahead) <= 5 * DAY
            assert all(sensor.stamp(at, started) == at + TEN_YEARS for at in ahead)


def test_the_archive_keeps_its_old_timestamps() -> None:
    """Every record of archive-copy, live ones too, is dated 2019, in the order of writing."""
    archive, started = BY_NAME["archive-copy"], STARTS[0]
    moments = archive.history(0, started) + archive.live(0, started, started + 60, started)
    stamps = [archive.stamp(at, started) for at in moments]
    assert {datetime.fromtimestamp(stamp, UTC).year for stamp in stamps} == {2019}
    assert stamps == sorted(stamps)

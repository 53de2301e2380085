"""Silences become verdicts: by the wall clock, by the traffic clock, and never by what was not seen."""

from dataclasses import replace

import numpy as np
import pytest

from exporter.domain.arrays import replace_nan
from exporter.domain.judging.detection import Detector
from exporter.domain.learning.drops import OngoingDrop
from exporter.domain.learning.rest_days import Rest
from exporter.domain.polls.metadata import TopicInfo
from exporter.domain.polls.readings import Reason, State, TopicPartition
from exporter.domain.polls.silence import Silence
from exporter.domain.verdicts import VERDICTS, Expectation, Verdict
from tests.judging import judge, set_of
from tests.snapshots import snapshot_of, topics_of
from tests.unit.expectations import CALM_MONDAY as MONDAY
from tests.unit.expectations import DAY, HOUR, by_clock, by_wall
from tests.views import Reading

PROMISE = by_wall()
OFFICE = by_clock([1.0 if day < 5 and 8 <= hour < 18 else 0.0 for day in range(7) for hour in range(24)])
"""A full slot in each office hour, nothing outside: dead once more than e^2 = 7.39 of them are missed."""


@pytest.mark.parametrize(
    ("until", "expected"),
    [
        (1 * HOUR, Verdict.LIVE),
        (2 * HOUR, Verdict.QUIET),
        (4.5 * HOUR, Verdict.SUSPECT),
        (5 * HOUR, Verdict.SUSPECT),
        (5.1 * HOUR, Verdict.DEAD),
        (28 * 24 * HOUR, Verdict.RETIRED),
    ],
)
def test_a_proved_silence_is_judged_by_the_promise(until: float, expected: Verdict) -> None:
    judgement = judge(Silence(0.0, until, known=True), PROMISE, now=until)
    assert judgement.verdict is expected
    assert judgement.expected_by == 5 * HOUR


@pytest.mark.parametrize(
    ("days", "expected"), [(29, Verdict.SUSPECT), (30.1, Verdict.DEAD), (36.9, Verdict.DEAD), (37, Verdict.RETIRED)]
)
def test_what_dies_later_than_28_days_is_dead_for_a_week(days: float, expected: Verdict) -> None:
    """However late the limit, a death is reported before it is old news."""
    late = by_wall(max_silence_seconds=30 * DAY, suspect_silence_seconds=25 * DAY)
    judgement = judge(Silence(0.0, days * DAY, known=True), late, now=days * DAY)
    assert (judgement.verdict, judgement.expected_by) == (expected, 30 * DAY)


def test_a_silence_that_cannot_be_read_is_held_not_dead() -> None:
    """When polls stop proving it, by the clock too, a silence is held once it would be suspect by now.

    One that they proved for less than a slot is held as soon as it may be longer: it is not live either.
    """
    weekly = by_wall(max_silence_seconds=20 * DAY, suspect_silence_seconds=14 * DAY)
    assert judge(Silence(0.0, HOUR / 6, known=True), weekly, now=HOUR).verdict is Verdict.LIVE
    assert judge(Silence(0.0, HOUR / 6, known=True), weekly, now=5 * DAY).verdict is Verdict.HELD
    assert judge(Silence(0.0, 2 * HOUR, known=True), weekly, now=5 * DAY).verdict is Verdict.QUIET
    topic = np.array([True])
    found = set_of([weekly]).rules.judge(np.array([0]), np.zeros(1), np.full(1, HOUR / 6), 5 * DAY, whole=topic)
    assert VERDICTS[found.verdicts[0]] is Verdict.QUIET, "a topic takes no verdict from the partitions that are read"
    assert judge(Silence(0.0, HOUR, known=True), PROMISE, now=100 * HOUR).verdict is Verdict.HELD
    silence = Silence(MONDAY + 8 * HOUR, MONDAY + 9 * HOUR, known=True)
    assert judge(silence, OFFICE, now=MONDAY + 10 * HOUR).verdict is Verdict.LIVE
    assert judge(silence, OFFICE, now=MONDAY + 18 * HOUR).verdict is Verdict.HELD


@pytest.mark.parametrize("promise", [None, replace(PROMISE, max_silence_seconds=None, suspect_silence_seconds=None)])
def test_nothing_is_promised_without_evidence(promise: Expectation | None) -> None:
    judgement = judge(Silence(0.0, 1000 * HOUR, known=True), promise, now=1000 * HOUR)
    assert (judgement.verdict, judgement.expected_by) == (Verdict.LEARNING, None)


def read(state: State, newest: float | None = None) -> Reading:
    return Reading(state, 1, 0, 9, newest, last_good_poll=100.0, silent_since=100.0)


SANE, AHEAD = read(State.OBSERVED, 50.0), read(State.FUTURE, 9e9)
AWAY = Reading(State.UNREADABLE, 1, reason=Reason.LEADER_UNREACHABLE)


@pytest.mark.parametrize(
    ("readings", "newest"),
    [
        ([], None),
        ([AHEAD], 9e9),
        ([AHEAD, SANE], 50.0),
        ([read(State.UNSUPPORTED), SANE], None),
        ([read(State.PENDING), SANE], None),
        ([read(State.IDLE_IN_TIER), SANE], None),
        ([read(State.UNREADABLE), SANE], None),
        ([read(State.EMPTY), SANE], 50.0),
        ([read(State.NEVER_WRITTEN), SANE], 50.0),
        ([read(State.NO_TIMESTAMP), SANE], 50.0),
        ([replace(AWAY, before=read(State.OBSERVED, 70.0)), SANE], 70.0),
        ([replace(AWAY, before=read(State.NEVER_WRITTEN)), SANE], 50.0),
        ([replace(AWAY, before=read(State.UNSUPPORTED)), SANE], None),
        ([AWAY, SANE], None),
    ],
)
def test_a_topic_has_a_newest_timestamp_where_that_of_each_partition_is_known(
    readings: list[Reading], newest: float | None
) -> None:
    """The other partitions may rest, and the topic would look as old as they are; one that holds none hides none.

    A clock that can be believed goes before one that is ahead. What cannot be read counts as it was last read.
    """
    keyed = {TopicPartition("orders", number): reading for number, reading in enumerate(readings)}
    topics = topics_of(keyed) or {"orders": TopicInfo("id-1")}
    [found] = Detector().assess(snapshot_of(keyed, topics, taken_at=100.0), 100.0).newest
    assert replace_nan(found) == newest


@pytest.mark.parametrize(
    ("since", "until", "expected"),
    [
        (MONDAY + 17.5 * HOUR, MONDAY + 34.5 * HOUR, Verdict.QUIET),
        (MONDAY + 17.5 * HOUR, MONDAY + 35 * HOUR, Verdict.SUSPECT),
        (MONDAY + 17.5 * HOUR, MONDAY + 39.5 * HOUR, Verdict.DEAD),
        (MONDAY + 4 * DAY + 17.5 * HOUR, MONDAY + 7 * DAY + 10 * HOUR, Verdict.QUIET),
        (MONDAY + 4 * DAY + 17.5 * HOUR, MONDAY + 7 * DAY + 16 * HOUR, Verdict.DEAD),
        (MONDAY + 9.5 * HOUR, MONDAY + 10.4 * HOUR, Verdict.LIVE),
        (MONDAY + 9.5 * HOUR, MONDAY + 10.6 * HOUR, Verdict.QUIET),
        (MONDAY + 9.5 * HOUR, MONDAY + 40 * DAY, Verdict.RETIRED),
    ],
)
def test_by_the_traffic_clock_nights_and_weekends_do_not_count(since: float, until: float, expected: Verdict) -> None:
    assert judge(Silence(since, until, known=True), OFFICE, now=until).verdict is expected


def test_expected_by_skips_the_weekend() -> None:
    since = MONDAY + 4 * DAY + 17.5 * HOUR
    judgement = judge(Silence(since, since + HOUR, known=True), OFFICE, now=since + HOUR)
    assert judgement.expected_by == pytest.approx(MONDAY + 7 * DAY + (8 + 7.389056) * HOUR, abs=1.0)
    assert judgement.score is not None
    assert judgement.score < 0, "the score is shown also when it is low"


@pytest.mark.parametrize(
    ("good", "missed", "expected"), [(90, 10, Verdict.DEAD), (89, 11, Verdict.HELD), (1, 0, Verdict.DEAD)]
)
def test_a_silence_that_was_badly_seen_is_held(good: int, missed: int, expected: Verdict) -> None:
    """Under nine good polls in ten within the silence a new death is only a hold; a published one stays."""
    silence = Silence(0.0, 6 * HOUR, known=True, polls_good=good, polls_missed=missed)
    assert judge(silence, PROMISE, now=6 * HOUR).verdict is expected
    assert judge(silence, replace(PROMISE, verdict="dead"), now=6 * HOUR).verdict is Verdict.DEAD


@pytest.mark.parametrize(
    ("published", "expected"),
    [("live", Verdict.HELD), ("suspect", Verdict.HELD), ("dead", Verdict.DEAD), ("no such verdict", Verdict.HELD)],
)
def test_a_start_of_the_exporter_brings_no_news_at_once(published: str, expected: Verdict) -> None:
    silence = Silence(0.0, 6 * HOUR, known=True, settling=True, polls_good=1)
    assert judge(silence, replace(PROMISE, verdict=published), now=6 * HOUR).verdict is expected


@pytest.mark.parametrize(
    "broken",
    [
        replace(OFFICE, profile=[0.0] * 168),
        replace(OFFICE, profile=[1.0] * 167 + [float("nan")]),
        replace(OFFICE, clock_step=0.0),
        replace(OFFICE, log_mean=float("nan")),
        replace(OFFICE, log_spread=0.0),
        replace(OFFICE, dead_score=None),
        replace(OFFICE, suspect_score=3.0),
        replace(OFFICE, slot_seconds=0.0),
        replace(PROMISE, max_silence_seconds=None),
        replace(PROMISE, suspect_silence_seconds=6 * HOUR),
        replace(
            OFFICE, rests=[Rest(MONDAY + DAY, MONDAY + 2 * DAY, "", True), Rest(MONDAY, MONDAY + 1.5 * DAY, "", True)]
        ),
        replace(OFFICE, falling=OngoingDrop(MONDAY, 0.0, 41, 50)),
    ],
)
def test_an_impossible_value_promises_nothing_and_is_counted(broken: Expectation) -> None:
    """Whatever stands in the file: the row is learning, its neighbours are judged, and the fault is named."""
    promises = set_of([broken, replace(OFFICE, partition=1), replace(PROMISE, partition=2)])
    assert promises.faulty == 1
    silence = Silence(MONDAY, MONDAY + 9 * DAY, known=True)
    judgement = judge(silence, broken, now=MONDAY + 9 * DAY)
    assert (judgement.verdict, judgement.expected_by, judgement.score) == (Verdict.LEARNING, None, None)
    assert judge(silence, OFFICE, now=MONDAY + 9 * DAY).verdict is Verdict.DEAD


@pytest.mark.parametrize("score", [40.0, 5000.0])
def test_a_silence_that_no_score_ends_is_dead_after_eight_weeks(score: float) -> None:
    distant = replace(OFFICE, dead_score=score)
    for days, verdict in ((9, Verdict.SUSPECT), (55.9, Verdict.SUSPECT), (56, Verdict.DEAD), (63, Verdict.RETIRED)):
        until = MONDAY + days * DAY
        judgement = judge(Silence(MONDAY, until, known=True), distant, now=until)
        assert (judgement.verdict, judgement.expected_by) == (verdict, MONDAY + 56 * DAY)

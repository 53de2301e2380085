"""Jobs that come at other hours than before, streams whose rhythm changed, and those whose hours come together."""

import numpy as np
import pytest

from exporter.domain.learning.baselines import Baselines
from exporter.domain.learning.baselines_of_streams import baselines
from exporter.domain.learning.pauses import RECENT_DAYS, add_recent_pauses
from exporter.domain.learning.traffic_clock import FIRST_MONDAY, HOUR, HOURS, RUN_NATS, SURE_NATS, SURE_SCORE, WEEK
from exporter.domain.verdicts import Verdict
from tests.unit.test_rhythms import ALARMS, DAY, FIRST, START, Active, LearnedStream, hours_of, known, records

MOVED_WEEK = 10


def verdicts(moments: np.ndarray, first: float, last: float) -> list[Verdict]:
    """Return the verdict just before the record that ends each silence that begins in these weeks from START."""
    learned = known(moments, *range(int(first), int(np.ceil(last))))
    begin, end = START + first * WEEK, START + last * WEEK
    pairs = zip(moments[:-1].tolist(), moments[1:].tolist(), strict=True)
    return [learned.at(one, other - 1.0)[0] for one, other in pairs if begin <= one < end]


@pytest.mark.parametrize("at", [0, 77])
@pytest.mark.parametrize("later", [1, -1, 3, 12])
def test_a_job_that_moved_is_dead_at_most_in_the_silence_in_which_it_moved(later: int, at: int) -> None:
    moved = MOVED_WEEK * HOURS + at
    moments = records(lambda hour: (hour if hour < moved else hour - later) % 24 == 2, 16, jitter=1200.0)
    since = MOVED_WEEK + at / HOURS
    silences = verdicts(moments, since - 1.0 / 7, since + 2)
    assert sum(one is Verdict.DEAD for one in silences) <= 1
    assert sum(one in ALARMS for one in silences) <= 2
    assert not set(verdicts(moments, MOVED_WEEK + 2, MOVED_WEEK + 5)) & ALARMS


def test_a_regular_job_that_dies_is_dead_as_soon_as_before() -> None:
    moments = records(lambda hour: hour % 6 == 2, 9, jitter=600.0)
    last = float(moments[moments < START + 8 * WEEK + 3 * DAY][-1])
    _, dead_after = known(moments, 8).at(last, last)
    assert 7.0 * HOUR < dead_after < 8.0 * HOUR


@pytest.mark.parametrize(("skipped", "missed"), [(set[int](), 2), ({13, 44}, 3)])
def test_a_nightly_run_is_dead_by_its_second_or_third_miss_whatever_the_threshold(
    skipped: set[int], missed: int
) -> None:
    moments = records(lambda hour: hour % 24 == 2 and hour // 24 not in skipped, 8, jitter=600.0)
    clocks = known(moments, 8).baselines.clocks()
    row, last = np.zeros(1, np.intp), float(moments[-1])
    start = clocks.start(row, np.array([last + HOUR]))
    for threshold in (2.8, 3.2, SURE_SCORE):
        dead = float(clocks.passes(row, start, threshold)[0]) - last
        assert (missed - 1) * DAY < dead < missed * DAY + 2 * HOUR, threshold


def test_runs_that_are_missed_in_a_row_are_one_pause() -> None:
    """Past the second each counts for less: three weeks of them score as other pauses do. Also the other way."""
    moments = records(lambda hour: hour % 24 == 2, 9, jitter=600.0)
    clocks = known(moments, 8).baselines.clocks()
    row, start = np.zeros(1, np.intp), np.array([START + 8 * WEEK])

    def score(days: float) -> float:
        return float(clocks.score(row, clocks.ticks(row, start, start + days * DAY))[0])

    linear = (4.4 * 21 - np.log(7)) / RUN_NATS
    assert score(0.5) < SURE_NATS / RUN_NATS < SURE_SCORE <= score(1.5) < score(7.5) < score(21.5) < linear / 3
    for wanted in (2.5, 4.5, 8.0):
        needed = clocks.compute_ticks(row, wanted)
        assert clocks.score(row, needed)[0] == pytest.approx(wanted)


def test_streams_whose_hours_come_and_stay_away_together_are_judged_by_the_length_of_silence() -> None:
    """Their profile is flat. Records at random, in office hours or on a schedule keep theirs."""
    rng = np.random.default_rng(7)
    random_hours = rng.random(9 * HOURS) < 0.4
    busy_days = np.random.default_rng(1).random(9 * 7) < 0.6
    for moments, together in (
        (records(lambda hour: bool(busy_days[hour // 24]) and hour % 24 > 2, 9), True),
        (records(lambda hour: bool(random_hours[hour]), 9), False),
        (records(lambda hour: 8 <= hour % 24 < 18 and hour // 24 % 7 < 5, 9), False),
        (records(lambda hour: hour % 6 == 2, 9), False),
        (records(lambda hour: hour >= 0, 9), False),
    ):
        baselines = known(moments, 8).baselines
        assert bool(baselines.together[0]) is together
        assert (np.ptp(baselines.profile[0]) == 0.0) or not together


CHANGED = 9 * 168 + 24
"""A Tuesday in the tenth week."""


def dead_pauses(active: Active, weeks: int = 3) -> list[int]:
    """Return on which days after the change pauses began that the last rollup before their end called dead."""
    moments = records(active, 9 + weeks, jitter=600.0)
    hours = hours_of(moments)
    known = Baselines.concatenate(list(baselines(hours, range(FIRST + 9, FIRST + 9 + weeks))))
    begin = START + CHANGED * HOUR
    found = []
    for last, end in zip(moments[:-1].tolist(), moments[1:].tolist(), strict=True):
        if end < begin or end - last < 4 * HOUR:
            continue
        midnight = (end - 1.0) // DAY * DAY
        in_force = np.flatnonzero(known.week == (last - FIRST_MONDAY) // WEEK)
        days = hours[(hours.hour * HOUR >= midnight - RECENT_DAYS * DAY) & (hours.hour * HOUR < midnight)]
        learned = LearnedStream(add_recent_pauses(known, in_force, days, midnight))
        if learned.at(last, end - 1.0)[0] is Verdict.DEAD:
            found.append(int((last - begin) // DAY))
    return found


@pytest.mark.parametrize("hour_of_day", [2, 13])
def test_an_hourly_topic_that_becomes_daily_is_dead_in_two_pauses_of_a_day(hour_of_day: int) -> None:
    """The third pause is one of the stream, in the week of the change and in the next ones."""
    dead = dead_pauses(lambda hour: hour < CHANGED or hour % 24 == hour_of_day)
    assert dead[-2:] == [0, 1] and len(dead) <= 3, dead


def test_of_two_pauses_one_may_have_ended_before_the_week() -> None:
    pauses = (9 * 168 - 72, CHANGED)
    hours = hours_of(records(lambda hour: not any(begin <= hour < begin + 30 for begin in pauses), 10))
    known = Baselines.concatenate(list(baselines(hours, [FIRST + 9])))
    assert known.pause[0] < 3.0, "one alone is none"
    assert add_recent_pauses(known, np.array([0]), hours, START + 10 * WEEK).pause[0] > 25.0


def test_nights_are_no_recent_pauses() -> None:
    """Office hours that are as ever keep the pauses of their baseline: a death at noon is seen as soon as before."""
    moments = records(lambda hour: 8 <= hour % 24 < 18 and hour // 24 % 7 < 5, 10)
    hours = hours_of(moments)
    known = Baselines.concatenate(list(baselines(hours, [FIRST + 9])))
    found = add_recent_pauses(known, np.array([0]), hours, START + 10 * WEEK)
    assert np.array_equal(found.pause, known.pause)


def test_what_ends_after_the_moment_is_not_known() -> None:
    """As of the past a rollup has later days too."""
    hours = hours_of(records(lambda hour: hour < CHANGED or hour % 24 == 2, 11, jitter=600.0))
    known = Baselines.concatenate(list(baselines(hours, [FIRST + 9])))
    tuesday = START + CHANGED * HOUR
    [before], [after] = (add_recent_pauses(known, np.array([0]), hours, tuesday + days * DAY).pause for days in (2, 4))
    assert before < 3.0 and after > 20.0

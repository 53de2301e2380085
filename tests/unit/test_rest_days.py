"""On days on which topics rest their clock stands still."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.domain.learning.drops import LEAST_REFERENCES, LONGEST_DAYS, MOST_DAYS, Drop, drop_days
from exporter.domain.learning.rest_days import Calendar, Rest, Rests, quiet
from exporter.domain.learning.traffic_clock import HOUR, WEEK, Clocks
from exporter.domain.polls.silence import Silence
from exporter.domain.verdicts import Verdict
from tests.judging import judge
from tests.unit.expectations import CALM_MONDAY as MONDAY
from tests.unit.expectations import DAY, by_clock

FIRST = np.zeros(1, np.intp)
offsets = st.floats(0.0, 3 * WEEK)


def rest(since: float, until: float) -> Rest:
    return Rest(since, until, "a holiday", seen=True)


def clock(rests: list[Rest]) -> Clocks:
    """A clock of one advance an hour in working hours, four times as many on Mondays."""
    rates = np.array([[(4.0 if h < 24 else 1.0) * (6 <= h % 24 < 20) for h in range(168)]])
    one = np.ones(1)
    return Clocks(rates, one, one, one, rests=[rests])


@given(offsets, offsets, st.lists(st.floats(0.1, 4 * DAY), min_size=2, max_size=6))
def test_a_clock_stands_still_in_rests(start: float, length: float, steps: list[float]) -> None:
    """What it counts is what an unresting clock counts outside of them; a moment is found again by its ticks."""
    edges = MONDAY + np.cumsum(steps)
    rests = [rest(*pair) for pair in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=False)]
    begin, end = np.array([MONDAY + start]), np.array([MONDAY + start + length])
    always, resting = clock([]), clock(rests)
    outside = always.ticks(FIRST, begin, end)[0] - sum(
        always.ticks(FIRST, np.maximum(begin, one.since), np.minimum(end, one.until))[0] for one in rests
    )
    ticks = resting.ticks(FIRST, begin, end)
    assert ticks[0] == pytest.approx(outside, abs=1e-6)
    found = resting.moment(FIRST, begin, ticks)
    assert resting.ticks(FIRST, begin, found)[0] == pytest.approx(ticks[0], abs=1e-6)
    assert not any(one.since + 1 < found[0] < one.until - 1 for one in rests if one.since > begin[0])


def test_a_death_on_a_holiday_is_found_a_day_later_and_not_lost() -> None:
    """Dead past e^2 missed hours: on the day itself without a holiday, at the same hour of the next day with one."""
    row = by_clock([1.0] * 168)
    resting = replace(row, rests=(rest(MONDAY + DAY, MONDAY + 2 * DAY),))
    silence = Silence(MONDAY + DAY, MONDAY + DAY + 20 * HOUR, known=True)
    found = [judge(silence, one, silence.until) for one in (row, resting)]
    assert [one.verdict for one in found] == [Verdict.DEAD, Verdict.QUIET]
    first, later = (one.expected_by for one in found)
    assert first is not None and later is not None
    assert later == pytest.approx(first + DAY - HOUR)
    assert judge(silence._replace(until=later + HOUR), resting, later + HOUR).verdict is Verdict.DEAD


def test_only_streams_with_quiet_days_rest_by_a_calendar() -> None:
    """Office hours and weekday runs do; what is always on, or runs each night, does not."""
    always, nights = np.ones(168), np.array([h % 24 == 2 for h in range(168)], np.float64)
    office = np.array([h < 120 and 8 <= h % 24 < 18 for h in range(168)], np.float64)
    assert quiet(np.array([always, nights, office, office + 0.02])).tolist() == [False, False, True, True]


def test_rests_of_a_topic_are_those_of_its_first_calendar_and_of_the_drops_that_it_was_in() -> None:
    """Overlapping days count once, what was seen goes before a calendar, and another cluster has others."""
    days = ((DAY, 2 * DAY, "one"), (5 * DAY, 6 * DAY, "two"))
    calendars = [Calendar("a.*", "DE-BY", days, "prod"), Calendar(".*", "FR", days[:1])]
    known = Rests(calendars, [Drop("prod", day, 1, 9, frozenset(["ab"])) for day in (5, 6, 20)], 30)
    again = pickle.loads(pickle.dumps(known))  # noqa: S301 - Spark sends it so
    for rests in (known, again):
        assert [one.since / DAY for one in rests.get("prod", "ab")] == [1, 5, 6, 20]
        assert [one.why for one in rests.get("prod", "ac")] == ["one, DE-BY", "two, DE-BY"]
        assert [one.why for one in rests.get("far", "ab")] == ["one, FR"]
    assert not Rests()


@given(st.lists(st.tuples(st.integers(0, 240), st.integers(1, 50)), max_size=6), st.sets(st.integers(0, 9), max_size=5))
def test_a_rest_that_was_seen_is_whole_whatever_the_zone_of_the_calendar(
    days: list[tuple[int, int]], dropped: set[int]
) -> None:
    """Holidays are cut around it, before and after: all hours of both are rests, each of them once and in order."""
    holidays = [(since * HOUR, (since + length) * HOUR, "a holiday") for since, length in days]
    drops = [Drop("prod", day, 1, 9, frozenset(["a"])) for day in sorted(dropped) if day - 1 not in dropped]
    rests = Rests([Calendar(".*", "DE", holidays)], drops, 30).get("prod", "a")
    assert [one.since / DAY for one in rests if one.seen] == [one.day for one in drops]
    assert all(one.until - one.since == DAY for one in rests if one.seen)
    covered = [hour for one in rests for hour in range(round(one.since / HOUR), round(one.until / HOUR))]
    wanted = {hour for since, length in days for hour in range(since, since + length)}
    wanted.update(24 * one.day + hour for one in drops for hour in range(24))
    assert covered == sorted(wanted)


def test_rests_are_the_same_where_spark_sent_them() -> None:
    days = {5: ["a", "b"], 6: ["b", "c"]}
    whole = Rests((), [Drop("prod", day, len(topics), 9, frozenset(topics)) for day, topics in days.items()], 30)
    sent = pickle.loads(pickle.dumps(whole))  # noqa: S301 - Spark sends it so
    assert sent.get("prod", "a") == whole.get("prod", "a") != ()
    assert sent.get("prod", "a")[0].why == "2 of 9 topics rested"
    assert sent.get("far", "a") == ()


@pytest.mark.parametrize(
    ("days", "today", "rested"),
    [
        ((), 30, []),
        ((5,), 6, []),
        ((5,), 7, [5]),
        ((5, 6), 7, []),
        ((5, 6), 8, [5, 6]),
        (tuple(range(5, 5 + MOST_DAYS)), 30, list(range(5, 5 + MOST_DAYS))),
        (tuple(range(5, 6 + MOST_DAYS)), 30, []),
        ((5, 7), 8, [5]),
        ((5, 7), 9, [5, 7]),
    ],
)
def test_a_drop_is_rest_once_the_fleet_came_back(days: tuple[int, ...], today: int, rested: list[int]) -> None:
    """A day after it is over and was none; a drop that lasts, or lasted too long, may be deaths and hides nothing."""
    rests = Rests(drops=[Drop("prod", day, 1, 9, frozenset(["a"])) for day in days], today=today)
    assert [one.since / DAY for one in rests.get("prod", "a")] == rested


def fleet(topics: int = 60, days: int = 84) -> np.ndarray:
    """Active hours a day: a third always on, a third on working days, a third runs at night; some runs are skipped."""
    random, weekday = np.random.default_rng(3), np.arange(days) % 7
    active = np.ones((topics, days), np.int64)
    active[::3] = 24
    active[1::3] = np.where(weekday < 5, 10, 0)
    active[2::3] = random.random((topics // 3, days)) > 0.03
    return active


def found_in(active: np.ndarray, *, covered: np.ndarray | None = None) -> dict[int, list[int]]:
    days = active.shape[1]
    there = np.ones(days, np.bool_) if covered is None else covered
    found = drop_days(active, np.zeros(len(active), np.int64), there, range(days))
    return {one.day: one.topics.tolist() for one in found}


def test_a_drop_is_a_day_on_which_many_more_topics_than_usual_were_low() -> None:
    """A holiday is found with its members, on each of its days; weekends, skipped runs and five deaths are none."""
    active = fleet()
    active[4:49:9, 70:] = 0
    assert found_in(active) == {}
    off = np.r_[1:60:3]
    active[off, 71:73] = 1
    found = found_in(active)
    assert list(found) == [71, 72]
    assert set(off.tolist()) <= set(found[71])
    assert len(found[71]) <= len(off) + 4


def test_topics_that_die_one_by_one_are_no_drop_however_many_they_become() -> None:
    """Three a day, of 60, for six days; a holiday amid them is one."""
    active = fleet()
    dying = np.arange(0, 60, 3)[:18].reshape(6, 3)
    for day, topics in enumerate(dying, 70):
        active[topics, day:] = 0
    assert found_in(active) == {}
    off = np.r_[1:60:3]
    active[off, 73] = 0
    found = found_in(active)
    assert list(found) == [73]
    assert set(off.tolist()) <= set(found[73])


def test_what_earlier_days_showed_does_not_depend_on_where_one_begins_to_look() -> None:
    """A drop of four days: looked at from each of its days on, the others are the same."""
    active = fleet()
    active[1:60:3, 70:74] = 0
    there = np.ones(84, np.bool_)
    whole = found_in(active)
    assert list(whole) == [70, 71, 72, 73]
    for since in whole:
        later = drop_days(active, np.zeros(len(active), np.int64), there, range(since, 84))
        assert {one.day: one.topics.tolist() for one in later} == {d: t for d, t in whole.items() if d >= since}


def test_a_day_that_was_not_observed_is_no_drop() -> None:
    """An exporter that was away saw nobody; and what is usual must be known from four weeks at least."""
    active = fleet()
    active[:, 71] = 0
    covered = np.arange(84) != 71
    assert list(found_in(active)) == [71]
    assert found_in(active, covered=covered) == {}
    assert found_in(active[:, 71 - 7 * LEAST_REFERENCES + 1 :]) == {}


def test_a_drop_is_followed_for_two_weeks_also_once_its_topics_were_silent_for_one() -> None:
    """Ten days are ten days; of longer ones no more is known than that they are longer."""
    for days, known_days in ((10, 10), (LONGEST_DAYS, LONGEST_DAYS), (30, LONGEST_DAYS + 1)):
        active = fleet(days=112)
        off = np.r_[0:60:3]
        active[off, 70 : 70 + days] = 0
        found = found_in(active)
        assert list(found) == list(range(70, 70 + known_days))
        assert all(set(off.tolist()) <= set(topics) for topics in found.values())

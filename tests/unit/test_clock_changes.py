"""People who write by local time do so at another hour of UTC once their clocks change: nothing is dead by it."""

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from exporter.domain.learning.baselines import Baselines
from exporter.domain.learning.baselines_of_streams import baselines
from exporter.domain.learning.slots import BY_FIVE, BY_HOUR, week_of
from exporter.domain.learning.traffic_clock import HOUR, WEEK, Clocks, change_sundays
from exporter.domain.verdicts import Verdict
from tests.unit.test_rhythms import DAY, LearnedStream, hours_of

ZONES = ("Europe/Berlin", "America/New_York", "America/Los_Angeles")
WEEKS_BEFORE, WEEKS_AFTER = 12, 5
OFFICE_TOPICS = 6
"""In each zone."""


def changes(zone: str, years: range) -> Iterator[date]:
    for year in years:
        day = date(year, 1, 1)
        while day.year == year:
            begin, end = (datetime(one.year, one.month, one.day, tzinfo=ZoneInfo(zone)) for one in (day, day + DAY_))
            if begin.utcoffset() != end.utcoffset():
                yield day
            day += DAY_


DAY_ = timedelta(days=1)


@pytest.mark.parametrize("zone", ZONES)
def test_the_days_of_changes_are_those_of_the_database_of_zones(zone: str) -> None:
    """Every day of a week leads to the Sunday that ends it."""
    expected = set(changes(zone, range(2007, 2038)))
    days = np.arange(np.datetime64("2007-01-01"), np.datetime64("2038-01-01"))
    sunday, changed = change_sundays(days.astype("datetime64[s]").astype(np.float64) + 7_000.0)
    found = set(sunday[changed].astype("datetime64[s]").astype("datetime64[D]").astype(object))
    assert expected <= found
    assert all(one.weekday() == 6 for one in found)
    assert changed.mean() < 7.2 * 4 / 365


def moments_of(rate: Callable[[datetime], float], zone: str, first: datetime, weeks: int, seed: int) -> np.ndarray:
    """Return the moments of records (Unix seconds) at a rate an hour by the local time of a zone."""
    random, begin = np.random.default_rng(seed), first.timestamp()
    found = []
    for hour in range(weeks * 168):
        at = begin + hour * HOUR
        count = random.poisson(rate(datetime.fromtimestamp(at, ZoneInfo(zone))))
        found.append(np.sort(at + random.uniform(0, HOUR, count)).round())
    return np.concatenate(found)


def alarms(moments: np.ndarray, first: float, last: float, slot: float) -> int:
    """Return how many silences that begin in a span, and end, are dead just before they end."""
    weeks = range(int(week_of(np.array(first))), int(week_of(np.array(last))) + 1)
    learned = LearnedStream(Baselines.concatenate(list(baselines(hours_of(moments, fine=True), weeks))))
    assert set(learned.baselines.slot_seconds) == {slot}
    begun = np.flatnonzero((moments[:-1] >= first) & (moments[:-1] < last) & (np.diff(moments) > slot))
    verdicts, _ = learned.judged(moments[:-1][begun], moments[1:][begun] - 1.0)
    return sum(one is Verdict.DEAD for one in verdicts)


@pytest.mark.parametrize("month", [3, 10])
@pytest.mark.parametrize("zone", ZONES)
def test_office_topics_in_slots_of_five_minutes_live_when_the_clocks_change(zone: str, month: int) -> None:
    change = next(day for day in changes(zone, range(2026, 2027)) if day.month >= month)
    monday = datetime(change.year, change.month, change.day, tzinfo=UTC) + DAY_
    first = monday - timedelta(weeks=WEEKS_BEFORE)
    dead = {}
    for seed in range(OFFICE_TOPICS):
        busy = np.random.default_rng(seed).uniform(10, 60)
        start = 8 + seed % 3

        def rate(at: datetime, busy: float = busy, start: int = start) -> float:
            return float(busy) if at.weekday() < 5 and start <= at.hour < start + 9 else 0.003

        moments = moments_of(rate, zone, first, WEEKS_BEFORE + WEEKS_AFTER, seed)
        begin = monday.timestamp() - WEEK
        dead[seed] = alarms(moments, begin, begin + 5 * WEEK, BY_FIVE.seconds)
    print(f"{zone}, {change}: {sum(one > 0 for one in dead.values())} of {len(dead)} office topics were dead")
    assert not any(dead.values()), dead


@pytest.mark.parametrize("runs", [{2}, {6, 18}, {0, 6, 12, 18}])
@pytest.mark.parametrize("month", [3, 10])
def test_a_job_that_runs_by_local_time_gives_no_alarm_when_the_clocks_change(month: int, runs: set[int]) -> None:
    change = next(day for day in changes("Europe/Berlin", range(2026, 2027)) if day.month == month)
    monday = datetime(change.year, change.month, change.day, tzinfo=UTC) + DAY_
    first = monday - timedelta(weeks=WEEKS_BEFORE)
    hours = (first + timedelta(hours=one) for one in range((WEEKS_BEFORE + WEEKS_AFTER) * 168))
    at = [one.timestamp() for one in hours if one.astimezone(ZoneInfo("Europe/Berlin")).hour in runs]
    moments = np.array(at) + np.random.default_rng(1).uniform(0, 1200, len(at)).round()
    begin = monday.timestamp() - WEEK
    assert alarms(moments, begin, begin + 4 * WEEK, BY_HOUR.seconds) == 0


def test_the_clock_counts_the_least_of_three_hours_and_its_inverse_the_latest() -> None:
    """Around a change, where a silence over it may be an hour longer; before and later it counts as it is."""
    profile = np.zeros((1, 168))
    profile[0, [day * 24 + hour for day in range(5) for hour in range(8, 17)]] = 12.0
    one, row = np.ones(1), np.zeros(1, np.intp)
    clocks = Clocks(profile, 0.1 * one, one, one)
    sunday = datetime(2026, 10, 25, tzinfo=UTC).timestamp()

    def missed(start: float, end: float) -> float:
        found = float(clocks.ticks(row, np.array([start]), np.array([end]))[0])
        if found:
            moment = clocks.moment(row, np.array([start]), np.array([found]))[0]
            assert abs(clocks.ticks(row, np.array([start]), np.array([moment]))[0] - found) < 1e-6
            assert moment >= end - 1e-3
        return found

    friday, monday, tuesday = sunday - 2 * DAY, sunday + DAY, sunday + 2 * DAY
    assert missed(friday + 17 * HOUR, monday + 9 * HOUR) == 0.0, "a weekend that an hour was added to"
    assert missed(friday + 17 * HOUR, monday + 10 * HOUR) == pytest.approx(12.0)
    assert missed(monday + 18 * HOUR, tuesday + 9 * HOUR) == 0.0
    assert missed(monday + 16 * HOUR, tuesday + 7 * HOUR) == 0.0, "or the other way"
    assert missed(monday + 10 * HOUR, monday + 12 * HOUR) == pytest.approx(24.0), "in the middle of a day nothing"
    later = 3 * WEEK
    assert missed(monday + later + 18 * HOUR, tuesday + later + 9 * HOUR) == pytest.approx(12.0)
    earlier = -2 * WEEK
    assert missed(monday + earlier + 18 * HOUR, tuesday + earlier + 9 * HOUR) == pytest.approx(12.0)

"""Rests put off the limits of streams that are too slow for a traffic clock."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from exporter.domain.history.streams import objects
from exporter.domain.judging.rollup_verdicts import Verdicts
from exporter.domain.learning.baselines import longest_usual
from exporter.domain.learning.baselines_of_streams import baselines
from exporter.domain.learning.rest_days import Calendar, Rest, Rests
from exporter.domain.learning.traffic_clock import FIRST_MONDAY, WEEK
from exporter.domain.verdicts import VERDICTS, Verdict
from tests.unit.test_rhythms import DAY, START, day_of_month, hours_of, known, records
from tests.unit.test_rollup_verdicts import streams


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


LAST = at("2026-03-23 08:10")
GOOD_FRIDAY = at("2026-04-02 22:00"), at("2026-04-03 22:00"), "Good Friday"
EASTER_MONDAY = at("2026-04-05 22:00"), at("2026-04-06 22:00"), "Easter Monday"
CALENDAR = Rests([Calendar(".*", "DE", (GOOD_FRIDAY, EASTER_MONDAY))]).get("prod", "payroll")


def every_second_monday(rests: tuple[Rest, ...], now: float) -> Verdicts:
    """Judge a partition that ran so until LAST, and its topic."""
    week = int((LAST - FIRST_MONDAY) // WEEK)
    (made,) = baselines(hours_of(LAST - 14 * DAY * np.arange(9.0, -1.0, -1.0)), [week])
    each = streams([("prod", "payroll")], [0], [LAST], [now])
    return Verdicts(replace(each, rests=objects([rests] * 2)), made, np.zeros(2, np.intp), now)


DROPS = tuple(one._replace(seen=True) for one in CALENDAR)


@pytest.mark.parametrize(
    ("rests", "now", "verdict", "dead_from"),
    [
        ((), "2026-04-14", Verdict.SUSPECT, "2026-04-16 20:10"),
        ((), "2026-04-17", Verdict.DEAD, "2026-04-16 20:10"),
        (CALENDAR[:1], "2026-04-17", Verdict.DEAD, "2026-04-16 20:10"),
        (CALENDAR, "2026-04-17", Verdict.QUIET, "2026-04-30 20:10"),
        (DROPS, "2026-04-17", Verdict.QUIET, "2026-04-30 20:10"),
        (DROPS, "2026-04-28", Verdict.SUSPECT, "2026-04-30 20:10"),
        (DROPS, "2026-05-01", Verdict.DEAD, "2026-04-30 20:10"),
    ],
)
def test_a_slow_run_that_was_due_on_a_holiday_is_given_one_more_period(
    rests: tuple[Rest, ...], now: str, verdict: Verdict, dead_from: str
) -> None:
    """A calendar puts off its limits as a rest that was seen does; the evidence names no holiday of another day."""
    found = every_second_monday(rests, at(now))
    assert [VERDICTS[code] for code in found.verdict] == [verdict, verdict]
    assert found.expected_by.tolist() == [at(dead_from)] * 2
    named = "; not counted: Sun 05 Apr 22:00 to Mon 06 Apr 22:00 UTC (Easter Monday, DE); "
    assert (named in found.evidence[0]) == (len(rests) == 2)
    assert "Good Friday" not in found.evidence[0]


@pytest.mark.parametrize(
    ("active", "weeks", "rule", "days"),
    [
        pytest.param(lambda hour: hour % 168 == 30, 14, (1.5, 1.75), 7.0, id="weekly"),
        pytest.param(lambda hour: day_of_month(hour) == 1 and hour % 24 == 3, 24, (1.25, 1.5), 31.0, id="monthly"),
        pytest.param(lambda hour: hour // 168 % 2 == 0, 15, (1.25, 1.5), 7.0, id="a week on and a week off"),
    ],
)
def test_the_longest_usual_silence_is_found_again_in_both_limits(
    active: Callable[[int], bool], weeks: int, rule: tuple[float, float], days: float
) -> None:
    """That of a period and that of a spell, whether it is too slow for a profile or not."""
    moments = records(active, weeks + 1, jitter=0.0)
    week = int((moments[moments < START + weeks * WEEK][-1] - START) // WEEK)
    made = known(moments, week).baselines
    longest = float(longest_usual(made.suspect_silence, made.max_silence)[0])
    assert [made.suspect_silence[0], made.max_silence[0]] == pytest.approx([times * longest for times in rule])
    assert longest == pytest.approx(days * DAY, abs=DAY / 24)

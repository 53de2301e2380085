"""What the configuration says and the history does not is named; a calendar holds no topic that works through it."""

from __future__ import annotations

import numpy as np
import pytest

from exporter.domain import TopicOverride
from exporter.domain.judging.contradictions import (
    CALENDARS,
    OUTAGES,
    Contradiction,
    compared,
    holiday_worked,
    of_override,
    summary_lines,
    wrote_as_usual,
)
from exporter.domain.learning.hours import Integers
from exporter.domain.learning.rest_days import Calendar, Rests

HOUR, DAY, WEEK = 3600.0, 86_400.0, 7 * 86_400.0
MONDAY = 2900 * 168 + 96
"""The first hour of a Monday, since 1970."""
WEEKS = 12
NOW = (MONDAY + WEEKS * 168) * HOUR


def office(*off: int) -> Integers:
    """The active hours of a topic of eight hours each weekday, without those of some days."""
    days = [day for day in range(WEEKS * 7) if day % 7 < 5 and day not in off]
    return np.array([MONDAY + day * 24 + hour for day in days for hour in range(9, 17)], np.int64)


def span(day: int, days: float = 1.0) -> tuple[float, float]:
    """A day of the past and those after it."""
    return (MONDAY + day * 24) * HOUR, (MONDAY + (day + days) * 24) * HOUR


@pytest.mark.parametrize(
    ("off", "days", "expected"),
    [((), (70, 2.0), (16, 16.0)), ((70, 71), (70, 2.0), (0, 16.0)), ((), (75, 2.0), None), ((), (21, 1.0), None)],
    ids=["wrote", "was out", "a weekend, when it never writes", "three weeks known"],
)
def test_only_the_same_span_of_the_weeks_before_says_what_is_usual(
    off: tuple[int, ...], days: tuple[int, float], expected: tuple[int, float] | None
) -> None:
    """Whole hours count; where nothing is usual, or too little is known, nothing is said."""
    found = compared(office(*off), MONDAY, *span(*days))
    assert found == expected
    assert wrote_as_usual(found) == (expected == (16, 16.0))


def test_an_outage_of_less_than_an_hour_is_never_contradicted() -> None:
    """The hours in which it began and ended have records of other minutes."""
    since = (MONDAY + 70 * 24 + 10) * HOUR + 900.0
    assert compared(office(), MONDAY, since, since + 1800.0) is None


def test_a_topic_works_through_the_holidays_of_a_calendar_if_it_did_on_each_known_one() -> None:
    """Having rested once it rests again; one that is always on has no use for a calendar."""
    days = [(*span(day), f"holiday {day}") for day in (50, 70, 77)]
    assert holiday_worked(office(), MONDAY, days) == (days[-1], (8, 8.0))
    assert holiday_worked(office(70), MONDAY, days) is None
    assert holiday_worked(office(), MONDAY, days[:0]) is None
    always = np.arange(MONDAY, MONDAY + WEEKS * 168)
    assert holiday_worked(always, MONDAY, days) is None


def test_no_calendar_holds_a_topic_that_worked_through_it() -> None:
    """Others rest by it as before."""
    calendar = Calendar("orders.*", "DE-BY", ((*span(90), "holiday"),))
    rests = Rests([calendar], worked=[("prod", "orders")])
    assert rests.of("prod", "orders") == ()
    assert [one.why for one in rests.of("prod", "orders-eu")] == ["holiday, DE-BY"]
    assert [one.why for one in rests.of("far", "orders")] == ["holiday, DE-BY"]


def against(override: TopicOverride, longest: float | None, records: int = 0) -> str | None:
    """What is said of one override."""
    found = of_override(override, ("prod", "orders"), NOW, longest, records)
    return None if found is None else "".join(summary_lines([found]))


def test_an_override_that_its_topic_contradicts_is_named_with_its_value() -> None:
    """Too short, too long, a mute without an end, and a retired topic that is written."""
    limit = TopicOverride("orders", max_silence_seconds=DAY)
    assert against(limit, 28 * DAY) == (
        "overrides: max_silence: 1d: orders of prod was silent for 28 d in its past and wrote again. "
        "By this entry such a silence is dead"
    )
    assert against(limit, 120.0) == (
        "overrides: max_silence: 1d: orders of prod was never silent for more than 2 min. "
        "By this entry it is dead 1 d after its last record"
    )
    assert against(limit, HOUR) is None
    assert against(limit, None) is None, "nothing is known of its silences"
    assert against(TopicOverride("orders", muted_until=NOW + 30 * DAY), 60.0) is None
    assert "muted_until: 2999-01-01 UTC: orders of prod is muted for more than a year" in str(
        against(TopicOverride("orders", muted_until=32_472_144_000.0), 60.0)
    )
    assert "retired: true: orders of prod had 1,200 records in 7 days" in str(
        against(TopicOverride("orders", retired=True), 60.0, 1200)
    )
    assert against(TopicOverride("orders", retired=True), 60.0) is None


def test_many_topics_of_one_entry_are_one_line() -> None:
    """The first three are named, the others counted; another cluster is another line."""
    names = ["d", "b", "a", "c"]
    found = [Contradiction(CALENDARS, "FR, Easter", "prod", name, *span(70), 8, 8.0) for name in names]
    found += [Contradiction(OUTAGES, "Mon to Tue", "far", "a", *span(70), 1, 1.5)]
    assert list(summary_lines(found)) == [
        (
            "calendars: FR, Easter: a, b, c and 1 more of prod wrote in 8 hours of it, usually in 8. "
            "Until it rests on a holiday, it is judged on holidays as on any day"
        ),
        (
            "outages: Mon to Tue: a of far wrote in 1 hour of it, usually in 1.5: it was not out. "
            "The entry excuses nothing but silences in that time"
        ),
    ]

"""A stream whose rhythm changed in the middle of a week is dead in two of its new pauses at most."""

from __future__ import annotations

import numpy as np
import pytest

from exporter.domain.learning.baselines import Baselines
from exporter.domain.learning.baselines_of_streams import baselines
from exporter.domain.learning.pauses import RECENT_DAYS, add_recent_pauses
from exporter.domain.learning.traffic_clock import FIRST_MONDAY, HOUR, WEEK
from exporter.domain.verdicts import Verdict
from tests.unit.test_rhythms import DAY, FIRST, START, Active, LearnedStream, hours_of, records

CHANGED = 9 * 168 + 24
"""A Tuesday in the tenth week."""


def dead_pauses(active: Active, weeks: int = 3) -> list[int]:
    """Return the days after the change on which silences began that were dead before a record ended them.

    Each is judged by what the last rollup knew, at the midnight before that record.
    """
    moments = records(active, 9 + weeks, jitter=600.0)
    hours = hours_of(moments)
    known = Baselines.joined(list(baselines(hours, range(FIRST + 9, FIRST + 9 + weeks))))
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


def test_nights_are_no_recent_pauses() -> None:
    """Office hours that are as ever keep the pauses of their baseline: a death at noon is seen as soon as before."""
    moments = records(lambda hour: 8 <= hour % 24 < 18 and hour // 24 % 7 < 5, 10)
    hours = hours_of(moments)
    known = Baselines.joined(list(baselines(hours, [FIRST + 9])))
    found = add_recent_pauses(known, np.array([0]), hours, START + 10 * WEEK)
    assert np.array_equal(found.pause, known.pause)


def test_what_ends_after_the_moment_is_not_known() -> None:
    """As of the past a rollup has later days too."""
    hours = hours_of(records(lambda hour: hour < CHANGED or hour % 24 == 2, 11, jitter=600.0))
    known = Baselines.joined(list(baselines(hours, [FIRST + 9])))
    tuesday = START + CHANGED * HOUR
    [before], [after] = (add_recent_pauses(known, np.array([0]), hours, tuesday + days * DAY).pause for days in (2, 4))
    assert before < 3.0 and after > 20.0

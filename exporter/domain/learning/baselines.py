"""The baseline of each stream's silences, week by week.

The baseline of a week is made of the eight weeks before it and of nothing else, so it is computed once and never
changes. A silence is scored with the baseline of the week in which it began, so it never affects its own baseline.
``exporter.domain.learning.baselines_of_streams`` computes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Flags, Floats, Rows
from exporter.domain.column_set import ColumnSet
from exporter.domain.learning.hours import Integers
from exporter.domain.learning.schedule import DAY, planned
from exporter.domain.learning.traffic_clock import FIRST_MONDAY, HOURS, Clocks, Span

WEEKS = 8
"""So many weeks make a baseline."""

PERIOD_WEEKS = 12
"""Weeks that are read for a stream that is too slow for a profile."""

ACTIVE_SLOTS_NEEDED = 10
WEEKS_NEEDED = 2
"""With less evidence than these two a stream is judged by its period, if it has one, or not at all."""

PERIODS_NEEDED = 4
PERIOD_REGULARITY, PERIOD_SUSPECT, PERIOD_DEAD = 1.5, 1.5, 1.75
"""A slow stream has a period where its longest silence is at most 1.5 times the median; past so many times the
longest it is suspect and dead."""


@dataclass(frozen=True, slots=True, eq=False)
class Baselines(ColumnSet):
    """The baselines for silences that begin in a week, a column [n] each; NaN where a stream has none."""

    stream: Rows
    week: Integers
    """The number of the week, counted from the first Monday."""
    slot_seconds: Floats
    profile: NDArray[np.float64]
    """[n, 168], active slots an hour from Monday 00:00 UTC."""
    step: Floats
    """The mean active slots in a slot."""
    mean: Floats
    spread: Floats
    """Of the logarithm of what silences missed; NaN where the evidence is too thin for the traffic clock."""
    suspect_silence: Floats
    max_silence: Floats
    """Seconds, where the stream is slow and regular."""
    active_slots: Integers
    weeks: Integers
    """Whole weeks that are known and have a silence to learn from."""
    history_start: Floats
    """Unix seconds."""
    observed: Floats
    """Seconds from then to the start of the week that were observed."""
    largest_silence: Floats
    """Seconds from the last advance to the next one; an upper bound where advances are known by slot only."""
    largest_silence_end: Floats
    largest_missed: Floats
    weekly_scores: NDArray[np.float64]
    """[n, 8]: the largest score of each week, before it is clipped."""
    pause: Floats
    """Missed slots (with a schedule: nats) up to which a silence is a pause like earlier ones of the stream."""
    schedule: NDArray[np.object_]
    """When its runs are due (``exporter.domain.learning.schedule.Schedule``), None where it has no schedule."""
    together: Flags
    """Whether its hours come and stay away together (``exporter.domain.learning.profiles.TOGETHER``)."""

    @property
    def clocked(self) -> Flags:
        """Whether silences are judged by the traffic clock, or by a schedule."""
        return ~np.isnan(self.mean) | self.scheduled

    @property
    def scheduled(self) -> Flags:
        """Whether they are judged by a schedule."""
        return planned(self.schedule)

    def clocks(self, rests: Sequence[Sequence[Span]] = ()) -> Clocks:
        """Return the clocks of each row; profiles are in single precision, as they are published.

        ``rests`` are those of each row.
        """
        profiles = self.profile.astype(np.float32).reshape(-1, HOURS)
        return Clocks(profiles, self.step, self.mean, self.spread, self.pause, self.schedule, rests)


def whole_weeks(history_start: Floats, week: int) -> Integers:
    """Return how many whole weeks each history from a moment (Unix seconds) to the start of a week has.

    A day that is known in part counts: the first record of a day is no earlier than it is.
    """
    known_days = week * 7 - np.floor((history_start - FIRST_MONDAY) / DAY).astype(np.int64)
    return known_days // 7


def longest_usual(suspect_silence: Floats, max_silence: Floats) -> Floats:
    """Return the longest usual silence, a period or a spell, that limits by the wall clock were made of.

    In their unit, any shape; NaN where there is no limit.
    """
    # A period and a spell have different limits, but the same distance between them.
    return (max_silence - suspect_silence) / (PERIOD_DEAD - PERIOD_SUSPECT)

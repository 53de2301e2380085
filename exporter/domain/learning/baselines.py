"""The baseline of each stream's silences, week by week.

The baseline of a week depends only on the eight weeks before it, so it is computed once and never changes. A silence is
scored with the baseline of the week in which it began, so it never affects its own baseline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import ColumnSet, Flags, Floats, Rows, blank_columns
from exporter.domain.learning.hours import Integers
from exporter.domain.learning.rest_days import Rest
from exporter.domain.learning.schedule import DAY, has_schedule
from exporter.domain.learning.traffic_clock import FIRST_MONDAY, HOURS, Clocks

WEEKS = 8
"""Number of weeks from which a baseline is computed."""

PERIOD_WEEKS = 12
"""Number of weeks that are read for a stream too slow for a profile."""

ACTIVE_SLOTS_NEEDED = 10
WEEKS_NEEDED = 2
"""Minimum evidence for a profile. With less of either a stream is judged by its period, or not at all without one."""

PERIODS_NEEDED = 4
PERIOD_REGULARITY, PERIOD_SUSPECT, PERIOD_DEAD = 1.5, 1.5, 1.75
"""A slow stream has a period if its longest silence is at most PERIOD_REGULARITY times the median. It is suspect and
dead after PERIOD_SUSPECT and PERIOD_DEAD times the longest."""


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
    """Mean number of active slots in a slot."""
    mean: Floats
    spread: Floats
    """Mean and spread are of the logarithm of missed slots; NaN: too little evidence for the traffic clock."""
    suspect_silence: Floats
    max_silence: Floats
    """Limits in seconds, of a stream that is slow and regular."""
    active_slots: Integers
    weeks: Integers
    """Number of whole known weeks with a silence to learn from."""
    history_start: Floats
    """Unix seconds."""
    observed: Floats
    """Observed seconds between ``history_start`` and the start of the week."""
    largest_silence: Floats
    """Seconds from the last advance to the next one; an upper bound where advances are known by slot only."""
    largest_silence_end: Floats
    largest_missed: Floats
    pause: Floats
    """Missed slots (with a schedule: nats) up to which a silence is a pause like earlier ones of the stream."""
    schedule: NDArray[np.object_]
    """When its runs are due (``exporter.domain.learning.schedule.Schedule``), None where it has no schedule."""
    together: Flags
    """Whether its hours are active together or not at all (``exporter.domain.learning.profiles.TOGETHER``)."""

    @classmethod
    def make_empty(cls) -> Baselines:
        """Return the baselines of no stream."""
        return cls(**blank_columns(cls, 0), profile=np.zeros((0, HOURS)))

    def find_rows(self, stream: Rows, week: Integers) -> Rows:
        """Return the row of each stream and week, -1 where it has none."""
        if not len(self):
            return np.full(len(stream), -1, np.intp)
        keys, wanted = ((of.astype(np.int64) << 32) + at for of, at in ((self.stream, self.week), (stream, week)))
        order = np.argsort(keys)
        at = np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)
        return np.where(keys[order][at] == wanted, order[at], -1).astype(np.intp)

    @property
    def clocked(self) -> Flags:
        """Whether silences are judged by the traffic clock, or by a schedule."""
        return ~np.isnan(self.mean) | self.scheduled

    @property
    def scheduled(self) -> Flags:
        """Whether they are judged by a schedule."""
        return has_schedule(self.schedule)

    def clocks(self, rests: Sequence[Sequence[Rest]] = ()) -> Clocks:
        """Return the traffic clock of each row, with its rests. Profiles have single precision, like published ones."""
        profiles = self.profile.astype(np.float32).reshape(-1, HOURS)
        return Clocks(profiles, self.step, self.mean, self.spread, self.pause, self.schedule, rests)


def whole_weeks(history_start: Floats, week: int) -> Integers:
    """Return the number of whole weeks in each history, from its start (Unix seconds) to the start of ``week``.

    The first day counts even if history begins in the middle of it.
    """
    known_days = week * 7 - np.floor((history_start - FIRST_MONDAY) / DAY).astype(np.int64)
    return known_days // 7


def longest_usual(suspect_silence: Floats, max_silence: Floats) -> Floats:
    """Return the longest usual silence, a period or a spell, from which limits by the wall clock were computed.

    The unit is that of the limits, the shape any; NaN where there is no limit.
    """
    # A period and a spell have different limits, but the same distance between them.
    return (max_silence - suspect_silence) / (PERIOD_DEAD - PERIOD_SUSPECT)

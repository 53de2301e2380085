"""The traffic clock: silence measured by the traffic that is usual for a stream, for all streams at once.

U(a, b) is the number of active slots that the profile of a stream expects between two times. The profile is periodic in
the week, which starts Monday 00:00 UTC, and constant within an hour. All functions take arrays with one element for
each silence. Times are Unix seconds in float64, which resolves below a microsecond.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

HOUR = 3600.0
HOURS = 168
WEEK = HOURS * HOUR
FIRST_MONDAY = 4 * 86_400.0
"""1970-01-05 00:00 UTC, from which weeks are counted."""

FORESEEN_WEEKS = 520
"""A time further ahead than ten years counts as unknown."""


class Clocks:
    """The traffic clocks of n streams. Every method takes ``rows``, the selected streams."""

    def __init__(self, profiles: NDArray[np.floating], step: Floats, mean: Floats, spread: Floats) -> None:
        """``profiles`` [n, 168] are active slots per hour: finite, not negative and in no row all 0."""
        # Cumulative sums: a poll then reads two numbers for each stream. In float64, because a short silence late in
        # the week is a small difference of large sums.
        self._passed = np.zeros((len(profiles), HOURS + 1))
        np.cumsum(profiles, axis=1, dtype=np.float64, out=self._passed[:, 1:])
        self._week = self._passed[:, HOURS]
        self._step, self._mean, self._spread = step, mean, spread

    def ticks(self, rows: Rows, start: Floats, end: Floats) -> Floats:
        """Return U(start, end), the active slots expected in between; 0 where ``end`` is not later."""
        first_week, before = self._at(rows, start)
        last_week, after = self._at(rows, end)
        passed = (last_week - first_week) * self._week[rows] + (after - before)
        return np.where(end > start, np.maximum(passed, 0.0), 0.0)

    def score(self, rows: Rows, ticks: Floats) -> Floats:
        """Return z, the silence score, of silences in which the clock advanced by ``ticks``."""
        return (np.log(ticks + self._step[rows]) - self._mean[rows]) / self._spread[rows]

    def needed(self, rows: Rows, score: Floats | float) -> Floats:
        """Return the ticks at which the score is reached: the inverse of ``score``; 0 where it always is."""
        with np.errstate(over="ignore"):
            return np.maximum(np.exp(self._mean[rows] + score * self._spread[rows]) - self._step[rows], 0.0)

    def moment(self, rows: Rows, start: Floats, ticks: Floats) -> Floats:
        """Return the latest time at which no more than ``ticks`` passed since ``start``: the inverse of ``ticks``.

        NaN where that is further ahead than FORESEEN_WEEKS.
        """
        week, before = self._at(rows, start)
        total = self._week[rows]
        foreseen = ticks < total * FORESEEN_WEEKS
        weeks, rest = np.divmod(before + np.where(foreseen, ticks, 0.0), total)
        hour = np.zeros(len(rows), dtype=np.intp)
        for stride in (128, 64, 32, 16, 8, 4, 2, 1):
            further = np.minimum(hour + stride, HOURS - 1)
            hour = np.where(self._passed[rows, further] <= rest, further, hour)
        rate = self._passed[rows, hour + 1] - self._passed[rows, hour]
        part = np.divide(rest - self._passed[rows, hour], rate, out=np.zeros(len(rows)), where=rate > 0)
        found = FIRST_MONDAY + (week + weeks) * WEEK + (hour + np.clip(part, 0.0, 1.0)) * HOUR
        return np.where(foreseen, np.where(ticks > 0, np.maximum(found, start), start), np.nan)

    def busiest_day(self, rows: Rows) -> Floats:
        """Return the ticks of the busiest UTC day of the week."""
        days: Floats = np.diff(self._passed[:, ::24][rows], axis=1)
        return np.asarray(days.max(axis=1))

    def _at(self, rows: Rows, moment: Floats) -> tuple[Floats, Floats]:
        """Return the number of the week and the ticks since it began."""
        week, rest = np.divmod((moment - FIRST_MONDAY) / HOUR, HOURS)
        hour = np.minimum(rest.astype(np.intp), HOURS - 1)
        low = self._passed[rows, hour]
        return week, low + (self._passed[rows, hour + 1] - low) * (rest - hour)

"""Active slots that each stream's clock counts from the start of the week to any hour, for all streams at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Floats, Rows

DAYS, DAY_HOURS = 7, 24
_HOURS = DAYS * DAY_HOURS

_ROWS_AT_ONCE = 1024
"""Number of rows summed at once. numpy converts all of them first, and more would not stay in the CPU's cache."""

_BEFORE = np.tri(DAY_HOURS, k=-1)
"""By hour of the day: which hours come before it."""


class WeeklySums(Protocol):
    """Sums over hours of the week for n streams; every method takes ``rows``, the selected streams."""

    def week(self, rows: Rows) -> Floats:
        """Return what the whole week counts."""

    def days(self, rows: Rows) -> Floats:
        """Return what each UTC day of the week counts, [rows, 7]."""

    def at(self, rows: Rows, hour: Rows) -> tuple[Floats, Floats]:
        """Return what the week counts before an hour of it, and what that hour counts."""

    def find(self, rows: Rows, counted: Floats) -> tuple[Rows, Floats, Floats]:
        """Return the last hour before which at most ``counted`` is counted, and what ``at`` returns for it."""


class HourlySums:
    """A sum for each hour: the fastest choice for many silences of each stream. It takes 1,352 bytes a stream."""

    def __init__(self, profiles: NDArray[np.floating]) -> None:
        """``profiles`` [n, 168] are what each hour counts."""
        # In float64, because a short silence late in the week is a small difference of large sums.
        self._passed = np.zeros((len(profiles), _HOURS + 1))
        for some in _slices(len(profiles), _ROWS_AT_ONCE):
            np.cumsum(profiles[some], axis=1, dtype=np.float64, out=self._passed[some, 1:])

    def put(self, rows: Rows, counted: Floats) -> None:
        """Replace what each hour counts of some streams."""
        self._passed[rows, 1:] = np.cumsum(counted, axis=1)

    def week(self, rows: Rows) -> Floats:
        """Return what the whole week counts."""
        return np.asarray(self._passed[rows, _HOURS])

    def days(self, rows: Rows) -> Floats:
        """Return what each UTC day of the week counts, [rows, 7]."""
        return np.diff(self._passed[:, ::DAY_HOURS][rows], axis=1)

    def at(self, rows: Rows, hour: Rows) -> tuple[Floats, Floats]:
        """Return what the week counts before an hour of it, and what that hour counts."""
        before = self._passed[rows, hour]
        return before, self._passed[rows, hour + 1] - before

    def find(self, rows: Rows, counted: Floats) -> tuple[Rows, Floats, Floats]:
        """Return the last hour before which at most ``counted`` is counted, and what ``at`` returns for it."""
        hour = np.zeros(len(rows), dtype=np.intp)
        for stride in (128, 64, 32, 16, 8, 4, 2, 1):
            further = np.minimum(hour + stride, _HOURS - 1)
            hour = np.where(self._passed[rows, further] <= counted, further, hour)
        return hour, *self.at(rows, hour)


class Profiles:
    """Counts of each hour for p streams, with a sum for each day: 64 bytes a profile besides the rates themselves."""

    def __init__(self, rates: NDArray[np.floating]) -> None:
        """``rates`` [p, 168] are not copied."""
        self.rates = rates
        self.passed = np.zeros((len(rates), DAYS + 1))
        """What the week counts before each day."""
        for some in _slices(len(rates), _ROWS_AT_ONCE):
            of_days = rates[some].reshape(-1, DAYS, DAY_HOURS).sum(-1, dtype=np.float64)
            np.cumsum(of_days, axis=1, out=self.passed[some, 1:])


class DailySums:
    """Sums computed from daily sums: for the exporter, which has all profiles but judges one silence of each stream."""

    def __init__(self, profiles: Profiles, of: NDArray[np.int32]) -> None:
        """``of`` [n] is the index of each stream's profile; several streams may share one."""
        self._of = of
        self._rates, self._days = profiles.rates, profiles.passed
        self._blocks = profiles.rates.reshape(-1, DAY_HOURS)

    def week(self, rows: Rows) -> Floats:
        """Return what the whole week counts."""
        return np.asarray(self._days[self._profiles(rows), DAYS])

    def days(self, rows: Rows) -> Floats:
        """Return what each UTC day of the week counts, [rows, 7]."""
        return np.diff(self._days[self._profiles(rows)], axis=1)

    def at(self, rows: Rows, hour: Rows) -> tuple[Floats, Floats]:
        """Return what the week counts before an hour of it, and what that hour counts."""
        profile = self._profiles(rows)
        day, within = np.divmod(hour, DAY_HOURS)
        before = self._days[profile, day]
        for some in _slices(len(rows), _ROWS_AT_ONCE):
            rates = self._blocks[profile[some] * DAYS + day[some]].astype(np.float64)
            before[some] += np.einsum("ij,ij->i", rates, _BEFORE[within[some]])
        return before, self._rates[profile, hour].astype(np.float64)

    def find(self, rows: Rows, counted: Floats) -> tuple[Rows, Floats, Floats]:
        """Return the last hour before which at most ``counted`` is counted, and what ``at`` returns for it."""
        profile = self._profiles(rows)
        day = np.zeros(len(rows), dtype=np.intp)
        for stride in (4, 2, 1):
            further = np.minimum(day + stride, DAYS - 1)
            day = np.where(self._days[profile, further] <= counted, further, day)
        hour, before = day * DAY_HOURS, self._days[profile, day]
        for some in _slices(len(rows), _ROWS_AT_ONCE):
            inside = np.cumsum(self._blocks[profile[some] * DAYS + day[some], :-1], axis=1, dtype=np.float64)
            within = (before[some, None] + inside <= counted[some, None]).sum(1)
            hour[some] += within
            passed = np.take_along_axis(inside, np.maximum(within - 1, 0)[:, None], 1)[:, 0]
            before[some] += np.where(within > 0, passed, 0.0)
        return hour, before, self._rates[profile, hour].astype(np.float64)

    def _profiles(self, rows: Rows) -> Rows:
        return self._of[rows].astype(np.intp)


def _slices(count: int, size: int) -> Iterator[slice]:
    return (slice(begin, begin + size) for begin in range(0, count, size))

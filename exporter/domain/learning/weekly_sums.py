"""Active slots that profiles count from the start of the week to any hour."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Floats, Rows

DAYS, DAY_HOURS = 7, 24

_ROWS_AT_ONCE = 1024
"""Number of rows summed at once. numpy converts all of them first, and more would not stay in the CPU's cache."""

_BEFORE = np.tri(DAY_HOURS, k=-1)
"""By hour of the day: which hours come before it."""


class Profiles:
    """The rates of p profiles, with a sum for each day. Methods take the ``rows`` of profiles, in any number."""

    def __init__(self, rates: NDArray[np.floating]) -> None:
        """``rates`` [p, 168] are what each hour counts; they are not copied."""
        self.rates = rates
        self._blocks = rates.reshape(-1, DAY_HOURS)
        self._passed = np.zeros((len(rates), DAYS + 1))
        """What the week counts before each day, in float64: a short silence is a small difference of large sums."""
        for some in _slices(len(rates)):
            of_days = rates[some].reshape(-1, DAYS, DAY_HOURS).sum(-1, dtype=np.float64)
            np.cumsum(of_days, axis=1, out=self._passed[some, 1:])

    def week(self, rows: Rows) -> Floats:
        """Return what the whole week counts."""
        return np.asarray(self._passed[rows, DAYS])

    def days(self, rows: Rows) -> Floats:
        """Return what each UTC day of the week counts, [rows, 7]."""
        return np.diff(self._passed[rows], axis=1)

    def at(self, rows: Rows, hour: Rows) -> tuple[Floats, Floats]:
        """Return what the week counts before an hour of it, and what that hour counts."""
        day, within = np.divmod(hour, DAY_HOURS)
        before = self._passed[rows, day]
        for some in _slices(len(rows)):
            rates = self._blocks[rows[some] * DAYS + day[some]].astype(np.float64)
            before[some] += np.einsum("ij,ij->i", rates, _BEFORE[within[some]])
        return before, self.rates[rows, hour].astype(np.float64)

    def find(self, rows: Rows, counted: Floats) -> tuple[Rows, Floats, Floats]:
        """Return the last hour before which at most ``counted`` is counted, and what ``at`` returns for it."""
        day = np.zeros(len(rows), dtype=np.intp)
        for stride in (4, 2, 1):
            further = np.minimum(day + stride, DAYS - 1)
            day = np.where(self._passed[rows, further] <= counted, further, day)
        hour, before = day * DAY_HOURS, self._passed[rows, day]
        for some in _slices(len(rows)):
            inside = np.cumsum(self._blocks[rows[some] * DAYS + day[some], :-1], axis=1, dtype=np.float64)
            within = (before[some, None] + inside <= counted[some, None]).sum(1)
            hour[some] += within
            passed = np.take_along_axis(inside, np.maximum(within - 1, 0)[:, None], 1)[:, 0]
            before[some] += np.where(within > 0, passed, 0.0)
        return hour, before, self.rates[rows, hour].astype(np.float64)


def _slices(count: int) -> Iterator[slice]:
    return (slice(begin, begin + _ROWS_AT_ONCE) for begin in range(0, count, _ROWS_AT_ONCE))

"""Lengths of the silences of past weeks or days -> mean and spread of the next one."""

from __future__ import annotations

import numpy as np

from exporter.domain.arrays import Floats
from exporter.domain.learning.hours import Integers

_SPREAD, _SPREAD_WEIGHT = 0.45, 4.0
"""Usual spread of a silence's logarithm from week to week (measured on generated streams and real departures), and the
number of weeks that this prior counts as."""

TOGETHER_SPREAD = 0.5
"""Spread from week to week of streams whose hours are active together (``profiles.TOGETHER``). This number predicts
their silences better than the spread of eight weeks (measured on generated streams)."""

_CLIP = 3.0


def summary(values: Floats) -> tuple[Floats, Floats, Integers]:
    """Return mean, spread for the next value, and count of values along the last axis; NaN is no value.

    From the third on each value is clipped at three spreads over the mean of the earlier ones. So an outage of days
    that was repaired does not hide deaths in the weeks after it.
    """
    count = np.zeros(values.shape[:-1])
    mean, squares = np.zeros_like(count), np.zeros_like(count)
    for value in np.ascontiguousarray(np.moveaxis(values, -1, 0)):
        known = ~np.isnan(value)
        limit = np.where(count >= 2, mean + _CLIP * _spread(squares, count), np.inf)
        clipped = np.where(known, np.minimum(value, limit), mean)
        count = count + known
        change = clipped - mean
        mean = mean + change / np.maximum(count, 1.0)
        squares = squares + change * (clipped - mean)
    return mean, _spread(squares, count), count.astype(np.int64)


def expected(spread: float, count: Integers) -> Floats:
    """Return the spread of the next value around the mean of ``count`` others, from that around a mean of many."""
    return np.asarray(spread * np.sqrt(1.0 + 1.0 / np.maximum(count, 1.0)))


def _spread(squares: Floats, count: Floats) -> Floats:
    """Return the expected spread of the next score, from past scores."""
    seen = np.maximum(count, 1.0)
    prior = _SPREAD_WEIGHT * _SPREAD**2
    return np.asarray(np.sqrt((prior + squares) / (_SPREAD_WEIGHT + seen - 1.0) * (1.0 + 1.0 / seen)))

"""Lengths of past silences -> mean and spread of the next one; of few records at random, from their number.

With few records, eight weeks contain few long silences, and these predict little of the next one. If the lengths of
silences have the distribution of independent records (exponential by the traffic clock), that distribution predicts
more: with n records in the past the chance of a silence of U missed slots is (1 + U / n)^-n.
"""

import numpy as np

from exporter.domain.arrays import Flags, Floats, Rows
from exporter.domain.learning.hours import Integers
from exporter.domain.learning.traffic_clock import NATS

MOST_A_WEEK = 42.0
"""Active hours a week. With more than this the longest silences of the past predict enough."""

DISPERSION = (0.75, 1.25)
"""Lowest and highest ratio of the mean square of silences to that of an exponential distribution, for records that come
at random. A lower ratio means regular records, a higher one means bursts."""

_MATCHED = (2.0, 4.0)
"""The scores at which mean and spread reproduce the exponential distribution exactly. Thresholds lie in between."""


def dispersion(stream: Rows, missed: Floats, silences: Integers, step: Floats) -> Floats:
    """Return for each stream the mean square of its silences over that of an exponential law with the same mean.

    ``stream`` and ``missed`` are by silence: its stream and its missed slots; silences without any may be left out.
    ``silences`` and ``step`` are by stream: the number of all its silences, and the mean slot, by which each is longer.
    """
    number = np.maximum(silences, 1)
    mean = np.bincount(stream, missed, len(step)) / number
    square = np.bincount(stream, missed**2, len(step)) / number
    return np.asarray((square + 2.0 * step * mean + step**2) / (2.0 * (mean + step) ** 2))


def arrives_at_random(dispersed: Floats, a_week: Floats) -> Flags:
    """Return which streams have few records that come at random; ``a_week`` are their active hours a week."""
    least, most = DISPERSION
    return (a_week <= MOST_A_WEEK) & (dispersed >= least) & (dispersed <= most)


def log_mean_and_spread(active: Floats, a_week: Floats, step: Floats) -> tuple[Floats, Floats]:
    """Return mean and spread of the logarithm of missed slots plus a step; ``active`` are the active hours of the past.

    With these a score of s means a silence that comes by chance e^(-s NATS) times a week, as with a schedule.
    """
    records = np.maximum(active, 1.0)
    low, high = _MATCHED
    at_low, at_high = (
        np.log(records * np.expm1((score * NATS + np.log(np.maximum(a_week, 1.0))) / records) + step)
        for score in _MATCHED
    )
    spread = (at_high - at_low) / (high - low)
    return at_low - low * spread, spread


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


def predict_spread(spread: float, count: Integers) -> Floats:
    """Return the spread of the next value around the mean of ``count`` others, from that around a mean of many."""
    return np.asarray(spread * np.sqrt(1.0 + 1.0 / np.maximum(count, 1.0)))


def _spread(squares: Floats, count: Floats) -> Floats:
    seen = np.maximum(count, 1.0)
    prior = _SPREAD_WEIGHT * _SPREAD**2
    return np.asarray(np.sqrt((prior + squares) / (_SPREAD_WEIGHT + seen - 1.0) * (1.0 + 1.0 / seen)))

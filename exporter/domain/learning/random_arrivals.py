"""Streams whose few records come at random: the number of records predicts the length of their silences.

With few records, eight weeks contain few long silences, and these predict little of the next one. If the lengths of
silences have the distribution of independent records (exponential by the traffic clock), that distribution predicts
more: with n records in the past the chance of a silence of U missed slots is (1 + U / n)^-n.
"""

from __future__ import annotations

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

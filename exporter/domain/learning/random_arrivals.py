"""Streams whose few records come at random: how long their silences last follows from how many records there are.

Where records are few, eight weeks have few long silences, and they predict little of the next one. Where silences are
spread as those of independent records are (their length by the traffic clock is exponential), the law of such records
predicts more: with n records in the past the chance of a silence of U missed slots is (1 + U / n)^-n.
"""

from __future__ import annotations

import numpy as np

from exporter.domain.arrays import Flags, Floats, Rows
from exporter.domain.learning.hours import Integers
from exporter.domain.learning.traffic_clock import NATS

MOST_A_WEEK = 42.0
"""With more active hours a week than this the longest silences of the past predict enough."""

DISPERSION = (0.75, 1.25)
"""Records come at random where the mean square of their silences is so many times that of an exponential law: less are
regular, more come in bursts."""

_MATCHED = (2.0, 4.0)
"""The scores at which mean and spread give the silences of the law: thresholds lie in between."""


def dispersion(stream: Rows, missed: Floats, silences: Integers, step: Floats) -> Floats:
    """Return for each stream the mean square of its silences over that of an exponential law with the same mean.

    Of each silence: its stream and the slots that it missed, those of nothing may be left out. Of each stream: how many
    silences it had with those, and the mean slot, which each lasts on top.
    """
    number = np.maximum(silences, 1)
    mean = np.bincount(stream, missed, len(step)) / number
    square = np.bincount(stream, missed**2, len(step)) / number
    return np.asarray((square + 2.0 * step * mean + step**2) / (2.0 * (mean + step) ** 2))


def arrives_at_random(dispersed: Floats, a_week: Floats) -> Flags:
    """Return which streams have few records, and those at random; ``a_week`` are their active hours."""
    least, most = DISPERSION
    return (a_week <= MOST_A_WEEK) & (dispersed >= least) & (dispersed <= most)


def law(active: Floats, a_week: Floats, step: Floats) -> tuple[Floats, Floats]:
    """Return mean and spread of the logarithm of what silences miss, plus a step; ``active`` are hours of the past.

    So that a score of s is a silence that comes by chance e^(-s NATS) times a week, as it is with a schedule.
    """
    records = np.maximum(active, 1.0)
    low, high = _MATCHED
    at_low, at_high = (
        np.log(records * np.expm1((score * NATS + np.log(np.maximum(a_week, 1.0))) / records) + step)
        for score in _MATCHED
    )
    spread = (at_high - at_low) / (high - low)
    return at_low - low * spread, spread

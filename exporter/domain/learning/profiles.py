"""Active slots of past weeks -> the rates of the 168 hours of the week."""

import numpy as np

from exporter.domain.arrays import Floats
from exporter.domain.learning.traffic_clock import HOURS

TOGETHER = 3.0
"""Ratio of the variation of active hours from day to day to the variation by chance. From this ratio on the hours of a
day are active together or not at all. Then the hour of the week predicts less of a silence than its length does
(measured on generated streams)."""

_LEAST_DAYS = 14
_CHANCE_MEDIAN = 0.455
"""The median of a squared normal deviate."""

_LEAST_RATE = 1e-4

_OF_DAY = np.arange(HOURS) % 24 + 24 * (np.arange(HOURS) >= 5 * 24)
_IN_GROUP = np.zeros((HOURS, 48))
_IN_GROUP[np.arange(HOURS), _OF_DAY] = 1.0


def profile(active: Floats, observed: Floats, prior: float) -> Floats:
    """Return the rates of the 168 hours from active slots and observed hours summed over weeks, [..., 168].

    Each hour is smoothed with its neighbours. A prior of ``prior`` slots pulls it towards the same hour of working days
    or weekends, and these towards the rate of the whole week.
    """
    flat = active.sum(-1, keepdims=True) / np.maximum(observed.sum(-1, keepdims=True), 1.0)
    of_day = (active @ _IN_GROUP + prior) / (observed @ _IN_GROUP + prior / np.maximum(flat, _LEAST_RATE))
    rates = _smoothed(active)
    rates += prior
    exposed = _smoothed(observed)
    exposed += (prior / of_day)[..., _OF_DAY]
    rates /= exposed
    return rates


def flat(active: Floats, observed: Floats) -> Floats:
    """Return the same rate for all 168 hours, from active slots and observed hours summed over weeks, [..., 168]."""
    rate = active.sum(-1, keepdims=True) / np.maximum(observed.sum(-1, keepdims=True), 1.0)
    return np.broadcast_to(np.maximum(rate, _LEAST_RATE), active.shape)


def scale_missed(active: Floats, observed_seconds: Floats, rates: Floats) -> Floats:
    """Return by what missed slots count for people: so that a usual week misses as many as were active in the past.

    ``rates`` [n, 168] are those of the profile, which draws runs at fixed hours towards the hours around them. So the
    score of a silence has less of them; its thresholds have as much less. 1 where nothing is known.
    """
    expected = rates.sum(-1) / HOURS * observed_seconds / 3600.0
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where((expected > 0) & (active > 0), active / expected, 1.0)


def compare_days(active: Floats, observed: Floats, rates: Floats) -> Floats:
    """Return the ratio of the variation of active hours a day to that by chance; 0 where too few days are known.

    ``active`` and ``observed`` [n, weeks, 168] are flags of hours, ``rates`` [n, 168] the share of active ones. Each
    day is compared with the same day of other weeks. The median over days counts, so that an outage changes little.
    """
    count, weeks = active.shape[:2]
    whole = observed.reshape(count, weeks, 7, 24).sum(-1) >= 24.0
    days = np.where(whole, active.reshape(count, weeks, 7, 24).sum(-1), 0.0)
    number = whole.sum(1, keepdims=True)
    mean = days.sum(1, keepdims=True) / np.maximum(number, 1)
    chance = np.clip(rates, 0.0, 1.0).reshape(count, 1, 7, 24)
    least = np.maximum((chance * (1.0 - chance)).sum(-1), _LEAST_RATE) * (1.0 - 1.0 / np.maximum(number, 2))
    varied = np.where(whole & (number > 1), (days - mean) ** 2 / least, np.nan).reshape(count, -1)
    varied.sort(axis=-1)  # unknown days (NaN) come last
    known = (~np.isnan(varied)).sum(-1)
    row, middle = np.arange(count), np.maximum(known, 1)
    median = (varied[row, (middle - 1) // 2] + varied[row, np.minimum(middle // 2, varied.shape[1] - 1)]) / 2.0
    return np.where(known >= _LEAST_DAYS, median / _CHANCE_MEDIAN, 0.0)


def _smoothed(counts: Floats) -> Floats:
    smooth = 2.0 * counts
    smooth[..., 1:] += counts[..., :-1]
    smooth[..., 0] += counts[..., -1]
    smooth[..., :-1] += counts[..., 1:]
    smooth[..., -1] += counts[..., 0]
    smooth *= 0.25
    return np.asarray(smooth)

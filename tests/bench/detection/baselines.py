"""The methods side by side: each gives a closed silence a score, and a cut the hours until its alarm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from exporter.domain.learning.baselines import Baselines
from exporter.domain.learning.traffic_clock import Clocks
from tests.bench.detection.fleet import HOURS_A_WEEK, Floats
from tests.bench.detection.history import history
from tests.bench.detection.product import ProductClock, Published, product_method
from tests.bench.detection.reference import yardsticks
from tests.bench.detection.silences import LONGEST, Silences, Trial


class Method(Protocol):
    """Judges silences by what was known before the week in which they start."""

    def scores(self, silences: Silences) -> Floats:
        """Return the score that each has reached at its end."""

    def hours(self, silences: Silences, threshold: float) -> Floats:
        """Return after how many hours from its last record each passes the threshold; inf for never."""


@dataclass(frozen=True, slots=True)
class WallClock:
    """Score = (silence - ``offset``) / ``scale``, both [units, weeks] in hours; NaN where nothing is promised."""

    offset: Floats
    scale: Floats

    def scores(self, silences: Silences) -> Floats:
        """See Method."""
        at = silences.unit, silences.week
        score = (silences.end - silences.start - self.offset[at]) / self.scale[at]
        return np.where(np.isnan(score), -np.inf, score)

    def hours(self, silences: Silences, threshold: float) -> Floats:
        """See Method."""
        at = silences.unit, silences.week
        limit = np.maximum(self.offset[at] + threshold * self.scale[at], 0.0)
        return np.where(np.isnan(limit), np.inf, limit)


@dataclass(frozen=True, slots=True)
class HourOfWeek:
    """-ln P(no record) of a Poisson process with a rate for each hour of the week; the score is its logarithm.

    ``slot_hours`` is 0 where it counts from the last record itself, else the silence begins with the next slot.
    """

    clocks: Clocks
    """Of each unit and week."""
    trial: Trial
    slot_hours: float

    def scores(self, silences: Silences) -> Floats:
        """See Method."""
        row, begin = self._begin(silences)
        with np.errstate(divide="ignore"):
            return np.log(self.clocks.ticks(row, begin, self._seconds(silences.end)))

    def hours(self, silences: Silences, threshold: float) -> Floats:
        """See Method."""
        row, begin = self._begin(silences)
        passed = self.clocks.moment(row, begin, np.full(len(row), np.exp(threshold)))
        return np.where(np.isnan(passed), np.inf, (passed - self._seconds(silences.start)) / 3600.0)

    def _begin(self, silences: Silences) -> tuple[NDArray[np.intp], Floats]:
        start, slot = silences.start, self.slot_hours
        begin = (np.floor(start / slot) + 1.0) * slot if slot else start
        return (silences.unit * self.trial.weeks + silences.week).astype(np.intp), self._seconds(begin)

    def _seconds(self, hours: Floats) -> Floats:
        return np.asarray(self.trial.units.fleet.start + hours * 3600.0)


@dataclass(frozen=True, slots=True)
class Oracle:
    """Knows how the streams were made: -ln P(a silence this long) - ln(chances a week)."""

    trial: Trial

    def scores(self, silences: Silences) -> Floats:
        """See Method."""
        scores = np.zeros(len(silences))
        for unit in np.unique(silences.unit):
            mine = silences.unit == unit
            truth = self.trial.units.truths[unit]
            assert truth is not None
            gone = self._surprise(unit, silences.start[mine], silences.end[mine][:, None])[:, 0]
            scores[mine] = gone - np.log(truth.chances)
        return scores

    def hours(self, silences: Silences, threshold: float) -> Floats:
        """See Method; found by halving, since the surprise only grows."""
        hours = np.zeros(len(silences))
        for unit in np.unique(silences.unit):
            mine = silences.unit == unit
            truth = self.trial.units.truths[unit]
            assert truth is not None
            start, wanted = silences.start[mine], threshold + np.log(truth.chances)
            low, high = np.zeros(len(start)), np.full(len(start), LONGEST)
            for _ in range(24):
                middle = (low + high) / 2
                below = self._surprise(unit, start, (start + middle)[:, None])[:, 0] < wanted
                low, high = np.where(below, middle, low), np.where(below, high, middle)
            hours[mine] = high
        return hours

    def _surprise(self, unit: int, start: Floats, ends: Floats) -> Floats:
        """-ln P(no record from ``start`` to each of ``ends``) [silences, ends]."""
        truth = self.trial.units.truths[unit]
        assert truth is not None
        first = start
        if truth.step:
            # Due again with the next run: half a step after the one that the last record came from.
            first = (np.floor((start - truth.phase) / truth.step) + 0.9) * truth.step + truth.phase
            first = np.maximum(first, start)
        if not truth.day_shape:
            return np.maximum(_at(truth.hazard, ends) - _at(truth.hazard, first)[:, None], 0.0)
        return self._by_day(unit, start, ends)

    def _by_day(self, unit: int, start: Floats, ends: Floats) -> Floats:
        """The rate of each day is a draw. The hours before inform about the first day, nothing about later ones."""
        truth = self.trial.units.truths[unit]
        assert truth is not None
        shape, times = truth.day_shape, self.trial.units.times[unit]
        midnight = np.floor(start / 24) * 24
        seen = np.searchsorted(times, start, "right") - np.searchsorted(times, midnight)
        exposed = _at(truth.hazard, start) - _at(truth.hazard, midnight)
        rest = _at(truth.hazard, np.minimum(ends, midnight[:, None] + 24)) - _at(truth.hazard, start)[:, None]
        surprise = (shape + seen)[:, None] * np.log1p(rest / (shape + exposed)[:, None])
        edges = np.arange(0, len(truth.hazard), 24)
        whole = np.concatenate([[0.0], np.cumsum(shape * np.log1p(np.diff(truth.hazard[edges]) / shape))])
        whole = np.concatenate([whole, whole[-1] + (whole[-1] - whole[-57]) / 56 * np.arange(1, 40)])
        day = np.floor(ends / 24).astype(np.int64)
        part = shape * np.log1p((_at(truth.hazard, ends) - _at(truth.hazard, day * 24.0)) / shape)
        later = whole[day] - whole[(midnight / 24).astype(np.int64) + 1][:, None] + part
        return surprise + np.where(ends > midnight[:, None] + 24, later, 0.0)


def _at(hazard: Floats, when: Floats) -> Floats:
    """The summed hazard at a moment; past its end it goes on as in the last eight weeks."""
    end = len(hazard) - 1
    rate = (hazard[-1] - hazard[-1 - 8 * HOURS_A_WEEK]) / (8 * HOURS_A_WEEK)
    hour = np.clip(when.astype(np.int64), 0, end - 1)
    inside = hazard[hour] + (np.minimum(when, end) - hour) * (hazard[hour + 1] - hazard[hour])
    return np.asarray(inside + rate * np.maximum(when - end, 0.0))


def product_score(trial: Trial) -> ProductClock:
    """The product's score without schedules and pauses, by the hour."""
    return _by_clock(trial, trial.history.baselines)


def score_in_fives(trial: Trial) -> ProductClock:
    """The same for polled slots of five minutes, where the product chooses them."""
    return _by_clock(trial, history(trial.units, polled=True).baselines)


def largest_in_clock(trial: Trial) -> ProductClock:
    """k x the largest silence by the same traffic clock: the score without its statistics."""
    made = trial.history.baselines
    largest = np.where(np.isnan(made.mean), np.nan, np.fmax.reduce(made.weekly_scores, -1))
    return _by_clock(trial, replace(made, mean=largest, spread=np.ones(len(made))))


def _by_clock(trial: Trial, made: Baselines) -> ProductClock:
    """Judge by the traffic clock, by the product's core."""
    alone = replace(made, pause=np.zeros(len(made)), schedule=np.full(len(made), None))
    return product_method(trial, Published(yardsticks(trial, alone, 1), {}))


def hour_of_week(trial: Trial, *, slots: bool) -> HourOfWeek:
    """-ln P of a Poisson process with a rate for each hour of the week, of active slots or of records."""
    records = _records(trial)
    counts = (records > 0).astype(np.float64) if slots else records
    seen, rates = _seen(trial), np.zeros_like(records)
    for week in range(1, trial.weeks):
        since = max(0, week - 8)
        count, observed = counts[:, since:week].sum(1), seen[:, since:week].sum(1)
        flat = np.maximum(count.sum(-1, keepdims=True) / np.maximum(observed.sum(-1, keepdims=True), 1), 1e-4)
        share = (count + 0.25) / (observed + 0.25 / flat)
        rates[:, week] = -np.log1p(-np.minimum(share, 0.999)) if slots else share
    rates = rates.reshape(-1, HOURS_A_WEEK)
    return HourOfWeek(Clocks(rates, *np.ones((3, len(rates)))), trial, 1.0 if slots else 0.0)


def wall_clocks(trial: Trial) -> dict[str, WallClock]:
    """The rules by length alone: from the gaps between records that ended in the eight weeks before."""
    nothing = np.zeros(trial.eligible.shape)
    median, largest, mean, deviation = (_empty(trial) for _ in range(4))
    smooth, smooth_deviation = _empty(trial), _empty(trial)
    for unit, (times, vague) in enumerate(zip(trial.units.times, trial.units.vague, strict=True)):
        certain = ~vague[1:] & ~vague[:-1]
        gaps, ends = np.diff(times)[certain], times[1:][certain]
        for week in np.flatnonzero(trial.eligible[unit]):
            own = gaps[np.searchsorted(ends, (week - 8) * 168.0) : np.searchsorted(ends, week * 168.0)]
            if len(own) < 3:
                own = gaps[np.searchsorted(ends, (week - 12) * 168.0) : np.searchsorted(ends, week * 168.0)]
            median[unit, week], largest[unit, week] = np.median(own), own.max()
            mean[unit, week], deviation[unit, week] = own.mean(), own.std()
            smooth[unit, week], smooth_deviation[unit, week] = _smoothed(own[-500:])
    return {
        "fixed age": WallClock(nothing, nothing + 1.0),
        "k x median gap": WallClock(nothing, median),
        "k x largest gap": WallClock(nothing, largest),
        "phi normal": WallClock(mean, np.maximum(deviation, 0.05)),
        "phi exponential": WallClock(nothing, mean),
        "EWMA z": WallClock(smooth, np.maximum(smooth_deviation, 0.05)),
    }


def _smoothed(gaps: Floats, weight: float = 0.1) -> tuple[float, float]:
    """The exponentially weighted mean and deviation after the last gap."""
    weights = (1 - weight) ** np.arange(len(gaps))[::-1]
    weights /= weights.sum()
    mean = float(weights @ gaps)
    return mean, float(np.sqrt(weights @ (gaps - mean) ** 2))


def _records(trial: Trial) -> Floats:
    """The records of each unit, week and hour whose moments are known."""
    counts = np.zeros((len(trial.units), trial.weeks * HOURS_A_WEEK))
    for unit, (times, vague) in enumerate(zip(trial.units.times, trial.units.vague, strict=True)):
        known = times[~vague]
        np.add.at(counts[unit], known[known < counts.shape[1]].astype(np.int64), 1.0)
    return counts.reshape(len(trial.units), trial.weeks, HOURS_A_WEEK)


def _seen(trial: Trial) -> NDArray[np.bool_]:
    """Of each unit, week and hour whether it was looked at: from the first record on, but for what no exporter saw."""
    hours = np.arange(trial.weeks * HOURS_A_WEEK)
    first = np.array([times[0] if len(times) else np.inf for times in trial.units.times])
    seen = hours >= np.floor(first)[:, None]
    for begin, end in trial.units.fleet.unseen:
        seen &= (hours + 1.0 <= begin) | (hours >= end)
    return np.asarray(seen.reshape(len(trial.units), trial.weeks, HOURS_A_WEEK))


def _empty(trial: Trial, *last: int) -> Floats:
    return np.full((*trial.eligible.shape, *last), np.nan)


FIVES = "score, slots of 5 m"

METHODS: dict[str, Callable[[Trial], Method]] = {
    "score": product_score,
    FIVES: score_in_fives,
    "k x largest, traffic clock": largest_in_clock,
    "Poisson, records": lambda trial: hour_of_week(trial, slots=False),
    "Poisson, active slots": lambda trial: hour_of_week(trial, slots=True),
    "oracle": Oracle,
}
"""Beside those of ``wall_clocks``."""

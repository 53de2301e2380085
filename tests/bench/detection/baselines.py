"""The methods side by side: each gives a closed silence a score, and a cut the hours until its alarm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from exporter.domain.learning import SEVERAL
from tests.bench.detection.fleet import HOURS_A_WEEK, Floats
from tests.bench.detection.score import FIVE_MINUTES, HOURLY, Formula, cumulative, elapsed, promises, reached
from tests.bench.detection.silences import LONGEST, Silences, Trial, history


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
class TrafficClock:
    """Score = (ln(U + ``step``) - ``mean``) / ``spread``, U by the clock of the unit and week.

    ``rates`` [units, weeks, 168], the others [units, weeks]; ``slot_hours``, one for all or [units, weeks], is 0
    where the clock runs from the last record itself. ``limit``: a silence in hours that is judged by length alone,
    NaN elsewhere.
    """

    rates: Floats
    step: Floats
    mean: Floats
    spread: Floats
    slot_hours: float | Floats
    promised: NDArray[np.bool_]
    limit: Floats | None = None

    def scores(self, silences: Silences) -> Floats:
        """See Method."""
        at = silences.unit, silences.week
        clock = cumulative(self.rates[at])
        row = np.arange(len(silences))
        with np.errstate(divide="ignore", invalid="ignore"):
            passed = np.log(elapsed(clock, row, self._from(silences), silences.end) + self.step[at])
            score = np.where(self.promised[at], (passed - self.mean[at]) / self.spread[at], -np.inf)
        if self.limit is None:
            return np.asarray(score)
        limit = self.limit[at]
        over = silences.end - silences.start > limit
        return np.where(np.isnan(limit), score, np.where(over, np.inf, -np.inf))

    def hours(self, silences: Silences, threshold: float) -> Floats:
        """See Method."""
        at = silences.unit, silences.week
        with np.errstate(over="ignore", invalid="ignore"):
            amount = np.exp(self.mean[at] + threshold * self.spread[at]) - self.step[at]
        start = self._from(silences)
        ever = self.promised[at] & (amount < 1e9)
        clock = cumulative(self.rates[at])
        when = reached(clock, np.arange(len(silences)), start, np.where(ever, np.maximum(amount, 0.0), 0.0))
        hours = np.where(ever, when - silences.start, np.inf)
        if self.limit is None:
            return np.asarray(hours)
        limit = self.limit[at]
        return np.where(np.isnan(limit), hours, limit)

    def usual_hours(self, silences: Silences) -> Floats:
        """Return after how many hours each silence is longer than usual: score 0."""
        return self.hours(silences, 0.0)

    def _from(self, silences: Silences) -> Floats:
        slot = np.broadcast_to(self.slot_hours, self.promised.shape)[silences.unit, silences.week]
        if not slot.all():
            return silences.start
        return np.asarray((np.floor(silences.start / slot) + 1) * slot)


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
        """The rate of each day is a draw: of the first day what came before tells of it, of later ones nothing."""
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


def product_score(trial: Trial, formula: Formula = HOURLY) -> TrafficClock:
    """The product's score, by the reference."""
    rates, step, mean, spread = _empty(trial, HOURS_A_WEEK), _empty(trial), _empty(trial), _empty(trial)
    limit, promised = _empty(trial), np.zeros(trial.eligible.shape, bool)
    for week in range(1, trial.weeks):
        made = promises(trial.history, week, formula)
        rates[:, week], step[:, week], mean[:, week], spread[:, week] = made.profile, made.step, made.mean, made.spread
        limit[:, week], promised[:, week] = made.max_silence, made.clock
    return TrafficClock(rates, step, mean, spread, formula.slot_hours, promised, limit)


def score_in_fives(trial: Trial) -> TrafficClock:
    """The product's score where polls told slots of five minutes: by these where active hours have several."""
    by_hours = product_score(trial)
    fives = product_score(replace(trial, history=history(trial.units, FIVE_MINUTES)), FIVE_MINUTES)
    chosen = by_hours.promised & fives.promised
    chosen &= fives.step / FIVE_MINUTES.slot_hours >= SEVERAL * by_hours.step
    return TrafficClock(
        np.where(chosen[..., None], fives.rates, by_hours.rates),
        np.where(chosen, fives.step, by_hours.step),
        np.where(chosen, fives.mean, by_hours.mean),
        np.where(chosen, fives.spread, by_hours.spread),
        np.where(chosen, FIVE_MINUTES.slot_hours, HOURLY.slot_hours),
        by_hours.promised,
        by_hours.limit,
    )


def largest_in_clock(trial: Trial, formula: Formula = HOURLY) -> TrafficClock:
    """k x the largest silence by the same traffic clock: the score without its statistics."""
    full = product_score(trial, formula)
    mean = _empty(trial)
    for week in range(1, trial.weeks):
        maxima = promises(trial.history, week, formula).week_maxima
        mean[:, week] = np.where(np.isnan(maxima), -np.inf, maxima).max(-1)
    return TrafficClock(
        full.rates, full.step, mean, np.ones_like(mean), formula.slot_hours, full.promised & np.isfinite(mean)
    )


def hour_of_week(trial: Trial, *, slots: bool) -> TrafficClock:
    """-ln P of a Poisson process with a rate for each hour of the week, of active slots or of records."""
    counts = trial.history.active if slots else _records(trial)
    rates = _empty(trial, HOURS_A_WEEK)
    for week in range(1, trial.weeks):
        since = max(0, week - 8)
        count, observed = counts[:, since:week].sum(1), trial.history.observed[:, since:week].sum(1)
        flat = np.maximum(count.sum(-1, keepdims=True) / np.maximum(observed.sum(-1, keepdims=True), 1), 1e-4)
        share = (count + 0.25) / (observed + 0.25 / flat)
        rates[:, week] = -np.log1p(-np.minimum(share, 0.999)) if slots else share
    zero, one = np.zeros(trial.eligible.shape), np.ones(trial.eligible.shape)
    return TrafficClock(rates, zero, zero, one, 1.0 if slots else 0.0, one > 0)


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
    counts = np.zeros((len(trial.units), trial.weeks * HOURS_A_WEEK))
    for unit, times in enumerate(trial.units.times):
        hours = times[times < counts.shape[1]].astype(np.int64)
        np.add.at(counts[unit], hours, 1.0)
    return counts.reshape(len(trial.units), trial.weeks, HOURS_A_WEEK)


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

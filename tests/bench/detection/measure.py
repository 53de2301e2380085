"""From scores to figures: thresholds fitted on one half, false alarms and delays counted on the other."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from exporter.domain.scoring.poisson import poisson_interval
from tests.bench.detection.baselines import Method
from tests.bench.detection.fleet import Floats
from tests.bench.detection.silences import LONGEST, Trial

NOMINAL = (10.0, 1.0)
"""New alarms per 1,000 unit-weeks that thresholds are fitted to."""


@dataclass(frozen=True, slots=True)
class Alarms:
    """New alarms in so many unit-weeks."""

    count: int
    weeks: int

    @property
    def per_1000(self) -> float:
        """The rate per 1,000 unit-weeks."""
        return 1000 * self.count / self.weeks if self.weeks else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """The rate's 95 % Poisson interval."""
        if not self.weeks:
            return math.nan, math.nan
        low, high = poisson_interval(self.count)
        return 1000 * low / self.weeks, 1000 * high / self.weeks


@dataclass(frozen=True, slots=True)
class Delays:
    """Hours from the last record to the alarm, over all cuts; one without alarm in 28 days counts as 28 days."""

    cuts: int
    median: float
    geometric_mean: float
    p90: float
    in_mean_gaps: float
    missed_after_days: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Figures:
    """What one method did at one nominal rate."""

    alarms: Alarms
    in_incidents: int
    delays: Delays
    after_outage: float
    """Geometric mean of the cuts in the four weeks after a repaired outage; NaN where there are none."""
    by_kind: Mapping[str, tuple[float, int]]
    """Kind -> geometric mean of the delay in hours, new alarms."""


def fit(scores: Floats, weeks: int, nominal: float) -> float:
    """Return the lowest threshold that at most ``nominal`` in 1,000 weeks pass."""
    allowed = expected(weeks, nominal)
    finite = np.sort(scores[np.isfinite(scores)])[::-1]
    allowed -= int(np.isposinf(scores).sum())
    if not len(finite):
        return 0.0
    return float(finite[min(max(allowed, 0), len(finite) - 1)])


def expected(weeks: int, nominal: float) -> int:
    """Return how many whole alarms are to be expected in so many weeks; without one there is nothing to fit to."""
    return int(nominal * weeks / 1000)


def supported(trial: Trial) -> list[float]:
    """The nominal rates that both halves of the units are large enough to be fitted to."""
    half = halves(trial)
    weeks = min(int(trial.eligible[half == side].sum()) for side in (False, True))
    return [nominal for nominal in NOMINAL if expected(weeks, nominal)]


def halves(trial: Trial) -> NDArray[np.bool_]:
    """Every second unit of each kind."""
    half = np.zeros(len(trial.units), bool)
    for kind in np.unique(trial.units.kinds):
        half[np.flatnonzero(trial.units.kinds == kind)[::2]] = True
    return half


@dataclass(frozen=True, slots=True)
class Judged:
    """A method on a trial: the scores of closed silences, once for all thresholds."""

    trial: Trial
    method: Method
    scores: Floats
    common_scores: Floats


def judged(trial: Trial, method: Method) -> Judged:
    """Score every silence of a trial."""
    return Judged(trial, method, method.scores(trial.closed), method.scores(trial.common))


def across_halves(result: Judged, nominal: float) -> Figures:
    """Fit on each half of the units, judge on the other."""
    trial, half = result.trial, halves(result.trial)
    thresholds = np.zeros(len(half))
    for side in (False, True):
        mine = half[trial.closed.unit] == side
        weeks = int(trial.eligible[half == side].sum())
        thresholds[half != side] = fit(result.scores[mine], weeks, nominal)
    return figures(result, thresholds)


def across_time(result: Judged, nominal: float) -> Alarms | None:
    """Fit on the first half of the judged weeks, count alarms in the second; None where the first is too small."""
    trial = result.trial
    weeks = np.flatnonzero(trial.eligible.any(0))
    middle = int(weeks[len(weeks) // 2])
    learned = int(trial.eligible[:, :middle].sum())
    if not expected(learned, nominal):
        return None
    before = trial.closed.week < middle
    threshold = fit(result.scores[before], learned, nominal)
    return Alarms(int((result.scores[~before] > threshold).sum()), int(trial.eligible[:, middle:].sum()))


def across_sets(source: Judged, target: Judged, nominal: float) -> Alarms:
    """Fit on one set, count alarms on another."""
    threshold = fit(source.scores, int(source.trial.eligible.sum()), nominal)
    return Alarms(int((target.scores > threshold).sum()), int(target.trial.eligible.sum()))


def figures(result: Judged, thresholds: Floats) -> Figures:
    """Count and time the alarms that a threshold for each unit gives."""
    trial = result.trial
    alarms = result.scores > thresholds[trial.closed.unit]
    hours = np.zeros(len(trial.cuts))
    for threshold in np.unique(thresholds):
        mine = thresholds[trial.cuts.unit] == threshold
        hours[mine] = result.method.hours(trial.cuts.where(mine), float(threshold))
    return _figures(trial, alarms, int((result.common_scores > thresholds[trial.common.unit]).sum()), hours)


def _figures(trial: Trial, alarms: NDArray[np.bool_], in_incidents: int, hours: Floats) -> Figures:
    hours = np.clip(hours, 1 / 60, LONGEST)
    kinds = trial.units.kinds
    by_kind = {
        str(kind): (
            geometric_mean(hours[kinds[trial.cuts.unit] == kind]),
            int(alarms[kinds[trial.closed.unit] == kind].sum()),
        )
        for kind in dict.fromkeys(kinds)
    }
    return Figures(
        Alarms(int(alarms.sum()), int(trial.eligible.sum())),
        in_incidents,
        delays(hours, trial.cut_gap),
        geometric_mean(hours[trial.after_outage]),
        by_kind,
    )


def delays(hours: Floats, mean_gap: Floats) -> Delays:
    """Sum up the hours until the alarm of cuts; NaN of none."""
    hours = np.clip(hours, 1 / 60, LONGEST)
    if not len(hours):
        return Delays(0, *(4 * [math.nan]), dict.fromkeys((1, 7, 28), math.nan))
    return Delays(
        len(hours),
        float(np.median(hours)),
        geometric_mean(hours),
        float(np.quantile(hours, 0.9)),
        geometric_mean(hours / mean_gap),
        {days: float((hours >= days * 24.0).mean()) for days in (1, 7, 28)},
    )


def geometric_mean(hours: Floats) -> float:
    """NaN of nothing."""
    return float(np.exp(np.log(hours).mean())) if len(hours) else math.nan

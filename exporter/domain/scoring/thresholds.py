"""The score past which a silence is dead, learned from the scores of the fleet's own past silences.

A past silence that a record ended was a pause of the stream, or an outage that somebody repaired: only an alarm in a
pause is false. Scores of pauses fall off quickly, those of outages slowly. With e the score above ``FLOOR``:

    density(e) = (1 - share) Exp(scale) + share Exp(OUTAGE_SCALE)

``scale`` and ``share`` have priors, so a fleet without a past is judged by these; the posterior is evaluated on a grid.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exporter.domain.arrays import Floats


@dataclass(frozen=True, slots=True)
class Prior:
    """How often a silence is unusual, how far its score goes then, and which share of these are repaired outages."""

    rate: float
    """Silences past the floor in a topic-week."""
    topic_weeks: float
    """Weight of ``rate``: it counts as much as this number of the fleet's own topic-weeks."""
    scale: float
    """The median of the scale of pauses, in units of score; its logarithm is normal."""
    scale_spread: float
    """The standard deviation of that logarithm."""
    pauses: float
    """The share of outages is Beta(1, pauses): 1 / (1 + pauses) in the mean."""


SHIPPED = Prior(rate=0.020, topic_weeks=300.0, scale=0.45, scale_spread=0.5, pauses=8.0)
"""Rounded by hand, after generated fleets of thirteen kinds of topics, and real departures."""


FLOOR = 2.0
"""A silence with a score up to here is an ordinary one; no threshold lies below."""

HIGHEST = 9.0
"""No threshold is looked for above it."""

OUTAGE_SCALE = 4.0

_STEP = 0.05
SCALES = np.geomspace(0.15, 2.0, 40)
SHARES = np.linspace(0.02, 0.98, 49)
_BINS = np.append(np.arange(0.0, 20.0, 0.02), np.inf)


@dataclass(frozen=True, slots=True)
class PastAlarms:
    """False alarms and outages in the weeks before a rollup, by the thresholds that were in force then."""

    false_alarms: int
    """Alarms that a later advance ended and that were pauses."""
    topic_weeks: int
    """Topic-weeks that were judged."""
    outages: int = 0
    """Outages that were repaired."""
    outages_alarmed: int = 0
    """Repaired outages that had the verdict dead."""
    alarms_a_week: float | None = None
    """Alarms to expect, false or in outages: past silences a week that the present threshold calls dead.

    None where nothing was judged.
    """
    outages_seen: float | None = None
    """The share of repaired outages that the present threshold calls dead, None where there were none."""
    topics: int | None = None
    """The size of the fleet: topics that count in a week. It converts rates to numbers a week."""
    promised: float | None = None
    """False alarms per 1,000 topic-weeks; None while the prior decides."""

    @property
    def realised(self) -> float | None:
        """False alarms per 1,000 topic-weeks that there were, None where nothing was judged."""
        return 1000 * self.false_alarms / self.topic_weeks if self.topic_weeks else None


@dataclass(frozen=True, slots=True)
class PastScores:
    """The distribution of past scores: how often one exceeds ``FLOOR``, and by how much."""

    rate: float
    """Silences past FLOOR in a topic-week."""
    posterior: Floats
    """[scales, shares], of sum 1."""

    def threshold(self, false_alarms: float) -> float:
        """Return the lowest threshold with at most this rate of false alarms per topic-week, HIGHEST at most."""
        candidates = np.arange(FLOOR, HIGHEST, _STEP)
        enough = np.flatnonzero(self.false_alarms(candidates) <= false_alarms)
        return round(float(candidates[enough[0]]), 2) if len(enough) else HIGHEST

    def false_alarms(self, thresholds: Floats) -> Floats:
        """Return the rate of false alarms per topic-week at each threshold."""
        beyond = np.exp(-(thresholds[:, None] - FLOOR) / SCALES)
        return np.asarray(self.rate * (beyond @ (self.posterior * (1 - SHARES)).sum(1)))

    def pause(self, scores: Floats) -> Floats:
        """Return the chance of each silence with such a score to have been a pause and no outage, [n]."""
        excess = np.clip(scores - FLOOR, 0.0, _BINS[-2])[:, None, None]
        pauses, outages = _densities(excess)
        return np.asarray((self.posterior * pauses / (pauses + outages)).sum((1, 2)))


def fit(scores: Floats, topic_weeks: float, prior: Prior = SHIPPED) -> PastScores:
    """Learn from the largest score of each of ``topic_weeks`` topic-weeks; scores up to ``FLOOR`` may be left out."""
    excess = scores[scores > FLOOR] - FLOOR
    place = np.digitize(excess, _BINS) - 1
    counts = np.bincount(place, minlength=len(_BINS))
    filled = np.flatnonzero(counts)
    mean = np.bincount(place, weights=excess, minlength=len(_BINS))[filled] / counts[filled]
    log_density = np.log(sum(_densities(mean[:, None, None])))
    log_prior = -0.5 * (np.log(SCALES / prior.scale) / prior.scale_spread) ** 2
    log_prior = log_prior[:, None] + (prior.pauses - 1) * np.log1p(-SHARES)
    weight = log_prior + np.tensordot(counts[filled], log_density, 1)
    posterior = np.exp(weight - weight.max())
    rate = (prior.topic_weeks * prior.rate + len(excess)) / (prior.topic_weeks + topic_weeks)
    return PastScores(rate, posterior / posterior.sum())


def _densities(excess: Floats) -> tuple[Floats, Floats]:
    """Return the density of pauses and that of outages at [..., 1, 1], as [..., scales, shares]."""
    pauses = np.exp(-excess / SCALES[:, None]) / SCALES[:, None] * (1 - SHARES)
    outages = np.exp(-excess / OUTAGE_SCALE) / OUTAGE_SCALE * SHARES
    return pauses, outages

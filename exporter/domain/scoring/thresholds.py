"""The score past which a silence is dead, learned from the scores of the fleet's own past silences.

A past silence that a record ended was a pause of the stream, or an outage that somebody repaired: only an alarm in a
pause is false. Scores of pauses fall off quickly, those of outages slowly. With e the score above ``FLOOR``:

    density(e) = (1 - share) Exp(scale) + share Exp(OUTAGE_SCALE)

``scale`` and ``share`` have priors, so a fleet without a past is judged by these; the posterior is evaluated on a grid.
"""

from dataclasses import dataclass

import numpy as np

from exporter.domain.arrays import Floats

PRIOR_RATE, PRIOR_TOPIC_WEEKS = 0.020, 300.0
"""The prior, rounded by hand, after generated fleets of thirteen kinds of topics, and real departures. Silences past
FLOOR in a topic-week, and the number of the fleet's own topic-weeks that this counts as."""

PRIOR_SCALE, PRIOR_SCALE_SPREAD = 0.45, 0.5
"""Of the scale of pauses: its median in units of score, and the standard deviation of its logarithm (it is normal)."""

PRIOR_PAUSES = 8.0
"""The share of outages is Beta(1, PRIOR_PAUSES): 1 / (1 + PRIOR_PAUSES) in the mean."""

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


def fit(scores: Floats, topic_weeks: float) -> PastScores:
    """Learn from the largest score of each of ``topic_weeks`` topic-weeks; scores up to ``FLOOR`` may be left out."""
    excess = scores[scores > FLOOR] - FLOOR
    place = np.digitize(excess, _BINS) - 1
    counts = np.bincount(place, minlength=len(_BINS))
    filled = np.flatnonzero(counts)
    mean = np.bincount(place, weights=excess, minlength=len(_BINS))[filled] / counts[filled]
    log_density = np.log(sum(_densities(mean[:, None, None])))
    log_prior = -0.5 * (np.log(SCALES / PRIOR_SCALE) / PRIOR_SCALE_SPREAD) ** 2
    log_prior = log_prior[:, None] + (PRIOR_PAUSES - 1) * np.log1p(-SHARES)
    weight = log_prior + np.tensordot(counts[filled], log_density, 1)
    posterior = np.exp(weight - weight.max())
    rate = (PRIOR_TOPIC_WEEKS * PRIOR_RATE + len(excess)) / (PRIOR_TOPIC_WEEKS + topic_weeks)
    return PastScores(rate, posterior / posterior.sum())


def _densities(excess: Floats) -> tuple[Floats, Floats]:
    """Return the density of pauses and that of outages at [..., 1, 1], as [..., scales, shares]."""
    pauses = np.exp(-excess / SCALES[:, None]) / SCALES[:, None] * (1 - SHARES)
    outages = np.exp(-excess / OUTAGE_SCALE) / OUTAGE_SCALE * SHARES
    return pauses, outages

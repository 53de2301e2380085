"""The prior of thresholds, made again from several sets, beside the one that is shipped.

Each set gives the rate of its unusual silences, the scale of its pauses and its share of outages, by the mixture of the
product without a prior. The prior is what the sets have in common: the mean of rates and shares, and mean and spread of
the logarithms of scales.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from exporter.domain.scoring.calibration import FALSE_ALARMS, SUSPECT_TIMES, TOPIC, evidence, select_alone
from exporter.domain.scoring.thresholds import SCALES, SHARES, SHIPPED, Prior, fit
from tests.bench.detection.fleet import Fleet, topics
from tests.bench.detection.reference import unusual_silences
from tests.bench.detection.silences import trial
from tests.tables import Rows

FLAT = Prior(rate=0.0, topic_weeks=0.0, scale=1.0, scale_spread=math.inf, pauses=1.0)


class OfSet(NamedTuple):
    """What one set gives in its last weeks."""

    topic_weeks: int
    unusual: int
    scale: float
    share: float

    @property
    def rate(self) -> float:
        """Unusual silences in a topic-week."""
        return self.unusual / self.topic_weeks


def of_set(fleet: Fleet) -> OfSet:
    """Fit the mixture to a set, without a prior."""
    made = trial(topics(fleet))
    unusual, week = unusual_silences(made)
    scores, weeks = evidence(*select_alone(unusual, TOPIC), week)
    found = fit(scores, weeks, FLAT)
    scale = float(np.exp((found.posterior.sum(1) * np.log(SCALES)).sum()))
    return OfSet(weeks, len(scores), scale, float((found.posterior.sum(0) * SHARES).sum()))


def prior_of(sets: Sequence[OfSet]) -> Prior:
    """Return the prior that some sets have in common; how much its rate weighs stays as shipped."""
    scales = np.log([one.scale for one in sets])
    share = float(np.mean([one.share for one in sets]))
    return replace(
        SHIPPED,
        rate=float(np.mean([one.rate for one in sets])),
        scale=float(np.exp(scales.mean())),
        scale_spread=float(scales.std(ddof=1)),
        pauses=1 / share - 1,
    )


def prior_table(fleets: Mapping[str, Fleet]) -> Rows:
    """Return a row for each set, and those of the prior they make and of the shipped one, with its thresholds."""
    rows: Rows = [
        ("set", "topic-weeks", "unusual", "in 1,000", "scale", "share of outages", "suspect past", "dead past")
    ]
    sets = []
    for name, fleet in fleets.items():
        one = of_set(fleet)
        sets.append(one)
        cells = (f"{one.topic_weeks:,}", f"{one.unusual:,}", f"{1000 * one.rate:.1f}", f"{one.scale:.2f}")
        rows.append((name, *cells, f"{one.share:.0%}", "", ""))
    for name, prior in (("made again", prior_of(sets)), ("shipped", SHIPPED)):
        rows.append((name, "", "", *_of_prior(prior)))
    return rows


def _of_prior(prior: Prior) -> tuple[str, ...]:
    nothing = fit(np.empty(0), 0.0, prior)
    allowed = FALSE_ALARMS / 2 / 1000
    return (
        f"{1000 * prior.rate:.1f}",
        f"{prior.scale:.2f} (spread {prior.scale_spread:.2f})",
        f"{1 / (1 + prior.pauses):.0%}",
        f"{nothing.threshold(SUSPECT_TIMES * allowed):.2f}",
        f"{nothing.threshold(allowed):.2f}",
    )

"""How slow repaired outages can make a fleet: its threshold by how many it has, and how soon deaths are found then.

To the unusual silences of a fleet without outages so many repaired ones are added. Deaths are those of the same fleet,
judged by the threshold that comes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from exporter.domain.scoring.calibration import FALSE_ALARMS, fitted_threshold
from exporter.domain.scoring.thresholds import FLOOR, OUTAGE_SCALE, fit
from tests.bench.detection.defaults import FOREVER, Given, made_fleet, mean
from tests.bench.detection.fleet import Floats
from tests.bench.detection.silences import FIRST_WEEK
from tests.bench.detection.table import Rows, number

DRAWS = 100
_OF_TOPICS = FALSE_ALARMS / 2
"""False alarms that are accepted in 1,000 topic-weeks: the other half is for partitions."""


def threshold(pauses: Floats, topic_weeks: float, a_year: float, random: np.random.Generator) -> float:
    """Return the threshold of so many topic-weeks with these scores, and so many outages a year of each topic."""
    outages = random.exponential(OUTAGE_SCALE, random.poisson(a_year / 52 * topic_weeks))
    return fitted_threshold(fit(np.concatenate([pauses, FLOOR + outages]), topic_weeks), _OF_TOPICS).dead


def outage_rates_table(
    sizes: Sequence[int], seeds: Sequence[int], rates: Sequence[float], progress: Callable[[str], None]
) -> Rows:
    """Return a row for each size and rate of outages."""
    rows: Rows = [("fleet", "outages a year of each topic", "dead past", "geo. mean h", "p90 h", "unseen at 28 d")]
    for size in sizes:
        found = []
        for seed in seeds:
            found.append(Given(made_fleet(size, seed, outages=False)))
            progress(f"{size:,} topics, seed {seed}")
        scores = [given.past_scores() for given in found]
        for rate in rates:
            drawn = [threshold(*one, rate, np.random.default_rng(draw)) for one in scores for draw in range(DRAWS)]
            dead = float(np.mean(drawn))
            rows.append((f"{size:,} topics", f"{rate:g}", f"{dead:.2f}", *_delays(found, dead)))
    return rows


def _delays(found: Sequence[Given], dead: float) -> tuple[str, str, str]:
    got = [one for given in found if (one := given.at_threshold(dead).in_weeks(FIRST_WEEK, FOREVER)) is not None]
    return (
        number(mean(got, lambda one: one.geometric_mean)),
        number(mean(got, lambda one: one.p90)),
        f"{100 * mean(got, lambda one: one.unseen):.1f} %",
    )

"""What a holiday of two days in half of a generated fleet makes dead, by what is known of drops as it happens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from exporter.domain.rests import MOST_DAYS
from tests.bench.detection.defaults import KINDS
from tests.bench.detection.fleet import Floats, topics
from tests.bench.detection.hold import hold
from tests.bench.detection.product import product_method
from tests.bench.detection.reference import refitted
from tests.bench.detection.silences import trial
from tests.bench.detection.streams import generate
from tests.bench.detection.table import Rows

FIXED = (4.5, 2.7)
ASKED = 1.0
"""False alarms in 1,000 topic-weeks for which the fleet's own threshold is fitted."""


class Dead(NamedTuple):
    """Silences in which a holiday has a part and that are called dead after it began: so many a span of its days."""

    first_day: int
    while_it_goes_on: int
    later: int
    """Past the days for which a drop holds."""


class Row(NamedTuple):
    """What one threshold gives without a hold, with that of incidents, and with that of drops too."""

    threshold: str
    free: Dead
    held: Dead
    dropped: Dead


def dead_by_a_holiday(size: int, seed: int, *, weeks: int = 40) -> Iterator[Row]:
    """Yield a row for each threshold."""
    made = trial(topics(generate(max(1, round(size / KINDS)), seed=seed, weeks=weeks)))
    published = refitted(made, [ASKED])
    by_prior = product_method(made, published)
    held = hold(made, by_prior)
    (holiday,) = made.units.fleet.incidents
    silences = made.common

    def dead(hours: Floats) -> Dead:
        at = silences.start + hours - holiday[1]
        days = [0.0, 24.0, 24.0 * MOST_DAYS, np.inf]
        found = (hours < silences.end - silences.start) & (at >= 0)
        return Dead(*(int((found & (at >= begin) & (at < end)).sum()) for begin, end in pairwise(days)))

    for name, method, threshold in [
        *((f"{fixed:g}", by_prior, fixed) for fixed in FIXED),
        (f"fitted at {ASKED:g}", product_method(made, published, ASKED), 0.0),
    ]:
        hours = method.hours(silences, threshold)
        known = method.known_of_rests(silences, threshold), method.later(silences, threshold)
        yield Row(name, dead(hours), *(dead(held.alarms(silences, hours, later)) for later in known))


def holiday_table(size: int, seeds: Sequence[int]) -> Rows:
    """Return a row for each seed and threshold: dead on the first day, while the drop may hold, and later."""
    rows: Rows = [("seed", "threshold", "without a hold", "held as incidents", "and as a drop that goes on")]
    for seed in seeds:
        for row in dead_by_a_holiday(size, seed):
            told = (f"{sum(one)} ({one.first_day}, {one.while_it_goes_on}, {one.later})" for one in row[1:])
            rows.append((f"{seed}", row.threshold, *told))
    return rows

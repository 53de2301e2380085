"""What a holiday in half of a generated fleet makes dead, by what is known of drops as it happens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from exporter.domain.learning.drops import MOST_DAYS
from tests.bench.detection.defaults import KINDS
from tests.bench.detection.fleet import HOURS_A_WEEK, Fleet, Floats, topics
from tests.bench.detection.hold import hold
from tests.bench.detection.product import ProductClock, Published, product_method, thresholds
from tests.bench.detection.reference import refitted
from tests.bench.detection.silences import Trial, trial
from tests.bench.detection.streams import generate
from tests.bench.detection.table import Rows

FIXED = (4.5, 2.7)
ACCEPTED = 1.0
"""False alarms in 1,000 topic-weeks for which the fleet's own threshold is fitted."""


class Dead(NamedTuple):
    """Silences in which a holiday has a part and that are called dead after it began: so many a span of its days."""

    first_day: int
    while_it_goes_on: int
    later: int
    """Past the days for which a drop holds."""


class Row(NamedTuple):
    """What one threshold gives, by more and more that is known of drops: one of them for each."""

    threshold: str
    dead: Sequence[Dead]


def dead_by_a_holiday(size: int, seed: int, *, weeks: int = 40) -> Iterator[Row]:
    """Yield a row for each threshold: without a hold, with that of incidents, and with that of drops too."""
    made, published = _judged(generate(max(1, round(size / KINDS)), seed=seed, weeks=weeks))
    held = hold(made, product_method(made, published))
    silences = made.common
    for name, method, threshold in _methods(made, published):
        hours = method.hours(silences, threshold)
        known = method.known_of_rests(silences, threshold), method.later(silences, threshold)
        yield Row(name, [_dead(made, one) for one in (hours, *(held.alarms(silences, hours, one) for one in known))])


def _judged(fleet: Fleet) -> tuple[Trial, Published]:
    """Judge a fleet from shortly before its last holiday on: an incident takes no silence of more than four weeks."""
    first_week = int(fleet.incidents[-1][1] // HOURS_A_WEEK) - 5
    made = trial(topics(fleet), first_week=first_week)
    return made, refitted(made, [ACCEPTED], first_week)


def _methods(made: Trial, published: Published) -> Iterator[tuple[str, ProductClock, float]]:
    by_prior = product_method(made, published)
    yield from ((f"{fixed:g}", by_prior, fixed) for fixed in FIXED)
    # Its clocks, which take longest to make, are the same.
    yield f"fitted at {ACCEPTED:g}", replace(by_prior, dead=thresholds(made, published, ACCEPTED)), 0.0


def _dead(made: Trial, hours: Floats) -> Dead:
    """Count what is dead in the last holiday, and after it."""
    silences, began = made.common, made.units.fleet.incidents[-1][1]
    at = silences.start + hours - began
    days = [0.0, 24.0, 24.0 * MOST_DAYS, np.inf]
    found = (hours < silences.end - silences.start) & (at >= 0)
    return Dead(*(int((found & (at >= begin) & (at < end)).sum()) for begin, end in pairwise(days)))


def holiday_table(size: int, seeds: Sequence[int]) -> Rows:
    """Return a row for each seed and threshold: dead on the first day, while a drop may hold, and later."""
    known = ("without a hold", "held as incidents", "and as a drop that goes on")
    rows: Rows = [("seed", "threshold", *known)]
    for seed in seeds:
        for row in dead_by_a_holiday(size, seed):
            cells = (f"{sum(one)} ({one.first_day}, {one.while_it_goes_on}, {one.later})" for one in row.dead)
            rows.append((f"{seed}", row.threshold, *cells))
    return rows

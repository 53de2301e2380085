"""What is known of units, in the terms of the product's core: their hours of activity, and what it learns from them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import runs
from exporter.domain.learning.baselines import Baselines
from exporter.domain.learning.baselines_of_streams import baselines
from exporter.domain.learning.hours import SECOND, UNKNOWN, Hours, earliest
from exporter.domain.learning.slots import week_of
from tests.bench.detection.fleet import Fleet, Floats, Units


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """The hours of units, and the baseline of each unit and week; the number of a stream is that of its unit."""

    hours: Hours
    baselines: Baselines


def history(units: Units) -> History:
    """Return the history of units as a backfill tells it, in hours."""
    hours, first = hours_of(units), first_week_of(units.fleet)
    # With the week after the last one, so that there is a baseline wherever there is a record.
    made = list(baselines(hours, range(first + 1, first + units.fleet.weeks + 1)))
    return History(hours, Baselines.concatenate(made))


def first_week_of(fleet: Fleet) -> int:
    return int(week_of(np.array([fleet.start]))[0])


def hours_of(units: Units) -> Hours:
    """Return the hours of units; a backfill has of each only the first advance whose moment is known."""
    each = [_hours_of(times, vague, units.fleet.start) for times, vague in zip(units.times, units.vague, strict=True)]
    stream = np.repeat(np.arange(len(units)), [len(hour) for hour, _, _ in each])
    hour, first, unknown = (np.concatenate(one) for one in zip(*each, strict=True))
    return Hours(stream.astype(np.intp), hour, first, first, unknown, np.zeros(len(hour), np.int16))


def _hours_of(times: Floats, vague: NDArray[np.bool_], start: float) -> tuple[NDArray[np.int64], ...]:
    """Return the hours of one unit, the first known advance in each, and whether one came at an unknown moment."""
    if not len(times):
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, bool)
    hour = np.floor(times).astype(np.int64)
    at = runs(hour)
    known = np.where(vague, UNKNOWN, np.round((start + times * 3600.0) * SECOND).astype(np.int64))
    return hour[at] + round(start / 3600.0), earliest(known, at), np.logical_or.reduceat(vague, at)

"""What is known of units, in the terms of the product's core: their hours of activity, and what it learns from them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import runs
from exporter.domain.learning.baselines import Baselines
from exporter.domain.learning.baselines_of_streams import baselines
from exporter.domain.learning.hours import SECOND, UNKNOWN, Hours, earliest, five_bit
from exporter.domain.learning.slots import week_of
from tests.bench.detection.fleet import Fleet, Floats, Units


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """The hours of units, and the baseline of each unit and week; the number of a stream is that of its unit."""

    hours: Hours
    baselines: Baselines


def history(units: Units, *, polled: bool = False) -> History:
    """Return the history of units by a backfill, in hours; ``polled``: by polls, also in slots of five minutes."""
    hours, first = hours_of(units, polled=polled), first_week_of(units.fleet)
    # With the week after the last one, so that there is a baseline wherever there is a record.
    made = list(baselines(hours, range(first + 1, first + units.fleet.weeks + 1)))
    return History(hours, Baselines.joined(made))


def first_week_of(fleet: Fleet) -> int:
    """Return the number of the fleet's first week, counted from the first Monday."""
    return int(week_of(np.array([fleet.start]))[0])


def hours_of(units: Units, *, polled: bool) -> Hours:
    """Return the hours of units; a backfill has of each only the first advance whose moment is known."""
    by_unit = [
        _hours_of(times, vague, units.fleet.start) for times, vague in zip(units.times, units.vague, strict=True)
    ]
    stream = np.repeat(np.arange(len(units)), [len(one.hour) for one in by_unit])
    hour, first, last, unknown, fives = (
        np.concatenate([getattr(one, name) for one in by_unit])
        for name in ("hour", "first", "last", "unknown", "fives")
    )
    if not polled:
        last, fives = first, np.zeros_like(fives)
    return Hours(stream.astype(np.intp), hour, first, last, unknown, fives)


def _hours_of(times: Floats, vague: NDArray[np.bool_], start: float) -> Hours:
    """Return the hours of one unit as polls see them."""
    if not len(times):
        return Hours.none()
    hour = np.floor(times).astype(np.int64)
    at = runs(hour)
    micros = np.round((start + times * 3600.0) * SECOND).astype(np.int64)
    known = np.where(vague, UNKNOWN, micros)
    return Hours(
        np.zeros(len(at), np.intp),
        hour[at] + round(start / 3600.0),
        earliest(known, at),
        np.maximum.reduceat(known, at),
        np.logical_or.reduceat(vague, at),
        np.bitwise_or.reduceat(np.where(vague, 0, five_bit(micros)), at).astype(np.int16),
    )

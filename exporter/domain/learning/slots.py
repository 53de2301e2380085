"""The slots in which a stream is active or silent: an hour or five minutes, and the silences between active ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from exporter.domain.arrays import ColumnSet, Floats, Rows
from exporter.domain.learning.hours import SECOND, Hours, Integers
from exporter.domain.learning.traffic_clock import FIRST_MONDAY, HOUR, WEEK

_BITS = ((np.arange(4096)[:, None] >> np.arange(12)) & 1).astype(np.bool_)
ACTIVE_FIVES = _BITS.sum(1, dtype=np.int64)
"""Number of active five-minute slots of an hour, by the bits of its slots."""


def _longest_inside() -> Integers:
    longest = np.zeros(4096, np.int64)
    last = np.full(4096, -1)
    for place in range(12):
        active = _BITS[:, place]
        gap = np.where(active & (last >= 0), place - last - 1, 0)
        longest = np.maximum(longest, gap)
        last = np.where(active, place, last)
    return longest


LONGEST_INSIDE = _longest_inside()
"""By the same bits: the most silent slots between two active ones."""


@dataclass(frozen=True, slots=True)
class Slot:
    """The length of time in which a stream counts as active or not, and how strongly its rates are drawn."""

    seconds: float
    prior: float

    @property
    def hours(self) -> float:
        """Its length in hours."""
        return self.seconds / HOUR


BY_HOUR = Slot(HOUR, 0.25)
BY_FIVE = Slot(300.0, 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class PastSilences(ColumnSet):
    """The n silences between active hours that are evidence, a column [n] for each fact; Unix seconds. n may be 0."""

    stream: Rows
    start: Floats
    """The end of the slot of the last advance before."""
    end: Floats
    """The first advance after."""
    since: Floats
    """The last advance before."""
    slots: Integers
    """Whole slots without an advance, 0 where the two slots are neighbours."""


def week_of(moments: Floats) -> Integers:
    """Return the number of the week of Unix seconds, counted from the first Monday."""
    return np.floor((moments - FIRST_MONDAY) / WEEK).astype(np.int64)


def cut_into_slots(hours: Hours, slot: Slot) -> Hours:
    """Return the hours in slots of this size. Hours recorded without five-minute detail are unknown in finer slots."""
    if slot == BY_HOUR:
        return hours
    has_fives = hours.fives != 0
    return replace(
        hours,
        first=np.where(has_fives, hours.first, -1),
        last=np.where(has_fives, hours.last, -1),
        unknown=hours.unknown | (hours.active & ~has_fives),
    )


def silences_between(hours: Hours, slot: Slot) -> PastSilences:
    """Return the silences between neighbouring hours in order, where both their ends are known."""
    active = hours.active
    known = (hours.stream[1:] == hours.stream[:-1]) & active[1:] & active[:-1] & ~hours.unknown[1:]
    at = np.flatnonzero(known)
    micros = round(slot.seconds) * SECOND
    last, first = hours.last[at], hours.first[at + 1]
    begun = last // micros + 1
    return PastSilences(
        hours.stream[at],
        np.asarray(begun * slot.seconds, np.float64),
        np.asarray(first / SECOND, np.float64),
        np.asarray(last / SECOND, np.float64),
        np.maximum(first // micros - begun, 0),
    )

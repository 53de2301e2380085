"""Hours <-> days: one row for each partition and UTC day, with its hours as bits and the totals at its start.

So the history of a partition is a small row for each day with an event. A day is rebuilt without reading the days
before it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Flags, Rows, blank_columns, find_largest_so_far, number_runs, runs
from exporter.domain.history.hourly_activity import HourlyActivity
from exporter.domain.learning.hours import DAY_HOURS, HOUR_MICROS, SECOND, UNKNOWN, Hours, Integers, earliest

MILLI = SECOND // 1000


@dataclass(frozen=True, slots=True, eq=False)
class StreamTotals:
    """Totals of streams at a moment, each a column [streams]; UNKNOWN where nothing is known."""

    end_offset: Integers
    last_advance: Integers
    known_since: Integers
    """The first advance."""
    known_slots: Integers
    """Number of all active hours."""


@dataclass(frozen=True, slots=True, eq=False)
class Days:
    """Days of streams, each a column [n], in order of stream and day.

    ``first_ms``, ``last_ms`` and ``fives`` have an element for each active hour, ``hour_records`` one for each counted
    hour, day after day.
    """

    stream: Rows
    day: Integers
    """Days since 1970."""
    active: NDArray[np.int32]
    unknown: NDArray[np.int32]
    counted: NDArray[np.int32]
    """Hours as bits: ``active`` with an advance, ``unknown`` with one at an unknown time, ``counted`` with records."""
    first_ms: NDArray[np.int32]
    last_ms: NDArray[np.int32]
    """Milliseconds within the hour."""
    fives: NDArray[np.int16]
    hour_records: Integers
    records: Integers
    first: Integers
    last: Integers
    end_offset: Integers
    regressions: Integers
    polled: Flags
    offset_before: Integers
    advance_before: Integers
    slots_before: Integers
    """The ``StreamTotals`` at the start of the day."""


def days_of(folded: HourlyActivity, before: StreamTotals) -> tuple[Days, StreamTotals]:
    """Return hours as days, and the totals of all streams in ``before`` after these."""
    hours = folded.hours
    if not len(hours):
        return Days(**blank_columns(Days, 0)), before
    day = hours.hour // DAY_HOURS
    at = runs(hours.stream, day)
    bit = (1 << (hours.hour % DAY_HOURS)).astype(np.int32)
    active, counted = hours.active, folded.records > 0
    stream, offsets = hours.stream[at], folded.end_offset
    place = np.maximum.reduceat(np.where(offsets >= 0, np.arange(len(hours)), -1), at)
    end_offset = np.where(place >= 0, offsets[place], UNKNOWN)
    last = np.maximum.reduceat(hours.last, at)
    slots = np.add.reduceat(active.astype(np.int64), at)
    first = earliest(hours.first, at)
    offset_before, advance_before, slots_before = _before(stream, end_offset, last, slots, before)
    begin = hours.hour * HOUR_MICROS
    days = Days(
        stream,
        day[at],
        np.bitwise_or.reduceat(np.where(active, bit, 0), at).astype(np.int32),
        np.bitwise_or.reduceat(np.where(hours.unknown, bit, 0), at).astype(np.int32),
        np.bitwise_or.reduceat(np.where(counted, bit, 0), at).astype(np.int32),
        ((hours.first - begin)[active] // MILLI).astype(np.int32),
        ((hours.last - begin)[active] // MILLI).astype(np.int32),
        hours.fives[active],
        folded.records[counted],
        np.add.reduceat(folded.records, at),
        first,
        last,
        end_offset,
        np.add.reduceat(folded.regressions, at),
        np.logical_or.reduceat(folded.polled, at),
        offset_before,
        advance_before,
        slots_before,
    )
    return days, _after(days, slots, before)


def _before(
    stream: Rows, end_offset: Integers, last: Integers, slots: Integers, before: StreamTotals
) -> tuple[Integers, Integers, Integers]:
    starts = runs(stream)
    number = number_runs(starts, len(stream))
    begins = starts[number]
    latest_known = np.maximum.accumulate(np.where(end_offset >= 0, np.arange(len(stream)), -1))
    known = np.concatenate([[-1], latest_known[:-1]])
    offset = np.where(known >= begins, end_offset[known], before.end_offset[stream])
    latest = np.concatenate([[UNKNOWN], find_largest_so_far(number, last)[:-1]])
    latest[starts] = UNKNOWN
    advance = np.maximum(latest, before.last_advance[stream])
    passed = np.cumsum(slots) - slots
    return offset, advance, passed - passed[begins] + before.known_slots[stream]


def _after(days: Days, slots: Integers, before: StreamTotals) -> StreamTotals:
    starts = runs(days.stream)
    ends = np.append(starts[1:], len(days.stream)) - 1
    stream = days.stream[starts]
    last, since = before.last_advance.copy(), before.known_since.copy()
    offset, known_slots = before.end_offset.copy(), before.known_slots.copy()
    last[stream] = np.maximum(days.advance_before[ends], days.last[ends])
    offset[stream] = np.where(days.end_offset[ends] >= 0, days.end_offset[ends], days.offset_before[ends])
    known_slots[stream] = days.slots_before[ends] + slots[ends]
    first = earliest(days.first, starts)
    known = since[stream]
    since[stream] = np.where((known >= 0) & ((first < 0) | (known < first)), known, first)
    return StreamTotals(offset, last, since, known_slots)


def hours_of(days: Days) -> Hours:
    """Return the active and the unknown hours of days."""
    either = (days.active | days.unknown)[:, None] >> np.arange(DAY_HOURS, dtype=np.int32) & 1
    row, place = np.nonzero(either)
    active = (days.active[row] >> place & 1).astype(np.bool_)
    hour = days.day[row] * DAY_HOURS + place
    begin = hour[active] * HOUR_MICROS
    first, last = np.full(len(row), UNKNOWN, np.int64), np.full(len(row), UNKNOWN, np.int64)
    fives = np.zeros(len(row), np.int16)
    first[active] = begin + days.first_ms.astype(np.int64) * MILLI
    last[active] = begin + days.last_ms.astype(np.int64) * MILLI
    fives[active] = days.fives
    return Hours(days.stream[row], hour, first, last, (days.unknown[row] >> place & 1).astype(np.bool_), fives)

"""Aggregates windows and inventory into hourly activity; marks unobserved hours.

The rows of a partition are put in order; each accounts for the offsets past the highest one seen before it. So nothing
counts twice where two exporters watch a cluster, a backfill meets the first poll or a window is written twice. What was
written while nobody polled shows as a jump between the end of one row and the start of the next.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import ColumnSet, Flags, Floats, Rows, blank_columns, find_largest_so_far, number_runs, runs
from exporter.domain.learning.hours import (
    DAY_HOURS,
    FIVE_MICROS,
    HOUR_MICROS,
    SECOND,
    UNKNOWN,
    Hours,
    Integers,
    five_bit,
)

CLOCKS_AGREE_SECONDS = 60
"""Largest difference, in seconds, between the clocks of two exporters, and between a poll and its last answer."""

CARRIED, BACKFILLED, INVENTORY, POLLED = range(4)
"""Kinds of rows: an offset known from before, a backfilled window, an inventory row, a polled window.

Rows of the same moment count in this order.
"""

_DAY_MICROS = DAY_HOURS * HOUR_MICROS


@dataclass(frozen=True, slots=True, eq=False)
class Moments(ColumnSet):
    """Rows to sort, each a column [n]. Moments are Unix microseconds, UNKNOWN where they are not known."""

    stream: Rows
    kind: NDArray[np.int8]
    at: Integers
    """When a window starts, or an inventory row was read."""
    until: Integers
    start_offset: Integers
    end_offset: Integers
    records: Integers
    first: Integers
    last: Integers
    resolution: Floats
    """Seconds, 0 for rows without a resolution."""
    regressions: Integers
    polled: Flags
    """Whether the row is from a poll, not from a backfill."""
    exporter: NDArray[np.int32]
    """A number for each exporter, in the order of their names."""
    read_before: Integers
    """Of an inventory row: when its partition was read last before it."""


@dataclass(frozen=True, slots=True, eq=False)
class HourlyActivity(ColumnSet):
    """Hours and the counts of each, each a column [n]."""

    hours: Hours
    records: Integers
    end_offset: Integers
    """The last known end offset of the hour, else UNKNOWN."""
    regressions: Integers
    polled: Flags

    def add_topics(self, topic_of: Rows, first_number: int) -> HourlyActivity:
        """Return the same hours, followed by those of topics as the union of their partitions.

        ``topic_of`` [streams] is the number of each stream's topic; topics get the numbers from ``first_number`` on.
        """
        if not len(self.hours):
            return self
        topic = topic_of[self.hours.stream]
        order = np.lexsort((self.hours.hour, topic))
        at = runs(topic[order], self.hours.hour[order])
        union = self.hours.union(topic_of, first_number)
        return HourlyActivity(
            Hours.concatenate([self.hours, union]),
            np.concatenate([self.records, np.add.reduceat(self.records[order], at)]),
            np.concatenate([self.end_offset, np.full(len(at), UNKNOWN, np.int64)]),
            np.concatenate([self.regressions, np.add.reduceat(self.regressions[order], at)]),
            np.concatenate([self.polled, np.logical_or.reduceat(self.polled[order], at)]),
        )


def cut_at_first_poll(rows: Moments, polled_from: Integers, polled_offset: Integers) -> Moments:
    """Cut backfilled windows off at the first poll of their partition: polls take precedence.

    ``polled_from`` and ``polled_offset`` [streams] are that poll and the end offset that it found, else UNKNOWN.
    """
    first, offset = polled_from[rows.stream], polled_offset[rows.stream]
    seen = (rows.kind == BACKFILLED) & (first >= 0)
    begins = np.where(rows.first >= 0, rows.first, rows.at)
    keep = ~seen | (begins < first)
    rows, first, offset, seen = rows[keep], first[keep], offset[keep], seen[keep]
    crosses = seen & (rows.until > first)
    end = np.where(rows.end_offset >= 0, np.minimum(rows.end_offset, offset), offset)
    return replace(
        rows,
        until=np.where(crosses, first, rows.until),
        last=np.where(crosses & (rows.last > first), first, rows.last),
        records=np.where(
            crosses, np.where(rows.start_offset >= 0, np.maximum(0, end - rows.start_offset), 0), rows.records
        ),
        end_offset=np.where(crosses, end, rows.end_offset),
    )


def fold(rows: Moments) -> HourlyActivity:
    """Return one row for each stream and hour with a known event."""
    if not len(rows):
        return HourlyActivity(Hours.blank(0), **blank_columns(HourlyActivity, 0))
    return _by_hour(_in_hours(*_counted(_in_order(rows))))


def _in_order(rows: Moments) -> Moments:
    """Sort rows in the order in which they account for offsets. Of several windows with one key the last one counts."""
    rows = rows[
        np.lexsort((rows.exporter, rows.end_offset, rows.until, rows.kind, rows.at, rows.kind != CARRIED, rows.stream))
    ]
    again = (rows.kind[1:] != INVENTORY) & np.logical_and.reduce(
        [getattr(rows, name)[1:] == getattr(rows, name)[:-1] for name in ("stream", "at", "kind")]
    )
    if not again.any():
        return rows
    near = np.flatnonzero(np.append(again, False) | np.append(False, again))
    near = near[np.lexsort((near, *(getattr(rows, name)[near] for name in ("exporter", "kind", "at", "stream"))))]
    key = [getattr(rows, name)[near] for name in ("stream", "at", "kind", "exporter")]
    doubled = near[:-1][np.logical_and.reduce([one[1:] == one[:-1] for one in key])]
    keep = np.ones(len(rows), np.bool_)
    keep[doubled] = False
    return rows[keep]


def _counted(rows: Moments) -> tuple[Moments, Flags]:
    """Return rows with the records that each counts, and before which records were written while nobody polled."""
    count, is_inventory = len(rows), rows.kind == INVENTORY
    starts = runs(rows.stream)
    begins = starts[number_runs(starts, count)]
    latest_known = np.maximum.accumulate(np.where(rows.end_offset >= 0, np.arange(count), -1))
    before = np.concatenate([[-1], latest_known[:-1]])
    known = before >= begins
    last_end, last_until = rows.end_offset[before], rows.until[before]
    passed = rows.at - last_until
    # Totals of the days before count up to midnight, so that a rebuild gives the same.
    other_day = (passed >= 0) & (rows.at // _DAY_MICROS > (last_until - 1) // _DAY_MICROS)
    later = other_day | (passed >= CLOCKS_AGREE_SECONDS * SECOND)
    fell = is_inventory & known & (rows.end_offset < last_end) & later
    regressions = np.where(fell, 1, rows.regressions)
    # Offsets only grow within an epoch; a restart begins the next one.
    begins_epoch = regressions > 0
    begins_epoch[starts] = True
    largest = find_largest_so_far(np.cumsum(begins_epoch) - 1, rows.end_offset)
    highest = np.concatenate([[UNKNOWN], largest[:-1]])
    highest[begins_epoch] = UNKNOWN
    grown = np.where(rows.end_offset >= 0, rows.end_offset - np.maximum(highest, rows.start_offset), 0)
    seen = np.where(highest < 0, rows.records, np.maximum(grown, 0))
    jumped = (highest >= 0) & (rows.start_offset > highest)
    unseen = np.where(jumped, rows.start_offset - highest, 0)
    keep = (rows.kind != CARRIED) & (~is_inventory | ~known | jumped | (regressions > 0))
    counted = replace(rows, records=seen + unseen, end_offset=largest, regressions=regressions)
    return counted[keep], jumped[keep]


def _in_hours(rows: Moments, moved: Flags) -> Moments:
    """Give each row its hour (``at``); a window that spans hours also adds its last hour, without records.

    ``resolution`` becomes whether the hour is unknown, ``start_offset`` the bits of its slots of five minutes.
    """
    is_inventory, active = rows.kind == INVENTORY, rows.first >= 0
    passed = np.where(rows.read_before >= 0, rows.at - rows.read_before, np.iinfo(np.int64).max)
    within_hour, within_five = passed <= HOUR_MICROS, passed <= FIVE_MICROS
    hidden = (rows.kind == BACKFILLED) & ~active
    found = is_inventory & (moved | (rows.regressions > 0))
    unknown = hidden | (rows.resolution > HOUR_MICROS / SECOND) | (~is_inventory & moved) | (found & ~within_hour)
    fine = (rows.resolution * SECOND <= FIVE_MICROS) & (rows.until - rows.at <= FIVE_MICROS)
    fine = np.where(is_inventory, within_five, fine)
    first = np.where(is_inventory & moved & within_hour, rows.at, rows.first)
    last = np.where(is_inventory & moved, rows.at, rows.last)
    hour = np.where(first >= 0, first, rows.at) // HOUR_MICROS
    # A hidden span ends at its window's end, of which the last instant is outside.
    end = np.where(hidden, rows.until - 1, last)
    last_hour = np.where(end >= 0, end // HOUR_MICROS, hour)
    spans = last_hour > hour
    known_end = np.where(hidden, rows.until, last)
    near = replace(
        rows, at=hour, first=first, last=np.where(spans, first, known_end), resolution=unknown.astype(np.float64)
    )
    far_first = np.where(first >= 0, last, UNKNOWN)[spans]
    nothing = np.zeros(int(spans.sum()), np.int64)
    far = replace(
        near[spans],
        at=last_hour[spans],
        first=far_first,
        last=known_end[spans],
        records=nothing,
        end_offset=nothing + UNKNOWN,
        regressions=nothing,
    )
    has_fives = np.concatenate([fine, fine[spans]]) & (np.concatenate([near.first, far.first]) >= 0)
    both = Moments.concatenate([near, far])
    fives = np.where(has_fives, five_bit(both.first) | five_bit(both.last), 0)
    return replace(both, start_offset=fives.astype(np.int64))


def _by_hour(rows: Moments) -> HourlyActivity:
    rows = rows[np.lexsort((rows.at, rows.stream))]  # stable: the order of the rows of an hour stays
    at = runs(rows.stream, rows.at)
    latest_known = np.maximum.reduceat(np.where(rows.end_offset >= 0, np.arange(len(rows)), -1), at)
    fives = rows.start_offset.astype(np.int16)
    return HourlyActivity(
        Hours(rows.stream, rows.at, rows.first, rows.last, rows.resolution > 0, fives).merge(),
        np.add.reduceat(rows.records, at),
        np.where(latest_known >= 0, rows.end_offset[latest_known], UNKNOWN),
        _regressions(rows, number_runs(at, len(rows)), len(at)),
        np.logical_or.reduceat(rows.polled, at),
    )


def _regressions(rows: Moments, group: Rows, groups: int) -> Integers:
    """Count how often the end offset fell in each hour. Of several exporters the one with the most counts."""
    found = np.zeros(groups, np.int64)
    fell = np.flatnonzero(rows.regressions > 0)
    if len(fell):
        width = int(rows.exporter.max()) + 2
        key, place = np.unique(group[fell] * width + rows.exporter[fell] + 1, return_inverse=True)
        sums = np.zeros(len(key), np.int64)
        np.add.at(sums, place.ravel(), rows.regressions[fell])
        np.maximum.at(found, key // width, sums)
    return found

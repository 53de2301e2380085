"""What look-ups of offsets by time proved about the partitions of a cluster, as columns (see ``time_lag``)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from exporter.domain.arrays import ColumnSet, Flags, Offsets, Rows, runs

NEWEST_KEPT = 4
"""Points kept of one partition, besides up to four around each committed offset."""

NOWHERE = -1
"""The place of a point that does not exist."""


@dataclass(frozen=True, slots=True, eq=False)
class Points(ColumnSet):
    """n points, sorted by partition and offset, each offset once: the results of the searches of all groups.

    A point means that every record before its offset is from before ``target``. Places are indices of points.
    """

    row: Rows
    """The partition."""
    offset: Offsets
    target: Offsets
    """Unix milliseconds, as ``timestamp``."""
    timestamp: Offsets
    """Where ``known``: the timestamp of the record at the offset, which is also the newest up to it."""
    known: Flags
    """Elsewhere the record at the offset is unknown: no record before it is from ``target`` or later."""

    def are_of(self, rows: Rows) -> Flags:
        """Return which points are of these partitions."""
        if not len(rows):
            return np.zeros(len(self), dtype=np.bool_)
        wanted = np.zeros(max(int(rows.max()), int(self.row.max(initial=0))) + 1, dtype=np.bool_)
        wanted[rows] = True
        return wanted[self.row]

    def move(self, here: Rows) -> Points:
        """Return the points by other rows: ``here`` is the new row of each old one, -1 where it is gone."""
        row = here[self.row]
        return replace(self, row=row)[row >= 0]

    def extend(self, new: Points) -> tuple[Points, Rows]:
        """Return the points with what answers proved, in any order, and the partitions with a contradiction.

        An answer that contradicts earlier ones shows that records were removed (retention, compaction, an unclean
        election): nothing is known of that partition any more.
        """
        touched = self.are_of(new.row)
        merged, disproved = _merged(Points.concatenate([self[touched], new]))
        joined = Points.concatenate([self[~touched], merged[~merged.are_of(disproved)]])
        return joined[np.argsort(joined.row, kind="stable")], disproved

    def place(self, rows: Rows, offsets: Offsets) -> Rows:
        """Return where the points past each offset of a partition begin."""
        low, high = (np.searchsorted(self.row, rows, side).astype(np.intp) for side in ("left", "right"))
        while (between := low < high).any():
            middle = (low + high) // 2
            before = between & (self.offset[np.minimum(middle, len(self) - 1)] <= offsets)
            low, high = np.where(before, middle + 1, low), np.where(between & ~before, middle, high)
        return low

    def record_before(self, rows: Rows, places: Rows) -> Rows:
        """Return the place of the last known record before each place, NOWHERE where the partition has none."""
        known = np.concatenate([[NOWHERE], np.where(self.known, np.arange(len(self)), NOWHERE)])
        found = np.maximum.accumulate(known)[places]
        return np.where(found >= np.searchsorted(self.row, rows), found, NOWHERE).astype(np.intp)

    def find_points_of(self, rows: Rows, places: Rows) -> Rows:
        """Return the places that are points of the partition, NOWHERE for others."""
        return np.where(places < np.searchsorted(self.row, rows, "right"), places, NOWHERE).astype(np.intp)

    def record_from(self, places: Rows) -> Rows:
        """Return the place of the first known record of any partition from each place on."""
        known = np.concatenate([np.where(self.known, np.arange(len(self)), len(self)), [len(self)]])
        first: Rows = np.minimum.accumulate(known[::-1])[::-1][places]
        return first

    def trim(self, rows: Rows, committed: Offsets) -> Points:
        """Keep what the next search may need: the points around each committed offset, and the newest of a partition.

        ``rows`` [m] are the partitions of the committed offsets, any number of each; those of others stay.
        """
        if not len(rows) or not len(self):
            return self
        kept = np.zeros(len(self) + 1, dtype=np.bool_)
        for offsets in (committed, committed - 1):
            places = self.place(rows, offsets)
            kept[self.record_before(rows, places)] = kept[self.find_points_of(rows, places)] = True
        newer = np.searchsorted(self.row, self.row, "right") - np.arange(len(self))
        return self[kept[:-1] | (newer <= NEWEST_KEPT) | ~self.are_of(rows)]


def _merged(points: Points) -> tuple[Points, Rows]:
    """Return points in any order as one table, each offset once, and the partitions in which they contradict."""
    points = points[np.lexsort((points.offset, points.row))]
    if not len(points):
        return points, points.row
    first = runs(points.row, points.offset)
    most = np.maximum.reduceat(np.where(points.known, points.timestamp, _LEAST), first)
    least = np.minimum.reduceat(np.where(points.known, points.timestamp, _MOST), first)
    known = np.logical_or.reduceat(points.known, first)
    wrong = [points.row[first[known & (most != least)]]]
    target = np.minimum.reduceat(points.target, first)
    points = Points(points.row[first], points.offset[first], target, np.where(known, most, 0), known)
    # Of two bounds the later one proves more, where its time is not later.
    while (less := _less(points)).any():
        points = points[~less]
    every = np.arange(len(points))
    newest = points.record_before(points.row, every)
    wrong.append(points.row[(newest != NOWHERE) & (points.timestamp[newest] >= points.target)])
    return points, np.unique(np.concatenate(wrong))


def _less(points: Points) -> Flags:
    less = ~points.known
    less[-1:] = False
    less[:-1] &= (points.row[1:] == points.row[:-1]) & (points.target[1:] <= points.target[:-1])
    return less


_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max

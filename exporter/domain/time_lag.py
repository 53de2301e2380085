"""How old the first record is that a consumer group has yet to read, with look-ups of offsets by time (KIP-79).

A broker answers a time t with f(t): the first offset whose timestamp is at or after t, and that timestamp. It
never decreases in t, in whatever order the timestamps are. So one answer (offset o, timestamp s) proves that every
record before o is from before t, and that s is the newest timestamp up to o.

The time lag of a committed offset c is now - T(c), with T(c) the newest timestamp up to the record at c. Where
timestamps do not decrease that is the record's own; a late record counts as written with those before it, so T never
moves back as c advances. Before the first timestamp of the log T is that first one. In a compacted topic the record
at c may be gone: T is then the timestamp of the first later record that is newer than all before c.

Within this module times are whole milliseconds: the resolution of Kafka, at which a search ends. No I/O.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Collection
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from exporter.domain import NoTimeLag, Reason
from exporter.domain.arrays import Flags, Offsets

POINTS_PER_PARTITION = 8
"""Points kept of one partition, unless its groups need more: up to four around each committed offset.

More points save no look-ups that ``make bench-timelag`` could measure.
"""

RELATIVE_TOLERANCE = 0.05
"""A time lag is exact enough where its uncertainty is at most this part of its smallest possible value."""

_offset = attrgetter("offset")


class Point(NamedTuple):
    """What an answer proved about one offset: every record before it is from before ``target``.

    ``timestamp`` is that of the record at the offset, and the newest up to it. None: no record before ``offset`` is
    from ``target`` or later, and the record at the offset is unknown.
    """

    offset: int
    target: int
    timestamp: int | None


class TimestampRange(NamedTuple):
    """T of one committed offset lies within [``low``, ``high``], Unix milliseconds."""

    low: int
    high: int


class Points:
    """What the searches of all groups proved about one partition; kept from sweep to sweep."""

    def __init__(self) -> None:
        self._points: list[Point] = []
        self._topic_id: str | None = None
        self._latest = 0
        self.disproved = 0
        """How often an answer contradicted earlier ones."""

    def __len__(self) -> int:
        return len(self._points)

    def renew(self, topic_id: str | None, earliest: int, latest: int) -> None:
        """Drop outdated points: all where offsets started over, and those before the log start."""
        if topic_id != self._topic_id or latest < self._latest:
            self._points = []
        self._topic_id, self._latest = topic_id, latest
        del self._points[: bisect.bisect_left(self._points, earliest, key=_offset)]

    def add(self, point: Point) -> None:
        """Add what an answer proved.

        An answer that contradicts earlier ones shows that records were removed (retention, compaction, an unclean
        election): it is kept, and they are dropped.
        """
        at = bisect.bisect_left(self._points, point.offset, key=_offset)
        before, after = self._points[:at], self._points[at:]
        if after and after[0].offset == point.offset:
            same = after.pop(0)
            if None not in (same.timestamp, point.timestamp) and same.timestamp != point.timestamp:
                self.disproved += 1
                self._points = [point]
                return
            timestamp = same.timestamp if point.timestamp is None else point.timestamp
            point = Point(point.offset, min(same.target, point.target), timestamp)
        while before and before[-1].timestamp is None and before[-1].target >= point.target:
            before.pop()  # the new point proves more
        newest = next((each.timestamp for each in reversed(before) if each.timestamp is not None), None)
        if newest is not None and newest >= point.target:
            self.disproved += 1
            before, after = [], []
        elif after and after[0].target <= (point.target if point.timestamp is None else point.timestamp):
            if point.timestamp is None:
                return  # the known point proves more
            self.disproved += 1
            before, after = [], []
        self._points = [*before, point, *after]

    def up_to(self, offset: int) -> Point | None:
        """Return the last record known at or before ``offset``."""
        at = bisect.bisect_right(self._points, offset, key=_offset)
        return next((point for point in reversed(self._points[:at]) if point.timestamp is not None), None)

    def after(self, offset: int, *, end: int | None = None) -> Point | None:
        """Return the first point past ``offset``; with ``end`` not one that leaves open what lies before ``end``."""
        at = bisect.bisect_right(self._points, offset, key=_offset)
        for point in self._points[at:]:
            if end is None or point.timestamp is not None or point.offset >= end:
                return point
        return None

    def trim(self, committed: Collection[int]) -> None:
        """Keep what the next search may need: the points around each committed offset, and the newest others."""
        if not committed:
            self._points = []
            return
        first = bisect.bisect_left(self._points, min(committed), key=_offset)
        del self._points[: max(0, first - 2)]
        if len(self._points) <= POINTS_PER_PARTITION:
            return
        around: set[Point | None] = set()
        for offset in committed:
            around |= {self.up_to(offset), self.up_to(offset - 1), self.after(offset), self.after(offset - 1)}
        room = max(0, POINTS_PER_PARTITION - len(around - {None}))
        rest = [point for point in self._points if point not in around]
        around.update(rest[len(rest) - room :])
        self._points = [point for point in self._points if point in around]


def still_enough(low: Offsets, high: Offsets, now: int, tolerance: int, slack: int) -> Flags:
    """Return which brackets of earlier searches (``Search.lasting``) are narrow enough now."""
    allowed = np.maximum(tolerance, np.floor(RELATIVE_TOLERANCE * (now - high)))
    enough: Flags = (high - low <= allowed) & (low <= now + slack)
    return enough


@dataclass(slots=True)
class Search:
    """Closes in on T of one committed offset, which lies before ``latest`` and not before the log start.

    ``tolerance`` is in milliseconds, as are ``now`` and ``slack``: a timestamp that is further ahead than that is
    from the future. Each answer is a record, so a bracket closes faster than by halving: 3 or 4 look-ups are usual
    for an offset of which nothing is known.
    """

    committed: int
    latest: int
    now: int
    tolerance: int
    slack: int
    compacted: bool = False
    found: TimestampRange | NoTimeLag | Reason | None = None
    """None: the search continues."""
    _width: float = math.inf
    """The width of the bracket at the last step, in time."""
    _stalled: int = 0
    """Steps in a row that did not halve it: then another kind of step is needed."""

    def next(self, points: Points) -> int | None:
        """Return the time to look up next, or None where it is ``found``."""
        if self.found is not None:
            return None
        # A compacted topic may have no record at c: what matters is then the first one from there on.
        low = points.up_to(self.committed - self.compacted)
        high = points.after(self.committed - self.compacted, end=self.latest if self.compacted else None)
        if low is None or low.timestamp is None:
            if high is None or high.target > 0:
                return 0
            self.found = (
                NoTimeLag.NO_TIMESTAMP if high.timestamp is None else self._judge(high.timestamp, high.timestamp)
            )
            return None
        bracket = self._bracket(low.timestamp, low.offset, high)
        if self._enough(bracket):
            self.found = self._judge(*bracket)
            return None
        return self._choose(low.offset, low.timestamp, high)

    def _bracket(self, low: int, at: int, high: Point | None) -> TimestampRange:
        """Return the bounds of T where ``low`` is the newest timestamp of the records up to ``at``."""
        if at == self.committed:
            return TimestampRange(low, low)
        if high is None:
            # Later than now is no smaller lag.
            return TimestampRange(low, max(low, self.now))
        if not self.compacted or high.timestamp is None:
            return TimestampRange(low, high.target - 1)
        if high.offset == self.committed or high.target == low + 1:
            return TimestampRange(high.timestamp, high.timestamp)
        return TimestampRange(low, high.timestamp)

    def _enough(self, bracket: TimestampRange) -> bool:
        return bracket.high - bracket.low <= self._allowed(bracket.high) or bracket.low > self.now + self.slack

    def _allowed(self, high: int) -> int:
        return max(self.tolerance, math.floor(RELATIVE_TOLERANCE * (self.now - high)))

    @property
    def lasting(self) -> bool:
        """Whether what was found stays valid as long as the offset and the log before it; see ``still_enough``."""
        # Without a point behind the offset its bracket ends at the time of the search.
        return isinstance(self.found, TimestampRange) and self.found.high < self.now

    def _judge(self, low: int, high: int) -> TimestampRange | NoTimeLag:
        return NoTimeLag.FUTURE if low > self.now + self.slack else TimestampRange(low, high)

    def _choose(self, at: int, low: int, high: Point | None) -> int:
        """Return a time past ``low``, the newest timestamp up to the offset ``at``, and before that of ``high``."""
        top, end = (self.now + 1, self.latest) if high is None else (high.target, high.offset)
        width = top - low
        self._stalled = 0 if 2 * width <= self._width else self._stalled + 1
        self._width = width
        if at == self.committed - 1:
            return low + 1
        if self.compacted and width <= self._allowed(top):
            # What is left to find is the first record past the newest one before c, which may be near or far.
            target = (low + 1, low + math.isqrt(width), low + width // 2)[self._stalled % 3]
            return min(max(target, low + 1), top - 1)
        if self._stalled % 2:
            # As many times older than the smallest lag as younger than the largest.
            nearest = max(self.now - top, self.tolerance, 1)
            target = self.now - round(math.sqrt(nearest * max(self.now - low, nearest)))
            target = target if low < target < top else low + width // 2
        else:
            target = low + round(width * (self.committed - at) / (end - at))
        # Nearer to an end than is allowed, half of the answers would prove no more than at this distance.
        least, most = low + 1 + math.floor(self._allowed(low) / (1 + RELATIVE_TOLERANCE)), top - self._allowed(top)
        target = low + (width + 1) // 2 if least > most else min(max(target, least), most)
        return min(max(target, low + 1), top - 1)

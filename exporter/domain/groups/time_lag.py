"""How old the first record is that a consumer group has yet to read, with look-ups of offsets by time (KIP-79).

A broker answers a time t with the first offset whose timestamp is at or after t, and that timestamp. So one answer
(offset o, timestamp s) proves that every record before o is from before t, and that s is the newest timestamp up to o.
No answer proves nothing (``ports.TimeIndex``): the search goes on to both sides of such times.

The time lag of a committed offset c is now - T(c), with T(c) the newest timestamp up to the record at c: T never moves
back as c advances. Before the first timestamp of the log T is that first one. In a compacted topic the record at c may
be gone: T is then the timestamp of the first later record that is newer than all before c. Times are milliseconds here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Codes, ColumnSet, Flags, Floats, Offsets, Rows, blank_columns
from exporter.domain.groups.consumer_groups import NoTimeLag
from exporter.domain.groups.positions import Positions, outcome_code
from exporter.domain.groups.time_points import NOWHERE, Points
from exporter.domain.polls.readings import ANSWERED, Reason

RELATIVE_TOLERANCE = 0.05
"""A time lag is exact enough where its uncertainty is at most this part of its smallest possible value."""

C = TypeVar("C", bound=np.generic)

UNFINISHED = outcome_code(NoTimeLag.UNFINISHED)
_FUTURE, _NO_TIMESTAMP = outcome_code(NoTimeLag.FUTURE), outcome_code(NoTimeLag.NO_TIMESTAMP)
_HIDDEN = outcome_code(Reason.HIDDEN)


MARKERS = 10
"""The most offsets that are taken for transaction markers: each producer that ended leaves one at the end of a log."""

QUIET_SECONDS = 900.0
"""How long after its records a marker may follow: ``transaction.max.timeout.ms`` of brokers."""


@dataclass(frozen=True, slots=True, eq=False)
class CommitProgress(ColumnSet):
    """What n committed offsets did from sweep to sweep."""

    moved_at: Floats
    """When each last moved, or was first seen, Unix seconds."""
    added: Flags
    """Whether records came later than QUIET_SECONDS after that."""

    def follow(self, before: Positions, positions: Positions, here: Rows, there: Rows, now: float) -> CommitProgress:
        """Return the same of other positions: ``here`` are the new rows of ``there``, those of ``before``."""
        found = CommitProgress.blank(len(positions), moved_at=now)
        still = before.committed[there] == positions.committed[here]
        known = (before.reason[there] == ANSWERED) & (positions.reason[here] == ANSWERED)
        grown = known & (positions.lag[here] > before.lag[there])
        found.moved_at[here] = np.where(still, self.moved_at[there], now)
        found.added[here] = still & (self.added[there] | (grown & (now - self.moved_at[there] > QUIET_SECONDS)))
        return found


def are_trailing(lag: Offsets, quiet_for: Floats, added: Flags) -> Flags:
    """Return which remainders may be transaction markers alone, which a group that commits by record never passes.

    These are few offsets at the end of a log to which nobody writes; ``quiet_for`` is since when, in seconds, NaN where
    unknown. A remainder to which records were ``added`` while the group stood still is none.
    """
    trailing: Flags = (lag > 0) & (lag <= MARKERS) & (quiet_for > QUIET_SECONDS) & ~added
    return trailing


@dataclass(frozen=True, slots=True, eq=False)
class TimeLagLimits:
    """When a time lag is exact enough, in milliseconds.

    A timestamp that is more than ``slack`` after ``now`` is from the future.
    """

    now: int
    tolerance: int
    slack: int

    def width_allowed(self, high: Offsets) -> Offsets:
        """Return how wide a bracket that ends at ``high`` may be."""
        relative = np.floor(RELATIVE_TOLERANCE * (self.now - high)).astype(np.int64)
        allowed: Offsets = np.maximum(self.tolerance, relative)
        return allowed


@dataclass(frozen=True, slots=True, eq=False)
class TimeLagSearches:
    """Searches for T of n committed offsets, each before ``latest`` and not before the log start; columns [n].

    The columns of results are written to.
    """

    limits: TimeLagLimits
    row: Rows
    """The partition."""
    committed: Offsets
    latest: Offsets
    compacted: Flags
    outcome: Codes
    """UNFINISHED, ANSWERED where T was found, or another code of ``positions.OUTCOMES``."""
    low: Offsets
    """T lies within [``low``, ``high``], Unix milliseconds, where it was found."""
    high: Offsets
    width: Floats
    """The width of the bracket at the last step, in time."""
    stalled: Offsets
    """Steps in a row that did not halve it: then another kind of step is needed."""
    hidden_from: Offsets
    """The first and the last time in the bracket without an answer; -1: none."""
    hidden_to: Offsets

    @classmethod
    def begin(
        cls, limits: TimeLagLimits, row: Rows, committed: Offsets, latest: Offsets, compacted: Flags
    ) -> TimeLagSearches:
        """Return searches that begin."""
        blank = blank_columns(cls, len(row), outcome=UNFINISHED, width=np.inf, hidden_from=-1, hidden_to=-1)
        blank |= {"row": row, "committed": committed, "latest": latest, "compacted": compacted}
        return cls(limits, **blank)

    def __len__(self) -> int:
        return len(self.row)

    def give_up(self, of_rows: Flags, outcome: Codes | int) -> None:
        """End unfinished searches."""
        unfinished = of_rows & (self.outcome == UNFINISHED)
        self.outcome[unfinished] = np.broadcast_to(outcome, of_rows.shape)[unfinished]

    def hide(self, searches: Rows, times: Offsets) -> None:
        """Note that some searches asked for these times and got no answer."""
        known = self.hidden_to[searches] >= 0
        self.hidden_from[searches] = np.where(known, np.minimum(self.hidden_from[searches], times), times)
        self.hidden_to[searches] = np.where(known, np.maximum(self.hidden_to[searches], times), times)

    def step(self, points: Points) -> tuple[Rows, Offsets]:
        """Return which searches need a look-up, and the time of each; the others are finished."""
        searches = np.flatnonzero(self.outcome == UNFINISHED)
        row = self.row[searches]
        place = points.place(row, self.committed[searches])
        before, after = points.record_before(row, place), place
        if (gaps := np.flatnonzero(self.compacted[searches])).size:
            # The record at c may be gone. A bound before the end leaves open what lies behind it.
            end = points.place(row[gaps], self.latest[searches[gaps]] - 1)
            after = place.copy()
            after[gaps] = np.minimum(points.record_from(place[gaps]), end)
        after = points.find_points_of(row, after)
        targets = np.zeros(len(searches), dtype=np.int64)
        first = before == NOWHERE
        open_ = self._from_start(searches[first], after[first], points)
        pending = np.zeros(len(searches), dtype=np.bool_)
        pending[first] = open_
        rest = np.flatnonzero(~first)
        bracketed = self._bracketed(searches[rest], before[rest], after[rest], points)
        rest = rest[~bracketed]
        pending[rest] = True
        targets[rest] = self._chosen(searches[rest], before[rest], after[rest], points)
        some = np.flatnonzero(pending & (self.hidden_to[searches] >= 0))
        if some.size:
            low, bounded = np.where(first[some], -1, _of(points.timestamp, before[some])), after[some] != NOWHERE
            top = np.where(bounded, _of(points.target, after[some]), self.limits.now + 1)
            around, given_up = self._around(searches[some], low, top)
            targets[some] = np.where(around >= 0, around, targets[some])
            pending[some[given_up]] = False
            # Without a bound the newest record is not known yet: the next poll looks it up.
            self.outcome[searches[some[given_up & bounded]]] = _HIDDEN
        return searches[pending], targets[pending]

    def _around(self, searches: Rows, low: Offsets, top: Offsets) -> tuple[Offsets, Flags]:
        """Return the times to look up beside hidden ones in brackets [``low``, ``top``), and which searches give up.

        The time is -1 where none is hidden in the bracket. Later times come first: what is new is rarely hidden.
        """
        start, end = self.hidden_from[searches], self.hidden_to[searches]
        inside = (start < top) & (end > low)
        # Of hidden times on both sides of a bound only those that were asked for are known to be hidden.
        start, end = np.where(start > low, start, end), np.where(end < top, end, start)
        inside &= (start > low) & (end < top)
        self.hidden_from[searches], self.hidden_to[searches] = np.where(inside, [start, end], -1)
        oldest = np.maximum(self.limits.now - top, 1).astype(np.float64)
        older = self.limits.now - np.round(np.sqrt(oldest * np.maximum(self.limits.now - end, oldest))).astype(np.int64)
        later = np.where((end < older) & (older < top), older, (end + top) // 2)
        is_later, is_earlier = (
            (gap > np.maximum(self.limits.width_allowed(at), 1))
            for gap, at in ((top - end, np.minimum(top, self.limits.now)), (start - low, np.maximum(low, 0)))
        )
        # Before the first known record there is nothing to be found on the earlier side.
        is_earlier &= low >= 0
        around = np.select([~inside, is_later, is_earlier], [-1, later, (low + start) // 2], -1)
        return around, inside & ~is_later & ~is_earlier

    def _from_start(self, searches: Rows, after: Rows, points: Points) -> Flags:
        """Judge searches without a known record before; return those for which the first record must be looked up."""
        pending: Flags = after == NOWHERE
        pending[~pending] = points.target[after[~pending]] > 0
        found, at = searches[~pending], after[~pending]
        self._judge(found, points.timestamp[at], points.timestamp[at])
        self.outcome[found[~points.known[at]]] = _NO_TIMESTAMP
        return pending

    def _bracketed(self, searches: Rows, before: Rows, after: Rows, points: Points) -> Flags:
        """Judge searches whose bracket is narrow enough; return which are."""
        now, low = self.limits.now, points.timestamp[before]
        bounded, target = after != NOWHERE, _of(points.target, after)
        timestamp, known = _of(points.timestamp, after), bounded & _of(points.known, after)
        exact = points.offset[before] == self.committed[searches]
        by_record = self.compacted[searches] & known
        hit = by_record & (target == low + 1)
        rules = [exact, ~bounded, ~by_record]
        # Later than now is no smaller lag.
        high = np.select(rules, [low, np.maximum(low, now), target - 1], timestamp)
        low = np.where(~exact & hit, timestamp, low)
        enough: Flags = (high - low <= self.limits.width_allowed(high)) | (low > now + self.limits.slack)
        self._judge(searches[enough], low[enough], high[enough])
        return enough

    def _judge(self, searches: Rows, low: Offsets, high: Offsets) -> None:
        self.low[searches], self.high[searches] = low, high
        future = low > self.limits.now + self.limits.slack
        self.outcome[searches] = np.where(future, _FUTURE, ANSWERED)

    def _chosen(self, searches: Rows, before: Rows, after: Rows, points: Points) -> Offsets:
        """Return a time past the newest timestamp up to the offset, and before that of ``after``."""
        now, tolerance, allowed = self.limits.now, self.limits.tolerance, self.limits.width_allowed
        committed, at, low = self.committed[searches], points.offset[before], points.timestamp[before]
        bounded = after != NOWHERE
        top = np.where(bounded, _of(points.target, after), now + 1)
        end = np.where(bounded, _of(points.offset, after), self.latest[searches])
        width = top - low
        half = low + width // 2
        stalled = np.where(2.0 * width <= self.width[searches], 0, self.stalled[searches] + 1)
        self.width[searches], self.stalled[searches] = width, stalled
        # As many times older than the smallest lag as younger than the largest.
        nearest = np.maximum(now - top, max(tolerance, 1)).astype(np.float64)
        older = now - np.round(np.sqrt(nearest * np.maximum(now - low, nearest))).astype(np.int64)
        older = np.where((low < older) & (older < top), older, half)
        even = low + np.round(width * ((committed - at) / (end - at))).astype(np.int64)
        target = np.where(stalled % 2 == 1, older, even)
        # Nearer to an end than is allowed, half of the answers would prove no more than at this distance.
        least = low + 1 + np.floor(allowed(low) / (1 + RELATIVE_TOLERANCE)).astype(np.int64)
        most = top - np.maximum(allowed(top), 1)
        target = np.where(least > most, half, np.minimum(np.maximum(target, least), most))
        # So narrow a bracket is open in a compacted topic only: what is left to find is the first record past the
        # newest one before c, which may be near or far.
        root = np.sqrt(width).astype(np.int64)
        near = np.select([stalled % 3 == 0, stalled % 3 == 1], [low + 1, low + root], half)
        target = np.where(width <= allowed(top), near, target)
        return np.where(at == committed - 1, low + 1, target).astype(np.int64)


def _of(column: NDArray[C], places: Rows) -> NDArray[C]:
    """Return the values at places; where one is NOWHERE any value stands for it."""
    return column[places] if len(column) else np.zeros(len(places), dtype=column.dtype)

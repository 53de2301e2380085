"""Which records of a source its replica lacks. Pure rules on columns, no clock.

Offsets differ between two clusters, and timestamps are preserved (the need behind KIP-391). Let f(t) be the first
offset of the source whose timestamp is t or later (KIP-79), and X the newest timestamp in the replica. Records at f(X +
1 ms) or later are certainly missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from exporter.domain.arrays import Codes, Flags, Floats, Offsets, Rows
from exporter.domain.polls.answers import ANSWERED, NO_ANSWER, Answers
from exporter.domain.polls.readings import State
from exporter.domain.polls.table import STATE_CODES, UNREADABLE, Table
from exporter.domain.replicas.comparison import (
    COMPARED,
    NOT_COMPARED_CODES,
    REPLICA_STATE_CODES,
    NotCompared,
    ReplicaState,
)

MILLISECOND = 0.001

LOOK_UP = -1
"""A look-up in the source is needed to know what is missing."""

_AHEAD = [STATE_CODES[state] for state in (State.FUTURE, State.CONTRADICTORY)]
_HAS_NEWEST = [*_AHEAD, STATE_CODES[State.OBSERVED], STATE_CODES[State.PRESERVED]]


@dataclass(frozen=True, slots=True, eq=False)
class Ends:
    """What the last poll read of n partitions of one side, each a column [n]."""

    read: Flags
    """Whether it read the offsets; elsewhere the other columns mean nothing."""
    state: Codes
    """An index into STATES."""
    earliest: Offsets
    latest: Offsets
    newest: Floats
    """The timestamp of the newest record; NaN where unknown."""

    @classmethod
    def of(cls, table: Table, rows: Rows) -> Ends:
        """Return rows of a table; -1 is a row that was not read."""
        here = np.flatnonzero(rows >= 0)
        there, count = rows[here], len(rows)
        ends = cls(
            np.zeros(count, dtype=np.bool_),
            np.full(count, UNREADABLE, dtype=np.int8),
            np.zeros(count, dtype=np.int64),
            np.zeros(count, dtype=np.int64),
            np.full(count, np.nan),
        )
        ends.read[here] = read = table.read[there]
        ends.state[here] = table.state_now[there]
        ends.earliest[here], ends.latest[here] = table.earliest[there], table.latest[there]
        ends.newest[here] = np.where(read, table.newest[there], np.nan)
        return ends

    def __len__(self) -> int:
        return len(self.read)

    def __getitem__(self, rows: Rows | Flags) -> Ends:
        return Ends(self.read[rows], self.state[rows], self.earliest[rows], self.latest[rows], self.newest[rows])


@dataclass(frozen=True, slots=True, eq=False)
class Missing:
    """How many records of their sources n replicas lack for certain, each a column [n]."""

    reason: Codes
    """Why that is unknown, as a code; COMPARED where it is known."""
    at_least: Offsets
    """0 where unknown."""
    oldest: Floats
    """The time of the oldest record that is certainly missing; NaN where there is none, or its time is unknown."""

    @classmethod
    def nothing(cls, reason: Codes) -> Missing:
        """Return rows that lack nothing, or whose missing records are unknown for these reasons."""
        return cls(reason, np.zeros(len(reason), dtype=np.int64), np.full(len(reason), np.nan))

    def put(self, rows: Rows | Flags, found: Missing) -> None:
        """Write the results of ``rows`` into these columns."""
        self.reason[rows], self.at_least[rows], self.oldest[rows] = found.reason, found.at_least, found.oldest

    def __getitem__(self, rows: Rows | Flags) -> Missing:
        return Missing(self.reason[rows], self.at_least[rows], self.oldest[rows])


class Times(NamedTuple):
    """The times to look up in the source, Unix seconds; NaN for none."""

    first: Floats
    later: Floats


def without_asking(source: Ends, replica: Ends, stamped: Flags) -> Codes:
    """Return what follows from two readings alone: a reason, COMPARED where nothing is missing, or LOOK_UP.

    ``stamped``: the replica's brokers set its timestamps.
    """
    cases: Mapping[NotCompared | int, Flags] = {
        NotCompared.SOURCE_UNREADABLE: ~source.read,
        NotCompared.REPLICA_UNREADABLE: ~replica.read,
        COMPARED: source.latest == source.earliest,
        LOOK_UP: replica.state == STATE_CODES[State.NEVER_WRITTEN],
        NotCompared.LOG_APPEND_TIME: stamped,
        NotCompared.REPLICA_EMPTY: replica.state == STATE_CODES[State.EMPTY],
        NotCompared.FUTURE_TIMESTAMP: np.isin(replica.state, _AHEAD),
        NotCompared.NO_TIMESTAMP: np.isnan(replica.newest),
    }
    codes = [NOT_COMPARED_CODES[case] if isinstance(case, NotCompared) else case for case in cases]
    outcome: Codes = np.select(list(cases.values()), codes, LOOK_UP).astype(np.int8)
    return outcome


def times_to_ask(source: Ends, replica: Ends, stamped: Flags) -> Times:
    """Return the times to look up in the source; none where a look-up would not help."""
    wanted = without_asking(source, replica, stamped) == LOOK_UP
    as_new = np.isin(source.state, _HAS_NEWEST) & (replica.newest >= source.newest)
    return Times(
        np.where(wanted, np.where(np.isnan(replica.newest), 0.0, replica.newest), np.nan),
        np.where(wanted & ~as_new, replica.newest + MILLISECOND, np.nan),
    )


def missing(
    source: Ends, newest: Floats, first: Answers, later: Answers, *, compacted: Flags, markers: int = 1
) -> Missing:
    """Return which records of ``source`` the replicas lack, given the answers for ``times_to_ask``.

    ``newest`` is the replica's newest timestamp, NaN where it never had a record; ``later`` is NO_ANSWER where only
    one time was looked up. ``compacted``: the source may have removed the original of the replica's newest record.
    Offsets are counted, including transaction markers. Up to ``markers`` missing offsets do not count: these may be
    markers, which are never copied.
    """
    never, single = np.isnan(newest), later.reason == NO_ANSWER
    failed = (first.reason != ANSWERED) | (~single & (later.reason != ANSWERED))
    there = np.abs(first.timestamp - newest) < MILLISECOND / 2
    with np.errstate(invalid="ignore"):
        # What a look-up by time does not find is there nevertheless where the newest record is as new.
        reached = source.newest >= newest
    dated = first.found & ~np.isnan(first.timestamp)
    unknown = np.isnan(source.newest) & (source.state != STATE_CODES[State.UNSUPPORTED])
    hidden = np.where(never, ~first.found, (~single & ~later.found & (reached | unknown)) | (~dated & unknown))
    reasons = {
        NotCompared.LOOKUP_FAILED: failed,
        NotCompared.HIDDEN_RECORDS: hidden,
        NotCompared.NEWER_THAN_SOURCE: ~never & ~dated & ~reached,
        NotCompared.NOT_IN_SOURCE: ~never & ~there & (first.offset > source.earliest) & ~compacted,
    }
    reason = np.select(list(reasons.values()), [NOT_COMPARED_CODES[each] for each in reasons], COMPARED).astype(np.int8)
    # The first record that is certainly missing: after the replica's newest one, or the source's first.
    known = np.where(never, first.found, later.found) & (never | ~single)
    after = np.where(never, first.offset, later.offset)
    at_least = np.where(known, np.maximum(0, source.latest - after), 0)
    certain = (at_least > markers) & (reason == COMPARED)
    oldest = np.where(never, first.timestamp, later.timestamp)
    return Missing(reason, np.where(certain, at_least, 0), np.where(certain, oldest, np.nan))


@dataclass(frozen=True, slots=True, eq=False)
class Standstill:
    """Measures how long replicas have not moved while there is something to copy, each fact a column [n].

    It uses offsets alone, which cannot be wrong. Times are Unix seconds of polls; only ``now`` is of the monotonic
    clock.
    """

    replica_end: Offsets
    """-1 where it was never read."""
    seen_at: Floats
    """When the replica was first seen with this end offset."""
    source_end: Offsets
    """The end offset of the source when it was first read after that; -1 until then."""
    waiting_since: Floats
    """NaN where nothing is to be copied."""

    @classmethod
    def begin(cls, replica: Ends, at: float) -> Standstill:
        """Return replicas that are seen for the first time."""
        count = len(replica)
        return cls(
            np.where(replica.read, replica.latest, -1),
            np.full(count, at),
            np.full(count, -1, dtype=np.int64),
            np.full(count, np.nan),
        )

    def put(self, rows: Rows, other: Standstill, others: Rows) -> None:
        """Write rows of other columns into ``rows`` of these."""
        self.replica_end[rows], self.seen_at[rows] = other.replica_end[others], other.seen_at[others]
        self.source_end[rows], self.waiting_since[rows] = other.source_end[others], other.waiting_since[others]

    def update(self, source: Ends, source_at: float, replica: Ends, replica_at: float) -> Standstill:
        """Take the ends of both logs; start over where the replica moved or the source was truncated."""
        read = source.read & replica.read
        cut = (self.source_end >= 0) & (source.latest < self.source_end)
        moved = read & ((replica.latest != self.replica_end) | cut)
        seen_at = np.where(moved, replica_at, self.seen_at)
        source_end = np.where(moved, -1, self.source_end)
        return Standstill(
            np.where(moved, replica.latest, self.replica_end),
            seen_at,
            np.where(read & (source_end < 0) & (source_at >= seen_at), source.latest, source_end),
            np.where(moved, np.nan, self.waiting_since),
        )

    def wait(self, source: Ends, missing: Offsets, now: float, read: Flags, *, markers: int = 1) -> Standstill:
        """Begin to measure where the source advanced, or records are ``missing``. Other rows than ``read`` stay.

        So many ``markers`` at the end of the source may be transaction markers, which are not copied.
        """
        went_on = (self.source_end >= 0) & (source.latest - self.source_end > markers)
        begun = read & np.isnan(self.waiting_since) & (went_on | (missing > 0))
        return replace(self, waiting_since=np.where(begun, now, self.waiting_since))

    def lasts(self, now: float) -> Floats:
        """Return for how many seconds each replica has not moved with something to copy; 0 where there is nothing."""
        return np.where(np.isnan(self.waiting_since), 0.0, now - self.waiting_since)


class ReplicaStates(NamedTuple):
    """The state of each replica, as a code, and its lag in seconds; NaN where unknown."""

    state: Codes
    lag_seconds: Floats


def judge(found: Missing, source: Codes, at: float, *, stopped: Flags, behind_after: float) -> ReplicaStates:
    """Return the state and lag of replicas, given what is missing at ``at`` (Unix seconds) and the source's states.

    Where records of the source are dated well before they were written (``preserved``), or in the future, the age of a
    missing record is not the time for which it is missing. The lag in seconds is then unknown.
    """
    compared = found.reason == COMPARED
    undated = (source == STATE_CODES[State.PRESERVED]) | (found.oldest > at)
    lag = np.where(np.isnan(found.oldest), 0.0, np.where(undated, np.nan, at - found.oldest))
    lag = np.where(compared, lag, np.nan)
    states = {
        ReplicaState.STOPPED: stopped,
        ReplicaState.UNKNOWN: ~compared,
        ReplicaState.BEHIND: np.isnan(lag) | (lag > behind_after),
    }
    codes = [REPLICA_STATE_CODES[state] for state in states]
    state = np.select(list(states.values()), codes, REPLICA_STATE_CODES[ReplicaState.IN_STEP])
    return ReplicaStates(state.astype(np.int8), lag)

"""How far replicas are behind their sources. Pure rules on columns, no clock.

Offsets differ between two clusters, and replication preserves timestamps (the need behind KIP-391). A replica is in
step when its newest record is as new as that of its source. Later, what its source gained and it did not is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np

from exporter.domain.arrays import Codes, Counts, Flags, Floats, Offsets, Rows
from exporter.domain.polls.readings import State
from exporter.domain.polls.table import STATE_CODES, UNREADABLE, Table
from exporter.domain.replicas.comparison import (
    COMPARED,
    NOT_COMPARED_CODES,
    REPLICA_STATE_CODES,
    NotCompared,
    ReplicaState,
)

_AHEAD = [STATE_CODES[state] for state in (State.FUTURE, State.CONTRADICTORY)]
_UNDATED = [*_AHEAD, STATE_CODES[State.PRESERVED]]


class Limits(NamedTuple):
    """What decides between states: durations in seconds, and how many last offsets may be transaction markers."""

    behind_after: float
    stopped_after: float
    markers: int = 1


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
    def take(cls, table: Table, rows: Rows) -> Ends:
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
        ends.read[here] = table.read[there]
        ends.state[here] = table.state_now[there]
        ends.earliest[here], ends.latest[here] = table.earliest[there], table.latest[there]
        ends.newest[here] = table.newest[there]
        return ends


@dataclass(frozen=True, slots=True, eq=False)
class Progress:
    """What comparisons saw of n replicas so far, each a column [n]; NaN where nothing yet.

    Times are Unix seconds of polls; only ``waiting_since`` is of the monotonic clock.
    """

    newest: Floats
    """The newest timestamp that the replica ever had: after a deletion the present one may be older."""
    in_step_at: Floats
    """The last poll of the source of which the replica lacked nothing."""
    apart: Floats
    """By how much the end offset of the source was larger than that of the replica then."""
    replica_end: Floats
    """The end offset of the replica."""
    seen_at: Floats
    """When the replica was first seen with this end offset."""
    source_end: Floats
    """The end offset of the source when it was first read after that."""
    waiting_since: Floats
    """Since when the replica has not moved although there is something to copy."""

    @classmethod
    def nothing(cls, count: int) -> Progress:
        """Return n replicas that were never compared."""
        return cls(*np.full((len(fields(cls)), count), np.nan))

    def put(self, rows: Rows, other: Progress, others: Rows) -> None:
        """Write rows of other columns into ``rows`` of these."""
        for each in fields(self):
            getattr(self, each.name)[rows] = getattr(other, each.name)[others]


class Lag(NamedTuple):
    """How far n replicas are behind, each a column [n]."""

    state: Codes
    """An index into REPLICA_STATES."""
    reason: Codes
    seconds: Floats
    """NaN where unknown."""
    records: Counts


def judge(
    before: Progress,
    source: Ends,
    source_at: float,
    replica: Ends,
    replica_at: float,
    *,
    stamped: Flags,
    now: float,
    limits: Limits,
) -> tuple[Progress, Lag]:
    """Compare two readings, that of the source at ``source_at`` and that of the replica at ``replica_at`` or later.

    ``stamped``: the replica's brokers set its timestamps. ``now`` is the monotonic clock. Offsets are counted, and
    transaction markers have offsets but are never copied: up to ``limits.markers`` do not count. A replica is in step
    up to ``limits.behind_after`` seconds. How many records it lacks is unknown while all of them may be markers: these
    are dated shortly after the last record.
    """
    read, held = source.read & replica.read, source.latest - source.earliest
    moved = read & ((replica.latest != before.replica_end) | (source.latest < before.source_end))
    seen_at = np.where(moved, replica_at, before.seen_at)
    source_end = np.where(moved, np.nan, before.source_end)
    source_end = np.where(read & np.isnan(source_end) & (source_at >= seen_at), source.latest, source_end)
    newest, never = np.fmax(before.newest, replica.newest), replica.state == STATE_CODES[State.NEVER_WRITTEN]
    reason = _why_not(source, replica, newest, stamped, rests=~np.isnan(source_end))
    compared = reason == COMPARED
    newest = np.where(compared, newest, before.newest)

    difference = source.latest - replica.latest
    gap = np.where(never, np.nan, source.newest - newest)
    in_step = compared & ((held == 0) | (gap <= 0))
    # A replica without records lacks all that its source holds.
    apart = np.where(in_step, difference, np.where(compared & never, difference - held, before.apart))
    missing = np.minimum(difference - apart, held)
    complete = in_step | (compared & (missing >= 0) & (missing <= limits.markers))
    undated = np.isin(source.state, _UNDATED)
    behind = np.maximum(0, np.fmin(np.where(undated, np.nan, gap), replica_at - before.in_step_at))
    seconds = np.where(compared, np.where(complete, 0.0, behind), np.nan)
    late = compared & ~(seconds <= limits.behind_after)
    # Whatever the source wrote before the replica's last record was seen may be markers alone.
    went_on = ~undated & (source.newest > seen_at)
    counted = complete | (compared & (missing > limits.markers) & (late | went_on))
    records = np.where(counted & ~complete, missing, 0).astype(np.int64)

    waits = (source.latest - source_end > limits.markers) | (counted & (records > 0))
    since = np.where(moved, np.nan, before.waiting_since)
    since = np.where(read & np.isnan(since) & waits, now, since)
    stopped = read & (held > 0) & (now - since >= limits.stopped_after)
    codes = [REPLICA_STATE_CODES[each] for each in (ReplicaState.STOPPED, ReplicaState.UNKNOWN, ReplicaState.BEHIND)]
    state = np.select([stopped, ~compared, late], codes, REPLICA_STATE_CODES[ReplicaState.IN_STEP])
    progress = Progress(
        newest,
        np.where(in_step, source_at, before.in_step_at),
        apart,
        np.where(read, replica.latest, before.replica_end),
        seen_at,
        source_end,
        since,
    )
    return progress, Lag(state.astype(np.int8), reason, seconds, Counts(records, counted))


def _why_not(source: Ends, replica: Ends, newest: Floats, stamped: Flags, *, rests: Flags) -> Codes:
    """Return why two readings cannot be compared. ``rests``: the source was read after the replica's last record."""
    never = replica.state == STATE_CODES[State.NEVER_WRITTEN]
    cases: Mapping[NotCompared | None, Flags] = {
        NotCompared.SOURCE_UNREADABLE: ~source.read,
        NotCompared.REPLICA_UNREADABLE: ~replica.read,
        None: never | (source.latest == source.earliest),
        NotCompared.LOG_APPEND_TIME: stamped,
        NotCompared.REPLICA_EMPTY: replica.state == STATE_CODES[State.EMPTY],
        NotCompared.FUTURE_TIMESTAMP: np.isin(replica.state, _AHEAD),
        NotCompared.NO_TIMESTAMP: np.isnan(newest) | np.isnan(source.newest),
        NotCompared.NEWER_THAN_SOURCE: rests & (newest > source.newest),
    }
    codes = [COMPARED if case is None else NOT_COMPARED_CODES[case] for case in cases]
    return np.select(list(cases.values()), codes, COMPARED).astype(np.int8)

"""The result of comparing mirrored topics with their source, and the rules for it on columns.

Offsets differ between two clusters, and replication preserves timestamps (the need behind KIP-391). A replica is in
step when its newest record is as new as that of its source. Later, what its source gained and it did not is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from exporter.domain.arrays import Codes, ColumnSet, Counts, Flags, Floats, Offsets, Rows, choose
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.readings import State
from exporter.domain.polls.table import STATE_CODES, UNREADABLE, Table


class ReplicaState(StrEnum):
    """The state of a partition of a replica, compared with its source."""

    IN_STEP = "in-step"
    """It lacks nothing, or nothing that is older than ``behind_after``."""
    BEHIND = "behind"
    """Its newest record is older than that of the source, and it moves, or had no time to do so yet."""
    STOPPED = "stopped"
    """There is something to copy, and the replica has not moved for ``stopped_after``."""
    SOURCE_DEAD_TOO = "source-dead-too"
    """In step, and the source is dead: replication is not the cause of the silence."""
    UNKNOWN = "unknown"
    """The two cannot be compared; the reading has the reason."""


class NotCompared(StrEnum):
    """Why a partition of a replica cannot be compared with its source."""

    SOURCE_UNREADABLE = "source-unreadable"
    REPLICA_UNREADABLE = "replica-unreadable"
    LOG_APPEND_TIME = "log-append-time"
    """The replica's brokers set the timestamps, which differ from those of the source."""
    FUTURE_TIMESTAMP = "future-timestamp"
    """The newest record of the replica is dated in the future and hides later ones."""
    NO_TIMESTAMP = "no-timestamp"
    """The newest timestamp of one side is unknown: old records, or brokers before 3.0."""
    REPLICA_EMPTY = "replica-empty"
    """Every record of the replica was deleted since it was copied."""
    NEWER_THAN_SOURCE = "newer-than-source"
    """Both rest, and the replica has a newer record than the source: it is not, or not only, a copy."""
    NO_PARTITION_IN_REPLICA = "no-partition-in-replica"
    NO_PARTITION_IN_SOURCE = "no-partition-in-source"


REPLICA_STATES = tuple(ReplicaState)
REPLICA_STATE_CODES: Mapping[ReplicaState, int] = {state: code for code, state in enumerate(REPLICA_STATES)}
"""States in columns are indices into REPLICA_STATES."""

COMPARED = 0
"""The code of a reason where there is none."""

REASONS_NOT_COMPARED = (None, *NotCompared)
NOT_COMPARED_CODES = {reason: code for code, reason in enumerate(REASONS_NOT_COMPARED)}
"""Reasons in columns are indices into REASONS_NOT_COMPARED."""


@dataclass(frozen=True, slots=True)
class TopicMatches:
    """Which topics of a pair of clusters belong together, by name."""

    replicas: Mapping[str, str]
    """Source topic -> its replica, where both exist and no other topic maps to the replica."""
    without_replica: Sequence[str] = ()
    """Source topics that are mapped to a missing topic."""
    contested: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Topics that several source topics are mapped to -> those source topics of this pair."""
    example: str = ""
    """A name that a source topic is mapped to."""


class Lag(NamedTuple):
    """How far n replicas are behind, each a column [n]."""

    state: Codes
    """An index into REPLICA_STATES."""
    reason: Codes
    """Why the two cannot be compared, as a code; COMPARED where they can."""
    seconds: Floats
    """NaN where unknown."""
    records: Counts


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """The comparison of one pair of clusters, a row for each partition of a replica."""

    source: str
    target: str
    matching: TopicMatches
    layout: Layout
    """By source topic."""
    lag: Lag
    faults: Sequence[str] = ()
    """Why replicas cannot be compared, and what to do about it."""

    @property
    def targets(self) -> tuple[str, ...]:
        """The replica of each topic of the layout."""
        return tuple(self.matching.replicas[topic] for topic in self.layout.topics)

    def find_copies(self, target: str, partition: int | None) -> dict[str, Rows]:
        """Return the rows of a replica, or of one of its partitions, by the topic that it is a copy of."""
        found = {}
        for topic, name in self.matching.replicas.items():
            if name == target and self.layout.number_of(topic) is not None:
                rows = np.arange(len(self.layout))[self.layout.rows_of(topic)]
                found[topic] = rows if partition is None else rows[self.layout.partition[rows] == partition]
        return {topic: rows for topic, rows in found.items() if len(rows)}

    def unread(self, reason: NotCompared) -> Comparison:
        """Return the same rows, all unknown for one reason."""
        count, codes = len(self.layout), (REPLICA_STATE_CODES[ReplicaState.UNKNOWN], NOT_COMPARED_CODES[reason])
        state, why = (np.full(count, code, dtype=np.int8) for code in codes)
        return replace(self, lag=Lag(state, why, np.full(count, np.nan), Counts.unknown(count)))


_AHEAD = [STATE_CODES[state] for state in (State.FUTURE, State.CONTRADICTORY)]
_UNDATED = [*_AHEAD, STATE_CODES[State.PRESERVED]]


class ReplicaLimits(NamedTuple):
    """What decides between states: durations in seconds, and how many last offsets may be transaction markers."""

    behind_after: float
    stopped_after: float
    markers: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class Ends(ColumnSet):
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
        there, ends = rows[here], cls.blank(len(rows), state=UNREADABLE)
        ends.read[here] = table.read[there]
        ends.state[here] = table.state_now[there]
        ends.earliest[here], ends.latest[here] = table.earliest[there], table.latest[there]
        ends.newest[here] = table.newest[there]
        return ends


@dataclass(frozen=True, slots=True, eq=False)
class ReplicaProgress(ColumnSet):
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


def judge(
    before: ReplicaProgress,
    source: Ends,
    source_at: float,
    replica: Ends,
    replica_at: float,
    *,
    stamped: Flags,
    now: float,
    limits: ReplicaLimits,
) -> tuple[ReplicaProgress, Lag]:
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
    rules = [(stopped, ReplicaState.STOPPED), (~compared, ReplicaState.UNKNOWN), (late, ReplicaState.BEHIND)]
    state = choose(rules, ReplicaState.IN_STEP, REPLICA_STATE_CODES)
    progress = ReplicaProgress(
        newest,
        np.where(in_step, source_at, before.in_step_at),
        apart,
        np.where(read, replica.latest, before.replica_end),
        seen_at,
        source_end,
        since,
    )
    return progress, Lag(state, reason, seconds, Counts(records, counted))


def _why_not(source: Ends, replica: Ends, newest: Floats, stamped: Flags, *, rests: Flags) -> Codes:
    """Return why two readings cannot be compared. ``rests``: the source was read after the replica's last record."""
    never = replica.state == STATE_CODES[State.NEVER_WRITTEN]
    rules = [
        (~source.read, NotCompared.SOURCE_UNREADABLE),
        (~replica.read, NotCompared.REPLICA_UNREADABLE),
        (never | (source.latest == source.earliest), None),
        (stamped, NotCompared.LOG_APPEND_TIME),
        (replica.state == STATE_CODES[State.EMPTY], NotCompared.REPLICA_EMPTY),
        (np.isin(replica.state, _AHEAD), NotCompared.FUTURE_TIMESTAMP),
        (np.isnan(newest) | np.isnan(source.newest), NotCompared.NO_TIMESTAMP),
        (rests & (newest > source.newest), NotCompared.NEWER_THAN_SOURCE),
    ]
    return choose(rules, None, NOT_COMPARED_CODES)

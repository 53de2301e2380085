"""The result of comparing mirrored topics with their source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from exporter.domain.arrays import Codes, Counts, Floats, replace_nan
from exporter.domain.polls.layout import Layout


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
"""The code in a column of reasons where there is none."""

NOT_COMPARED_CODES: Mapping[NotCompared, int] = {reason: code for code, reason in enumerate(NotCompared, start=1)}


def not_compared_of_code(code: int) -> NotCompared | None:
    """Return the reason behind a code in a column; None for COMPARED."""
    return None if code == COMPARED else _NOT_COMPARED[code - 1]


_NOT_COMPARED = tuple(NotCompared)


@dataclass(frozen=True, slots=True)
class ReplicaReading:
    """The result of one comparison for one partition; ``reason`` is set where the two cannot be compared.

    Unknown numbers are None. A state can be known without numbers: a replica that does not move has stopped, whatever
    timestamps its records have.
    """

    state: ReplicaState
    lag_seconds: float | None = None
    lag_records: int | None = None
    reason: NotCompared | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ReplicaTable:
    """The result of one comparison: a row for each partition of a replica, a column for each fact."""

    layout: Layout
    """By source topic."""
    targets: Sequence[str]
    """The replica of each topic of the layout."""
    state: Codes
    """An index into REPLICA_STATES."""
    reason: Codes
    """Why the two cannot be compared, as a code; COMPARED where they can."""
    lag_seconds: Floats
    """By how much the replica is behind; NaN where unknown."""
    lag_records: Counts

    def __len__(self) -> int:
        return len(self.layout)

    def reading(self, row: int) -> ReplicaReading:
        """Return one row as an object."""
        return ReplicaReading(
            REPLICA_STATES[self.state[row]],
            replace_nan(self.lag_seconds[row]),
            int(self.lag_records.value[row]) if self.lag_records.known[row] else None,
            not_compared_of_code(int(self.reason[row])),
        )

    def copied_to(self, target: str, partition: int | None = None) -> dict[str, list[ReplicaReading]]:
        """Return the readings of a replica, or of one of its partitions, by the topic that it is a copy of."""
        found = {}
        for topic, name in zip(self.layout.topics, self.targets, strict=True):
            if name == target:
                rows = self.layout.rows_of(topic)
                each = range(rows.start, rows.stop)
                found[topic] = [self.reading(row) for row in each if partition in (None, self.layout.partition[row])]
        return {topic: readings for topic, readings in found.items() if readings}

    def unread(self, reason: NotCompared) -> ReplicaTable:
        """Return the same rows, all unknown for one reason."""
        count = len(self)
        return replace(
            self,
            state=np.full(count, REPLICA_STATE_CODES[ReplicaState.UNKNOWN], dtype=np.int8),
            reason=np.full(count, NOT_COMPARED_CODES[reason], dtype=np.int8),
            lag_seconds=np.full(count, np.nan),
            lag_records=Counts.unknown(count),
        )


@dataclass(frozen=True, slots=True)
class Matching:
    """Which topics of a pair of clusters belong together, by name."""

    replicas: Mapping[str, str]
    """Source topic -> its replica, where both exist and no other topic maps to the replica."""
    without_replica: Sequence[str] = ()
    """Source topics that are mapped to a missing topic."""
    contested: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Topics that several source topics are mapped to -> those source topics of this pair."""
    example: str = ""
    """A name that a source topic is mapped to."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of all partitions of one pair of clusters."""

    source: str
    target: str
    matching: Matching
    table: ReplicaTable
    faults: Sequence[str] = ()
    """Why replicas cannot be compared, and what to do about it."""

    def unread(self, reason: NotCompared) -> Comparison:
        """Return the same comparison with every replica unknown for one reason."""
        return replace(self, table=self.table.unread(reason))

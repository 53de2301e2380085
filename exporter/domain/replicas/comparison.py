"""The result of comparing mirrored topics with their source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from exporter.domain.arrays import Codes, Flags, Floats, Offsets, or_none
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.readings import Reason, TopicPartition


class ReplicaState(StrEnum):
    """The state of a partition of a replica, compared with its source."""

    IN_STEP = "in-step"
    """No record is proved missing, or none that is older than ``behind_after``."""
    BEHIND = "behind"
    """Older records than that are missing, and the replica moves, or had no time to do so yet."""
    STOPPED = "stopped"
    """Records are missing, or the source advanced, and the replica has not moved for ``stopped_after``."""
    SOURCE_DEAD_TOO = "source-dead-too"
    """Nothing is missing, and the source is dead: replication is not the cause of the silence."""
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
    """The newest timestamp of the replica is unknown: old records, or brokers before 3.0."""
    REPLICA_EMPTY = "replica-empty"
    """Every record of the replica was deleted since it was copied."""
    NEWER_THAN_SOURCE = "newer-than-source"
    """The replica has a newer record than the source ever had: it is not, or not only, a copy."""
    NOT_IN_SOURCE = "not-in-source"
    """The source has older and newer records than the newest one of the replica, and none of its time."""
    HIDDEN_RECORDS = "hidden-records"
    """The source does not find by time what it holds: a segment without live records lies before it."""
    LOOKUP_FAILED = "lookup-failed"
    NO_PARTITION_IN_REPLICA = "no-partition-in-replica"
    NO_PARTITION_IN_SOURCE = "no-partition-in-source"
    TWO_SOURCES = "two-sources"
    """Several topics are mapped to the replica: its newest record may be from any of them."""


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


class Replica(NamedTuple):
    """One partition of a replica, within one pair of clusters."""

    source_topic: str
    target_topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class ReplicaReading:
    """The result of one comparison for one partition; ``reason`` is set where numbers are unknown.

    ``at_least`` records of the source are certainly missing in the replica. ``lag_seconds`` is the age of the oldest of
    them, 0 where there is none, None where it is unknown. A state can be known without numbers: a replica that does not
    move has stopped, whatever timestamps its records have.
    """

    state: ReplicaState
    lag_seconds: float | None = None
    at_least: int | None = None
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
    """Why numbers are unknown, as a code; COMPARED where they are known."""
    lag_seconds: Floats
    """NaN where unknown."""
    counted: Flags
    """Whether the number of missing records is known; elsewhere the next column is invalid."""
    at_least: Offsets

    def __len__(self) -> int:
        return len(self.layout)

    def reading(self, row: int) -> ReplicaReading:
        """Return one row as an object."""
        lag, counted = self.lag_seconds[row], self.counted[row]
        return ReplicaReading(
            REPLICA_STATES[self.state[row]],
            or_none(lag),
            int(self.at_least[row]) if counted else None,
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
            counted=np.zeros(count, dtype=np.bool_),
        )


class ReplicaReadings(Mapping[Replica, ReplicaReading]):
    """The rows of a comparison as objects, for people and tests, created on access."""

    def __init__(self, table: ReplicaTable) -> None:
        self._table = table

    def __getitem__(self, key: Replica) -> ReplicaReading:
        layout = self._table.layout
        row = layout.row(TopicPartition(key.source_topic, key.partition))
        if row is None or self._table.targets[layout.topic[row]] != key.target_topic:
            raise KeyError(key)
        return self._table.reading(row)

    def __iter__(self) -> Iterator[Replica]:
        targets = dict(zip(self._table.layout.topics, self._table.targets, strict=True))
        return (Replica(topic, targets[topic], partition) for topic, partition in self._table.layout)

    def __len__(self) -> int:
        return len(self._table)


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


class Fault(NamedTuple):
    """A reason why replicas of a pair of clusters cannot be compared, and what to do about it."""

    what: str
    fix: str
    matters: bool = True
    """False where all else is compared, and a note is enough."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of all partitions of one pair of clusters as of ``at`` (Unix seconds), and its cost."""

    source: str
    target: str
    at: float
    matching: Matching
    table: ReplicaTable
    faults: Sequence[Fault] = ()
    lookups: int = 0
    """Look-ups by time in the source."""
    failures: Mapping[Reason, int] = field(default_factory=dict)

    @property
    def readings(self) -> ReplicaReadings:
        """The rows of the table as objects."""
        return ReplicaReadings(self.table)

    @property
    def answered(self) -> bool:
        """False where look-ups failed and no replica's state is known."""
        known = self.table.state != REPLICA_STATE_CODES[ReplicaState.UNKNOWN]
        return bool(np.any(known)) or not any(self.failures.values())

    def unread(self, reason: NotCompared) -> Comparison:
        """Return the same comparison with every replica unknown for one reason, and no look-ups."""
        return replace(self, table=self.table.unread(reason), lookups=0, failures={})

"""The result of comparing mirrored topics with their source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from exporter.domain.readings import Reason


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
    LOOKUP_FAILED = "lookup-failed"
    NO_PARTITION_IN_REPLICA = "no-partition-in-replica"
    NO_PARTITION_IN_SOURCE = "no-partition-in-source"
    TWO_SOURCES = "two-sources"
    """Several topics are mapped to the replica: its newest record may be from any of them."""


class Replica(NamedTuple):
    """One partition of a replica, within one pair of clusters."""

    source_topic: str
    target_topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class ReplicaReading:
    """The result of one comparison for one partition; ``reason`` is set where numbers are unknown.

    At least ``at_least`` and at most ``at_most`` records of the source are not in the replica. ``lag_seconds`` is the
    age of the oldest record that is certainly missing, 0 where none is, None where it is unknown. A state can be known
    without numbers: a replica that does not move has stopped, whatever timestamps its records have.
    """

    state: ReplicaState
    lag_seconds: float | None = None
    at_least: int | None = None
    at_most: int | None = None
    reason: NotCompared | None = None


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
    mend: str
    matters: bool = True
    """False where all else is compared, and a note is enough."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of all partitions of one pair of clusters as of ``at`` (Unix seconds), and its cost."""

    source: str
    target: str
    at: float
    matching: Matching
    readings: Mapping[Replica, ReplicaReading]
    faults: Sequence[Fault] = ()
    asked: int = 0
    """Look-ups by time in the source."""
    failures: Mapping[Reason, int] = field(default_factory=dict)

    def unread(self, reason: NotCompared) -> Comparison:
        """Return the same comparison with every replica unknown for one reason, and no look-ups."""
        nothing = ReplicaReading(ReplicaState.UNKNOWN, reason=reason)
        return replace(self, readings=dict.fromkeys(self.readings, nothing), asked=0, failures={})

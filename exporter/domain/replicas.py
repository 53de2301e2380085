"""What comparing a mirrored topic with its source tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from exporter.domain.readings import Reason


class ReplicaState(StrEnum):
    """How a partition of a replica stands to the partition that it is a copy of."""

    IN_STEP = "in-step"
    """No record is proved missing, or none that is older than ``behind_after``."""
    BEHIND = "behind"
    """Records that are older than that are missing, and the replica moves, or was not yet given time to."""
    STOPPED = "stopped"
    """Records are missing, or the source went on, and the replica has not moved for ``stopped_after``."""
    SOURCE_DEAD_TOO = "source-dead-too"
    """Nothing is missing, and the source is dead: the replica's silence is no fault of the replication."""
    UNKNOWN = "unknown"
    """The two cannot be compared; the reading carries the reason."""


class NotCompared(StrEnum):
    """Why a partition of a replica cannot be compared with its source."""

    SOURCE_UNREADABLE = "source-unreadable"
    REPLICA_UNREADABLE = "replica-unreadable"
    LOG_APPEND_TIME = "log-append-time"
    """The replica's brokers stamp its records: their times are not those of the source."""
    FUTURE_TIMESTAMP = "future-timestamp"
    """The replica's newest record is dated in the future, and hides which others arrived."""
    NO_TIMESTAMP = "no-timestamp"
    """The replica's newest timestamp is not known: old records, or brokers before 3.0."""
    REPLICA_EMPTY = "replica-empty"
    """Every record of the replica was removed since it was copied."""
    NEWER_THAN_SOURCE = "newer-than-source"
    """The replica holds a newer record than the source ever did: it is not, or not only, a copy."""
    NOT_IN_SOURCE = "not-in-source"
    """The source holds older and newer records than the replica's newest, and none of its time."""
    LOOKUP_FAILED = "lookup-failed"
    NO_PARTITION_IN_REPLICA = "no-partition-in-replica"
    NO_PARTITION_IN_SOURCE = "no-partition-in-source"
    TWO_SOURCES = "two-sources"
    """Several topics are mapped to the replica: its newest record may be of any of them."""


class Replica(NamedTuple):
    """One partition of a replica, within one pair of clusters."""

    source_topic: str
    target_topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class ReplicaReading:
    """What one comparison found out of one partition; ``reason`` is set where numbers are not known.

    Of the records that the source held, at least ``at_least`` and at most ``at_most`` are not in the replica.
    ``lag_seconds`` is how old the oldest of those that are surely missing was, 0 where none is; None where that
    is not known. A state can be known without numbers: a replica that stands still has stopped, whatever times
    its records carry.
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
    """Source topic -> its replica, where both exist and the replica is nobody else's."""
    without_replica: Sequence[str] = ()
    """Source topics that are mapped to a topic which does not exist."""
    contested: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Topics that several source topics are mapped to -> those of this pair that are."""
    example: str = ""
    """A name that a source topic is mapped to."""


class Fault(NamedTuple):
    """Something about a pair of clusters that keeps replicas from being compared, and what to do about it."""

    what: str
    mend: str
    matters: bool = True
    """Not so: what could be compared is, and it is worth a note."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """All partitions of one pair of clusters, compared as of ``at`` (Unix seconds), and what that cost."""

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
        """Return the same where nothing is known of any replica, for one reason, and nothing was asked."""
        nothing = ReplicaReading(ReplicaState.UNKNOWN, reason=reason)
        return replace(self, readings=dict.fromkeys(self.readings, nothing), asked=0, failures={})

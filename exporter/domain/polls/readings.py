"""What polls return of a cluster: answers, readings, and why a poll failed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class TopicPartition(NamedTuple):
    """One partition of one topic, within one cluster."""

    topic: str
    partition: int


class State(StrEnum):
    """The state of a partition at the last poll."""

    OBSERVED = "observed"
    FUTURE = "future"
    """Observed, but the newest timestamp lies in the future. It does not show liveness."""
    CONTRADICTORY = "contradictory"
    """Observed, but the newest timestamp is later than the last advance, and not in the future.

    Its record was dated ahead when it was written. It does not show liveness, and there is no staleness.
    """
    PRESERVED = "preserved"
    """Observed, but the newest timestamp is well before the last advance: mirrored or back-dated records.

    It does not show liveness either.
    """
    EMPTY = "empty"
    """Earliest equals latest and both are above 0: records were written and deleted since."""
    NEVER_WRITTEN = "never-written"
    NO_TIMESTAMP = "no-timestamp"
    """The records have no timestamp (message format before 0.10)."""
    IDLE_IN_TIER = "idle-in-tier"
    """Every record is in the remote tier, which MAX_TIMESTAMP does not see (KAFKA-17552); ``newest`` follows later."""
    PENDING = "pending"
    """The newest record is not yet below the high watermark, or its look-up is not confirmed.

    The last known timestamp is kept.
    """
    UNSUPPORTED = "unsupported"
    """The broker does not support MAX_TIMESTAMP (before 3.0, KIP-734); offsets still show advances."""
    UNREADABLE = "unreadable"
    """The offsets, or the newest record alone, could not be read; the reading has the reason."""


class Reason(StrEnum):
    """Why a partition or a consumer group could not be read, or a poll failed."""

    NO_LEADER = "no-leader"
    LEADER_UNREACHABLE = "leader-unreachable"
    NOT_LEADER = "not-leader"
    UNAUTHORIZED = "unauthorized"
    UNKNOWN_TOPIC = "unknown-topic"
    UNSUPPORTED_FORMAT = "unsupported-format"
    OFFSET_NOT_AVAILABLE = "offset-not-available"
    STORAGE_ERROR = "storage-error"
    INVALID_REQUEST = "invalid-request"
    UNSUPPORTED_VERSION = "unsupported-version"
    """The broker is too old for the request."""
    NO_COORDINATOR = "no-coordinator"
    """The coordinator of a consumer group is moving, loading or down."""
    MISSING_ANSWER = "missing-answer"
    TIMED_OUT = "timed-out"
    AUTHENTICATION_FAILED = "authentication-failed"
    TLS_FAILED = "tls-failed"
    CLUSTER_UNREACHABLE = "cluster-unreachable"
    CLIENT_FAILED = "client-failed"
    """The process with the Kafka client ended or hung; a new one starts."""
    HIDDEN = "hidden-records"
    """The broker does not find by time what it holds: a segment without live records lies before it."""
    OTHER = "other-error"


GONE = frozenset({Reason.LEADER_UNREACHABLE, Reason.TIMED_OUT})
"""Reasons of a broker that does not answer."""

BROKER_FAILED = GONE | {Reason.AUTHENTICATION_FAILED, Reason.CLUSTER_UNREACHABLE, Reason.UNSUPPORTED_VERSION}
"""Reasons that hold for every request to a broker, once one of them has failed by it."""

FUTURE_SLACK_SECONDS = 60.0
"""A newest timestamp that is further ahead of the clock lies in the future."""

END_OF_TIME = 253_402_300_799.0
"""The last second of the year 9999.

A producer may write any 64-bit number of milliseconds. Later times do not fit calendars and table formats, and become
this one.
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one ListOffsets look-up of one partition.

    ``reason`` is None for a good answer. A good answer without an offset means that no such record exists (offset -1).
    """

    offset: int | None = None
    timestamp: float | None = None
    leader_epoch: int | None = None
    reason: Reason | None = None


class Reading(NamedTuple):
    """What the last poll read of one partition; None where it read nothing, or nothing is known.

    ``reason`` is set exactly when ``state`` is ``unreadable``; ``newest`` is the timestamp of the newest record.
    """

    state: State
    leader: int | None
    reason: Reason | None
    earliest: int | None = None
    latest: int | None = None
    newest: float | None = None


@dataclass(frozen=True, slots=True)
class PollFailure:
    """A poll of a cluster that failed. ``detail`` is for a log line and has no secrets."""

    cluster: str
    failed_at: float
    duration_seconds: float
    reason: Reason
    detail: str

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


@dataclass(frozen=True, slots=True)
class Activity:
    """The advances of one partition in all polls so far.

    ``silent_since`` is the start of the silence that polls prove: the last advance, or the first good poll where none
    was seen yet. ``advanced_by`` counts the records of this poll (0: none); the advance lies in (``previous_poll``,
    this poll]. ``end_offset`` is that of the last good poll.
    """

    last_good_poll: float | None = None
    previous_poll: float | None = None
    last_advance: float | None = None
    silent_since: float | None = None
    advanced_by: int = 0
    restarted: bool = False
    """The end offset fell, or the topic was created again: offsets start over."""
    end_offset: int | None = None
    polls_good: int = 0
    polls_missed: int = 0
    """Polls since ``silent_since``: good ones, the first included, and failed ones."""
    advanced_after: float | None = None
    """The good poll before the last advance: its records were written later."""


@dataclass(frozen=True, slots=True)
class Inspected:
    """The result of the last inspection of one partition; unknown values are None.

    Sizes are those of log segments in bytes, without the remote tier.
    """

    log_bytes: int | None = None
    """The replica at the leader."""
    disk_bytes: int | None = None
    """All replicas, and copies that are being moved to another disk."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of one poll for one partition.

    ``newest`` is the timestamp of the newest record (MAX_TIMESTAMP), kept from an earlier poll while the partition does
    not move. ``reason`` is set exactly when ``state`` is ``unreadable``.
    """

    state: State
    activity: Activity
    leader: int | None = None
    earliest: int | None = None
    latest: int | None = None
    newest: float | None = None
    reason: Reason | None = None
    earliest_local: int | None = None
    """The first offset on the leader's own disk, of topics with remote storage, as of the last look-up."""
    latest_tiered: int | None = None
    """The last offset in the remote tier, as of the last look-up."""
    inspected: Inspected | None = None
    """Log sizes; None where they are not inspected."""
    before: Reading | None = None
    """The last reading with offsets, where this one has none; None where there never was one."""


@dataclass(frozen=True, slots=True)
class PollFailure:
    """A poll of a cluster that failed. ``detail`` is for a log line and has no secrets."""

    cluster: str
    failed_at: float
    duration_seconds: float
    reason: Reason
    detail: str

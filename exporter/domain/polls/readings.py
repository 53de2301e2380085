"""What polls return of a cluster: answers of brokers, also as columns, readings, and why a poll failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Codes, ColumnSet, Flags, Floats, Offsets


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


REASONS = tuple(Reason)

ANSWERED, NO_ANSWER = 0, -1
"""Codes beside those of ``reason_code``: a good answer; no valid one, never requested or disproved."""

_CODES = {reason: code for code, reason in enumerate(REASONS, start=1)}


def reason_code(reason: Reason | None) -> int:
    """Return the code of a reason in a column; ANSWERED for None."""
    return ANSWERED if reason is None else _CODES[reason]


def reason_of_code(code: int) -> Reason | None:
    """Return the reason behind a code; None for ANSWERED and NO_ANSWER."""
    return REASONS[code - 1] if code > 0 else None


@dataclass(frozen=True, slots=True, eq=False)
class Answers(ColumnSet):
    """The answers to one look-up of n rows, each a column [n].

    Where ``reason`` is ANSWERED and ``found`` is False, the broker answered that there is no such record.
    """

    reason: Codes
    """ANSWERED, NO_ANSWER, or the code of the Reason why the row could not be read."""
    found: Flags
    """Whether there is an offset; elsewhere ``offset`` is invalid."""
    offset: Offsets
    timestamp: Floats
    """Of the record found, Unix seconds; NaN where it has none, and for specs that return no record."""
    epoch: NDArray[np.int32]
    """The leader epoch in the answer (KIP-320), -1 where it has none. Only compared for equality."""

    @classmethod
    def make_blank(cls, count: int) -> Answers:
        """Return n rows without an answer."""
        return cls.blank(count, reason=NO_ANSWER, epoch=-1)

    @classmethod
    def make_failed(cls, count: int, reason: Reason) -> Answers:
        """Return n rows that could not be read for the same reason."""
        answers = cls.make_blank(count)
        answers.reason[:] = reason_code(reason)
        return answers


def rows_with(reasons: Codes, wanted: Sequence[Reason]) -> Flags:
    """Return which rows failed for one of these reasons."""
    found: Flags = np.isin(reasons, [reason_code(reason) for reason in wanted])
    return found


def count_failures(reasons: Codes) -> Counter[Reason]:
    """Count the rows that could not be read, by reason."""
    codes, counts = np.unique(reasons[reasons > ANSWERED], return_counts=True)
    return Counter({REASONS[code - 1]: count for code, count in zip(codes.tolist(), counts.tolist(), strict=True)})

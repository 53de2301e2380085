"""What polls learn of a cluster: its metadata, answers, readings and snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class TopicPartition(NamedTuple):
    """One partition of one topic, within one cluster."""

    topic: str
    partition: int


class State(StrEnum):
    """What the last poll saw of a partition."""

    OBSERVED = "observed"
    FUTURE = "future"
    """Observed, but the newest timestamp lies in the future: it says nothing about liveness."""
    PRESERVED = "preserved"
    """Observed, but the newest timestamp is from well before the last advance: mirrored or back-dated records, which
    say nothing about liveness either."""
    EMPTY = "empty"
    """Earliest equals latest and both are above 0: written once, removed since."""
    NEVER_WRITTEN = "never-written"
    NO_TIMESTAMP = "no-timestamp"
    """The records carry no timestamp (message format before 0.10)."""
    IDLE_IN_TIER = "idle-in-tier"
    """Every record lies in the remote tier, which MAX_TIMESTAMP does not see (KAFKA-17552); ``newest`` comes later."""
    PENDING = "pending"
    """The newest record is not yet below the high watermark, or the answer about it not proved; the last known
    timestamp is kept."""
    UNSUPPORTED = "unsupported"
    """The broker does not know MAX_TIMESTAMP (before 3.0, KIP-734); offsets still tell of advances."""
    UNREADABLE = "unreadable"
    """No answer about the offsets, or about the newest record alone; the reading carries the reason."""


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
    """The broker is too old for the question."""
    NO_COORDINATOR = "no-coordinator"
    """The broker that coordinates a consumer group is moving, loading or down."""
    MISSING_ANSWER = "missing-answer"
    TIMED_OUT = "timed-out"
    AUTHENTICATION_FAILED = "authentication-failed"
    TLS_FAILED = "tls-failed"
    CLUSTER_UNREACHABLE = "cluster-unreachable"
    CLIENT_FAILED = "client-failed"
    """The process with the Kafka client ended, or hung; a new one starts."""
    OTHER = "other-error"


GONE = frozenset({Reason.LEADER_UNREACHABLE, Reason.TIMED_OUT})
"""Reasons of a broker that gives no answer."""

END_OF_TIME = 253_402_300_799.0
"""The last second of the year 9999. A producer may write any 64-bit number of milliseconds; later times,
which calendars and table formats cannot hold, are brought down to this one."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One broker answer to one ListOffsets look-up of one partition.

    ``reason`` is None for a good answer. A good answer without an offset means that no such record
    exists (the broker said offset -1).
    """

    offset: int | None = None
    timestamp: float | None = None
    leader_epoch: int | None = None
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class Activity:
    """What all polls so far say about the advances of one partition.

    ``silent_since`` is the start of the silence that the polls prove: the last advance, or the first
    good poll where none was seen yet. ``advanced_by`` counts records gained at this poll (0: none);
    the advance lies in (``previous_poll``, this poll]. ``end_offset`` is that of the last good poll.
    """

    last_good_poll: float | None = None
    previous_poll: float | None = None
    last_advance: float | None = None
    silent_since: float | None = None
    advanced_by: int = 0
    restarted: bool = False
    """The end offset fell, or the topic was made again: offsets start over."""
    end_offset: int | None = None
    polls_good: int = 0
    polls_missed: int = 0
    """Polls since ``silent_since``: those that read the partition, the first included, and those that did not."""
    advanced_after: float | None = None
    """The good poll before the one that saw the last advance: the records were written after it."""


class Advance(NamedTuple):
    """The last advance of a partition that some exporter saw: up to which end offset, and when (Unix seconds)."""

    topic_id: str | None
    end_offset: int
    at: float


@dataclass(frozen=True, slots=True)
class Producers:
    """The idempotent and transactional producers that a partition's leader remembers (KIP-664, brokers from 2.8).

    A leader forgets one that wrote nothing for ``producer.id.expiration.ms``, a day by default. Producers
    without idempotence are not among them. A producer that is started again comes with another id, unless it is
    transactional.
    """

    ids: frozenset[int] = frozenset()
    last_write: float | None = None
    """The latest timestamp of the last batches of all of them, Unix seconds: a marker's is the broker's, else whose
    the topic's timestamps are."""
    open_transactions: frozenset[int] = frozenset()
    """Ids of those with a transaction that is neither committed nor aborted."""
    open_since: float | None = None
    """When the first of these was first seen open, Unix seconds: it may have been open before."""

    @classmethod
    def together(cls, partitions: Sequence[Producers]) -> Producers:
        """Return the producers of several partitions, each once."""
        return cls(
            frozenset().union(*(one.ids for one in partitions)),
            max((one.last_write for one in partitions if one.last_write is not None), default=None),
            frozenset().union(*(one.open_transactions for one in partitions)),
            min((one.open_since for one in partitions if one.open_since is not None), default=None),
        )


@dataclass(frozen=True, slots=True)
class Inspected:
    """What the last inspection learnt of one partition; what it could not find out is None.

    Sizes are those of the log segments, in bytes, without what is in a remote tier.
    """

    producers: Producers | None = None
    log_bytes: int | None = None
    """The leader's copy."""
    disk_bytes: int | None = None
    """All replicas together, and copies that are on their way to another disk."""

    @classmethod
    def together(cls, partitions: Iterable[Inspected]) -> Inspected:
        """Return what is known of a topic as the union of its partitions: only what is known of all of them."""
        known = list(partitions)
        producers = [one.producers for one in known if one.producers is not None]
        logs = [one.log_bytes for one in known if one.log_bytes is not None]
        disks = [one.disk_bytes for one in known if one.disk_bytes is not None]
        return cls(
            Producers.together(producers) if known and len(producers) == len(known) else None,
            sum(logs) if known and len(logs) == len(known) else None,
            sum(disks) if known and len(disks) == len(known) else None,
        )


@dataclass(frozen=True, slots=True)
class Reading:
    """What one poll learnt of one partition.

    ``newest`` is the timestamp of the newest record (MAX_TIMESTAMP), kept from an earlier poll while
    the partition does not move. ``reason`` is set exactly when ``state`` is ``unreadable``.
    """

    state: State
    activity: Activity
    leader: int | None = None
    earliest: int | None = None
    latest: int | None = None
    newest: float | None = None
    reason: Reason | None = None
    earliest_local: int | None = None
    """The first offset on the leader's own disk; only of topics with remote storage, as old as the last look."""
    latest_tiered: int | None = None
    """The last offset in the remote tier, likewise."""
    inspected: Inspected | None = None
    """Who writes to it and how large it is; None where nobody asks for that."""
    before: Reading | None = None
    """What the last poll that could read its offsets learnt, where this one could not; None where none ever could."""


@dataclass(frozen=True, slots=True)
class PollFailure:
    """A poll of a cluster that gave no snapshot. ``detail`` is fit for a log line: no secrets."""

    cluster: str
    failed_at: float
    duration_seconds: float
    reason: Reason
    detail: str

"""What polls learn of a cluster: its metadata, answers, readings and snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
    OTHER = "other-error"


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
class PartitionInfo:
    """A partition in the cluster's metadata. ``leader`` is None while there is no usable leader."""

    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The settings of a topic that change what its offsets and timestamps mean.

    ``retention_seconds`` is ``math.inf`` where retention is unlimited, and so are the bounds on timestamps that
    producers may set (KIP-32, KIP-937): how far before and after the broker's clock. They are None with
    LogAppendTime, where the broker sets them.
    """

    timestamp_type: str | None
    cleanup_policy: str | None
    retention_seconds: float | None
    remote_storage: bool
    timestamp_before_max_seconds: float | None = None
    timestamp_after_max_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic in the cluster's metadata. ``config`` is None where it could not be read.

    Where ``reason`` is set the topic could not be described; its partitions are those known before. ``owner`` is who
    answers for it by the configuration: Kafka does not know.
    """

    topic_id: str | None
    partitions: Mapping[int, PartitionInfo]
    config: TopicConfig | None = None
    reason: Reason | None = None
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class Metadata:
    """What the cluster says of itself: broker id -> ``host:port``, topic name -> topic.

    ``unmatched`` lists the include patterns that name no topic in reach; those among them that name
    internal topics, which are out of reach by configuration, are also in ``only_internal``.
    ``unidentified`` has the topics whose id could not be read and was not known before, and why;
    ``unconfigured`` those whose settings could not be read when last asked for, and why.
    ``cluster_id`` is Kafka's own name of the cluster (KIP-78, brokers from 0.10.1), None where it has none.
    """

    brokers: Mapping[int, str]
    topics: Mapping[str, TopicInfo]
    unmatched: tuple[str, ...] = ()
    unidentified: Mapping[str, Reason] = field(default_factory=dict)
    only_internal: tuple[str, ...] = ()
    unconfigured: Mapping[str, Reason] = field(default_factory=dict)
    cluster_id: str | None = None


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
class Snapshot:
    """All readings of one poll of one cluster."""

    cluster: str
    taken_at: float
    duration_seconds: float
    metadata: Metadata
    readings: Mapping[TopicPartition, Reading]
    max_timestamp_supported: Mapping[int, bool]
    """Broker id -> knows MAX_TIMESTAMP; a broker whose answers proved nothing yet is absent."""
    lookups: Mapping[str, int]
    """Look-ups asked in this poll, by spec (``latest``, ``earliest``, ``max-timestamp``, ``by-time``)."""
    lookups_saved: int = 0
    """MAX_TIMESTAMP look-ups that were not needed because the partition did not move."""
    clock_set: float = 0.0
    """By how many seconds the wall clock was set (back: negative) since the snapshot before."""


@dataclass(frozen=True, slots=True)
class PollFailure:
    """A poll of a cluster that gave no snapshot. ``detail`` is fit for a log line: no secrets."""

    cluster: str
    failed_at: float
    duration_seconds: float
    reason: Reason
    detail: str

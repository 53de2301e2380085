"""The vocabulary: one word per idea, shared by every room.

Standard library only. Times are Unix seconds (float, UTC), durations are seconds, offsets are Kafka
offsets. ``None`` always means *not known*; no sentinel (-1, -1001, NaN) leaves ``exporter.kafka``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple, TypeVar

_T = TypeVar("_T")

SCHEMA_VERSION = 1
"""Version of every spool file and published file; a reader refuses versions it does not know."""

RETIRED_AFTER_SECONDS = 28 * 86_400.0
"""A silence this long, once dead, is ``retired``: no longer news."""

HELD_FROM = 2.0
"""The score from which a silence may be part of an incident, in which many topics fell silent together."""

HELD_SHARE, HELD_LEAST = 0.04, 5
"""An incident needs more topics than both: this share of those that are promised something, and this number."""

HELD_SECONDS, HELD_DAYS = 86_400.0, 2.0
"""An incident explains a silence until both are over since it crossed: so long, and so many of its busiest days."""


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
    """The newest record is not yet below the high watermark; the last known timestamp is kept."""
    UNSUPPORTED = "unsupported"
    """The broker does not know MAX_TIMESTAMP (before 3.0, KIP-734); offsets still tell of advances."""
    UNREADABLE = "unreadable"
    """No answer; the reading carries the reason."""


class Reason(StrEnum):
    """Why a partition could not be read, or a poll failed."""

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
    MISSING_ANSWER = "missing-answer"
    TIMED_OUT = "timed-out"
    AUTHENTICATION_FAILED = "authentication-failed"
    TLS_FAILED = "tls-failed"
    CLUSTER_UNREACHABLE = "cluster-unreachable"
    OTHER = "other-error"


class Verdict(StrEnum):
    """What history says of a partition or topic."""

    LIVE = "live"
    QUIET = "quiet"
    """Silent, as usual for it."""
    SUSPECT = "suspect"
    DEAD = "dead"
    RETIRED = "retired"
    """Dead for long; no longer alarmed."""
    HELD = "held"
    """Judgement withheld: the silence cannot be proved now, or many topics fell silent together, as one incident."""
    LEARNING = "learning"
    """Too little evidence to promise anything."""
    MUTED = "muted"
    """Taken out of judgement by configuration."""


class Source(StrEnum):
    """Where a window's knowledge comes from."""

    POLL = "poll"
    BACKFILL = "backfill"


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

    Where ``reason`` is set the topic could not be described; its partitions are those known before.
    """

    topic_id: str | None
    partitions: Mapping[int, PartitionInfo]
    config: TopicConfig | None = None
    reason: Reason | None = None


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


@dataclass(frozen=True, slots=True)
class Window:
    """Summary of one partition over one history interval; a row of the spool table ``windows``.

    Written only where the partition advanced, restarted or could not be read. Key: (cluster, topic,
    topic_id, partition, window_start, exporter, source). ``first_advance`` and ``last_advance`` are the polls
    at which an advance was seen; each lies at most ``resolution_seconds`` after the record. Where the wall
    clock was set since the advance before, by that much more; where it was set forward by an hour or more, a
    window without records tells by the new clock when each partition had last advanced.
    Backfilled windows leave ``advances`` and ``max_inner_gap_seconds`` None; their ``first_advance`` is
    the record's timestamp and ``last_advance`` is early by at most ``resolution_seconds``.
    """

    cluster: str
    topic: str
    topic_id: str | None
    partition: int
    window_start: float
    window_end: float
    exporter: str
    source: str
    polls_ok: int = 0
    observed_seconds: float = 0.0
    advances: int | None = None
    records: int | None = None
    first_advance: float | None = None
    last_advance: float | None = None
    max_inner_gap_seconds: float | None = None
    resolution_seconds: float | None = None
    start_offset: int | None = None
    end_offset: int | None = None
    log_start_offset: int | None = None
    leader: int | None = None
    max_timestamp: float | None = None
    future_timestamps: int = 0
    offset_regressions: int = 0
    reason: str | None = None

    def merge(self, later: Window) -> Window:
        """Return the window over both intervals; ``later`` follows ``self`` in time.

        Exact for (first_advance, last_advance, max_inner_gap_seconds) and associative, so windows may
        be folded in any grouping.
        """
        gaps = [gap for gap in (self.max_inner_gap_seconds, later.max_inner_gap_seconds) if gap is not None]
        if self.last_advance is not None and later.first_advance is not None:
            gaps.append(later.first_advance - self.last_advance)
        return replace(
            later,
            window_start=self.window_start,
            polls_ok=self.polls_ok + later.polls_ok,
            observed_seconds=self.observed_seconds + later.observed_seconds,
            advances=_sum(self.advances, later.advances),
            records=_sum(self.records, later.records),
            first_advance=_first(self.first_advance, later.first_advance),
            last_advance=_first(later.last_advance, self.last_advance),
            max_inner_gap_seconds=max(gaps, default=None),
            resolution_seconds=max(
                (r for r in (self.resolution_seconds, later.resolution_seconds) if r is not None),
                default=None,
            ),
            start_offset=_first(self.start_offset, later.start_offset),
            end_offset=_first(later.end_offset, self.end_offset),
            log_start_offset=_first(later.log_start_offset, self.log_start_offset),
            leader=_first(later.leader, self.leader),
            max_timestamp=_first(later.max_timestamp, self.max_timestamp),
            future_timestamps=self.future_timestamps + later.future_timestamps,
            offset_regressions=self.offset_regressions + later.offset_regressions,
            reason=_first(later.reason, self.reason),
        )


@dataclass(frozen=True, slots=True)
class Coverage:
    """What the polls of one interval reached; a row of the spool table ``coverage``.

    Silence is proved only where coverage is good. ``partitions_ok`` and ``partitions_failed`` are
    those of the interval's last poll.
    """

    cluster: str
    exporter: str
    source: str
    window_start: float
    window_end: float
    polls_total: int
    polls_ok: int
    partitions_ok: int
    partitions_failed: int
    last_good_poll: float | None
    interval_seconds: float


@dataclass(frozen=True, slots=True)
class Inventory:
    """One partition as it stood at a moment; a row of the spool table ``inventory``.

    Written at start, daily and on change. ``deleted`` rows say that the partition is gone.
    """

    cluster: str
    topic: str
    topic_id: str | None
    partition: int
    exporter: str
    source: str
    observed_at: float
    leader: int | None
    earliest_offset: int | None
    latest_offset: int | None
    max_timestamp: float | None
    state: str
    reason: str | None
    timestamp_type: str | None
    cleanup_policy: str | None
    retention_seconds: float | None
    owner: str | None
    deleted: bool


@dataclass(frozen=True, slots=True)
class Expectation:
    """What the exporter needs to judge silence live; a row of the published expectations.

    ``partition`` None means the topic as the union of its partitions. ``last_advance`` and
    ``end_offset`` are those known at ``as_of``.

    A promise comes in one of two forms, and without either nothing is promised. By the wall clock:
    ``max_silence_seconds`` and ``suspect_silence_seconds``. By the stream's own traffic clock:
    ``profile``, its active slots per hour for each of the 168 hours of the week from Monday 00:00 UTC,
    and what turns missed slots U into a score: (ln(U + ``clock_step``) - ``log_mean``) / ``log_spread``.
    Past ``suspect_score`` and ``dead_score`` a silence is ``suspect`` and ``dead``.
    """

    cluster: str
    topic: str
    topic_id: str | None
    partition: int | None
    as_of: float
    end_offset: int | None
    last_advance: float | None
    verdict: str
    evidence: str
    rule: str
    slot_seconds: float
    max_silence_seconds: float | None
    suspect_silence_seconds: float | None
    suspect_score: float | None
    dead_score: float | None
    profile: Sequence[float] | None = None
    clock_step: float | None = None
    log_mean: float | None = None
    log_spread: float | None = None


class Advance(NamedTuple):
    """The last advance of a partition that some exporter saw: up to which end offset, and when (Unix seconds)."""

    topic_id: str | None
    end_offset: int
    at: float


@dataclass(frozen=True, slots=True)
class TopicOverride:
    """What the configuration says of topics instead of history; exactly one of the last three is set.

    ``topics`` is a regular expression that matches whole names, ``cluster`` None means every cluster.
    Of several that match a topic the first in force counts: a mute is over at ``muted_until``.
    """

    topics: str
    cluster: str | None = None
    max_silence_seconds: float | None = None
    muted_until: float | None = None
    retired: bool = False


SUSPECT_SHARE = 0.75
"""By an override a silence is suspect past this share of its ``max_silence_seconds``."""


def _sum(left: int | None, right: int | None) -> int | None:
    if left is None:
        return right
    return left if right is None else left + right


def _first(preferred: _T | None, otherwise: _T | None) -> _T | None:
    return otherwise if preferred is None else preferred

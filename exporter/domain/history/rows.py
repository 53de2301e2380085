"""The rows of the spool's tables."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

SCHEMA_VERSION = 1
"""Version of every spool file and published file; a reader refuses versions it does not know."""


FILE_ROWS = 2_000_000
"""Limit of rows of a spool file. A reader refuses a larger file before it uses memory."""

FIRST_YEAR = 1980
"""No row is from before: an exporter that says so has a clock that nobody set."""

FILE_BYTES = 512 * 2**20
"""Limit of bytes of a spool file, uncompressed and with each text written out."""

ROWS_AHEAD_SECONDS = 86_400.0
"""Rows that are dated further ahead are from a clock that was ahead, and prove nothing: no rollup takes them."""

AHEAD_SECONDS = 3600.0
"""Expectations dated further ahead than this were published under a wrong clock, and are not used."""


MOMENTS = frozenset(
    {
        *("window_start", "window_end", "first_advance", "last_advance", "max_timestamp", "last_good_poll"),
        *("observed_at", "as_of", "polled_from", "history_start", "largest_silence_end", "since", "until"),
    }
)
"""Fields that are Unix seconds here, and timestamps in files."""

INTEGERS_OF_32_BITS = frozenset({"partition", "leader", "schema_version"})
"""Fields that are integers of 32 bits in files; others have 64."""


class Source(StrEnum):
    """The origin of a window."""

    POLL = "poll"
    BACKFILL = "backfill"


@dataclass(frozen=True, slots=True)
class Window:
    """Summary of one partition over one history interval; a row of the spool table ``windows``.

    Written only where the partition advanced, restarted or could not be read. Key: (cluster, topic, topic_id,
    partition, window_start, exporter, source). ``first_advance`` and ``last_advance`` are the polls that saw an
    advance, at most ``resolution_seconds`` after the record. If the wall clock was set since the advance before, that
    difference is added; where it is an hour or more, a window without records has the last advance by the new clock.
    Backfilled windows have the record's timestamp, and their ``last_advance`` is early by at most
    ``resolution_seconds``.
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
    records: int | None = None
    first_advance: float | None = None
    last_advance: float | None = None
    resolution_seconds: float | None = None
    start_offset: int | None = None
    end_offset: int | None = None
    future_timestamps: int = 0
    """Of a backfill: whether a record that is dated after the history hides when the others were written."""
    offset_regressions: int = 0
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Coverage:
    """How well one interval was polled; a row of the spool table ``coverage``. It proves silence where it is good."""

    cluster: str
    exporter: str
    source: str
    window_start: float
    window_end: float
    last_good_poll: float | None
    """None where no poll was good: then it proves nothing."""
    interval_seconds: float


@dataclass(frozen=True, slots=True)
class Inventory:
    """One partition at one time; a row of the spool table ``inventory``.

    Written at start, daily and on change. ``deleted`` means that the partition is gone.
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
    """Infinite where records are kept for ever."""
    owner: str | None
    deleted: bool
    remote_storage: bool | None = None
    """Whether the topic has segments in remote storage (KIP-405)."""


@dataclass(frozen=True, slots=True)
class Relation:
    """Who reads a topic, and what it is a replica of, at one time; a row of the spool table ``relations``.

    Written where something is known: at first, on change, and daily. ``consumer_groups`` counts those that committed
    in the topic or have it assigned; None where it may be too small. ``replica_state`` is a ``ReplicaState`` of the
    whole topic, None where the two cannot be compared.
    """

    cluster: str
    topic: str
    topic_id: str | None
    exporter: str
    source: str
    observed_at: float
    consumer_groups: int | None
    replica_of_cluster: str | None = None
    replica_of_topic: str | None = None
    replica_state: str | None = None
    disk_bytes: int | None = None
    """Size of all replicas on the brokers' disks at that time; a change alone writes no row."""
    readers: str | None = None
    """The names of the first consumer groups, those that read it before others, a JSON array."""
    groups_without_members: int | None = None
    """Those of the groups that had no member at that time; a change alone writes no row."""
    groups_committed_only: int | None = None
    """Those of the groups that had members, none of which had it assigned: they had left it."""

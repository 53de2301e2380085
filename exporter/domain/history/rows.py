"""The rows of the spool's tables."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

_T = TypeVar("_T")

SCHEMA_VERSION = 1
"""Version of every spool file and published file; a reader refuses versions it does not know."""


FILE_ROWS = 2_000_000
"""Limit of rows of a spool file. A reader refuses a larger file before it uses memory."""

FIRST_YEAR = 1980
"""No row is from before: an exporter that says so has a clock that nobody set."""

FILE_BYTES = 512 * 2**20
"""Limit of bytes of a spool file, uncompressed and with each text written out."""

AHEAD_SECONDS = 3600.0
"""Expectations dated further ahead than this were published under a wrong clock, and are not used."""


class Source(StrEnum):
    """The origin of a window."""

    POLL = "poll"
    BACKFILL = "backfill"


@dataclass(frozen=True, slots=True)
class Window:
    """Summary of one partition over one history interval; a row of the spool table ``windows``.

    Written only where the partition advanced, restarted or could not be read. Key: (cluster, topic, topic_id,
    partition, window_start, exporter, source). ``first_advance`` and ``last_advance`` are the polls that saw an
    advance; each is at most ``resolution_seconds`` after the record, and later by as much as the wall clock was set
    since the previous advance. Where the clock was set forward by an hour or more, a window without records has each
    partition's last advance by the new clock. Backfilled windows leave ``advances`` and ``max_inner_gap_seconds`` None.
    Their ``first_advance`` is the record's timestamp, and ``last_advance`` is early by at most ``resolution_seconds``.
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

        Exact for (first_advance, last_advance, max_inner_gap_seconds) and associative: windows may be merged in any
        grouping.
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
    """How well one interval was polled; a row of the spool table ``coverage``.

    Silence is proved only where coverage is good. ``partitions_ok`` and ``partitions_failed`` are those of the last
    poll of the interval.
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

    Written where something is known: at first, on change, and daily. ``consumer_groups`` counts the groups that have
    committed an offset in the topic or have it assigned; None where the count may be too small. ``replica_state`` is
    that of the whole topic (``ReplicaState``), None where the two cannot be compared.
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


def _sum(left: int | None, right: int | None) -> int | None:
    if left is None:
        return right
    return left if right is None else left + right


def _first(preferred: _T | None, otherwise: _T | None) -> _T | None:
    return otherwise if preferred is None else preferred

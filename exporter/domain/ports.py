"""The interfaces between rooms: Protocols that adapters, collectors and sinks implement."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from exporter.domain.arrays import ColumnSet, Offsets, Rows
from exporter.domain.polls.metadata import Membership, Metadata
from exporter.domain.polls.readings import Answers, PollFailure, Reason
from exporter.domain.polls.table import Snapshot

LOOKUPS_AT_ONCE = 2_000
"""Look-ups in one batch; progress is reported between batches."""

METADATA_SECONDS = 60.0
"""Maximum age of metadata."""


class SourceError(Exception):
    """The cluster as a whole could not be queried. ``detail`` names the cause and the next step, without secrets."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}"


@dataclass(frozen=True, slots=True, eq=False)
class Extents(ColumnSet):
    """The offsets of n partitions, which a MAX_TIMESTAMP look-up needs, each a column [n]."""

    earliest: Offsets
    latest: Offsets
    appended: Offsets
    """An earlier end of the log: batches from it on were written later. -1 where none is known."""


class TimeIndex(Protocol):
    """Looks up offsets by time."""

    def look_up_times(self, membership: Membership, rows: Rows, milliseconds: Offsets) -> Answers:
        """The first record at or after each time, of ``rows``, which have leaders and may repeat; by their places.

        A record found at offset o proves that all records before o are from before that time. **None proves nothing**:
        a broker looks into the first segment whose largest timestamp reaches the time, and into no later one. Segments
        without a live record keep theirs, after DeleteRecords and compaction (seen on 3.9.2 and 4.3.1).
        """


class LogSource(Protocol):
    """A cluster that tells where logs begin and end, and their newest timestamps, without reading a record."""

    def metadata(
        self, doubted: Collection[str] = (), known: Mapping[str, str | None] = MappingProxyType({})
    ) -> Metadata:
        """Return the topics in scope. Raises SourceError when no broker answers.

        Ids of ``doubted`` topics, which may have been created again, are read again. ``known`` are topics and their ids
        as another source of the cluster read them: one that is not listed is asked for by its name.
        """

    def starts(self, membership: Membership) -> Answers:
        """EARLIEST (KIP-79) of partitions, which have leaders."""

    def ends(self, membership: Membership) -> Answers:
        """LATEST (KIP-79), one past the newest record, of partitions, which have leaders."""

    def max_timestamp(self, membership: Membership, extents: Extents) -> Answers:
        """MAX_TIMESTAMP (KIP-734) of partitions that hold records, which have leaders.

        NO_ANSWER where the leader does not support the spec, or the answer proved wrong. In place of a record below the
        log start the newest later one is searched by time; ``Reason.HIDDEN`` where that proves nothing.
        """

    def max_timestamp_supported(self) -> Mapping[int, bool]:
        """Broker id -> supports MAX_TIMESTAMP, as far as answers prove it."""

    def lookups(self) -> Mapping[str, int]:
        """Look-ups since the source was created, by spec."""

    def close(self) -> None:
        """Close connections. Further calls are errors."""


class OffsetSource(LogSource, TimeIndex, Protocol):
    """A cluster that also looks up offsets by time."""


class PollSource(LogSource, Protocol):
    """A cluster as the poller uses it."""

    def begin(self) -> None:
        """Start the time limit of a poll."""

    def cluster_id(self) -> str | None:
        """Ask for the id of the cluster that answers now; None where no broker tells one in time."""


class SnapshotSink(Protocol):
    """Takes the results of the poller; called from the poller's thread, one poll at a time."""

    def accept(self, snapshot: Snapshot) -> None:
        """Take one good poll."""

    def take_failure(self, failure: PollFailure) -> None:  # noqa: ARG002
        """Take one failed poll; a sink without a method of its own ignores it."""
        return


class Clock(Protocol):
    """The two clocks. Durations are measured on the monotonic one, which is never set."""

    def now(self) -> float:
        """Wall clock, Unix seconds."""

    def monotonic(self) -> float:
        """Seconds that never decrease and that count while the machine sleeps."""

"""The seams of the exporter: whoever implements one of these Protocols needs nothing else."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from exporter.domain.activity import TierFacts
from exporter.domain.answers import Answers
from exporter.domain.arrays import Offsets, Rows
from exporter.domain.metadata import Metadata
from exporter.domain.readings import Answer, Inspected, PollFailure, Reason, TopicPartition
from exporter.domain.table import Snapshot

LOOKUPS_AT_ONCE = 2_000
"""Look-ups handed over together; progress is reported between two such batches."""

METADATA_SECONDS = 60.0
"""Metadata is read anew when it is so old, at the latest."""


class SourceError(Exception):
    """The cluster as a whole could not be asked. ``detail`` names the thing and the next step, no secrets."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Extent:
    """Where a partition's offsets stand, and who leads it; what a MAX_TIMESTAMP look-up starts from."""

    leader: int
    earliest: int
    latest: int
    leader_epoch: int | None = None
    """As the answer to LATEST has it."""


class OffsetSource(Protocol):
    """A cluster that can be asked for offsets without reading a record."""

    def metadata(self) -> Metadata:
        """Return the topics in scope. Raises SourceError when no broker answers."""

    def earliest(self, leaders: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, Answer]:
        """EARLIEST (KIP-79) of each partition; every key of ``leaders`` has an answer."""

    def latest(self, leaders: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, Answer]:
        """LATEST (KIP-79): one past the newest record; every key of ``leaders`` has an answer."""

    def max_timestamp(self, extents: Mapping[TopicPartition, Extent]) -> Mapping[TopicPartition, Answer]:
        """MAX_TIMESTAMP (KIP-734) of each partition that holds records.

        A partition whose leader does not know the spec is left out of the answer, and
        ``max_timestamp_supported`` says so.
        """

    def max_timestamp_supported(self) -> Mapping[int, bool]:
        """Broker id -> knows MAX_TIMESTAMP, as far as answers have proved it."""

    def lookups(self) -> Mapping[str, int]:
        """Look-ups asked since the source was made, by spec."""

    def close(self) -> None:
        """Let go of connections. Further calls are errors."""


class ByTime(Protocol):
    """Answers offsets for times."""

    def by_time(
        self, wanted: Sequence[tuple[TopicPartition, float]], leaders: Mapping[TopicPartition, int]
    ) -> Mapping[tuple[TopicPartition, float], Answer]:
        """The first record at or after each time, in seconds."""


class PollSource(Protocol):
    """A cluster as the poller asks it: each question is about rows, and its answers are columns.

    Rows are those of ``layout`` in the membership that ``metadata`` returned last.
    """

    def metadata(self, *, fresh: bool, doubted: Collection[str] = ()) -> Metadata:
        """Return the topics in scope: read anew where ``fresh``, or where what was read last is a minute old.

        Otherwise, and where nothing changed, the same object as before. Topics that are ``doubted`` may be others of
        their names: their ids are read anew with the rest, while those of other topics may be minutes old. A topic
        that cannot be described keeps the partitions that it had before. Raises SourceError when no broker answers.
        """

    def earliest(self, rows: Rows) -> Answers:
        """EARLIEST (KIP-79) of rows that have a leader."""

    def latest(self, rows: Rows) -> Answers:
        """LATEST (KIP-79), one past the newest record, of rows that have a leader."""

    def max_timestamp(self, rows: Rows, earliest: Offsets, latest: Offsets) -> Answers:
        """MAX_TIMESTAMP (KIP-734) of rows that hold records, with their offsets as just answered.

        NO_ANSWER where the leader does not know the spec, or the answer was disproved.
        """

    def max_timestamp_supported(self) -> Mapping[int, bool]:
        """Broker id -> knows MAX_TIMESTAMP, as far as answers have proved it."""

    def lookups(self) -> Mapping[str, int]:
        """Look-ups asked since the source was made, by spec."""

    def close(self) -> None:
        """Let go of connections. Further calls are errors."""


class TierKnowledge(Protocol):
    """What slow look-ups, made elsewhere and at their own pace, learnt of partitions with remote storage."""

    def facts(
        self, partitions: Sequence[TopicPartition], topic_ids: Sequence[str | None], latest: Offsets
    ) -> TierFacts:
        """Return what is known of partitions that end at ``latest`` now, in their order. Asks nobody."""


class InspectionKnowledge(Protocol):
    """What inspections, made elsewhere and at their own pace, learnt of partitions."""

    def known(self, metadata: Metadata) -> Mapping[TopicPartition, Inspected]:
        """Return what is known of every partition. Asks nobody."""


class ReaderKnowledge(Protocol):
    """What sweeps over consumer groups learnt of who reads what."""

    def near_log_start(self) -> Collection[TopicPartition]:
        """Return the partitions in which a group stands near the log start. Asks nobody."""


class SnapshotSink(Protocol):
    """Takes what the poller learnt; called from the poller's thread, one poll at a time."""

    def accept(self, snapshot: Snapshot) -> None:
        """Take one good poll."""

    def missed(self, failure: PollFailure) -> None:
        """Take note of one poll that gave nothing."""


class Clock(Protocol):
    """The two clocks. Intervals are measured on the monotonic one; only the wall clock is ever set."""

    def now(self) -> float:
        """Wall clock, Unix seconds."""

    def monotonic(self) -> float:
        """Seconds that never go back, and go on while the machine sleeps."""

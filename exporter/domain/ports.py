"""The seams of the exporter: whoever implements one of these Protocols needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from exporter.domain.activity import TierFacts
from exporter.domain.readings import Answer, Inspected, Metadata, PollFailure, Reason, Snapshot, TopicPartition

LOOKUPS_AT_ONCE = 2_000
"""Look-ups handed over together; progress is reported between two such batches."""


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


class TierKnowledge(Protocol):
    """What slow look-ups, made elsewhere and at their own pace, learnt of partitions with remote storage."""

    def facts(self, partition: TopicPartition, topic_id: str | None, latest: int) -> TierFacts:
        """Return what is known of a partition that ends at ``latest`` now. Asks nobody."""


class InspectionKnowledge(Protocol):
    """What inspections, made elsewhere and at their own pace, learnt of partitions."""

    def of(self, partition: TopicPartition, topic_id: str | None) -> Inspected | None:
        """Return what is known of a partition, None where inspections are off. Asks nobody."""


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

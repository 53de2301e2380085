"""Snapshots for tests, built through the real tracker and poller over a source that answers from a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from exporter.domain import Answer, Metadata, PartitionInfo, PollFailure, Reason, Snapshot, TopicInfo, TopicPartition
from exporter.domain.ports import Extent, SourceError


@dataclass
class TableSource:
    """An OffsetSource whose answers are set by the test: (earliest, latest, newest timestamp) per partition."""

    offsets: dict[TopicPartition, tuple[int, int, float | None]] = field(default_factory=dict)
    failures: dict[TopicPartition, Answer] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    topic_errors: dict[str, Reason] = field(default_factory=dict)
    pending: set[TopicPartition] = field(default_factory=set)
    left_out: set[TopicPartition] = field(default_factory=set)
    timestamp_failure: Reason | None = None
    error: SourceError | None = None
    asked: int = 0

    def metadata(self) -> Metadata:
        if self.error is not None:
            raise self.error
        topics: dict[str, dict[int, PartitionInfo]] = {}
        for key in self.offsets:
            topics.setdefault(key.topic, {})[key.partition] = PartitionInfo(1, (1,), (1,))
        return Metadata(
            {1: "localhost:9092"},
            {
                name: TopicInfo(None, {}, reason=self.topic_errors[name])
                if name in self.topic_errors
                else TopicInfo(self.topic_ids.get(name, "id-1"), infos, owner=self.owners.get(name))
                for name, infos in topics.items()
            },
        )

    def earliest(self, leaders: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, Answer]:
        return {key: self.failures.get(key, Answer(self.offsets[key][0])) for key in leaders}

    def latest(self, leaders: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, Answer]:
        return {key: Answer(self.offsets[key][1]) for key in leaders}

    def max_timestamp(self, extents: Mapping[TopicPartition, Extent]) -> Mapping[TopicPartition, Answer]:
        self.asked += len(extents)
        if self.timestamp_failure is not None:
            return dict.fromkeys(extents, Answer(reason=self.timestamp_failure))
        return {
            key: Answer() if key in self.pending else Answer(self.offsets[key][1] - 1, self.offsets[key][2])
            for key in extents
            if key not in self.left_out
        }

    def max_timestamp_supported(self) -> Mapping[int, bool]:
        return {1: True}

    def lookups(self) -> Mapping[str, int]:
        return {"max-timestamp": self.asked} if self.asked else {}

    def close(self) -> None:
        pass


@dataclass
class ManualClock:
    """Both clocks, moved by the test; ``set_by`` is by how much the wall clock was set."""

    time: float = 1_000_000.0
    set_by: float = 0.0

    def now(self) -> float:
        return self.time + self.set_by

    def monotonic(self) -> float:
        return self.time


@dataclass
class Collected:
    """A sink that keeps what it got."""

    snapshots: list[Snapshot] = field(default_factory=list)
    failures: list[PollFailure] = field(default_factory=list)

    def accept(self, snapshot: Snapshot) -> None:
        self.snapshots.append(snapshot)

    def missed(self, failure: PollFailure) -> None:
        self.failures.append(failure)

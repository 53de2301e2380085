"""Snapshots for tests, built through the real tracker and poller over a source that answers from a table."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from exporter.domain.arrays import Counts, replace_nan
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.metadata import Membership, Metadata, TopicInfo
from exporter.domain.polls.readings import Answers, PollFailure, Reason, TopicPartition
from exporter.domain.polls.table import Snapshot
from exporter.domain.ports import Extents, SourceError
from exporter.domain.replicas.comparison import (
    NOT_COMPARED_CODES,
    REASONS_NOT_COMPARED,
    REPLICA_STATE_CODES,
    REPLICA_STATES,
    Comparison,
    Lag,
    NotCompared,
    ReplicaState,
    TopicMatches,
)
from tests.lookup_answers import Answer, answers_of
from tests.memberships import Partition, membership_of


@dataclass
class TableSource:
    """A PollSource whose answers are set by the test: (earliest, latest, newest timestamp) per partition."""

    offsets: dict[TopicPartition, tuple[int, int, float | None]] = field(default_factory=dict)
    failures: dict[TopicPartition, Answer] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    own_id: str | None = None
    """The id of the cluster."""
    owners: dict[str, str] = field(default_factory=dict)
    leaders: dict[TopicPartition, int] = field(default_factory=dict)
    """Broker 1 leads all others."""
    topic_errors: dict[str, Reason] = field(default_factory=dict)
    pending: set[TopicPartition] = field(default_factory=set)
    left_out: set[TopicPartition] = field(default_factory=set)
    timestamp_failure: Reason | None = None
    error: SourceError | None = None
    newest_lookups: int = 0
    earliest_requests: list[list[TopicPartition]] = field(default_factory=list)
    earliest_error: SourceError | None = None

    def begin(self) -> None:
        pass

    def metadata(self, *_: object) -> Metadata:
        if self.error is not None:
            raise self.error
        return self.described()

    def described(self) -> Metadata:
        """What a broker says now."""
        topics: dict[str, dict[int, Partition]] = {}
        for key in self.offsets:
            leader = self.leaders.get(key, 1)
            topics.setdefault(key.topic, {})[key.partition] = Partition(leader, (leader,), (leader,))
        return Metadata(
            {1: "localhost:9092"},
            {
                name: TopicInfo(None, reason=self.topic_errors[name])
                if name in self.topic_errors
                else TopicInfo(self.topic_ids.get(name, "id-1"), owner=self.owners.get(name))
                for name in topics
            },
            membership=membership_of({name: {} if name in self.topic_errors else topics[name] for name in topics}),
            cluster_id=self.own_id,
        )

    def starts(self, membership: Membership) -> Answers:
        if self.earliest_error is not None:
            raise self.earliest_error
        self.earliest_requests.append(list(membership.layout))
        return answers_of(self.failures.get(key, self._offset(key, 0)) for key in membership.layout)

    def ends(self, membership: Membership) -> Answers:
        return answers_of(self._offset(key, 1) for key in membership.layout)

    def max_timestamp(self, membership: Membership, extents: Extents) -> Answers:
        assert len(extents) == len(membership.layout)
        self.newest_lookups += len(extents)
        return answers_of(map(self._newest, membership.layout))

    def _offset(self, key: TopicPartition, end: int) -> Answer:
        offsets = self.offsets.get(key)
        return Answer(reason=Reason.UNKNOWN_TOPIC) if offsets is None else Answer(int(offsets[end] or 0))

    def _newest(self, key: TopicPartition) -> Answer | None:
        if self.timestamp_failure is not None:
            return Answer(reason=self.timestamp_failure)
        if key in self.left_out:
            return None
        return Answer() if key in self.pending else Answer(self.offsets[key][1] - 1, self.offsets[key][2])

    def cluster_id(self) -> str | None:
        return self.own_id

    def max_timestamp_supported(self) -> Mapping[int, bool]:
        return {1: True}

    def lookups(self) -> Mapping[str, int]:
        return {"max-timestamp": self.newest_lookups} if self.newest_lookups else {}

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

    def take_failure(self, failure: PollFailure) -> None:
        self.failures.append(failure)


class Replica(NamedTuple):
    """One partition of a replica, within one pair of clusters."""

    source_topic: str
    target_topic: str
    partition: int


@dataclass(frozen=True)
class ReplicaReading:
    """The result of one comparison for one partition. Unknown numbers are None."""

    state: ReplicaState
    lag_seconds: float | None = None
    lag_records: int | None = None
    reason: NotCompared | None = None


def comparison_of(readings: Mapping[Replica, ReplicaReading], source: str = "east", target: str = "west") -> Comparison:
    replicas = {replica.source_topic: replica.target_topic for replica in sorted(readings)}
    layout = Layout.build(
        {topic: [each.partition for each in readings if each.source_topic == topic] for topic in replicas}
    )
    in_order = [readings[Replica(key.topic, replicas[key.topic], key.partition)] for key in layout]
    lag = Lag(
        np.array([REPLICA_STATE_CODES[one.state] for one in in_order], dtype=np.int8),
        np.array([NOT_COMPARED_CODES[one.reason] for one in in_order], dtype=np.int8),
        np.array([np.nan if one.lag_seconds is None else one.lag_seconds for one in in_order]),
        Counts(
            np.array([one.lag_records or 0 for one in in_order], dtype=np.int64),
            np.array([one.lag_records is not None for one in in_order], dtype=np.bool_),
        ),
    )
    return Comparison(source, target, TopicMatches(replicas), layout, lag)


def replica_readings(found: Comparison) -> dict[Replica, ReplicaReading]:
    replicas, lag = found.matching.replicas, found.lag
    return {
        Replica(topic, replicas[topic], partition): ReplicaReading(
            REPLICA_STATES[lag.state[row]],
            replace_nan(lag.seconds[row]),
            int(lag.records.value[row]) if lag.records.known[row] else None,
            REASONS_NOT_COMPARED[lag.reason[row]],
        )
        for row, (topic, partition) in enumerate(found.layout)
    }

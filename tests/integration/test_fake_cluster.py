"""The fake cluster answers clients as a real one does, and as it is told."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.fake_cluster import FakeCluster
from tests.workbench import QUIET, Workbench

LATEST, EARLIEST, MAX_TIMESTAMP = OffsetSpec.latest(), OffsetSpec.earliest(), OffsetSpec.max_timestamp()


class Asking:
    """Both of librdkafka's ways to look up offsets."""

    def __init__(self, bootstrap: str) -> None:
        self.admin: Any = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "asking", **QUIET})

    def offset(self, topic: str, partition: int, spec: OffsetSpec) -> int:
        """What ``list_offsets`` finds."""
        return self._answer(topic, partition, spec)[0]

    def newest(self, topic: str, partition: int) -> int:
        """The largest timestamp, in milliseconds; -1 without a record."""
        return self._answer(topic, partition, MAX_TIMESTAMP)[1]

    def for_time(self, topic: str, partition: int, time_or_spec: int) -> int:
        """What ``offsets_for_times`` finds."""
        found = self._consumer.offsets_for_times([TopicPartition(topic, partition, time_or_spec)], timeout=10)
        assert found[0].error is None
        return int(found[0].offset)

    def _answer(self, topic: str, partition: int, spec: OffsetSpec) -> tuple[int, int]:
        key = TopicPartition(topic, partition)
        found = self.admin.list_offsets({key: spec}, request_timeout=10)[key].result(15)
        return found.offset, found.timestamp


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    """Three brokers, two topics of ten partitions, four groups that have committed in three partitions each."""
    with FakeCluster(topics=2, partitions=10, groups=4, group_partitions=3) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def asking(cluster: FakeCluster) -> Asking:
    """Two clients for all tests here."""
    return Asking(cluster.bootstrap)


def test_it_has_what_was_asked_for(asking: Asking) -> None:
    """Metadata names the brokers, the topics and a leader of each partition."""
    metadata = asking.admin.list_topics(timeout=10)
    assert len(metadata.brokers) == 3
    assert {name: len(topic.partitions) for name, topic in metadata.topics.items()} == {
        "bench-0000": 10,
        "bench-0001": 10,
    }
    assert all(
        each.leader in metadata.brokers for topic in metadata.topics.values() for each in topic.partitions.values()
    )


def test_a_share_moves(cluster: FakeCluster, asking: Asking) -> None:
    """A tenth of the partitions gains a record of now, the others none."""
    keys = [(topic, number) for topic in ("bench-0000", "bench-0001") for number in range(10)]
    before = {key: asking.offset(*key, LATEST) for key in keys}
    moved_at = time.time() * 1000
    cluster.command("move", 0.1)
    moved = [key for key in keys if asking.offset(*key, LATEST) == before[key] + 1]
    assert len(moved) == 2
    assert all(moved_at - 1 <= asking.newest(*key) <= time.time() * 1000 for key in moved)
    assert all(asking.newest(*key) < moved_at for key in keys if key not in moved)


def test_it_moves_by_itself(cluster: FakeCluster, asking: Asking) -> None:
    """At the interval of the last command, until the next one."""
    cluster.command("every", 0.01, 1)
    end = asking.offset("bench-0000", 0, LATEST)
    Workbench.until(lambda: asking.offset("bench-0000", 0, LATEST) > end + 5)
    cluster.command("every", 0.01, 0)
    end = asking.offset("bench-0000", 0, LATEST)
    cluster.command("move", 1)
    assert asking.offset("bench-0000", 0, LATEST) == end + 1


def test_a_partition_is_what_it_was_set_to(cluster: FakeCluster, asking: Asking) -> None:
    """Log start, end, newest timestamp, and the record at a time, by both calls."""
    cluster.command("set", "bench-0000", 5, 40, 50, 1_700_000_000_000)
    assert asking.offset("bench-0000", 5, EARLIEST) == asking.for_time("bench-0000", 5, -2) == 40
    assert asking.offset("bench-0000", 5, LATEST) == asking.for_time("bench-0000", 5, -1) == 50
    assert asking.offset("bench-0000", 5, MAX_TIMESTAMP) == 49
    assert asking.newest("bench-0000", 5) == 1_700_000_000_000
    assert asking.for_time("bench-0000", 5, 1_700_000_000_000) == 40
    assert asking.offset("bench-0000", 5, OffsetSpec.for_timestamp(1_700_000_000_001)) == -1


def test_an_empty_partition_has_no_newest_record(cluster: FakeCluster, asking: Asking) -> None:
    """Where log start and end are the same."""
    cluster.command("set", "bench-0000", 6, 40, 40, 1_700_000_000_000)
    assert (asking.offset("bench-0000", 6, MAX_TIMESTAMP), asking.newest("bench-0000", 6)) == (-1, -1)


def test_answers_can_differ(cluster: FakeCluster, asking: Asking) -> None:
    """One look-up after the other, until the row counts again."""
    end = asking.offset("bench-0000", 7, LATEST)
    cluster.command("answer", "bench-0000", 7, -1, 100, 200)
    assert [asking.offset("bench-0000", 7, LATEST), asking.for_time("bench-0000", 7, -1)] == [100, 200]
    assert asking.offset("bench-0000", 7, LATEST) == 100
    cluster.command("answer", "bench-0000", 7, -1)
    assert asking.offset("bench-0000", 7, LATEST) == end


def test_a_partition_changes_its_leader(cluster: FakeCluster, asking: Asking) -> None:
    """A client that knows the former one is refused, until it asks for metadata."""
    end = asking.offset("bench-0000", 8, LATEST)
    leader = asking.admin.list_topics("bench-0000", timeout=10).topics["bench-0000"].partitions[8].leader
    cluster.command("lead", "bench-0000", 8, (leader + 1) % 3)
    with pytest.raises(KafkaException, match="FENCED_LEADER_EPOCH"):
        asking.offset("bench-0000", 8, LATEST)
    asking.admin.list_topics(timeout=10)
    assert asking.offset("bench-0000", 8, LATEST) == end


def test_topics_come_and_go(cluster: FakeCluster, asking: Asking) -> None:
    """One that was made again has its first records."""
    cluster.command("create", "gone", 2)
    cluster.command("set", "gone", 1, 0, 9, 1_700_000_000_000)
    cluster.command("delete", "gone")
    assert "gone" not in asking.admin.list_topics(timeout=10).topics
    cluster.command("create", "gone", 2)
    assert Asking(cluster.bootstrap).offset("gone", 1, LATEST) == 3
    cluster.command("delete", "gone")


def test_groups_have_committed(asking: Asking) -> None:
    """Each of them the offset 1 in its partitions."""
    assert {each.group_id for each in asking.admin.list_consumer_groups().result(10).valid} == {
        f"group-{number:04d}" for number in range(4)
    }
    described = asking.admin.describe_consumer_groups(["group-0003"])["group-0003"].result(10)
    assert described.group_id == "group-0003"
    requests = [ConsumerGroupTopicPartitions("group-0003")]
    committed = asking.admin.list_consumer_group_offsets(requests)["group-0003"].result(10).topic_partitions
    assert {(each.topic, each.partition, each.offset) for each in committed} == {
        ("bench-0000", 9, 1),
        ("bench-0001", 0, 1),
        ("bench-0001", 1, 1),
    }


def test_a_command_that_cannot_be_done_is_refused(cluster: FakeCluster) -> None:
    """The error says which and why."""
    with pytest.raises(ValueError, match='there is no partition 10 of "bench-0000"'):
        cluster.command("set", "bench-0000", 10, 0, 1, 1)
    with pytest.raises(ValueError, match='"stop": there is no such command'):
        cluster.command("stop")

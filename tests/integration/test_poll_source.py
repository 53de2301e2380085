"""The poll source in columns, against a fake cluster that answers as it is told."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from exporter.clock import SystemClock
from exporter.domain.polls.readings import ANSWERED, Answers, TopicPartition
from exporter.kafka.poll_source import BrokerPollSource
from exporter.kafka.source import KafkaSource
from tests.fake_cluster import FakeCluster

MOVED = TopicPartition("bench-0001", 4)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """Three brokers, two topics of thirty partitions, and the topic that a cluster with consumer groups has."""
    with FakeCluster(topics=2, partitions=30) as cluster:
        cluster.command("create", "__consumer_offsets", 1)
        yield cluster


class Polled:
    """A poll source, and the rows that it knows."""

    def __init__(self, cluster: FakeCluster, *, worth_batching: int = 1) -> None:
        clock = SystemClock()
        connection = KafkaSource({"bootstrap.servers": cluster.bootstrap}, clock=clock, request_timeout=2.0)
        self.source = BrokerPollSource(connection, clock, worth_batching=worth_batching)

    def ask(self, *, fresh: bool = False, again: bool = False) -> tuple[Answers, Answers]:
        """EARLIEST and LATEST of all partitions, as a poll asks for them; it may read metadata ``again`` meanwhile."""
        membership = self.source.metadata(fresh=fresh).membership
        if again:
            membership = self.source.metadata(fresh=True).membership
        self.rows = np.arange(len(membership.layout))
        return self.source.earliest(self.rows), self.source.latest(self.rows)

    def row(self, key: TopicPartition) -> int:
        row = self.source.metadata(fresh=False).membership.layout.row(key)
        assert row is not None
        return row


@pytest.fixture
def polled(cluster: FakeCluster) -> Iterator[Polled]:
    """A source that asks by a consumer."""
    polled = Polled(cluster)
    yield polled
    polled.source.close()


@pytest.mark.parametrize("spec", ["earliest", "latest"])
def test_a_broker_that_answers_the_two_calls_differently_is_found_out(
    cluster: FakeCluster, polled: Polled, logged_warnings: Callable[[], list[str]], spec: str
) -> None:
    """At the first poll; it is logged once, and from then on the documented call alone is asked."""
    at = {"latest": -1, "earliest": -2}[spec]
    for partition in range(30):
        # The consumer, the documented call, and once more the consumer; then the documented one for all.
        cluster.command("answer", "bench-0000", partition, at, 1, 2, 1, 2)
    polled.ask()
    assert not polled.source.batching
    for partition in range(30):
        cluster.command("answer", "bench-0000", partition, at)
    before = polled.source.lookups()
    _, latest = polled.ask(fresh=True)
    lookups = {spec: count - before[spec] for spec, count in polled.source.lookups().items()}
    assert lookups == {"earliest": 60, "latest": 60}, "nothing is asked twice"
    assert (latest.offset == 3).all()
    [line] = [line for line in logged_warnings() if "offsets_for_times" in line]
    assert f"answers {spec} of partition" in line
    assert "next step" in line


def test_a_record_written_between_two_calls_is_no_difference(cluster: FakeCluster, polled: Polled) -> None:
    """An end offset that is larger at each question proves nothing against either call."""
    for topic in ("bench-0000", "bench-0001"):
        for partition in range(30):
            cluster.command("answer", topic, partition, -1, *range(10, 100))
    for _ in range(4):
        polled.ask()
    assert polled.source.batching


@pytest.mark.parametrize("worth_batching", [1, 1_000_000])
def test_a_partition_whose_leader_moved_is_read_once_metadata_is(cluster: FakeCluster, worth_batching: int) -> None:
    """Until then it alone is not, whichever call asks; its neighbours in the chunk are."""
    polled = Polled(cluster, worth_batching=worth_batching)
    _, latest = polled.ask()
    leader = int(polled.source.metadata(fresh=False).membership.leader[polled.row(MOVED)])
    cluster.command("lead", *MOVED, (leader + 1) % 3)
    for fresh in (False, True):
        _, latest = polled.ask(fresh=fresh)
        unread = np.flatnonzero(latest.reason != ANSWERED)
        assert set(unread) <= (set() if fresh else {polled.row(MOVED)})
    assert latest.epoch[polled.row(MOVED)] == 1
    polled.source.close()


def test_metadata_is_read_anew_after_a_minute(cluster: FakeCluster) -> None:
    """Without being asked for: a topic may have been made. A poll that is some seconds early does not put it off."""

    class Later(SystemClock):
        passed = 0.0

        def monotonic(self) -> float:
            return time.monotonic() + self.passed

    clock = Later()
    connection = KafkaSource({"bootstrap.servers": cluster.bootstrap}, clock=clock)
    source = BrokerPollSource(connection, clock, poll_interval=20.0)
    first = source.metadata(fresh=True)
    cluster.command("create", "new", 2)
    for clock.passed in (20.0, 39.0):
        assert source.metadata(fresh=False) is first
    clock.passed = 58.0
    assert "new" in source.metadata(fresh=False).topics
    source.close()

"""Look-ups of polls, against a fake cluster that answers as it is told."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from exporter.domain.polls.readings import ANSWERED, Answers, TopicPartition
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
    """A source as polls use it."""

    def __init__(self, cluster: FakeCluster, *, worth_batching: int = 1) -> None:
        self.source = KafkaSource(
            {"bootstrap.servers": cluster.bootstrap}, request_timeout=2.0, worth_batching=worth_batching
        )
        self.membership = self.source.metadata().membership

    def ask(self, *, fresh: bool = False) -> tuple[Answers, Answers]:
        """EARLIEST and LATEST of all partitions, as a poll asks for them."""
        if fresh:
            self.membership = self.source.metadata().membership
        return self.source.starts(self.membership), self.source.ends(self.membership)

    def row(self, key: TopicPartition) -> int:
        row = self.membership.layout.row(key)
        assert row is not None
        return row


@pytest.mark.parametrize("spec", ["earliest", "latest"])
def test_a_broker_that_answers_the_two_calls_differently_is_found_out(
    cluster: FakeCluster, logged_warnings: Callable[[], list[str]], spec: str
) -> None:
    """When the consumer is made; it is logged once, and from then on the documented call alone is asked."""
    at = {"latest": -1, "earliest": -2}[spec]
    for partition in range(30):
        # The documented call, the consumer, and once more the documented call; then the documented one for all.
        cluster.command("answer", "bench-0000", partition, at, 2, 1, 2)
    polled = Polled(cluster)
    assert polled.source.batched.consumer is None
    for partition in range(30):
        cluster.command("answer", "bench-0000", partition, at)
    before = polled.source.lookups()
    _, latest = polled.ask(fresh=True)
    lookups = {spec: count - before.get(spec, 0) for spec, count in polled.source.lookups().items()}
    assert lookups == {"earliest": 60, "latest": 60}, "nothing is asked twice"
    assert (latest.offset == 3).all()
    [line] = [line for line in logged_warnings() if "offsets_for_times" in line]
    assert f"answers {spec} of partition" in line
    assert "next step" in line
    polled.source.close()


def test_a_record_written_between_two_calls_is_no_difference(cluster: FakeCluster) -> None:
    """An end offset that is larger at each question proves nothing against either call."""
    for topic in ("bench-0000", "bench-0001"):
        for partition in range(30):
            cluster.command("answer", topic, partition, -1, *range(10, 100))
    polled = Polled(cluster)
    assert polled.source.batched.consumer is not None
    polled.source.close()


@pytest.mark.parametrize("worth_batching", [1, 1_000_000])
def test_a_partition_whose_leader_moved_is_read_once_metadata_is(cluster: FakeCluster, worth_batching: int) -> None:
    """Until then it alone is not, whichever call asks; its neighbours in the chunk are.

    A look-up by time reads who leads for itself.
    """
    polled = Polled(cluster, worth_batching=worth_batching)
    _, latest = polled.ask()
    leader = int(polled.membership.leader[polled.row(MOVED)])
    cluster.command("lead", *MOVED, (leader + 1) % 3)
    moved = np.array([polled.row(MOVED)])
    assert polled.source.look_up_times(polled.membership, moved, np.zeros(1, np.int64)).found.all()
    for fresh in (False, True):
        _, latest = polled.ask(fresh=fresh)
        unread = np.flatnonzero(latest.reason != ANSWERED)
        assert set(unread) <= (set() if fresh else {polled.row(MOVED)})
    assert latest.epoch[polled.row(MOVED)] == 1
    polled.source.close()

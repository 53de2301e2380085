"""The poll source in columns, against a fake cluster that answers as it is told."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from exporter.clock import SystemClock
from exporter.domain.polls.readings import ANSWERED, Answers, Reason, TopicPartition, reason_code
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


@pytest.mark.parametrize("rows", [[1, 1], [2, 1]])
def test_a_row_is_asked_for_once(polled: Polled, rows: list[int]) -> None:
    """Neither call would say so: one drops the second of two equal partitions, the other mixes up their answers."""
    polled.source.metadata(fresh=False)
    with pytest.raises(ValueError, match="without repetition"):
        polled.source.latest(np.array(rows))


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


@pytest.mark.parametrize("worth_batching", [1, 1_000_000])
def test_a_silent_leader_is_not_asked_about_its_other_chunks(
    cluster: FakeCluster, worth_batching: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four chunks each: after one that got no answer, those that are not under way are not asked."""
    monkeypatch.setattr("exporter.kafka.list_offsets.CHUNK_SIZE", 5)
    polled = Polled(cluster, worth_batching=worth_batching)
    polled.ask()
    before = polled.source.lookups()
    process = cluster._process.pid  # noqa: SLF001 - to stop what answers
    os.kill(process, signal.SIGSTOP)
    os.waitid(os.P_PID, process, os.WSTOPPED | os.WNOWAIT)  # until then it answers
    try:
        latest = polled.source.latest(polled.rows)
    finally:
        os.kill(process, signal.SIGCONT)
    gone = [reason_code(reason) for reason in (Reason.TIMED_OUT, Reason.LEADER_UNREACHABLE)]
    assert np.isin(latest.reason, gone).all()
    assert polled.source.lookups()["latest"] - before["latest"] < len(polled.rows)


@pytest.mark.parametrize(
    ("interval", "reused_at", "read_at"),
    [
        (30.0, [31.0], 59.0),
        (20.0, [20.0, 39.0], 58.0),
        (5.0, [5.0 * poll for poll in range(1, 12)], 59.0),
    ],
)
def test_metadata_is_read_anew_after_a_minute(
    cluster: FakeCluster, interval: float, reused_at: Sequence[float], read_at: float
) -> None:
    """Without being asked for: a topic may have been made. A poll that is some seconds early does not put it off."""

    class Later(SystemClock):
        passed = 0.0

        def monotonic(self) -> float:
            return time.monotonic() + self.passed

    clock = Later()
    connection = KafkaSource({"bootstrap.servers": cluster.bootstrap}, clock=clock)
    source = BrokerPollSource(connection, clock, poll_interval=interval)
    first = source.metadata(fresh=True)
    cluster.command("create", "new", 2)
    for clock.passed in reused_at:
        assert source.metadata(fresh=False) is first
    clock.passed = read_at
    assert "new" in source.metadata(fresh=False).topics
    source.close()

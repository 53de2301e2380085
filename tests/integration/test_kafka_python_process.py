"""kafka-python in a client process: what happens to it costs some answers of one round, and the next one is good."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from exporter.domain.polls.layout import Layout
from exporter.domain.polls.readings import Answer, Reason, TopicPartition
from exporter.domain.ports import SourceError
from exporter.kafka.kafka_python_answers import EARLIEST_LOCAL, KafkaPythonError
from exporter.kafka.process import LOG_SIZES, TIERS, ClientProcess, RemoteClient, Restart
from tests.fake_cluster import FakeCluster
from tests.times import tier_of

KEY = TopicPartition("bench-0000", 0)
THERE = Layout.of({KEY.topic: [KEY.partition]})


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    """One broker, two topics of two partitions."""
    with FakeCluster(topics=2, partitions=2, brokers=1) as cluster:
        yield cluster


class Rounds:
    """A process, why it was replaced, and rounds of requests through it."""

    def __init__(self, bootstrap: str, *, limit: float = 30.0, **options: Any) -> None:
        self.restarts: list[Restart] = []
        self.process = ClientProcess("east", self.restarts.append, **options)
        self._settings: dict[str, Any] = {
            "properties": {"bootstrap.servers": bootstrap, "linger.ms": "5"},
            "request_timeout": 2.0,
        }
        self._limit = limit

    def tiers(self) -> RemoteClient:
        """The client of a round about tiers."""
        return RemoteClient(self.process, TIERS, limit=self._limit, **self._settings)

    def inspections(self) -> RemoteClient:
        """The client of an inspection."""
        return RemoteClient(self.process, LOG_SIZES, limit=self._limit, **self._settings)

    def good(self) -> bool:
        """Whether a round is."""
        try:
            with self.tiers() as client:
                return tier_of(client, EARLIEST_LOCAL, KEY, 0) == Answer(0)
        except (KafkaPythonError, SourceError):
            return False


@pytest.fixture
def rounds(cluster: FakeCluster) -> Iterator[Rounds]:
    """Rounds through a process that waits 30 s for an answer."""
    rounds = Rounds(cluster.bootstrap)
    yield rounds
    rounds.process.close()


def test_answers_and_ignored_properties_come_through(rounds: Rounds) -> None:
    """As from a client in the same process, for each round anew."""
    for _ in range(2):
        with rounds.tiers() as tiers:
            assert tier_of(tiers, EARLIEST_LOCAL, KEY, 0) == Answer(0)
            assert tiers.left_out() == ("linger.ms",)
    with rounds.inspections() as inspections:
        sizes = inspections.log_sizes(THERE, 0)
        assert not isinstance(sizes, Reason) and sizes.log.known.tolist() == [True] and sizes.log.value.tolist() == [0]
    assert rounds.restarts == []


def test_the_end_of_the_process_costs_a_round_nothing(rounds: Rounds) -> None:
    """Another process connects, and answers; the end is counted."""
    with rounds.tiers() as tiers, rounds.inspections() as inspections:
        assert tier_of(tiers, EARLIEST_LOCAL, KEY, 0) == Answer(0)
        assert rounds.process.pid is not None
        os.kill(rounds.process.pid, signal.SIGABRT)
        assert tier_of(tiers, EARLIEST_LOCAL, KEY, 0) == Answer(0)
        assert not isinstance(inspections.log_sizes(THERE, 0), Reason)
    assert rounds.restarts == [Restart.ENDED]


def test_a_round_that_cannot_connect_says_why(logged_warnings: Callable[[], list[str]]) -> None:
    """In the words of the client, which name the next step; the process is well."""
    rounds = Rounds("127.0.0.1:9")
    with pytest.raises(KafkaPythonError, match=r"kafka-python got no answer from 127\.0\.0\.1:9 .*next step") as error:
        rounds.tiers().left_out()
    assert str(error.value) == error.value.detail
    assert rounds.restarts == []
    assert not [line for line in logged_warnings() if "internal error" in line or "Traceback" in line]
    rounds.process.close()

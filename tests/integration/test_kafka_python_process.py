"""kafka-python in a client process: what happens to it costs some answers of one round, and the next one is good."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter.domain import Answer, Reason, TopicPartition
from exporter.domain.polls.answers import ANSWERED, reason_code
from exporter.domain.polls.layout import Layout
from exporter.kafka import (
    EARLIEST_LOCAL,
    ClientProcess,
    KafkaPythonError,
    RemoteInspections,
    RemoteTiers,
    Restart,
)
from tests.bench.fake_cluster import FakeCluster
from tests.integration.secured import await_that
from tests.integration.serving import Exporter, until
from tests.integration.test_client_restarts import polls, restarts
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

    def __init__(self, bootstrap: str, *, patience: float = 30.0, **options: Any) -> None:
        self.restarts: list[Restart] = []
        self.process = ClientProcess("the client", on_restart=self.restarts.append, **options)
        self._settings: dict[str, Any] = {
            "properties": {"bootstrap.servers": bootstrap, "linger.ms": "5"},
            "request_timeout": 2.0,
        }
        self._patience = patience

    def tiers(self) -> RemoteTiers:
        """Connect for a round about tiers."""
        return RemoteTiers(self.process, "tiers", patience=self._patience, **self._settings)

    def inspections(self) -> RemoteInspections:
        """Connect for an inspection."""
        return RemoteInspections(
            self.process, "inspection", patience=self._patience, lookups_per_second=1000.0, **self._settings
        )

    def good(self) -> bool:
        """Whether a round is."""
        try:
            with self.tiers() as client:
                return tier_of(client, EARLIEST_LOCAL, KEY, 0) == Answer(0)
        except KafkaPythonError:
            return False


@pytest.fixture
def rounds(cluster: FakeCluster) -> Iterator[Rounds]:
    """Rounds through a process that waits 30 s for an answer."""
    rounds = Rounds(cluster.bootstrap)
    yield rounds
    rounds.process.close()


def test_answers_counts_and_ignored_properties_come_through(rounds: Rounds) -> None:
    """As from a client in the same process, for each round anew."""
    for _ in range(2):
        with rounds.tiers() as tiers:
            assert tier_of(tiers, EARLIEST_LOCAL, KEY, 0) == Answer(0)
            assert (tiers.counts, tiers.left_out) == ({EARLIEST_LOCAL: 1}, ("linger.ms",))
    with rounds.inspections() as inspections:
        producers = inspections.producers(Layout.of({KEY.topic: [KEY.partition, 9]}), 0)
        assert producers.reason.tolist() == [ANSWERED, reason_code(Reason.UNKNOWN_TOPIC)] and not len(producers.found)
        sizes = inspections.log_sizes(THERE, 0)
        assert not isinstance(sizes, Reason) and sizes.log.known.tolist() == [True] and sizes.log.value.tolist() == [0]
        assert inspections.counts == {"producers": 2, "log-dirs": 1}
    assert rounds.restarts == []


def test_the_end_of_the_process_costs_answers_of_one_round(rounds: Rounds) -> None:
    """They say why, the end is counted, and so is what was asked before."""
    with rounds.tiers() as tiers, rounds.inspections() as inspections:
        assert tier_of(tiers, EARLIEST_LOCAL, KEY, 0) == Answer(0)
        assert rounds.process.pid is not None
        os.kill(rounds.process.pid, signal.SIGABRT)
        await_that(lambda: bool(rounds.restarts), "the end is noticed")
        assert tier_of(tiers, EARLIEST_LOCAL, KEY, 0) == Answer(reason=Reason.CLIENT_FAILED)
        assert inspections.producers(THERE, 0).failure is Reason.CLIENT_FAILED
        assert inspections.log_sizes(THERE, 0) is Reason.CLIENT_FAILED
        assert not len(inspections.partitions(THERE).layout)
        assert tiers.counts == {EARLIEST_LOCAL: 1}
        time.sleep(2)  # a new process may start: the rest of the round is asked through it
        assert tier_of(tiers, EARLIEST_LOCAL, KEY, 0) == Answer(0)
        assert tiers.counts == {EARLIEST_LOCAL: 2}
    assert rounds.good()
    assert rounds.restarts == [Restart.ENDED]


def test_one_that_hangs_is_ended(cluster: FakeCluster) -> None:
    """Past the longest that a call may take; a later round is good."""
    rounds = Rounds(cluster.bootstrap, patience=1.0)
    assert rounds.good()
    assert rounds.process.pid is not None
    with rounds.tiers() as tiers:
        os.kill(rounds.process.pid, signal.SIGSTOP)
        assert tier_of(tiers, EARLIEST_LOCAL, KEY, 0) == Answer(reason=Reason.CLIENT_FAILED)
    assert rounds.restarts == [Restart.HUNG]
    await_that(rounds.good, "a round is good again")
    rounds.process.close()


def test_one_that_leaks_is_replaced_between_two_rounds(cluster: FakeCluster) -> None:
    """At no cost."""
    rounds = Rounds(cluster.bootstrap, growth_bytes=-1)
    assert [rounds.good() for _ in range(3)] == [True] * 3
    assert rounds.restarts == [Restart.MEMORY] * 2
    rounds.process.close()


def test_a_round_that_cannot_connect_says_why(logged_warnings: Callable[[], list[str]]) -> None:
    """In the words of the client, which name the next step; the process is well."""
    rounds = Rounds("127.0.0.1:9")
    with pytest.raises(KafkaPythonError, match=r"kafka-python got no answer from 127\.0\.0\.1:9 .*next step") as error:
        rounds.tiers()
    assert str(error.value) == error.value.detail
    assert rounds.restarts == []
    assert not [line for line in logged_warnings() if "internal error" in line or "Traceback" in line]
    rounds.process.close()


@pytest.mark.usefixtures("without_kafka_python")
def test_without_the_extra_it_says_how_to_get_it(cluster: FakeCluster) -> None:
    """Wherever the client runs."""
    rounds = Rounds(cluster.bootstrap)
    with pytest.raises(KafkaPythonError, match=r"pip install 'topic-liveness\[kafka-python\]'"):
        rounds.inspections()
    rounds.process.close()


def test_inspections_of_a_served_exporter_run_in_the_second_process(cluster: FakeCluster, tmp_path: Path) -> None:
    """Without groups they alone need it. Its end is counted and costs no poll, and inspections go on."""
    environment = {
        "TOPIC_LIVENESS_GROUPS__ENABLED": "false",
        "TOPIC_LIVENESS_INSPECTION__LOG_SIZES": "true",
        "TOPIC_LIVENESS_INSPECTION__INTERVAL": "5s",
    }
    with Exporter(tmp_path, cluster.bootstrap, **environment) as exporter:

        def inspected() -> float:
            return exporter.value("topic_liveness_inspection_timestamp_seconds") or 0.0

        until(lambda: inspected() > 0, "an inspection")
        [name] = {sample.labels["kafka_cluster"] for sample in exporter.samples() if "kafka_cluster" in sample.labels}
        assert len(exporter.clients()) == 2
        os.kill(exporter.clients()[1], signal.SIGABRT)
        until(lambda: restarts(exporter, name)["ended"] == 1, "the end is counted")
        before = inspected()
        until(lambda: inspected() > before, "another inspection")
        assert polls(exporter, name, "client-failed") == 0
        assert exporter.end() == 0

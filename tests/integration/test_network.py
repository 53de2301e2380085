"""A broker behind a network that is slow, forgets idle connections, or leads to another cluster (Kafka 4.3.1)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from exporter.domain.polls.readings import TopicPartition
from exporter.domain.polls.table import Snapshot
from exporter.kafka import client
from tests.demo.broker import Broker
from tests.integration.serving import Exporter
from tests.integration.sweeping import commit
from tests.integration.watch import Watch
from tests.trio import Wire
from tests.views import readings_of
from tests.waiting import until
from tests.workbench import Workbench

CHANGED = "topic_liveness_cluster_changed_timestamp_seconds"
ADVANCED = "kafka_topic_partition_last_advance_timestamp_seconds"
SLOW = "polls take longer than poll.interval"


@pytest.fixture(scope="module")
def behind(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Wire, Broker]]:
    """A broker that clients reach through a wire alone, with a topic and a group."""
    broker = Broker(tmp_path_factory.mktemp("behind"), jars=kafka_jars)
    wire = Wire(broker.bootstrap)
    broker.properties["advertised.listeners"] = f"PLAINTEXT://{wire.address}"
    with broker:
        bench = Workbench(wire.address)
        bench.create("orders")
        bench.write([("orders", 0, time.time())] * 3)
        commit(bench.bootstrap, "readers", {"orders": 1})
        yield wire, broker
    wire.close()


def test_connections_that_a_firewall_forgot_cost_one_retry(
    behind: tuple[Wire, Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first request after a pause gets no answer; the next one goes through a fresh connection, and all is read."""
    wire, _ = behind
    monkeypatch.setattr(client, "_IDLE_SECONDS", 1.0)
    key = TopicPartition("orders", 0)
    watch = Watch(wire.address, ["orders"], timeout=3.0)
    with closing(watch.source) as source:
        wire.forgets_after = 1.5
        for pause in (0.0, 3.0, 3.0):
            time.sleep(pause)
            began = time.monotonic()
            snapshot = watch.attempt()
            assert isinstance(snapshot, Snapshot), snapshot
            assert readings_of(snapshot)[key].reason is None
            listed = source.groups.list_groups()
            assert (set(listed.names), len(listed.unlisted)) == ({"readers"}, 0)
            assert source.groups.read_committed(["readers"]).failed == {}
            time.sleep(pause)
            listed = source.groups.list_groups()
            assert (set(listed.names), len(listed.unlisted)) == ({"readers"}, 0)
            assert time.monotonic() - began < 2 * pause + 20
        wire.forgets_after = float("inf")


def test_polls_that_outlast_their_interval_are_named(behind: tuple[Wire, Broker], tmp_path: Path) -> None:
    """On the page and in the log, until they are quick again; nothing is lost but their number."""
    wire, _ = behind
    with Exporter(tmp_path, wire.address, TOPIC_LIVENESS_POLL__REQUEST_TIMEOUT="8s") as exporter:
        until(lambda: exporter.value("topic_liveness_cluster_up") == 1, "a poll")
        assert SLOW not in exporter.page("/").text
        wire.delay = 2.0
        until(lambda: SLOW in exporter.page("/").text, "a slow poll")
        assert f"{SLOW} (5 s)" in exporter.log.read_text()
        assert exporter.value("topic_liveness_cluster_up") == 1
        wire.delay = 0.0
        until(lambda: SLOW not in exporter.page("/").text, "a quick poll")
        assert exporter.end() == 0, exporter.log.read_text()
    said = exporter.log.read_text()
    assert said.count(f"{SLOW} (5 s)") == 2, "begun and resolved"
    assert "maximum number of running instances" not in said

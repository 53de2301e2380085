"""A broker behind a network that is slow, forgets idle connections, or leads to another cluster (Kafka 4.3.1)."""

import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
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


def test_another_cluster_at_the_same_address_is_said_and_invents_no_advance(
    behind: tuple[Wire, Broker], kafka_jars: Path, tmp_path: Path
) -> None:
    """While the exporter runs, and after a restart; records of the other cluster are no advances of this one."""
    wire, first = behind
    second = Broker(tmp_path / "second", jars=kafka_jars)
    second.properties["advertised.listeners"] = f"PLAINTEXT://{wire.address}"
    settings = {"TOPIC_LIVENESS_METRICS__PARTITION": "[current_offset, last_advance_timestamp]"}

    def shown(exporter: Exporter, records: int) -> bool:
        """Whether one scrape shows so many records; none shows an advance, for nothing is written any more."""
        seen = {one.name: one.value for one in exporter.samples() if one.labels.get("topic") in (None, "orders")}
        assert ADVANCED not in seen, seen[ADVANCED]
        found = seen.get("kafka_topic_partition_current_offset") == records
        assert not found or records == 3 or CHANGED in seen, "the other cluster is shown, and not said"
        return found

    wire.lead_to(second.bootstrap)
    with second:
        bench = Workbench(second.bootstrap)
        bench.create("orders")
        bench.write([("orders", 0, time.time())] * 5)
        wire.lead_to(first.bootstrap)
        with Exporter(tmp_path, wire.address, **settings) as exporter:
            until(lambda: shown(exporter, 3), "the first cluster")
            assert exporter.value(CHANGED) is None
            for broker, records in [(second, 5), (first, 3), (second, 5)]:
                # A poll that reads metadata, with the cluster's id, is followed by one that does not.
                wire.lead_to(broker.bootstrap)
                until(partial(shown, exporter, records), "the other cluster")
            said = f"its id was {first.cluster_id} and is {second.cluster_id}"
            for where in (exporter.page("/-/ready").text, exporter.page("/").text, exporter.log.read_text()):
                assert said in where
            assert exporter.end() == 0, exporter.log.read_text()
        wire.lead_to(first.bootstrap)
        with Exporter(tmp_path, wire.address, **settings) as again:
            until(lambda: shown(again, 3), "the first cluster again")
            assert again.value(CHANGED) is not None
            assert f"its id was {second.cluster_id} and is {first.cluster_id}" in again.log.read_text()
            assert again.end() == 0, again.log.read_text()

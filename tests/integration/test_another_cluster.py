"""Two real clusters, one after the other, behind one address: a moved bootstrap."""

from __future__ import annotations

import time
from pathlib import Path

from tests.demo.broker import Broker
from tests.integration.serving import Exporter, until
from tests.workbench import Workbench

CHANGED = "topic_liveness_cluster_changed_timestamp_seconds"


def test_another_cluster_at_the_same_address_is_said_and_invents_no_advance(tmp_path: Path, kafka_jars: Path) -> None:
    """While the exporter runs, and after a restart; records of the other cluster are no advances of this one."""
    first = Broker(tmp_path / "first", jars=kafka_jars)
    same = {name: first.properties[name] for name in ("listeners", "controller.quorum.voters")}
    second = Broker(tmp_path / "second", jars=kafka_jars, properties=same)
    settings = {"TOPIC_LIVENESS_METRICS__PARTITION": "[current_offset, last_advance_timestamp]"}

    def end_offset(exporter: Exporter) -> float | None:
        return exporter.value("kafka_topic_partition_current_offset", topic="orders")

    def fill(broker: Broker, records: int) -> None:
        bench = Workbench(broker.bootstrap)
        bench.create("orders")
        bench.write([("orders", 0, time.time())] * records)

    with second:
        fill(second, 5)  # before any exporter polls: what it sees written is an advance
    with first, Exporter(tmp_path, first.bootstrap, **settings) as exporter:
        fill(first, 1)
        until(lambda: end_offset(exporter) == 1, "the first cluster")
        assert exporter.value(CHANGED) is None
        first.stop()
        with second:
            # Metadata, which has the id, is read every other poll.
            until(lambda: end_offset(exporter) == 5 and exporter.value(CHANGED) is not None, "the second cluster", 180)
            assert exporter.value("kafka_topic_partition_last_advance_timestamp_seconds", topic="orders") is None
            assert exporter.value("topic_liveness_cluster_info", cluster_id=second.cluster_id) == 1
            said = f"its id was {first.cluster_id} and is {second.cluster_id}"
            assert said in exporter.page("/-/ready").text
            assert said in exporter.page("/").text
            assert said in exporter.log.read_text()
            assert exporter.end() == 0, exporter.log.read_text()
            second.stop()
        first.start()
        with Exporter(tmp_path, first.bootstrap, **settings) as again:
            until(lambda: end_offset(again) == 1, "the first cluster again")
            assert again.value(CHANGED) is not None
            assert again.value("kafka_topic_partition_last_advance_timestamp_seconds", topic="orders") is None
            assert f"its id was {second.cluster_id} and is {first.cluster_id}" in again.log.read_text()
            assert again.end() == 0, again.log.read_text()

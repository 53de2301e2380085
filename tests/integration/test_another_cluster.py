"""Two real clusters behind one address, which leads to one of them at a time: a moved bootstrap."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

from tests.demo.broker import Broker
from tests.integration.serving import Exporter, until
from tests.trio import Wire
from tests.workbench import Workbench

CHANGED = "topic_liveness_cluster_changed_timestamp_seconds"
ADVANCED = "kafka_topic_partition_last_advance_timestamp_seconds"


def test_another_cluster_at_the_same_address_is_said_and_invents_no_advance(tmp_path: Path, kafka_jars: Path) -> None:
    """While the exporter runs, and after a restart; records of the other cluster are no advances of this one."""
    first, second = (Broker(tmp_path / name, jars=kafka_jars) for name in ("first", "second"))
    wire = Wire(first.bootstrap)
    settings = {"TOPIC_LIVENESS_METRICS__PARTITION": "[current_offset, last_advance_timestamp]"}

    def fill(broker: Broker, records: int) -> None:
        broker.properties["advertised.listeners"] = f"PLAINTEXT://{wire.address}"
        wire.lead_to(broker.bootstrap)
        broker.start()
        bench = Workbench(broker.bootstrap)
        bench.create("orders")
        bench.write([("orders", 0, time.time())] * records)

    def shown(exporter: Exporter, records: int) -> bool:
        """Whether one scrape shows so many records; none shows an advance, for nothing is written any more."""
        seen = {one.name: one.value for one in exporter.samples() if one.labels.get("topic") in (None, "orders")}
        assert ADVANCED not in seen, seen[ADVANCED]
        found = seen.get("kafka_topic_partition_current_offset") == records
        assert not found or records == 1 or CHANGED in seen, "the other cluster is shown, and not said"
        return found

    try:
        fill(first, 1)
        fill(second, 5)
        wire.lead_to(first.bootstrap)
        with Exporter(tmp_path, wire.address, **settings) as exporter:
            until(lambda: shown(exporter, 1), "the first cluster")
            assert exporter.value(CHANGED) is None
            for broker, records in [(second, 5), (first, 1), (second, 5)]:
                # A poll that reads metadata, with the cluster's id, is followed by one that does not.
                wire.lead_to(broker.bootstrap)
                until(partial(shown, exporter, records), "the other cluster")
            said = f"its id was {first.cluster_id} and is {second.cluster_id}"
            assert said in exporter.page("/-/ready").text
            assert said in exporter.page("/").text
            assert said in exporter.log.read_text()
            assert exporter.end() == 0, exporter.log.read_text()
        wire.lead_to(first.bootstrap)
        with Exporter(tmp_path, wire.address, **settings) as again:
            until(lambda: shown(again, 1), "the first cluster again")
            assert again.value(CHANGED) is not None
            assert f"its id was {second.cluster_id} and is {first.cluster_id}" in again.log.read_text()
            assert again.end() == 0, again.log.read_text()
    finally:
        first.stop()
        second.stop()
        wire.close()

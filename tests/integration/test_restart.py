"""A silence outlives an exporter that is killed."""

import time
from pathlib import Path

from tests.demo.broker import Broker
from tests.integration.serving import Exporter
from tests.waiting import until
from tests.workbench import Workbench


def test_kills_change_no_silence_and_delay_no_death(tmp_path: Path, broker: Broker) -> None:
    topic, limit = f"killed-{time.time_ns()}", 60.0
    Workbench(broker.bootstrap).create(topic)
    overrides = f"[{{topics: {topic}, max_silence: {limit:g}s}}]"
    settings = {"TOPIC_LIVENESS_HISTORY__WINDOW": "5s", "TOPIC_LIVENESS_OVERRIDES": overrides}
    advances = list[float | None]()

    def last_advance(exporter: Exporter) -> float | None:
        return exporter.value("kafka_topic_last_advance_timestamp_seconds", topic=topic)

    for number, seconds in enumerate((8.0, 0.0, 4.0, 7.5)):
        with Exporter(tmp_path, broker.bootstrap, **settings) as running:
            until(lambda: running.value("topic_liveness_cluster_up") == 1, "a poll")
            if number == 0:
                Workbench(broker.bootstrap).write([(topic, 0, time.time())])
                until(lambda: last_advance(running) is not None, "the advance")
            advances.append(last_advance(running))
            time.sleep(seconds)
            running.process.kill()
    with Exporter(tmp_path, broker.bootstrap, **settings) as running:
        until(lambda: running.value("kafka_topic_verdict", topic=topic, verdict="dead") == 1, "the death", 120)
        found = time.time()
        assert running.end() == 0
    assert advances[0] is not None
    assert set(advances) == {advances[0]}
    assert advances[0] + limit < found < advances[0] + limit + 15

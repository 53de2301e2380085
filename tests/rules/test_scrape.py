"""A real Prometheus scrapes the real server: it reads the whole, compressed and as OpenMetrics."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from exporter.domain.polls.readings import State, TopicPartition
from exporter.state.cluster import MonitorSettings, Rhythm
from exporter.state.monitor import Monitor
from exporter.web.server import WebServer
from tests.prometheus import scraping
from tests.snapshots import snapshot_of
from tests.unit.readings import ManualClock
from tests.views import Activity, Reading

TOPICS, PARTITIONS = 50, 200


class MonitorWithFormats(Monitor):
    """A monitor that notes in which formats it was scraped."""

    def scrape(self, *, openmetrics: bool = False, zipped: bool = False) -> Sequence[bytes]:
        self.formats = (openmetrics, zipped)
        return super().scrape(openmetrics=openmetrics, zipped=zipped)


def test_prometheus_reads_the_whole_exposition(tmp_path: Path) -> None:
    """10,000 partitions in many blocks arrive with every value, their types and their units."""
    clock = ManualClock(time.time())
    observed = Reading(State.OBSERVED, Activity(clock.time, polls_good=1), 1, 0, 0, clock.time - 60)
    keys = [TopicPartition(f"topic-{topic}", number) for topic in range(TOPICS) for number in range(PARTITIONS)]
    monitor = MonitorWithFormats(
        MonitorSettings(
            {"prod": Rhythm(1e6)},
            partition_switches=["current_offset", "staleness"],
            expectations_max_age_seconds=1.0,
        ),
        clock,
        version="0",
    )
    readings = {key: replace(observed, latest=offset) for offset, key in enumerate(keys, start=1)}
    monitor.accept(snapshot_of(readings, taken_at=clock.time))
    server = WebServer("127.0.0.1:0", monitor)
    server.start()
    try:
        found = answers_of_prometheus(server.address, tmp_path)
    finally:
        server.stop()
    count = TOPICS * PARTITIONS
    assert monitor.formats == (True, True)
    assert found["count(kafka_topic_partition_current_offset)"] == count
    assert found["sum(kafka_topic_partition_current_offset)"] == count * (count + 1) / 2
    assert found["min(kafka_topic_partition_staleness_seconds)"] == 60
    assert found["max(kafka_topic_partition_staleness_seconds)"] == 60
    assert found["count(kafka_topic_records_total)"] == TOPICS
    assert found["kafka_topic_records"] == ("counter", "")
    assert found["kafka_topic_staleness_seconds"] == ("gauge", "seconds")


def answers_of_prometheus(address: str, folder: Path) -> dict[str, Any]:
    """Let a Prometheus scrape the address once and return its answers: to queries, and of metadata."""
    with scraping(address, folder) as ask:

        def value(query: str) -> float | None:
            rows = ask("query", query=query)["result"]
            return float(rows[0]["value"][1]) if rows else None

        found: dict[str, Any] = {
            f"{what}({metric})": value(f"{what}({metric})")
            for what, metric in (
                ("count", "kafka_topic_partition_current_offset"),
                ("sum", "kafka_topic_partition_current_offset"),
                ("min", "kafka_topic_partition_staleness_seconds"),
                ("max", "kafka_topic_partition_staleness_seconds"),
                ("count", "kafka_topic_records_total"),
            )
        }
        for row in ask("targets/metadata"):
            found[row["metric"]] = (row["type"], row["unit"])
        return found

"""A silence outlives the exporter: what was published before it started is judged by the broker's offsets."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from exporter.domain.polls.cluster_state import STATE_COLUMNS, ClusterState
from exporter.domain.polls.layout import Layout
from exporter.history.cluster_states import HistoryProgress, state_file, write_state
from tests.demo.broker import Broker
from tests.integration.serving import Exporter
from tests.unit.expectations import HOUR, by_clock, publish
from tests.waiting import until
from tests.workbench import Workbench


def test_a_silence_by_the_traffic_clock_survives_a_restart_and_none_is_invented(tmp_path: Path, broker: Broker) -> None:
    """Equal offsets carry the published advance over: held, then dead; a moved one is not; a record revives."""
    topic = f"restart-{time.time_ns()}"
    workbench = Workbench(broker.bootstrap)
    workbench.create(topic, 3)
    now = time.time()
    workbench.write((topic, number, now - 50 * HOUR) for number in (0, 1, 1, 2, 2))
    rows = [
        by_clock(
            [1.0] * 168,
            cluster="default",
            topic=topic,
            topic_id=None,
            partition=partition,
            as_of=now - HOUR,
            end_offset=1,
            last_advance=now - 50 * HOUR,
            clock_step=1.0,
        )
        for partition in (0, 1, 2)
    ]
    publish(tmp_path / "history", *rows)
    state = ClusterState(
        None,
        None,
        now - 39 * HOUR,
        None,
        Layout.build({topic: [2]}),
        [None],
        {name: np.zeros(1) for name in STATE_COLUMNS}
        | {"state": np.zeros(1, np.int8), "latest": np.array([2]), "last_good_poll": np.array([now - 39 * HOUR])}
        | {name: np.array([now - 40 * HOUR]) for name in ("last_advance", "silent_since", "advanced_after")},
    )
    path = state_file(tmp_path / "history", "default", "exporter-a")
    write_state(path, state, HistoryProgress(0.0, 0.0))
    with Exporter(tmp_path, broker.bootstrap) as running:

        def verdict(partition: int) -> str | None:
            labels = {"topic": topic, "partition": str(partition)}
            known = ("held", "suspect", "dead")
            name = "kafka_topic_partition_verdict"
            return next((one for one in known if running.value(name, **labels, verdict=one) == 1), None)

        seen = list[str | None]()

        def found_dead() -> bool:
            seen.append(verdict(0))
            return seen[-1] == "dead"

        until(found_dead, "the silence found dead")
        assert "held" in seen, "the first polls after a start are no news"
        assert "suspect" not in seen
        expected = running.value("kafka_topic_partition_expected_by_timestamp_seconds", topic=topic, partition="0")
        assert expected is not None
        assert now - 50 * HOUR < expected < now
        assert verdict(1) is None, "its end offset moved since: it advanced unseen"
        assert verdict(2) == "dead", "its end offset moved since, and history tells when"
        workbench.write([(topic, 0, time.time())])
        until(lambda: verdict(0) is None, "the record that revives it")
        assert running.end() == 0, running.log.read_text()

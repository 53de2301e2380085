"""`topic-liveness backfill` as a process that is killed, interrupted, run again, and run beside the exporter."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka.admin import NewTopic

from tests.demo.broker import Broker, free_port
from tests.integration.serving import Exporter, until
from tests.workbench import EVERLASTING, Workbench

HOUR = 3600.0
PARTITIONS = 60
RECORDS = 20
Row = dict[str, Any]


class Backfill:
    """`topic-liveness backfill` of some topics, into one history folder, as often as a test wants it."""

    def __init__(
        self, folder: Path, bootstrap: str, include: str, *, lookups_per_second: int = 2000, **settings: str
    ) -> None:
        self.history = folder / "history"
        self.config = folder / "backfill.yaml"
        self.config.write_text(
            f"clusters: [{{name: default, kafka: {{bootstrap.servers: '{bootstrap}'}}, "
            f"topics: {{include: ['{include}']}}}}]\n"
            f"history: {{folder: '{self.history}'}}\n"
            "poll: {request_timeout: 3s}\n"
        )
        rate = {"TOPIC_LIVENESS_LOOKUPS_PER_SECOND": str(lookups_per_second)}
        self._settings = rate | {f"TOPIC_LIVENESS_BACKFILL__{name.upper()}": value for name, value in settings.items()}

    def start(self, *options: str) -> subprocess.Popen[str]:
        """Start a run."""
        return subprocess.Popen(
            [sys.executable, "-m", "exporter", "backfill", "--config", str(self.config), *options],
            env={**os.environ, **self._settings},
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *options: str, code: int = 0) -> str:
        """Run to the end, insist on the exit code, and return its standard error."""
        with self.start(*options) as running:
            _, output = running.communicate(timeout=120)
        assert running.returncode == code, output
        return output

    def windows(self) -> dict[tuple[str, int], list[Row]]:
        """All windows in the spool by topic and partition, in order of time; keys must be unique."""
        found: dict[tuple[str, int], list[Row]] = defaultdict(list)
        for row in self.rows("windows"):
            found[row["topic"], row["partition"]].append(row)
        for rows in found.values():
            rows.sort(key=lambda row: (row["window_start"], row["source"]))
            keys = [(row["topic_id"], row["window_start"], row["source"]) for row in rows]
            assert len(set(keys)) == len(keys)
        return found

    def polled(self) -> set[str]:
        """The topics of which a poll that read something is in the spool."""
        return {
            row["topic"]
            for row in self.rows("inventory")
            if row["source"] == "poll" and row["latest_offset"] is not None
        }

    def rows(self, table: str) -> list[Row]:
        """All rows of a spool table."""
        paths = (self.history / "spool" / table).glob("[!.]*.parquet")
        return [row for path in paths for row in pq.read_table(path).to_pylist()]


def offsets(rows: list[Row]) -> list[tuple[int, int]]:
    """First and last offset of windows that follow one another without a gap, merged; else each by itself."""
    spans: list[tuple[int, int]] = []
    for row in rows:
        if spans and spans[-1][1] == row["start_offset"]:
            spans[-1] = spans[-1][0], row["end_offset"]
        else:
            spans.append((row["start_offset"], row["end_offset"]))
    return spans


def lookups(output: str) -> int:
    """Look-ups that the closing line of a run counts."""
    found = re.search(r"; ([\d,]+) look-ups, ", output)
    assert found is not None, output
    return int(found[1].replace(",", ""))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=lambda number: number.name)
def test_the_next_run_writes_what_an_interrupted_one_did_not(
    broker: Broker, workbench: Workbench, tmp_path: Path, number: signal.Signals
) -> None:
    """After a kill or an interrupt the next run writes the other partitions; each record is there once."""
    topic = f"ends-{number.name}"
    workbench.create(topic, PARTITIONS)
    start = time.time() - 160 * HOUR
    workbench.write(
        (topic, partition, start + record * 7 * HOUR) for record in range(RECORDS) for partition in range(PARTITIONS)
    )
    # Slots of a minute over a week make batches of 19 partitions; this pace makes one last about two seconds.
    paced = Backfill(tmp_path, broker.bootstrap, topic, slot="1m", horizon="7d", lookups_per_second=1500)
    running = paced.start()
    until(lambda: bool(paced.rows("inventory")), "the first batch")
    running.send_signal(number)
    _, output = running.communicate(timeout=120)
    done = {row["partition"] for row in paced.rows("inventory")}
    assert 0 < len(done) < PARTITIONS
    if number is signal.SIGINT:
        assert running.returncode == 130
        assert "default: interrupted; the next backfill writes what is missing" in output

    output = Backfill(tmp_path, broker.bootstrap, topic, slot="1m", horizon="7d").run()
    left = PARTITIONS - len(done)
    assert f"{left * RECORDS:,} active slots of {left} partitions ({len(done)} others were complete)" in output
    for partition in range(PARTITIONS):
        rows = paced.windows()[topic, partition]
        assert [row["records"] for row in rows] == [1] * RECORDS
        assert offsets(rows) == [(0, RECORDS)]
        assert all(left["window_end"] <= right["window_start"] for left, right in pairwise(rows))
        assert {row["resolution_seconds"] for row in rows} == {60.0}
    assert len(paced.rows("inventory")) == PARTITIONS
    assert sum(row["partitions_ok"] for row in paced.rows("coverage")) == PARTITIONS


def test_backfill_and_exporter_write_each_record_once_into_one_folder(own_broker: Broker, tmp_path: Path) -> None:
    """Backfills beside and after the exporter, and a topic created again: each offset once."""
    workbench = Workbench(own_broker.bootstrap)
    workbench.create("orders", 3)
    old = [time.time() - hours * HOUR for hours in (50, 49.9, 20, 3, 0.5, 0.01)]
    workbench.write(("orders", partition, at) for at in old for partition in range(3))
    backfill = Backfill(tmp_path, own_broker.bootstrap, ".*")

    exporter = Exporter(tmp_path, own_broker.bootstrap, TOPIC_LIVENESS_HISTORY__WINDOW="10s")
    try:
        until(lambda: "orders" in backfill.polled(), "the first poll")
        workbench.write(("orders", partition, time.time()) for partition in range(3))
        running = backfill.start()
        workbench.create("added", 1)
        workbench.write([("added", 0, time.time())] * 4)
        running.communicate(timeout=120)
        assert running.returncode == 0
        until(lambda: "added" in backfill.polled(), "the added topic polled")
        workbench.write([("added", 0, time.time())] * 2 + [("orders", 0, time.time())])
        backfill.run()
        output = backfill.run()
        assert "finished, nothing was missing: the history of 4 partitions is there" in output
        latest = {"orders": 8, "added": 6}
        for topic, offset in latest.items():
            where = {"topic": topic, "partition": "0"}
            until(lambda: exporter.value("kafka_topic_partition_current_offset", **where) == offset, f"{topic} polled")  # noqa: B023
    finally:
        assert exporter.end() == 0, exporter.log.read_text()
    windows = backfill.windows()
    assert {key: offsets(rows) for key, rows in windows.items() if key[0] == "orders"} == {
        ("orders", 0): [(0, 8)],
        ("orders", 1): [(0, 7)],
        ("orders", 2): [(0, 7)],
    }
    assert all(sum(row["records"] for row in rows) == rows[-1]["end_offset"] for rows in windows.values())

    workbench.delete("added")
    workbench.create("added", 1)
    workbench.write([("added", 0, time.time() - HOUR)] * 5)
    output = backfill.run()
    assert "1 active slot of 1 partition (3 others were complete) written" in output
    fresh = [row for row in backfill.windows()["added", 0] if row["topic_id"] != windows["added", 0][0]["topic_id"]]
    assert offsets(fresh) == [(0, 5)]
    for topic in latest:
        workbench.delete(topic)


@pytest.fixture(scope="module")
def own_broker(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker of which the tests know all topics; each deletes its own."""
    with Broker(tmp_path_factory.mktemp("own"), jars=kafka_jars) as running:
        yield running


@pytest.fixture
def second_broker(own_broker: Broker, kafka_jars: Path, tmp_path: Path) -> Iterator[Broker]:
    """A second broker of the same cluster, that a test may kill."""
    properties = {
        "process.roles": "broker",
        "node.id": "2",
        "controller.quorum.voters": own_broker.properties["controller.quorum.voters"],
        "listeners": f"PLAINTEXT://127.0.0.1:{free_port()}",
    }
    with Broker(tmp_path / "second", jars=kafka_jars, properties=properties, cluster_id=own_broker.cluster_id) as it:
        yield it


def test_a_lost_broker_costs_its_partitions_until_it_is_back(
    own_broker: Broker, second_broker: Broker, tmp_path: Path
) -> None:
    """With one of two brokers down its partitions are named with the reason; the next run reads those alone."""
    workbench = Workbench(own_broker.bootstrap)
    assigned: Any = [[1], [2], [1], [2]]  # broker ids, which the type stubs take for text
    new = NewTopic("on-two", 4, replica_assignment=assigned, config=dict(EVERLASTING))
    workbench.admin.create_topics([new])["on-two"].result(30)
    workbench.await_leaders("on-two", 4)
    times = [time.time() - hours * HOUR for hours in (50, 20, 3)]
    workbench.write(("on-two", partition, at) for at in times for partition in range(4))
    backfill = Backfill(tmp_path, own_broker.bootstrap, "on-two")
    second_broker.kill()
    output = backfill.run(code=1)
    assert re.search(
        r"2 partitions could not be read: \S+ \(on-two-1, on-two-3\); the next backfill tries them", output
    )
    assert "default: unfinished: 6 active slots of 4 partitions written" in output
    read = {key[1]: [row["records"] for row in rows] for key, rows in backfill.windows().items()}
    assert read == {0: [1, 1, 1], 1: [None], 2: [1, 1, 1], 3: [None]}

    second_broker.restart()
    workbench.await_leaders("on-two", 4)
    output = backfill.run()
    assert "finished: 6 active slots of 2 partitions (2 others were complete) written" in output
    for rows in backfill.windows().values():
        assert offsets([row for row in rows if row["reason"] is None]) == [(0, 3)]
    assert "finished, nothing was missing" in backfill.run()
    workbench.delete("on-two")

"""`topic-liveness backfill` as a process that is killed, interrupted, run again, and run beside the exporter."""

import io
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from exporter.commands.backfill import backfill
from exporter.settings.load import load_settings
from tests.demo.broker import Broker
from tests.integration.serving import Exporter, rows_of
from tests.waiting import until
from tests.workbench import Workbench

HOUR = 3600.0
PARTITIONS = 100
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

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "exporter", "backfill", "--config", str(self.config)],
            env={**os.environ, **self._settings},
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *, code: int = 0) -> str:
        """Run to the end within this process, insist on the exit code, and return what it writes."""
        out = io.StringIO()
        assert backfill(load_settings(self.config, None, self._settings), None, out) == code, out.getvalue()
        return out.getvalue()

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
        return rows_of(self.history, table)


def offsets(rows: list[Row]) -> list[tuple[int, int]]:
    """First and last offset of windows that follow one another without a gap, merged; else each by itself."""
    spans: list[tuple[int, int]] = []
    for row in rows:
        if spans and spans[-1][1] == row["start_offset"]:
            spans[-1] = spans[-1][0], row["end_offset"]
        else:
            spans.append((row["start_offset"], row["end_offset"]))
    return spans


def test_the_next_run_writes_what_an_interrupted_one_did_not(
    broker: Broker, workbench: Workbench, tmp_path: Path
) -> None:
    topic = "ends"
    workbench.create(topic, PARTITIONS)
    start = time.time() - 160 * HOUR
    workbench.write(
        (topic, partition, start + record * 7 * HOUR) for record in range(RECORDS) for partition in range(PARTITIONS)
    )
    # Slots of a minute over a week make batches of 19 partitions; this pace makes one last about two seconds.
    paced = Backfill(tmp_path, broker.bootstrap, topic, slot="1m", horizon="7d", lookups_per_second=200)
    done = 0
    for number in (signal.SIGINT, signal.SIGKILL):
        running = paced.start()
        until(lambda: len(paced.rows("inventory")) > done, "another batch")  # noqa: B023
        running.send_signal(number)
        _, output = running.communicate(timeout=120)
        done = len(paced.rows("inventory"))
        assert 0 < done < PARTITIONS
        if number is signal.SIGINT:
            assert running.returncode == 130
            assert "default: interrupted; the next backfill writes what is missing" in output
    output = Backfill(tmp_path, broker.bootstrap, topic, slot="1m", horizon="7d").run()
    left = PARTITIONS - done
    assert f"{left * RECORDS:,} active slots of {left} partitions ({done} others were complete)" in output
    windows = paced.windows()
    for partition in range(PARTITIONS):
        rows = windows[topic, partition]
        assert [row["records"] for row in rows] == [1] * RECORDS
        assert offsets(rows) == [(0, RECORDS)]
        assert all(left["window_end"] <= right["window_start"] for left, right in pairwise(rows))
        assert {row["resolution_seconds"] for row in rows} == {60.0}
    assert len(paced.rows("inventory")) == PARTITIONS
    assert any(row["last_good_poll"] for row in paced.rows("coverage"))


def test_backfill_and_exporter_write_each_record_once_into_one_folder(
    broker: Broker, workbench: Workbench, tmp_path: Path
) -> None:
    workbench.create("both-orders", 3)
    old = [time.time() - hours * HOUR for hours in (50, 49.9, 20, 3, 0.5, 0.01)]
    workbench.write(("both-orders", partition, at) for at in old for partition in range(3))
    filled = Backfill(tmp_path, broker.bootstrap, "both-.*")

    exporter = Exporter(tmp_path, broker.bootstrap, TOPIC_LIVENESS_HISTORY__WINDOW="10s")
    try:
        until(lambda: "both-orders" in filled.polled(), "the first poll")
        workbench.write(("both-orders", partition, time.time()) for partition in range(3))
        running = filled.start()
        workbench.create("both-added", 1)
        workbench.write([("both-added", 0, time.time())] * 4)
        running.communicate(timeout=120)
        assert running.returncode == 0
        until(lambda: "both-added" in filled.polled(), "the added topic polled")
        workbench.write([("both-added", 0, time.time())] * 2 + [("both-orders", 0, time.time())])
        filled.run()
        output = filled.run()
        assert "finished, nothing was missing: the history of 4 partitions is there" in output
        latest = {"both-orders": 8, "both-added": 6}
        for topic, offset in latest.items():
            where = {"topic": topic, "partition": "0"}
            until(lambda: exporter.value("kafka_topic_partition_current_offset", **where) == offset, f"{topic} polled")  # noqa: B023
    finally:
        assert exporter.end() == 0, exporter.log.read_text()
    windows = {key: rows for key, rows in filled.windows().items() if key[0] in latest}
    assert {key: offsets(rows) for key, rows in windows.items() if key[0] == "both-orders"} == {
        ("both-orders", 0): [(0, 8)],
        ("both-orders", 1): [(0, 7)],
        ("both-orders", 2): [(0, 7)],
    }
    assert all(sum(row["records"] for row in rows) == rows[-1]["end_offset"] for rows in windows.values())

    workbench.delete("both-added")
    workbench.create("both-added", 1)
    workbench.write([("both-added", 0, time.time() - HOUR)] * 5)
    output = filled.run()
    assert "1 active slot of 1 partition (3 others were complete) written" in output
    earlier = {row["topic_id"] for row in windows["both-added", 0]}
    assert offsets([row for row in filled.windows()["both-added", 0] if row["topic_id"] not in earlier]) == [(0, 5)]
    for topic in latest:
        workbench.delete(topic)

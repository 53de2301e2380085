"""A client that is killed while `serve` watches a real broker: silences, windows and scrapes stay as they are."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest

from tests.demo.broker import Broker
from tests.integration.serving import Exporter, until
from tests.integration.test_client_restarts import polls, restarts
from tests.plain_http import NO_TLS
from tests.workbench import Workbench

ADVANCE = "kafka_topic_last_advance_timestamp_seconds"
SILENCE = "kafka_topic_silence_seconds"


class Scraping(threading.Thread):
    """Scrapes every 50 ms until asked to end; a scrape that fails or lacks the topic's series is kept."""

    def __init__(self, exporter: Exporter, wanted: str) -> None:
        super().__init__(daemon=True)
        self._address = f"http://127.0.0.1:{exporter.port}/metrics"
        self._wanted = wanted
        self._over = threading.Event()
        self.scrapes = 0
        self.bad: list[str] = []

    def run(self) -> None:
        """Scrape."""
        with httpx.Client(timeout=30, verify=NO_TLS) as client:
            while not self._over.wait(0.05):
                page = client.get(self._address)
                self.scrapes += 1
                if page.status_code != httpx.codes.OK or self._wanted not in page.text:
                    self.bad.append(f"{page.status_code}: {page.text[:200]}")

    def end(self) -> None:
        """Scrape no more."""
        self._over.set()
        self.join()


def spooled(exporter: Exporter, table: str) -> list[Mapping[str, Any]]:
    """Return the rows of a table of the spool, in the order of their times."""
    files = exporter.history.glob(f"spool/{table}/*.parquet")
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    return sorted(rows, key=lambda row: row["window_start"])


def test_a_killed_client_changes_neither_a_silence_nor_a_window_nor_a_scrape(
    broker: Broker, workbench: Workbench, tmp_path: Path
) -> None:
    """A poll under way is a missed one, and coverage shows it. What was written meanwhile is found by the next poll."""
    rests, moves = (f"{name}-{time.time_ns()}" for name in ("rests", "moves"))
    for topic in (rests, moves):
        workbench.create(topic)
        workbench.write([(topic, 0, time.time())])
    environment = {"TOPIC_LIVENESS_HISTORY__WINDOW": "1m", "TOPIC_LIVENESS_GROUPS__ENABLED": "false"}
    with Exporter(tmp_path, broker.bootstrap, **environment) as exporter:

        def value(name: str) -> float | None:
            return exporter.value(name, topic=rests)

        until(lambda: polls(exporter, "default") >= 2, "two polls")
        workbench.write([(topic, 0, time.time()) for topic in (rests, moves)])
        until(lambda: value(ADVANCE) is not None, "the advance is seen")
        advance = value(ADVANCE)
        assert advance is not None
        scraping = Scraping(exporter, f'{SILENCE}{{kafka_cluster="default",topic="{rests}"')
        scraping.start()
        for kill in (signal.SIGABRT, signal.SIGKILL):
            before, ended = polls(exporter, "default"), restarts(exporter, "default")["ended"]
            os.kill(exporter.clients()[0], kill)
            workbench.write([(moves, 0, time.time())])
            until(lambda ended=ended: restarts(exporter, "default")["ended"] == ended + 1, "the end is counted")  # type: ignore[misc]
            until(lambda before=before: polls(exporter, "default") >= before + 2, "good polls")  # type: ignore[misc]
            assert value(ADVANCE) == advance
            silence, now = value(SILENCE), time.time()
            assert silence is not None
            assert now - advance - 10 < silence < now - advance + 10
        scraping.end()
        assert scraping.scrapes > 50
        assert scraping.bad == []
        failed = polls(exporter, "default", "client-failed")
        assert exporter.end() == 0
        missed = [row["polls_total"] - row["polls_ok"] for row in spooled(exporter, "coverage")]
        assert sum(missed) == failed
        windows = spooled(exporter, "windows")
        [rested] = [row for row in windows if row["topic"] == rests]
        assert rested["records"] == rested["advances"] == 1
        assert rested["last_advance"].timestamp() == pytest.approx(advance, abs=1e-5)
        moved = [row for row in windows if row["topic"] == moves]
        assert sum(row["records"] for row in moved) == 3
        assert (moved[0]["start_offset"], moved[-1]["end_offset"]) == (1, 4)
        assert {(row["offset_regressions"], row["reason"]) for row in (rested, *moved)} == {(0, None)}

"""Processes that live for a moment write history: the exporter has no Arrow, and loses nothing with one of them."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from exporter.demo.broker import Broker
from tests.integration.serving import Exporter, until
from tests.unit.expectations import by_clock, publish
from tests.workbench import Workbench

WINDOW = {"TOPIC_LIVENESS_HISTORY__WINDOW": "5s"}
KILLED = "the process that was to do it was ended by SIGKILL"


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic with one partition, in which nothing is yet."""
    name = f"written-{time.time_ns()}"
    Workbench(broker.bootstrap).create(name)
    return name


def write(broker: Broker, topic: str) -> None:
    """Write one record."""
    Workbench(broker.bootstrap).write([(topic, 0, time.time())])


def polled(exporter: Exporter, topic: str, offset: int) -> bool:
    """Return whether a poll saw this end offset."""
    return exporter.value("kafka_topic_partition_current_offset", topic=topic) == offset


def records(exporter: Exporter, topic: str) -> list[int]:
    """Return what the windows of a topic hold."""
    files = sorted((exporter.history / "spool" / "windows").glob("*.parquet"))
    rows = [row for path in files for row in pq.read_table(path, partitioning=None).to_pylist()]
    return [row["records"] for row in rows if row["topic"] == topic]


@contextmanager
def each_writer_gets(exporter: Exporter, number: signal.Signals) -> Iterator[list[int]]:
    """Send a signal to each writer as soon as it is there; yield the writers that got one."""
    got: list[int] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.01):
            with suppress(ProcessLookupError):
                for pid in set(exporter.writers()).difference(got):
                    os.kill(pid, number)
                    got.append(pid)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield got
    finally:
        ended.set()
        thread.join()


def test_the_exporter_writes_and_reads_history_without_arrow(tmp_path: Path, broker: Broker, topic: str) -> None:
    """Windows are written and expectations read, and no page of Arrow is in the process that polls."""
    now = time.time()
    publish(tmp_path / "history", by_clock([1.0] * 168, cluster="default", topic=topic, as_of=now, last_advance=now))
    with Exporter(tmp_path, broker.bootstrap, **WINDOW) as exporter:
        until(lambda: polled(exporter, topic, 0), "the first poll")
        write(broker, topic)
        until(lambda: records(exporter, topic) == [1], "a window in the spool")
        assert exporter.value("topic_liveness_expectations_timestamp_seconds") is not None
        assert "libarrow" not in Path(f"/proc/{exporter.process.pid}/maps").read_text()
        assert exporter.end() == 0, exporter.log.read_text()


def test_a_killed_writer_costs_nothing(tmp_path: Path, broker: Broker, topic: str) -> None:
    """It is counted and logged with its reason, and what it was to write is written by the next one."""
    with Exporter(tmp_path, broker.bootstrap, **WINDOW) as exporter:
        until(lambda: polled(exporter, topic, 0), "the first poll")
        with each_writer_gets(exporter, signal.SIGKILL) as killed:
            write(broker, topic)
            until(lambda: len(killed) >= 4, "writers killed")
            failures = "topic_liveness_history_write_failures_total"
            until(lambda: (exporter.value(failures, reason=KILLED) or 0) > 0, "the failure counted by reason")
        until(lambda: records(exporter, topic) == [1], "the window in the spool")
        assert exporter.end() == 0, exporter.log.read_text()
        assert records(exporter, topic) == [1], "nothing is written twice"
        log = exporter.log.read_text()
        assert f"cannot be written to {exporter.history / 'spool'}: {KILLED}" in log
        assert "Traceback" not in log
        assert not list((exporter.history / "spool" / "windows").glob(".*")), "what a killed writer left is removed"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_end_that_is_signalled_to_all_processes_loses_nothing(
    tmp_path: Path, broker: Broker, topic: str, number: signal.Signals
) -> None:
    """Ctrl-C in a terminal, and a service manager that signals all of a service: the last window is written."""
    with Exporter(tmp_path, broker.bootstrap, TOPIC_LIVENESS_HISTORY__WINDOW="1h") as exporter:
        until(lambda: polled(exporter, topic, 0), "the first poll")
        write(broker, topic)
        until(lambda: polled(exporter, topic, 1), "the record")
        with each_writer_gets(exporter, number) as got:
            exporter.process.send_signal(number)
            assert exporter.process.wait(120) == 0, exporter.log.read_text()
        assert got, "a writer was there to be signalled"
        assert records(exporter, topic) == [1]

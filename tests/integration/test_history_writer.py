"""How history is written at the end of an exporter, by its one writer thread."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.demo.broker import Broker
from tests.integration.serving import Exporter, rows_of
from tests.waiting import until
from tests.workbench import Workbench


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic with one partition, in which nothing is yet."""
    name = f"written-{time.time_ns()}"
    Workbench(broker.bootstrap).create(name)
    return name


def see_a_record(exporter: Exporter, broker: Broker, topic: str) -> None:
    """Write a record between two polls."""

    def polled(offset: int) -> bool:
        return exporter.value("kafka_topic_partition_current_offset", topic=topic) == offset

    until(lambda: polled(0), "the first poll")
    Workbench(broker.bootstrap).write([(topic, 0, time.time())])
    until(lambda: polled(1), "the record")


def records(exporter: Exporter, topic: str) -> list[int]:
    """Return what the windows of a topic hold."""
    return [row["records"] for row in rows_of(exporter.history, "windows") if row["topic"] == topic]


def test_an_end_that_is_signalled_to_all_processes_loses_nothing(tmp_path: Path, broker: Broker, topic: str) -> None:
    """As Ctrl-C in a terminal does: the last window is written."""
    with Exporter(tmp_path, broker.bootstrap, TOPIC_LIVENESS_HISTORY__WINDOW="1h") as exporter:
        see_a_record(exporter, broker, topic)
        for pid in [exporter.process.pid, *exporter.clients()]:
            os.kill(pid, signal.SIGINT)
        assert exporter.process.wait(120) == 0, exporter.log.read_text()
        assert records(exporter, topic) == [1]


def test_an_end_while_history_cannot_be_written_is_in_order(tmp_path: Path, broker: Broker, topic: str) -> None:
    """It says what is lost, and exits with 1."""
    with Exporter(tmp_path, broker.bootstrap) as exporter:
        see_a_record(exporter, broker, topic)
        shutil.rmtree(exporter.history / "spool")
        (exporter.history / "spool").write_text("in the way")
        exporter.process.send_signal(signal.SIGTERM)
        assert exporter.process.wait(60) == 1, exporter.log.read_text()
        log = exporter.log.read_text()
    assert "history rows could not be written to" in log
    assert "Traceback" not in log

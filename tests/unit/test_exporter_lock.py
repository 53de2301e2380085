"""One process at a time under one exporter name."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from exporter.history.spool import HistoryError, take_name
from exporter.storage.lock import TakenError
from tests.fake_cluster import FakeCluster
from tests.integration.serving import Exporter
from tests.waiting import until

NOWHERE = "127.0.0.1:1"


def polls(exporter: Exporter) -> float:
    """Polls that have ended, also those in vain."""
    return sum(one.value for one in exporter.samples() if one.name == "topic_liveness_polls_total")


def test_a_second_serve_of_one_name_is_refused(tmp_path: Path) -> None:
    """It names the other process, after a minute in which that could have ended; one of another name runs beside it.

    A process that was killed holds nothing.
    """
    with FakeCluster(topics=1, partitions=1) as cluster, Exporter(tmp_path, cluster.bootstrap) as first:
        until(lambda: polls(first) >= 1, "a poll")
        shared = {"TOPIC_LIVENESS_HISTORY__FOLDER": str(first.history)}
        (folder := tmp_path / "second").mkdir()
        with Exporter(folder, NOWHERE, **shared) as second:
            assert second.process.wait(120) == 2
        log = second.log.read_text()
        assert "waiting up to 60 s for its end" in log
        assert "is written by another `serve` under the exporter name" in log
        assert f"(process {first.process.pid} on host " in log
        with Exporter(folder, NOWHERE, TOPIC_LIVENESS_EXPORTER="other", **shared) as other:
            until(lambda: polls(other) >= 1, "a poll of one with another name")
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
        with Exporter(tmp_path, cluster.bootstrap) as again:
            until(lambda: polls(again) >= 1, "a poll after the kill")
            assert again.end() == 0


def test_a_new_process_takes_over_from_one_that_ends(tmp_path: Path) -> None:
    """As pods of one volume do, where the old one takes some seconds to end; one that is ended itself stops waiting."""
    with FakeCluster(topics=1, partitions=1) as cluster, Exporter(tmp_path, cluster.bootstrap) as first:
        until(lambda: polls(first) >= 1, "a poll")
        for name in ("second", "third"):
            (tmp_path / name).mkdir()
        shared = {"TOPIC_LIVENESS_HISTORY__FOLDER": str(first.history)}
        with (
            Exporter(tmp_path / "second", cluster.bootstrap, **shared) as second,
            Exporter(tmp_path / "third", cluster.bootstrap, **shared) as third,
        ):
            held = f"(process {first.process.pid} on host"
            until(lambda: all(held in each.log.read_text() for each in (second, third)), "both wait")
            assert third.end() == 2
            assert first.end() == 0, first.log.read_text()
            until(lambda: polls(second) >= 1, "a poll of the new one")
            assert second.end() == 0, second.log.read_text()


def test_of_two_processes_whose_lock_file_was_removed_one_writes(tmp_path: Path) -> None:
    """The first takes the lock again where nobody has it, and writes no more where another process does."""
    path = tmp_path / "serve-e.lock"
    first = take_name(tmp_path, "e")
    first.require()
    path.unlink()
    first.require()
    with pytest.raises(HistoryError, match=f"process {os.getpid()} on host"):
        take_name(tmp_path, "e", wait_seconds=0.0)
    path.unlink()
    second = take_name(tmp_path, "e")
    second.require()
    with pytest.raises(TakenError, match=f"process {os.getpid()} on host"):
        first.require()
    second.release()
    first.require()
    first.release()

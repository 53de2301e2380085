"""One process at a time under one exporter name, and what killed ones lost."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path

import numpy as np
import pytest

from exporter.domain.formatting import duration
from exporter.domain.history.rows import Coverage
from exporter.domain.polls.cluster_state import ClusterState
from exporter.domain.polls.layout import Layout
from exporter.history.cluster_states import LastState, Progress
from exporter.history.exporter_lock import ExporterLock
from exporter.history.spool import HistoryError, Spool
from tests.bench.fake_cluster import FakeCluster
from tests.integration.serving import Exporter, until

NOWHERE = "127.0.0.1:1"
LOST = "topic_liveness_history_lost_by_kill_seconds"


def polls(exporter: Exporter) -> float:
    """Polls that have ended, also those in vain."""
    return sum(one.value for one in exporter.samples() if one.name == "topic_liveness_polls_total")


def test_a_second_serve_of_one_name_is_refused_and_killed_ones_are_reported(tmp_path: Path) -> None:
    """It names the other process. Killed, that one lost all since its first poll, and so did the next; then nothing.

    A start in between that found its port taken has not used up what the killed one left. It waits a minute for the
    other's end before, so that a pod that is drained hands over.
    """
    began, window = time.monotonic(), {"TOPIC_LIVENESS_HISTORY__WINDOW": "1h"}
    with FakeCluster(topics=1, partitions=1) as cluster:
        with Exporter(tmp_path, cluster.bootstrap, **window) as first:
            until(lambda: polls(first) >= 2, "two polls")
            assert first.value(LOST) == 0
            folder = tmp_path / "second"
            folder.mkdir()
            with Exporter(folder, NOWHERE, TOPIC_LIVENESS_HISTORY__FOLDER=str(first.history)) as second:
                assert second.process.wait(120) == 2
            log = second.log.read_text()
            assert "waiting up to 60 s for its end" in log
            assert "is written by another `serve` under the exporter name" in log
            assert f"(process {first.process.pid} on host " in log
            with Exporter(
                folder, NOWHERE, TOPIC_LIVENESS_HISTORY__FOLDER=str(first.history), TOPIC_LIVENESS_EXPORTER="other"
            ) as other:
                until(lambda: polls(other) >= 1, "a poll of one with another name")
            first.process.send_signal(signal.SIGKILL)
            first.process.wait()
        with socket.create_server(("127.0.0.1", 0)) as taken:
            listen = f"127.0.0.1:{taken.getsockname()[1]}"
            with Exporter(tmp_path, cluster.bootstrap, TOPIC_LIVENESS_WEB__LISTEN=listen) as refused:
                assert refused.process.wait(120) == 2
                assert listen in refused.log.read_text()
        with Exporter(tmp_path, cluster.bootstrap, **window) as again:
            until(lambda: polls(again) >= 2, "two polls")
            lost = again.value(LOST)
            assert lost is not None and 4 < lost < time.monotonic() - began
            assert f"cluster default: {duration(lost)} of history were lost with killed" in again.log.read_text()
            again.process.send_signal(signal.SIGKILL)
            again.process.wait()
        with Exporter(tmp_path, cluster.bootstrap, **window) as third:
            until(lambda: polls(third) >= 1, "a poll")
            both = third.value(LOST)
            assert both is not None and lost + 4 < both < time.monotonic() - began
            assert third.end() == 0
        with Exporter(tmp_path, cluster.bootstrap) as last:
            until(lambda: last.value(LOST) is not None, "its metrics")
            assert last.value(LOST) == 0


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
            assert second.value(LOST) == 0
            assert second.end() == 0, second.log.read_text()


def test_what_is_lost_follows_the_last_interval_whose_coverage_is_there(tmp_path: Path) -> None:
    """The state is written before the files of its interval. Coverage of long ago was ingested and deleted."""
    spool, lost = Spool(tmp_path, "e"), 7.0
    nothing = ClusterState(None, None, 0.0, None, Layout.of({}), (), np.zeros(0, dtype=np.intp), {})
    last = LastState(nothing, Progress(1000.0, 1000.0, 1300.0, lost))
    assert spool.lost_seconds("a", last, None) == lost
    assert spool.lost_seconds("a", last, 1340.0) == lost + 340.0
    spool.write("a", 1000.0, [Coverage("a", "e", "poll", 1000.0, 1300.0, 10, 10, 1, 0, 1290.0, 30.0)])
    assert spool.lost_seconds("a", last, 1340.0) == lost + 40.0
    assert spool.lost_seconds("a", last, 1290.0) == lost
    assert spool.lost_seconds("b", last, 91300.0) == lost + 90000.0
    assert spool.lost_seconds("a", LastState(nothing, None), 1340.0) == spool.lost_seconds("a", None, 1340.0) == 0.0


def test_the_lock_tells_the_last_poll_of_a_process_that_did_not_release_it(tmp_path: Path) -> None:
    """Whoever comes next knows it until it has polled itself."""
    first = ExporterLock(tmp_path, "e")
    assert first.last_poll is None
    first.polled()
    polled = (tmp_path / "serve-e.lock").stat().st_mtime
    with pytest.raises(HistoryError, match=r"another `serve` under the exporter name 'e' \(process \d+ on host "):
        ExporterLock(tmp_path, "e", wait_seconds=0.0)
    first.release(clean=False)
    for _ in range(2):
        again = ExporterLock(tmp_path, "e")
        assert again.last_poll == pytest.approx(polled, abs=0.001)
        again.release(clean=False)
    again = ExporterLock(tmp_path, "e")
    again.release(clean=True)
    last = ExporterLock(tmp_path, "e")
    assert last.last_poll is None
    last.release(clean=True)


def test_of_two_processes_whose_lock_file_was_removed_one_writes(tmp_path: Path) -> None:
    """The first takes the lock again where nobody has it, and writes no more where another process does."""
    path = tmp_path / "serve-e.lock"
    first = ExporterLock(tmp_path, "e")
    first.require()
    path.unlink()
    first.require()
    with pytest.raises(HistoryError, match=f"process {os.getpid()} on host"):
        ExporterLock(tmp_path, "e", wait_seconds=0.0)
    path.unlink()
    second = ExporterLock(tmp_path, "e")
    second.require()
    with pytest.raises(BlockingIOError, match="took over: stop one of them"):
        first.require()
    second.release(clean=True)
    first.require()
    first.release(clean=True)


def test_a_start_goes_by_what_the_process_before_wrote_ahead_of_time(tmp_path: Path) -> None:
    """Files of the next minutes, by a clock that was ahead, are as they were after windows in these minutes."""
    with FakeCluster(topics=1, partitions=1) as cluster:
        ahead = {"TOPIC_LIVENESS_EXPORTER": "e", "TOPIC_LIVENESS_HISTORY__WINDOW": "5s"}

        class Ahead(Exporter):
            program = ("-c", AHEAD)

        with Ahead(tmp_path, cluster.bootstrap, **ahead) as first:
            until(lambda: polls(first) >= 4, "four polls")
            assert first.end() == 0
        before = {path: path.read_bytes() for path in tmp_path.glob("history/spool/coverage/*")}
        with Exporter(tmp_path, cluster.bootstrap, **ahead) as second:
            until(lambda: polls(second) >= 3, "three polls")
            assert second.end() == 0
    there = {path: path.read_bytes() for path in tmp_path.glob("history/spool/coverage/*")}
    assert before and before.items() <= there.items()


AHEAD = """
import time
now = time.time
time.time = lambda: now() + 12.0
from exporter.__main__ import main
main()
"""

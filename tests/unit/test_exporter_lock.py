"""One process at a time under one exporter name, and what a killed one lost."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from exporter.domain import Coverage, Source
from exporter.history import HistoryError, Spool
from exporter.history.columns import columns_of
from exporter.history.exporter_lock import ExporterLock
from tests.integration.serving import Exporter, until

NOWHERE = "127.0.0.1:1"
LOST = "topic_liveness_history_lost_by_kill_seconds"


def polls(exporter: Exporter) -> float:
    """Polls that have ended, all of them in vain."""
    return sum(one.value for one in exporter.samples() if one.name == "topic_liveness_polls_total")


def test_a_second_serve_of_one_name_is_refused_and_a_killed_one_is_reported(tmp_path: Path) -> None:
    """It names the other process. Killed, that one lost what lies between its start and its last poll; then nothing.

    A start in between that found its port taken has not used up what the killed one left.
    """
    began = time.monotonic()
    # A window that ends between its polls would leave less to lose.
    with Exporter(tmp_path, NOWHERE, TOPIC_LIVENESS_HISTORY__WINDOW="1h") as first:
        until(lambda: polls(first) >= 2, "two polls")
        assert first.value(LOST) == 0
        folder = tmp_path / "second"
        folder.mkdir()
        with Exporter(folder, NOWHERE, TOPIC_LIVENESS_HISTORY__FOLDER=str(first.history)) as second:
            assert second.process.wait(120) == 2
        log = second.log.read_text()
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
        with Exporter(tmp_path, NOWHERE, TOPIC_LIVENESS_WEB__LISTEN=listen) as refused:
            assert refused.process.wait(120) == 2
            assert listen in refused.log.read_text()
    with Exporter(tmp_path, NOWHERE) as again:
        until(lambda: again.value(LOST) is not None, "its metrics")
        lost = again.value(LOST)
        assert lost is not None and 4 < lost < time.monotonic() - began
        assert f"cluster default: {lost:.0f} s of history were lost with a killed exporter" in again.log.read_text()
        assert again.end() == 0
    with Exporter(tmp_path, NOWHERE) as last:
        until(lambda: last.value(LOST) is not None, "its metrics")
        assert last.value(LOST) == 0


def test_what_was_written_of_each_cluster_was_not_lost(tmp_path: Path) -> None:
    """Lost is what came after the last interval in the spool, of the cluster itself and not of one with a like name."""
    spool, lock = Spool(tmp_path, "e"), ExporterLock(tmp_path, "e")
    lock.begin()
    lock.polled()
    (path,) = tmp_path.glob("serve-*.lock")
    last_poll = path.stat().st_mtime
    for cluster, ago in (("a", 40.0), ("a-b", 10.0)):
        end = last_poll - ago
        spool.write(cluster, end - 300.0, [Coverage(cluster, "e", "poll", end - 300.0, end, 10, 10, 1, 0, end, 30.0)])
    lock.release(clean=False)
    path.write_text('{"started": 0}')
    os.utime(path, (last_poll, last_poll))
    again = ExporterLock(tmp_path, "e")
    assert again.lost_seconds("a") == pytest.approx(40.0, abs=0.01)
    assert again.lost_seconds("a-b") == pytest.approx(10.0, abs=0.01)
    again.begin()
    with pytest.raises(HistoryError, match=r"another `serve` under the exporter name 'e' \(process \d+ on host "):
        ExporterLock(tmp_path, "e")
    again.release(clean=True)
    last = ExporterLock(tmp_path, "e")
    assert last.lost_seconds("a") == 0
    last.release(clean=True)


def test_what_was_lost_is_unknown_where_a_rollup_refused_all_that_was_written_last(tmp_path: Path) -> None:
    """The clock was days ahead: the rows are in quarantine, and their file has none."""
    spool, ahead = Spool(tmp_path, "e"), time.time() + 5 * 86400.0
    spool.write("a", ahead, [Coverage("a", "e", "poll", ahead, ahead + 300.0, 10, 10, 1, 0, ahead, 30.0)])
    file = spool.target("a", ahead, Coverage)
    pq.write_table(pq.read_table(file).slice(0, 0), file)
    (tmp_path / "serve-e.lock").write_text('{"started": 0}')
    lock = ExporterLock(tmp_path, "e")
    assert lock.lost_seconds("a") is None
    assert lock.lost_seconds("b") is not None
    lock.release(clean=True)


def test_a_backfill_after_a_kill_does_not_count_as_polls(tmp_path: Path) -> None:
    """Whenever its time ends, and however many there were."""
    now = time.time()
    spools = {source: Spool(tmp_path, "e", source) for source in Source}
    started, killed = now - 864000.0, now - 3600.0

    def write(at: float, end: float, source: Source) -> None:
        spools[source].write("a", at, [Coverage("a", "e", source, end - 300.0, end, 10, 10, 1, 0, end, 30.0)])

    def lost() -> float | None:
        lock = tmp_path / "serve-e.lock"
        lock.write_text(json.dumps({"started": started}))
        os.utime(lock, (killed, killed))
        exporter_lock = ExporterLock(tmp_path, "e")
        seconds = exporter_lock.lost_seconds("a")
        exporter_lock.release(clean=True)
        return seconds

    write(now - 120.0, now - 120.0, Source.BACKFILL)
    assert lost() == pytest.approx(killed - started, abs=0.01)
    write(killed - 590.0, killed - 290.0, Source.POLL)
    assert lost() == pytest.approx(290.0, abs=0.01)
    write(now - 60.0, now - 61.0, Source.BACKFILL)
    write(now - 30.0, started + 5.0, Source.BACKFILL)
    assert lost() == pytest.approx(290.0, abs=0.01)
    for ago in range(60):
        write(now - ago, now - ago, Source.BACKFILL)
    assert lost() == pytest.approx(290.0, abs=0.01)


def test_a_start_goes_by_what_the_process_before_wrote_ahead_of_time(tmp_path: Path) -> None:
    """Files of the next minutes, by a clock that was ahead, are as they were after windows in these minutes."""
    spool, now = Spool(tmp_path / "history", "e"), time.time() // 5 * 5
    files = [
        (at, [columns_of([Coverage("default", "e", "poll", at, at + 5.0, 1, 1, 1, 0, at, 5.0)])])
        for at in (now + 5.0 * number for number in range(120))
    ]
    spool.write_files("default", files)
    ahead = {path: path.read_bytes() for path in tmp_path.glob("history/spool/coverage/*")}
    with Exporter(tmp_path, NOWHERE, TOPIC_LIVENESS_EXPORTER="e", TOPIC_LIVENESS_HISTORY__WINDOW="5s") as exporter:
        until(lambda: polls(exporter) >= 3, "three polls")
        assert exporter.end() == 0
    there = {path: path.read_bytes() for path in tmp_path.glob("history/spool/coverage/*")}
    assert len(ahead) == 120 and ahead.items() <= there.items()
    assert len(there) >= 120 + 3

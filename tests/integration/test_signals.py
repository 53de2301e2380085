"""A running exporter gets signals."""

from __future__ import annotations

import ctypes
import signal
import time
from pathlib import Path

from tests.demo.broker import free_port
from tests.integration.serving import Exporter, until


def test_a_signal_that_another_thread_gets_ends_the_exporter_in_order(tmp_path: Path) -> None:
    """The kernel chooses the thread, and a wait of the main one goes on then: SIGTERM was lost, and with it windows."""
    with Exporter(tmp_path, f"127.0.0.1:{free_port()}") as exporter:
        until(lambda: exporter.metrics() != "", "the first scrape")
        pid = exporter.process.pid
        threads = [int(thread.name) for thread in Path("/proc", str(pid), "task").iterdir()]
        other = next(thread for thread in sorted(threads) if thread != pid)  # that of the server, the first to start
        time.sleep(1.0)  # past the start, after which the main thread has nothing to do
        assert ctypes.CDLL(None).tgkill(pid, other, signal.SIGTERM) == 0
        assert exporter.process.wait(60) == 0
        assert "stopped" in exporter.log.read_text()

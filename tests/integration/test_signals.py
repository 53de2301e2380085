"""A running exporter gets signals."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from pathlib import Path

from exporter.demo.broker import free_port
from tests.integration.serving import Exporter, until


def test_an_exporter_without_a_file_reads_its_environment_again(tmp_path: Path) -> None:
    """SIGHUP ends nothing: it was the end of the exporter, and the open windows were not written."""
    with Exporter(tmp_path, f"127.0.0.1:{free_port()}") as exporter:
        until(lambda: exporter.metrics() != "", "the first scrape")
        os.kill(exporter.process.pid, signal.SIGHUP)
        until(lambda: "the configuration was read again" in exporter.log.read_text(), "the word in the log")
        assert exporter.end() == 0


def test_a_signal_that_another_thread_gets_is_handled(tmp_path: Path) -> None:
    """The kernel chooses the thread, and a wait of the main one goes on then: SIGTERM was lost, and with it windows."""
    with Exporter(tmp_path, f"127.0.0.1:{free_port()}") as exporter:
        until(lambda: exporter.metrics() != "", "the first scrape")
        pid = exporter.process.pid
        threads = [int(thread.name) for thread in Path("/proc", str(pid), "task").iterdir()]
        other = next(thread for thread in sorted(threads) if thread != pid)  # that of the server, the first to start
        time.sleep(1.0)  # past the start, after which the main thread has nothing to do
        send = ctypes.CDLL(None).tgkill
        assert send(pid, other, signal.SIGHUP) == 0
        until(lambda: "the configuration was read again" in exporter.log.read_text(), "the reload")
        time.sleep(1.0)
        assert send(pid, other, signal.SIGTERM) == 0
        assert exporter.process.wait(60) == 0


def test_a_reload_that_comes_while_the_exporter_starts_ends_nothing(tmp_path: Path) -> None:
    """A service manager may send SIGHUP at any time: it ended an exporter that was still connecting its clients."""
    with Exporter(tmp_path, f"127.0.0.1:{free_port()}") as exporter:
        status = Path("/proc", str(exporter.process.pid), "status")

        def catches_hangups() -> bool:
            caught = next(line for line in status.read_text().splitlines() if line.startswith("SigCgt"))
            return bool(int(caught.split()[1], 16) >> signal.SIGHUP - 1 & 1)

        until(catches_hangups, "the handler")
        exporter.process.send_signal(signal.SIGHUP)
        until(lambda: "the configuration was read again" in exporter.log.read_text(), "the word in the log")
        assert exporter.log.read_text().index("serving") < exporter.log.read_text().index("read again")
        assert exporter.end() == 0

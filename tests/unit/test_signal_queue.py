"""The queue of signals that ``serve`` waits for."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

from exporter.signals import SignalQueue

WAITS = """
import signal
from exporter.signals import SignalQueue

signals = SignalQueue()
signal.signal(signal.SIGTERM, signals.receive)
print("waiting", flush=True)
received = 0
while signals.wait() == signal.SIGHUP:
    received += 1
print(received, flush=True)
"""


def test_signals_at_any_moment_hold_up_no_other() -> None:
    """Also those that interrupt the wait while it has a lock: as many come as can be sent in two seconds."""
    with subprocess.Popen([sys.executable, "-c", WAITS], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        end = time.monotonic() + 2.0
        while time.monotonic() < end:
            process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        try:
            answer, _ = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 0
    assert int(answer) > 0


def test_hangups_in_a_row_are_one_and_an_end_goes_before_them() -> None:
    """The configuration is read once for all of them, and not at all where the exporter is to end."""
    before = signal.getsignal(signal.SIGHUP)
    try:
        signals = SignalQueue()
    finally:
        signal.signal(signal.SIGHUP, before)
    for number in (signal.SIGHUP, signal.SIGHUP):
        signals.receive(number)
    assert signals.wait() == signal.SIGHUP
    for number in (signal.SIGHUP, signal.SIGHUP, signal.SIGTERM):
        signals.receive(number)
    assert signals.wait() == signal.SIGTERM

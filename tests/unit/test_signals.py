"""The signals that end ``serve``."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

WAITS = """
import sys
from exporter.signals import EndSignal

noted = []
end = EndSignal(lambda: noted.append(True))
print("waiting", flush=True)
end.wait()
print(noted, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_first_signal_ends_the_wait_and_the_second_the_process(number: int) -> None:
    """A terminal that closes sends SIGHUP: the open windows are written then too."""
    with subprocess.Popen(
        [sys.executable, "-c", WAITS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(number)
        assert process.stdout.readline() == "[True]\n"
        process.send_signal(number)
        assert process.wait(30) == -number

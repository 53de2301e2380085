"""How the main thread waits for a signal, or for a process to end.

Python runs signal handlers in the main thread alone, between two of its instructions. A wait without a time limit may
never come to one: the signal may have reached another thread, or have come right before the wait. So the main thread
wakes up every second.
"""

from __future__ import annotations

import queue
import signal
import subprocess
from contextlib import suppress
from types import FrameType

_LOOK_SECONDS = 1.0
"""The longest time for which a signal may wait to be handled."""


class SignalQueue:
    """The signals that were received, in their order: each SIGHUP, and others that their handlers hand on."""

    def __init__(self) -> None:
        # A handler may interrupt any of its calls. That of an Event would wait for a lock that its own thread has.
        self._received: queue.SimpleQueue[int] = queue.SimpleQueue()
        signal.signal(signal.SIGHUP, self.receive)

    def receive(self, number: int, _: FrameType | None = None) -> None:
        """Take in a signal: the handler of one, or a part of it."""
        self._received.put(number)

    def wait(self) -> int:
        """Return the next signal, once there is one; several SIGHUP in a row are one."""
        while True:
            with suppress(queue.Empty):
                number = self._received.get(timeout=_LOOK_SECONDS)
                while number == signal.SIGHUP and not self._received.empty():
                    number = self._received.get()
                return number


def wait_for(process: subprocess.Popen[bytes]) -> int:
    """Return the exit code of a process once it has ended; signals are handled meanwhile."""
    while True:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(_LOOK_SECONDS)

"""How the main thread waits for a signal, or for a process to end.

Python runs signal handlers in the main thread alone, between two of its instructions. A wait without a time limit may
never come to one: the signal may have reached another thread, or have come right before the wait. So the main thread
wakes up every second.
"""

import queue
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

_LOOK_SECONDS = 1.0
"""The longest time for which a signal may wait to be handled."""

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""The signals that end the exporter in good order; the second one of a kind ends it at once."""


class EndSignal:
    """Waits for the first of the signals that end the exporter."""

    def __init__(self, note: Callable[[], None]) -> None:
        """Take these signals from now on; ``note`` is called in the handler, so it may interrupt anything."""
        # A handler may interrupt any of its calls. That of an Event would wait for a lock that its own thread has.
        self._received: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._note = note
        for number in ENDING:
            signal.signal(number, self._receive)

    def _receive(self, number: int, _: FrameType | None) -> None:
        self._received.put(number)
        signal.signal(number, signal.SIG_DFL)
        self._note()

    def wait(self) -> None:
        """Return once there was one."""
        while True:
            with suppress(queue.Empty):
                self._received.get(timeout=_LOOK_SECONDS)
                return


def wait_for(process: subprocess.Popen[bytes]) -> int:
    """Return the exit code of a process once it has ended; signals are handled meanwhile."""
    while True:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(_LOOK_SECONDS)

"""Signals that a process waits for in its main thread, where alone Python handles them."""

from __future__ import annotations

import queue
from contextlib import suppress
from types import FrameType

_LOOK_SECONDS = 1.0
"""The longest time for which a signal may wait to be handled."""


class SignalQueue:
    """The signals that were received, in their order."""

    def __init__(self) -> None:
        # A handler may interrupt any of its calls. That of an Event would wait for a lock that its own thread has.
        self._received: queue.SimpleQueue[int] = queue.SimpleQueue()

    def receive(self, number: int, _: FrameType | None = None) -> None:
        """Take in a signal: the handler of one, or a part of it."""
        self._received.put(number)

    def wait(self) -> int:
        """Return the next signal, once there is one."""
        while True:
            # Without a time limit one that another thread gets, or that comes right before the wait, is never handled.
            with suppress(queue.Empty):
                return self._received.get(timeout=_LOOK_SECONDS)

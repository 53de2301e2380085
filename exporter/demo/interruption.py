"""Signals that end the demo: the first unwinds it in order, the rest wait until that is done."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """The demo was told to end. Not an Exception: nothing on the way may take it for a failure."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number
        """What a shell reports for a process that this signal ended (130 for Ctrl-C)."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise Interrupted in the main thread at the first of SIGNALS; later ones are ignored.

    So a second Ctrl-C cannot break into the tidying up. The handlers of before come back at the end.
    """

    def raise_once(number: int, _frame: FrameType | None) -> None:
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise Interrupted(number)

    before = {number: signal.signal(number, raise_once) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

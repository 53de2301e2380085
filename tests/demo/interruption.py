"""Signals that end the demo: the first one starts an orderly stop, later ones are ignored."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from exporter.domain.exit_codes import ExitCode

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal ended the demo. Not an Exception, so that no handler takes it for a failure."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = ExitCode(128 + number)


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise Interrupted in the main thread at the first of SIGNALS, and ignore later ones.

    A second Ctrl-C therefore cannot interrupt the cleanup. At the end the earlier handlers are restored.
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

"""Signals that end a job, also where Python or the bridge to the JVM would lose them."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType
from typing import NoReturn

from exporter.domain.exit_codes import ExitCode

_AGAIN_SECONDS = 0.05


class TerminatedError(SystemExit):
    """SIGTERM came."""


def take_signals() -> None:
    """Have SIGINT and SIGTERM raise KeyboardInterrupt and TerminatedError in the main thread.

    Python drops what is raised while a destructor or a callback of a weak reference runs, and py4j has one for each
    object of the JVM. Then the signal comes again.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _terminated)
    sys.unraisablehook = _dropped


def interruption_before(error: BaseException) -> KeyboardInterrupt | SystemExit | None:
    """Return what interrupted the call before the error: on the way out the bridge to the JVM may fail too."""
    before = error.__context__
    while before is not None and not isinstance(before, KeyboardInterrupt | SystemExit):
        before = before.__context__
    return before


def _terminated(_number: int, _frame: FrameType | None) -> NoReturn:
    raise TerminatedError(ExitCode.TERMINATED)


def _dropped(error: sys.UnraisableHookArgs) -> None:
    numbers = {KeyboardInterrupt: signal.SIGINT, TerminatedError: signal.SIGTERM}
    number = numbers.get(error.exc_type)
    if number is None:
        sys.__unraisablehook__(error)
        return
    # A signal and not only its handler: the call that waits for the JVM must return.
    again = threading.Timer(_AGAIN_SECONDS, signal.pthread_kill, [threading.main_thread().ident, number])
    again.daemon = True
    again.start()

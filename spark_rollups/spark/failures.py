"""Turns unforeseen failures into one line with the next step; and signals, which Python or py4j may lose."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Mapping
from types import FrameType
from typing import NoReturn

from py4j.protocol import Py4JError, Py4JJavaError

from exporter.domain.exit_codes import ExitCode

MORE_MEMORY = (
    "Spark has too little memory: give it more with --conf spark.driver.memory=4g, or 8g, and on a cluster its "
    "executors with --conf spark.executor.memory=4g"
)

_RIGHTS = (
    "Give this job the rights to list, read, write and delete there (docs/history.md#object-storage) and run it again"
)
_NEWER = "A newer release wrote that table: run this with the release that did, or move tables/ away and run it again"
_DAMAGED = (
    "Restore that table from a backup, or move tables/ away and run it again: all tables are then made of what is in "
    "the spool"
)

_CHECKPOINT = (
    "Move that checkpoint and _last_checkpoint beside it away and run it again: Delta then goes on from its log. Where "
    "that is not whole either, restore that table from a backup, or move tables/ away"
)
_KILLED = (
    "The system kills what takes more memory than there is: raise the limit of the pod, or on a cluster "
    "--conf spark.executor.memoryOverhead=2g (--conf spark.executor.memory=4g where an executor ended with 52), and "
    "run it again"
)

_UNKNOWN = (
    "What to do about it is not known here: that log has all of it, and `topic-liveness doctor` checks this host. The "
    "next run goes on where this one ended"
)

_NEXT_STEPS: Mapping[str, str] = {
    "AccessDeniedException": _RIGHTS,
    "DELTA_INVALID_PROTOCOL_VERSION": _NEWER,
    "DELTA_UNSUPPORTED_FEATURES": _NEWER,
    "ExecutorLostFailure": _KILLED,
    "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND": _KILLED,
    "Python worker exited": _KILLED,
    "No space left on device": "Free some space there and run it again",
    "DELTA_MISSING_PART_FILES": _CHECKPOINT,
    "DELTA_VERSIONS_NOT_CONTIGUOUS": _DAMAGED,
    "DELTA_TRUNCATED_TRANSACTION_LOG": _DAMAGED,
    # Files that storage does not give just now are no damage: these are there and wrong, or are not there.
    "FAILED_READ_FILE.FILE_NOT_EXIST": _DAMAGED,
    "ChecksumException": _DAMAGED,
    "is not a Parquet file": _DAMAGED,
    "ParquetDecodingException": _DAMAGED,
    "can not read class org.apache.parquet": _DAMAGED,
    "JsonParseException": _DAMAGED,
}
"""By what Java calls a failure; the first that is found counts."""


class SessionEndedError(Exception):
    """Spark's JVM ended before the job; the text names the cause and the next step."""


def is_lost_connection(error: Exception) -> bool:
    """Return whether the JVM gave no answer, as one that has ended."""
    return isinstance(error, Py4JError | ConnectionError | EOFError) and not isinstance(error, Py4JJavaError)


def find_cause(page: str) -> str | None:
    """Return the innermost cause that a page of Java's names, None where it names none."""
    lines = _lines(page)
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    signs = ("Exception", "Error", "Unrecognized", "Invalid", "Could not")
    return next(iter([*causes[::-1], *(line for line in lines if any(sign in line for sign in signs))]), None)


def _lines(page: str) -> list[str]:
    lines = (line.strip().removeprefix('Exception in thread "main" ') for line in page.splitlines())
    return [line for line in lines if line and not line.startswith(("at ", "... ", "File "))]


def shorten_error(error: Exception) -> str:
    """Return what went wrong: of Java's page the outermost error and the innermost cause."""
    lines = _lines(f"{type(error).__name__}: {error}")
    heads = [line.removeprefix(": ") for line in lines if line.startswith(": ")]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    if isinstance(error, SessionEndedError):
        return str(error)
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if any("OutOfMemoryError" in line for line in lines):
        return MORE_MEMORY
    if any("Python worker exited" in line for line in lines):
        return "a Python worker of Spark was ended from outside"
    return ", because of ".join(line.rstrip(".") for line in [(heads or lines)[0], *causes[-1:]])


def next_step(error: Exception) -> str:
    """Return what to do about it."""
    if isinstance(error, PermissionError):
        return _RIGHTS
    message = str(error)
    found = next((step for sign, step in _NEXT_STEPS.items() if sign in message), _UNKNOWN)
    return _CHECKPOINT if found == _DAMAGED and ".checkpoint." in message else found


_AGAIN_SECONDS = 0.05


class TerminationError(SystemExit):
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
    raise TerminationError(ExitCode.TERMINATED)


def _dropped(error: sys.UnraisableHookArgs) -> None:
    numbers = {KeyboardInterrupt: signal.SIGINT, TerminationError: signal.SIGTERM}
    number = numbers.get(error.exc_type)
    if number is None:
        sys.__unraisablehook__(error)
        return
    # A signal and not only its handler: the call that waits for the JVM must return.
    again = threading.Timer(_AGAIN_SECONDS, signal.pthread_kill, [threading.main_thread().ident, number])
    again.daemon = True
    again.start()

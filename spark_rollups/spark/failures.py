"""Turns failures into one line with the next step, and signals into the end of the process."""

import os
import signal
import threading
from collections.abc import Mapping

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


class KnownError(Exception):
    """What ends a job; the text names the thing, the cause and the next step."""

    exit_code = ExitCode.FOUND


class NotStartedError(KnownError):
    """What ends a job before it has done anything."""

    exit_code = ExitCode.NOT_STARTED


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


_FREE_LINE = "\r\033[2K\033[?25h"
"""A terminal shows what a stage waits for, without a cursor."""


def end_at_signals() -> None:
    """Have SIGINT and SIGTERM end this process at once with one line, whatever it does or waits for.

    Nothing is tidied up, as at a SIGKILL: the JVM ends with this process, and the next run completes what this one
    left. The signal is read in a thread, for py4j drops what a handler raises, and may wait for the JVM in it.
    """
    received, noted = os.pipe()
    os.set_blocking(noted, False)
    signal.set_wakeup_fd(noted)
    ignore_in_handlers()
    # While Spark starts, standard error is the log.
    threading.Thread(target=_end, args=(received, os.dup(2)), name="signals", daemon=True).start()


def ignore_in_handlers() -> None:
    """Leave both signals to the thread of ``end_at_signals``; Spark sets a handler of its own when it starts."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)


def _end(received: int, errors: int) -> None:
    (number,) = os.read(received, 1)
    what = "interrupted" if number == signal.SIGINT else "terminated"
    free = _FREE_LINE if os.isatty(errors) else ""
    os.write(errors, f"{free}{what}: run it again, what is done is not done twice\n".encode())
    os._exit(128 + number)

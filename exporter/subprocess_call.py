"""Calls in a process of their own that ends with the call.

What a library takes of memory goes with the process that imports it. The exporter needs Arrow for a moment every few
minutes, and would hold it all the time. A call that ends its process, fills the memory or hangs costs itself alone.
"""

from __future__ import annotations

import errno
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pkgutil import resolve_name
from typing import Any, NamedTuple

from exporter.memory import leave_out

ANSWER_SECONDS = 300.0
"""So long a call may take by default: several times the longest that object storage takes for a request and its
repetitions, which is under a minute. A file system that hangs gives no answer at all."""

_END_SECONDS = 1.0
"""A process that is killed ends within this time, unless a file system keeps it from ending."""

_ONE_AT_A_TIME = threading.Lock()
"""Several at once would need the memory of several."""

_leftovers: list[subprocess.Popen[bytes]] = []
"""Processes that were killed and have not ended yet. While there is one, no other call is started."""

_PROGRAM = "from exporter.subprocess_call import main; main()"
"""Not ``-m exporter.subprocess_call``: the classes of answers would be those of ``__main__``."""


class EndedError(OSError):
    """The process ended without an answer: memory ran out, or somebody ended it."""


class ForeignError(Exception):
    """An error of a class that this process does not import; its text begins with the name of the class."""


class _Request(NamedTuple):
    function: str
    arguments: tuple[Any, ...]
    level: int


class _Response(NamedTuple):
    """The result or the error of a call, and what it logged: logger, level, text."""

    result: Any
    error: Exception | None
    logged: Sequence[tuple[str, int, str]]


def with_library(library: str, function: str, *arguments: Any, seconds: float = ANSWER_SECONDS) -> Any:
    """Call a function that needs a library: here where this process has it already, else as ``call`` does."""
    if library in sys.modules:
        return resolve_name(function)(*arguments)
    return call(function, *arguments, seconds=seconds)


def call(function: str, *arguments: Any, seconds: float = ANSWER_SECONDS) -> Any:
    """Call ``package.module:function`` with arguments that can be pickled in a new process; return its result.

    The log gets what it logs there. Its errors are raised here; those whose class is not Python's or this package's
    are a ForeignError. Raises OSError where there can be no process, EndedError, and TimeoutError (ETIMEDOUT) where
    another call does not end within ``seconds``, or this one after that.
    """
    level = logging.getLogger("exporter").getEffectiveLevel()
    if not _ONE_AT_A_TIME.acquire(timeout=seconds):
        raise _no_answer()
    try:
        _leftovers[:] = [process for process in _leftovers if process.poll() is None]
        if _leftovers:
            raise _no_answer()
        response = _response_to(_Request(function, arguments, level), seconds)
    finally:
        _ONE_AT_A_TIME.release()
    for name, number, text in response.logged:
        logging.getLogger(name).log(number, "%s", text)
    if response.error is not None:
        raise response.error
    return response.result


def _no_answer() -> OSError:
    return OSError(errno.ETIMEDOUT, "the storage does not answer")


def _response_to(request: _Request, seconds: float) -> _Response:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            process = _started(theirs)
        ours.settimeout(seconds)
        response: _Response | None = None
        try:
            # A process that ended takes no more, and says nothing.
            with suppress(BrokenPipeError, ConnectionResetError, EOFError, pickle.UnpicklingError):
                with ours.makefile("wb") as file:
                    pickle.dump(request, file, pickle.HIGHEST_PROTOCOL)
                ours.shutdown(socket.SHUT_WR)
                with ours.makefile("rb") as file:
                    response = pickle.load(file)  # noqa: S301 - from a process of our own
        except BaseException as error:
            _kill(process)
            if isinstance(error, TimeoutError):
                raise _no_answer() from None
            raise
        code = _code_of(process, seconds)
    if response is None:
        raise EndedError(errno.ECHILD, f"the process that was to do it {end_of(code)}")
    return response


def _code_of(process: subprocess.Popen[bytes], seconds: float) -> int:
    """Return how a process ended that has answered, or has closed its connection; one that does not end is killed."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        _kill(process)
        return -signal.SIGKILL


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        _leftovers.append(process)


def _started(connection: socket.socket) -> subprocess.Popen[bytes]:
    # Whoever stops the exporter may mean all its processes, and this one writes the last history: it keeps the mask.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-c", _PROGRAM, str(connection.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[connection.fileno()],
            start_new_session=True,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_of(code: int) -> str:
    """Return how a process of this exit ``code`` ended, as the end of a sentence."""
    if code >= 0:
        return f"ended with exit code {code}"
    with suppress(ValueError):
        return f"was ended by {signal.Signals(-code).name}"
    return f"was ended by signal {-code}"


class _LogLines(logging.Handler):
    """Keeps log lines for the calling process."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.name, record.levelno, record.getMessage()))


def _perform(request: _Request) -> _Response:
    logged = _LogLines()
    logging.basicConfig(level=logging.WARNING, handlers=[logged], force=True)
    logging.getLogger("exporter").setLevel(request.level)
    try:
        return _Response(resolve_name(request.function)(*request.arguments), None, logged.lines)
    except MemoryError:
        return _Response(None, OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), logged.lines)
    except Exception as error:  # noqa: BLE001 - the caller raises it again
        return _Response(None, _importable(error), logged.lines)


def _importable(error: Exception) -> Exception:
    """Return an error that the exporter can raise without an import; its frames go with it as a note."""
    if type(error).__module__.partition(".")[0] not in ("builtins", "exporter"):
        error = ForeignError(f"{type(error).__name__}: {error}").with_traceback(error.__traceback__)
    error.add_note("".join(traceback.format_tb(error.__traceback__)).rstrip())
    return error


def main() -> None:
    """Answer the one call that comes through the socket whose descriptor is the argument."""
    leave_out("pandas")
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        try:
            with connection.makefile("rb") as file:
                response = _perform(pickle.load(file))  # noqa: S301 - from the exporter
            with connection.makefile("wb") as file:
                pickle.dump(response, file, pickle.HIGHEST_PROTOCOL)
        except (EOFError, pickle.UnpicklingError, OSError):
            os._exit(1)  # the exporter has ended, and nobody waits for an answer
    os._exit(0)  # at once: libraries take their time to end

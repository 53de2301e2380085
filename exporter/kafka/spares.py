"""Client processes that are forked when the exporter starts: they share its memory pages, and start while it does.

A process with threads must not fork: a lock that another thread held would stay held in the child for ever. Client
processes that are needed later are therefore ``started`` as new processes.
"""

from __future__ import annotations

import gc
import logging
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from typing import IO, NoReturn

log = logging.getLogger(__name__)


class Spare:
    """A forked process that waits for its clients; its interface is that of a ``subprocess.Popen``."""

    def __init__(self, pid: int, stderr: IO[bytes], ours: socket.socket) -> None:
        """``ours`` is the exporter's end of the socket, whose other end the process has."""
        self.pid = pid
        self.stderr = stderr
        self.socket = ours
        self._code: int | None = None
        self._ending = threading.Lock()

    def kill(self) -> None:
        """End it at once, where it still runs."""
        with self._ending:
            if self._code is None:
                os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Wait for its end; return its exit code, negative for a signal."""
        if self._code is None:
            with suppress(ChildProcessError):
                # Its number stays its own, so that ``kill`` cannot reach another process.
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with self._ending:
            if self._code is None:
                self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            return self._code

    def dismiss(self) -> None:
        """End it without use."""
        self.socket.close()
        self.kill()
        self.wait()
        self.stderr.close()


spares: list[Spare] = []
"""Processes that are not in use yet."""


def fork_spares(count: int) -> None:
    """Add ``count`` spare processes; fewer if the system allows no more, none if this process has threads."""
    threads = Path("/proc/self/task")
    if not threads.is_dir() or len(list(threads.iterdir())) > 1:
        return
    gc.collect()
    gc.freeze()  # a collection writes to every page that it looks at, which is then no longer shared
    try:
        for _ in range(count):
            spare = _fork()
            spares.append(spare)
    except OSError as error:
        log.debug("no spare client process: %s", error)


def started() -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a process; return it and the exporter's end of its connection."""
    ours, theirs = socket.socketpair()
    with theirs:
        # A session of its own: what a terminal sends to the exporter's group is not meant for it.
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "exporter.kafka.child", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    return process, ours


def _fork() -> Spare:
    ours, theirs = socket.socketpair()
    reading, writing = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        ours.close()
        os.close(reading)
        raise
    else:
        if pid == 0:
            _become_client(theirs.fileno(), writing)
    finally:
        theirs.close()
        os.close(writing)
    return Spare(pid, os.fdopen(reading, "rb"), ours)


def _become_client(connection: int, stderr: int) -> NoReturn:
    """Run ``exporter.kafka.child`` in this forked process, with nothing open but its connection and standard files."""
    try:
        # A session of its own: what a terminal sends to the exporter's group is not meant for it.
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(stderr, 2)
        # With an end of another client's connection, that client would not notice the end of the exporter.
        for each in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
            if each > 2 and each != connection:
                with suppress(OSError):  # that of the folder itself is closed already
                    os.close(each)
        sys.argv = ["exporter.kafka.child", str(connection)]
        runpy.run_module("exporter.kafka.child", run_name="__main__")
    except BaseException:  # noqa: BLE001 - the frames above are the exporter's, and must not go on here
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(1)

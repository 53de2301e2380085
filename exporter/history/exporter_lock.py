"""Allows one ``serve`` at a time for each exporter name, and knows when the one before polled last."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from exporter.history.spool import HistoryError
from exporter.history.tables import safe
from exporter.storage.files import Location
from exporter.storage.lease import Lease, TakenError

log = logging.getLogger(__name__)

WAIT_SECONDS = 60.0
"""How long a start waits for the process before: as long as Kubernetes and systemd let one end."""


class ExporterLock:
    """``<history>/serve-<exporter>.lock``, held as long as this process lives.

    Two processes of one name would overwrite each other's files. The time of the file is that of the last poll.
    """

    def __init__(
        self,
        history: Location,
        exporter: str,
        *,
        wait_seconds: float = WAIT_SECONDS,
        ended: Callable[[], bool] = lambda: False,
    ) -> None:
        """Take the lock; wait for a process that ends, until this one is ``ended`` too.

        Raises HistoryError where another process holds it for so long, and where locking fails.
        """
        path = history / f"serve-{safe(exporter)}.lock"
        self._history = history
        self._held: Lease | _LockedFile
        try:
            self._held = _LockedFile(path, wait_seconds, ended) if isinstance(path, Path) else Lease(path)
        except TakenError as error:
            raise HistoryError(
                f"history.folder {str(history)!r} is written by another `serve` under the exporter name {exporter!r} "
                f"({error}): both would overwrite the same files. Stop that one, or set `exporter` to another name."
            ) from None
        except OSError as error:
            raise HistoryError(
                f"{str(path)!r} must be a file that this process can write and lock: {error.strerror}. Give its owner "
                "write access, and keep the history on a file system with locks."
            ) from error

    @property
    def last_poll(self) -> float | None:
        """When the process before polled last (Unix seconds); None where there was none, or none that was killed."""
        try:
            return float(self._held.left["polled"])
        except (KeyError, TypeError, ValueError):
            return None

    def polled(self) -> None:
        """Record a poll that was added to history. Raises OSError."""
        self._held.note(polled=time.time())

    def require(self) -> None:
        """Raise OSError where this process no longer holds the lock, or cannot be sure."""
        try:
            self._held.require()
        except TakenError as error:
            raise BlockingIOError(
                errno.EBUSY, f"another `serve` of this name ({error}) took over: stop one of them", str(self._history)
            ) from None

    def release(self, *, clean: bool) -> None:
        """Release the lock; ``clean`` means that all history was written. Raises OSError."""
        self._held.release(clean=clean)


class _LockedFile:
    """A file of this host, locked as long as this process lives; its time is that of the last poll."""

    def __init__(self, path: Path, wait_seconds: float, ended: Callable[[], bool]) -> None:
        """Raises TakenError where another process holds it after ``wait_seconds``, and OSError."""
        self._path = path
        self._file = _awaited(path, wait_seconds, ended)
        self._file.seek(0)
        self.left: dict[str, float] = {}
        """When the process before polled last, where it was killed; else nothing."""
        if self._file.read():
            self.left = {"polled": os.fstat(self._file.fileno()).st_mtime}
        self._sign()
        os.utime(self._file.fileno(), (time.time(), self.left.get("polled", 0.0)))

    def note(self, *, polled: float) -> None:
        """Record a poll. Raises OSError."""
        os.utime(self._file.fileno(), (polled, polled))

    def require(self) -> None:
        """Take the lock again where somebody removed its file. Raises TakenError where another process has it now."""
        try:
            if os.path.samestat(self._path.stat(), os.fstat(self._file.fileno())):
                return
        except FileNotFoundError:
            pass
        again = _locked(self._path)
        self._file.close()
        self._file = again
        self._sign()

    def release(self, *, clean: bool) -> None:
        """Release the lock; if not ``clean``, the file shows the next process that this one lost something."""
        if clean:
            self._file.truncate(0)
        self._file.close()

    def _sign(self) -> None:
        self._file.truncate(0)
        self._file.write(json.dumps({"process": os.getpid(), "host": socket.gethostname()}) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def _awaited(path: Path, seconds: float, ended: Callable[[], bool]) -> IO[str]:
    """Lock the file as soon as the process that holds it has ended, as a pod that is being replaced does."""
    deadline = time.monotonic() + seconds
    logged = False
    while True:
        try:
            return _locked(path)
        except TakenError as error:
            if time.monotonic() >= deadline or ended():
                raise
            if not logged:
                log.warning(
                    "%s is locked by another `serve` (%s): waiting up to %.0f s for its end", path, error, seconds
                )
                logged = True
        time.sleep(0.2)


def _locked(path: Path) -> IO[str]:
    file = path.open("a+", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise TakenError(_holder(path)) from None
    except OSError:
        file.close()
        raise
    return file


def _holder(path: Path) -> str:
    try:
        holder = json.loads(path.read_text(encoding="utf-8"))
        return f"process {holder['process']} on host {holder['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "its process is not known"

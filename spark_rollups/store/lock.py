"""One rollup at a time on one history folder: a locked file on this host, a lease in object storage."""

import errno
import fcntl
import json
import logging
import os
import random
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from exporter.storage.files import FileInfo, Location, ObjectPath, delete, files_in, open_file, put
from spark_rollups.spark.failures import NotStartedError

log = logging.getLogger(__name__)

RENEW_SECONDS = 10.0
"""Seconds between two renewals of a claim by its holder."""

EXPIRY_SECONDS = 40.0
"""Age of a claim in seconds, by the clock of the storage. A claim that was not renewed for longer is void."""

_SURE = 0.75
"""After this share of the expiry a holder is sure no more that it is one."""

_NOTE_BYTES = 2**16
_CLAIM = re.compile(r"[0-9a-f]{32}\.json")


class LockError(NotStartedError):
    """The history folder cannot be locked; the message gives the reason and the next step."""


class LockTakenError(BlockingIOError):
    """Another process holds the name; ``strerror`` says which."""

    def __init__(self, holder: str) -> None:
        super().__init__(errno.EBUSY, holder)


@contextmanager
def hold_rollup_lock(history: Location) -> Iterator[Callable[[], None]]:
    """Hold ``<history>/rollup.lock``; yield a check that raises LockError once this process may no longer hold it.

    Raises LockError if another process holds the lock, and if it cannot be taken. In object storage the next process
    waits until the lease of a killed one expires.
    """
    path = history / "rollup.lock"
    try:
        held = Lease(path) if isinstance(path, ObjectPath) else _lock_file(path)
    except LockTakenError as taken:
        raise LockError(
            f"{history} is being rolled up by {taken.strerror}: wait until it has ended, or end it, and run this again"
        ) from None
    except OSError as failed:
        advice = f"make {history} writable for this user, on a file system that knows locks"
        if isinstance(path, ObjectPath):
            advice = "give this process the rights to list, read, write and delete there (docs/history.md)"
        elif failed.errno == errno.ENOSPC:
            advice = "make room there, and run this again"
        raise LockError(f"{path} cannot be written: {failed.strerror}; {advice}") from failed
    try:
        yield held.require_sure if isinstance(held, Lease) else lambda: None
    finally:
        with suppress(OSError):  # a lease then expires
            held.close()


def _lock_file(path: Path) -> IO[str]:
    """Return a locked file, which names its holder, until it is closed. Raises LockTakenError, and OSError."""
    file = path.open("a+", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.truncate(0)
        file.write(json.dumps(_identity()) + "\n")
        file.flush()
    except BlockingIOError:
        file.close()
        raise LockTakenError(_holder(path)) from None
    except OSError:
        file.close()
        raise
    return file


def _identity() -> dict[str, str | int]:
    return {"process": os.getpid(), "host": socket.gethostname()}


def _holder(path: Location) -> str:
    try:
        with open_file(path) as file:
            note = json.loads(file.read(_NOTE_BYTES))
        return f"process {note['process']} on host {note['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "a process that is not known"


class Lease:
    """A name that one process holds for as long as it renews its claim: an object of its own below the name.

    Whoever writes a claim and then sees none of another holds it. Of two at once each is seen by one of them at
    least, since what was written is listed at once; both then draw back and try again. So it needs no step that
    only some storages have. Claims expire by the clock of the storage; by those of its host a holder sees that it was
    suspended. One that renewed too late has lost it for good.
    """

    def __init__(
        self, folder: ObjectPath, *, renew_seconds: float = RENEW_SECONDS, expiry_seconds: float = EXPIRY_SECONDS
    ) -> None:
        """Take it; where a claim is there, wait until it was renewed or has expired.

        Raises LockTakenError where another process renews one, and OSError.
        """
        self.folder = folder
        self._renew_seconds, self._expiry_seconds = renew_seconds, expiry_seconds
        self._over = threading.Event()
        self._lost = False
        self._take()
        self._thread = threading.Thread(target=self._keep, name=f"lease {folder.name}", daemon=True)
        self._thread.start()

    @property
    def sure(self) -> bool:
        """Whether no other process can hold it."""
        return not self._lost and not self._is_late()

    def require_sure(self) -> None:
        """Raise LockError once another process can hold it."""
        if not self.sure:
            raise LockError(
                f"{self.folder} may be held by another process: the lease was not renewed for "
                f"{_SURE * EXPIRY_SECONDS:.0f} s, or the clock was set; run this again"
            )

    def close(self) -> None:
        """Release it. Raises OSError; it then expires."""
        self._over.set()
        self._thread.join()
        delete(self._claim)

    def _take(self) -> None:
        seen: dict[Location, float] = {}
        while True:
            # A new name each time: a claim that is drawn back and tried again is not one that is renewed.
            self._claim = self.folder / f"{uuid.uuid4().hex}.json"
            began = self._write()
            alive, expired = self._others()
            if not alive:
                self._renewed = began
                break
            delete(self._claim)
            for other in alive:
                if other.written > seen.setdefault(other.path, other.written):
                    raise LockTakenError(_holder(other.path))
            time.sleep(random.uniform(0.05, 0.25) * self._renew_seconds)  # noqa: S311 - so that two do not meet again
        for other in expired:
            delete(other.path)

    def _is_late(self) -> bool:
        """Return whether the last renewal began too long ago, by either clock."""
        passed = max(now - before for now, before in zip(_clocks(), self._renewed, strict=True))
        return passed > _SURE * self._expiry_seconds

    def _write(self) -> tuple[float, float]:
        """Write the claim; return when that began."""
        began, note = _clocks(), json.dumps(_identity()).encode()
        put(self._claim, lambda file: file.write(note))
        return began

    def _others(self) -> tuple[list[FileInfo], list[FileInfo]]:
        """Return the claims of others: those that are alive, and those that have expired."""
        claims = {claim.path: claim for claim in files_in(self.folder, _CLAIM)}
        since = claims.pop(self._claim).written - self._expiry_seconds
        alive = [other for other in claims.values() if other.written > since]
        return alive, [other for other in claims.values() if other.written <= since]

    def _keep(self) -> None:
        while not self._over.wait(self._renew_seconds):
            try:
                began = self._write()
            except Exception as error:  # noqa: BLE001 - the next renewal may succeed
                # Its text may quote anything, also a secret.
                cause = getattr(error, "strerror", None) or f"an internal error ({type(error).__name__})"
                log.warning("the lease %s cannot be renewed: %s", self.folder, cause)
                began = self._renewed
            # Measured at the end of the write: by then it may have expired, and another process may hold the lease.
            if self._is_late():
                self._lost = True
                with suppress(OSError):  # it then expires
                    delete(self._claim)
                return
            self._renewed = began


def _clocks() -> tuple[float, float]:
    """Return the time by a clock that nobody sets, and by one that is set right after a virtual machine was paused."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)), time.time()

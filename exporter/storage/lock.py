"""One process at a time by a name: a locked file on this host, a lease in object storage, which locks no files."""

from __future__ import annotations

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

from exporter.clock import SystemClock
from exporter.storage.files import Location, ObjectPath, Stored, delete, files_in, opened, put

log = logging.getLogger(__name__)

RENEW_SECONDS = 10.0
"""Seconds between two renewals of a claim by its holder."""

EXPIRY_SECONDS = 40.0
"""Age of a claim in seconds, by the clock of the storage. A claim that was not renewed for longer is void."""

_SURE = 0.75
"""After this share of the expiry a holder is sure no more that it is one."""

_NOTE_BYTES = 2**16
_CLAIM = re.compile(r"[0-9a-f]{32}\.json")


class TakenError(BlockingIOError):
    """Another process holds the name; ``strerror`` says which."""

    def __init__(self, holder: str) -> None:
        super().__init__(errno.EBUSY, holder)


def take(path: Location) -> FileLock | Lease:
    """Take the lock. Raises TakenError where another process holds it, and OSError where it cannot be taken."""
    return FileLock(path) if isinstance(path, Path) else Lease(path)


@contextmanager
def alone(path: Location, error: type[Exception], doing: str) -> Iterator[Callable[[], None]]:
    """Hold the lock; yield what raises ``error`` once this process is not sure that it holds it.

    Raises ``error`` where the lock cannot be taken. ``doing`` is a sentence on what its holder does, up to its "by".
    """

    def in_use(taken: TakenError) -> Exception:
        return error(f"{doing} by {taken.strerror}: wait until it has ended, or end it, and run this again")

    try:
        lock = take(path)
    except TakenError as taken:
        raise in_use(taken) from None
    except OSError as failed:
        advice = f"make {path.parent} writable for this user, on a file system that knows locks"
        if isinstance(path, ObjectPath):
            advice = "give this process the rights to list, read, write and delete there (docs/history.md)"
        elif failed.errno == errno.ENOSPC:
            advice = "make room there, and run this again"
        raise error(f"{path} cannot be written: {failed.strerror}; {advice}") from failed

    def require() -> None:
        try:
            lock.require()
        except TakenError as taken:
            raise in_use(taken) from None
        except OSError as unsure:
            raise error(f"{path} may be held by another process: {unsure.strerror}; run this again") from None

    try:
        yield require
    finally:
        with suppress(OSError):  # a lease then expires
            lock.release()


class FileLock:
    """A file of this host that is locked for as long as this process lives; it names its holder."""

    def __init__(self, path: Path) -> None:
        """Make it where it is not there, and lock it. Raises TakenError, and OSError."""
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = _locked(path)

    def require(self) -> None:
        """Take the lock again where somebody removed its file. Raises TakenError, and OSError."""
        try:
            if os.path.samestat(self._path.stat(), os.fstat(self._file.fileno())):
                return
        except FileNotFoundError:
            pass
        again = _locked(self._path)
        self._file.close()
        self._file = again

    def release(self) -> None:
        """Release the lock."""
        self._file.close()


def _locked(path: Path) -> IO[str]:
    file = path.open("a+", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.truncate(0)
        file.write(json.dumps(_identity()) + "\n")
        file.flush()
    except BlockingIOError:
        file.close()
        raise TakenError(_holder(path)) from None
    except OSError:
        file.close()
        raise
    return file


def _identity() -> dict[str, str | int]:
    return {"process": os.getpid(), "host": socket.gethostname()}


def _holder(path: Location) -> str:
    try:
        with opened(path) as file:
            note = json.loads(file.read(_NOTE_BYTES))
        return f"process {note['process']} on host {note['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "a process that is not known"


class Lease:
    """A name that one process holds for as long as it renews its claim: an object of its own below the name.

    Whoever writes a claim and then sees none of another holds it. Of two at once each is seen by one of them at
    least, since what was written is listed at once; both then draw back and try again. So it needs no step that
    only some storages have. Claims expire by the clock of the storage; by those of its host a holder sees that it was
    suspended.
    """

    def __init__(
        self, folder: ObjectPath, *, renew_seconds: float = RENEW_SECONDS, expiry_seconds: float = EXPIRY_SECONDS
    ) -> None:
        """Take it; where a claim is there, wait until it was renewed or has expired.

        Raises TakenError where another process renews one, and OSError.
        """
        self.folder = folder
        self._renew_seconds, self._expiry_seconds = renew_seconds, expiry_seconds
        self._holder = ""
        """Who has it now, where that is another process."""
        self._over = threading.Event()
        self._take()
        self._thread = threading.Thread(target=self._keep, name=f"lease {folder.name}", daemon=True)
        self._thread.start()

    def require(self) -> None:
        """Raises TakenError where another process has it now, and OSError while the storage gives no answer."""
        if self._holder:
            raise TakenError(self._holder)
        if self._cut_off(_clocks()):
            cause = f"its lease was not renewed for {_SURE * self._expiry_seconds:.0f} s, or the clock was set"
            raise TimeoutError(None, cause, str(self.folder))

    def release(self) -> None:
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
                    raise TakenError(_holder(other.path))
            time.sleep(random.uniform(0.05, 0.25) * self._renew_seconds)  # noqa: S311 - so that two do not meet again
        for other in expired:
            delete(other.path)

    def _cut_off(self, at: tuple[float, float]) -> bool:
        """Return whether the last renewal began too long before this time, by either clock."""
        passed = max(now - before for now, before in zip(at, self._renewed, strict=True))
        return passed > _SURE * self._expiry_seconds

    def _write(self) -> tuple[float, float]:
        """Write the claim; return when that began."""
        began, note = _clocks(), json.dumps(_identity()).encode()
        put(self._claim, lambda file: file.write(note))
        return began

    def _others(self) -> tuple[list[Stored], list[Stored]]:
        """Return the claims of others: those that are alive, and those that have expired."""
        claims = {claim.path: claim for claim in files_in(self.folder, _CLAIM)}
        since = claims.pop(self._claim).written - self._expiry_seconds
        alive = [other for other in claims.values() if other.written > since]
        return alive, [other for other in claims.values() if other.written <= since]

    def _keep(self) -> None:
        pause = self._renew_seconds
        while not self._over.wait(pause):
            pause = self._renew_seconds
            try:
                began = self._write()
                # Measured at the end of the write: by then it may have expired, and another process may hold the lease.
                alive = self._others()[0] if self._cut_off(_clocks()) else []
                if alive:
                    delete(self._claim)
            except Exception as error:  # noqa: BLE001 - without this thread nothing could be written any more
                # Its text may quote anything, also a secret.
                cause = getattr(error, "strerror", None) or f"an internal error ({type(error).__name__})"
                log.warning("the lease %s cannot be renewed: %s", self.folder, cause)
                pause = self._renew_seconds / 10  # it took long enough to fail
                continue
            if alive:
                self._holder = _holder(alive[0].path)
                return
            # Not before: where it was cut off, another process may hold it, and this one is not sure until then.
            self._renewed = began


def _clocks() -> tuple[float, float]:
    """Return the time by a clock that nobody sets, and by one that is set right after a virtual machine was paused."""
    clock = SystemClock()
    return clock.monotonic(), clock.now()

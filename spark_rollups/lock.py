"""One rollup at a time on one history folder."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from exporter.storage.files import Location, ObjectPath
from exporter.storage.lease import leased


class LockedError(Exception):
    """The history folder cannot be locked; the message gives the reason and the next step."""


@contextmanager
def only_one(history: Location) -> Iterator[Callable[[], None]]:
    """Hold ``<history>/rollup.lock``; yield a check that raises LockedError once this process may no longer hold it.

    Raises LockedError if another process holds the lock, and if it cannot be taken. In object storage it is a lease:
    the next process waits until the lease of a killed one expires.
    """
    if isinstance(history, ObjectPath):
        with _leased(history) as require:
            yield require
    else:
        with _file_locked(history):
            yield lambda: None


def _leased(history: ObjectPath) -> AbstractContextManager[Callable[[], None]]:
    return leased(
        history / "rollup.lock",
        lambda holder: LockedError(_in_use(history, holder)),
        LockedError,
        lambda cause: LockedError(f"{history} may be rolled up by another process: {cause}; run this again"),
    )


def _in_use(history: Location, holder: str) -> str:
    return f"{history} is being rolled up by {holder}: wait until it has ended, or end it, and run this again"


@contextmanager
def _file_locked(history: Path) -> Iterator[None]:
    """Hold the file ``<history>/rollup.lock``; the operating system lets go of it however this process ends."""
    path = history / "rollup.lock"
    try:
        opened = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise LockedError(
            f"{path} cannot be written: {error.strerror}; make {history} writable for this user"
        ) from error
    with opened as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().strip() or "another process"
            raise LockedError(_in_use(history, holder)) from None
        except OSError as error:
            raise LockedError(
                f"{path} cannot be locked: {error.strerror}; keep the history on a file system that knows locks"
            ) from error
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on host {socket.gethostname()}\n")
        lock.flush()
        yield
        lock.truncate(0)

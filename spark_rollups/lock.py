"""One rollup at a time on one history folder."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class LockedError(Exception):
    """The history folder cannot be had for oneself; the text says why and names the next step."""


@contextmanager
def only_one(history: Path) -> Iterator[None]:
    """Hold ``<history>/rollup.lock``; the operating system lets go of it however this process ends.

    Raises LockedError at once where another process holds it, and where it cannot be held.
    """
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
            raise LockedError(
                f"{history} is being rolled up by {holder}: wait until it has ended, or end it, and run this again"
            ) from None
        except OSError as error:
            raise LockedError(
                f"{path} cannot be locked: {error.strerror}; keep the history on a file system that knows locks"
            ) from error
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on host {socket.gethostname()}\n")
        lock.flush()
        yield
        lock.truncate(0)

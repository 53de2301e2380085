"""One rollup at a time on one history folder."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class LockedError(Exception):
    """Another rollup works on the history folder; the text names it and the next step."""


@contextmanager
def only_one(history: Path) -> Iterator[None]:
    """Hold ``<history>/rollup.lock``; the operating system lets go of it however this process ends.

    Raises LockedError at once where another process holds it.
    """
    with (history / "rollup.lock").open("a+", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.seek(0)
            holder = lock.read().strip() or "another process"
            raise LockedError(
                f"{history} is being rolled up by {holder}: wait until it has ended, or end it, and run this again"
            ) from None
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on host {socket.gethostname()}\n")
        lock.flush()
        yield
        lock.truncate(0)

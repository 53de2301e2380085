"""One rollup at a time on one history folder."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from exporter.storage.files import Location
from exporter.storage.lock import alone


class LockedError(Exception):
    """The history folder cannot be locked; the message gives the reason and the next step."""


def only_one(history: Location) -> AbstractContextManager[Callable[[], None]]:
    """Hold ``<history>/rollup.lock``; yield a check that raises LockedError once this process may no longer hold it.

    Raises LockedError if another process holds the lock, and if it cannot be taken. In object storage the next process
    waits until the lease of a killed one expires.
    """
    return alone(history / "rollup.lock", LockedError, f"{history} is being rolled up")

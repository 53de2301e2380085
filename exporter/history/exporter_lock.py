"""Allows one ``serve`` at a time for each exporter name."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from exporter.history.spool import HistoryError
from exporter.history.tables import safe
from exporter.storage.files import Location
from exporter.storage.lock import FileLock, Lease, TakenError, take

log = logging.getLogger(__name__)

WAIT_SECONDS = 60.0
"""How long a start waits for the process before: as long as Kubernetes and systemd let one end."""


def take_name(
    history: Location,
    exporter: str,
    *,
    wait_seconds: float = WAIT_SECONDS,
    ended: Callable[[], bool] = lambda: False,
) -> FileLock | Lease:
    """Take ``<history>/serve-<exporter>.lock``: two processes of one name would overwrite each other's files.

    Waits for a process that ends, until this one is ``ended`` too. Raises HistoryError where another process holds it
    for so long, and where locking fails.
    """
    path = history / f"serve-{safe(exporter)}.lock"
    deadline, logged = time.monotonic() + wait_seconds, False
    while True:
        try:
            return take(path)
        except TakenError as error:
            holder = error.strerror
            if time.monotonic() >= deadline or ended():
                raise HistoryError(
                    f"history.folder {str(history)!r} is written by another `serve` under the exporter name "
                    f"{exporter!r} ({holder}): both would overwrite the same files. Stop that one, or set `exporter` "
                    "to another name."
                ) from None
        except OSError as error:
            raise HistoryError(
                f"{str(path)!r} must be a file that this process can write and lock: {error.strerror}. Give its owner "
                "write access, and keep the history on a file system with locks."
            ) from error
        if not logged:
            log.warning(
                "%s is locked by another `serve` (%s): waiting up to %.0f s for its end", path, holder, wait_seconds
            )
            logged = True
        time.sleep(0.2)

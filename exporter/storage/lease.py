"""One process at a time by a name in object storage, where no file can be locked."""

from __future__ import annotations

import json
import logging
import os
import random
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

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


class TakenError(Exception):
    """Another process holds it; the text says which."""


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
        self.left: Mapping[str, Any] = {}
        """The note of the holder before, where it did not release the lease; else nothing."""
        self._renew_seconds, self._expiry_seconds = renew_seconds, expiry_seconds
        self._note: dict[str, str | float] = {"process": os.getpid(), "host": socket.gethostname()}
        self._holder = ""
        """Who has it now, where that is another process."""
        self._over = threading.Event()
        self._take()
        self._thread = threading.Thread(target=self._keep, name=f"lease {folder.name}", daemon=True)
        self._thread.start()

    def note(self, **values: float) -> None:
        """Have the next renewal write values for whoever comes after this process."""
        self._note = {**self._note, **values}

    def require(self) -> None:
        """Raise TakenError where another process has it now, and OSError while the storage gives no answer."""
        if self._holder:
            raise TakenError(self._holder)
        if self._cut_off(_clocks()):
            cause = f"its lease was not renewed for {_SURE * self._expiry_seconds:.0f} s, or the clock was set"
            raise TimeoutError(None, cause, str(self.folder))

    def release(self, *, clean: bool) -> None:
        """Release it; where not ``clean``, the note is left to the next."""
        self._over.set()
        self._thread.join()
        if clean:
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
                    raise TakenError(_holder(other))
            time.sleep(random.uniform(0.05, 0.25) * self._renew_seconds)  # noqa: S311 - so that two do not meet again
        for other in sorted(expired):
            self.left = _note_of(other)
            delete(other.path)
        # Until this process writes a note of its own, that of the one before is not lost.
        self._note = {**self.left, **self._note}

    def _cut_off(self, at: tuple[float, float]) -> bool:
        """Return whether the last renewal began too long before this time, by either clock."""
        passed = max(now - before for now, before in zip(at, self._renewed, strict=True))
        return passed > _SURE * self._expiry_seconds

    def _write(self) -> tuple[float, float]:
        """Write the claim; return when that began."""
        began, note = _clocks(), json.dumps(self._note).encode()
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
                self._holder = _holder(alive[0])
                return
            # Not before: where it was cut off, another process may hold it, and this one is not sure until then.
            self._renewed = began


def _clocks() -> tuple[float, float]:
    """Return the time by a clock that nobody sets, and by one that is set right after a virtual machine was paused."""
    clock = SystemClock()
    return clock.monotonic(), clock.now()


def _holder(claim: Stored) -> str:
    note = _note_of(claim)
    return f"process {note.get('process')} on host {note.get('host')}" if note else "a process that is not known"


def _note_of(claim: Stored) -> Mapping[str, Any]:
    try:
        with opened(claim.path) as file:
            note = json.loads(file.read(_NOTE_BYTES))
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}


@contextmanager
def leased(
    path: ObjectPath,
    taken: Callable[[str], Exception],
    refused: Callable[[str], Exception],
    unsure: Callable[[str | None], Exception],
) -> Iterator[Callable[[], None]]:
    """Hold a lease; yields what raises an error once this process is not sure that it has it.

    ``taken`` makes the error of a lease that another process holds, from who that is; ``refused`` that of a lease that
    cannot be written, from a text; ``unsure`` that of one that was not renewed, from the cause.
    """
    try:
        lease = Lease(path)
    except TakenError as error:
        raise taken(str(error)) from None
    except OSError as error:
        raise refused(
            f"{path} cannot be written: {error.strerror}; give this process the rights to list, read, write and delete "
            "there (docs/history-folder.md)"
        ) from error

    def require() -> None:
        try:
            lease.require()
        except TakenError as error:
            raise taken(str(error)) from None
        except OSError as error:
            raise unsure(error.strerror) from None

    try:
        yield require
    finally:
        with suppress(OSError):  # it then expires
            lease.release(clean=True)

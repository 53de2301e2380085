"""Allows one ``serve`` at a time for each exporter name. It knows what a killed process lost, and the last write."""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import re
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from exporter.domain import Coverage
from exporter.history.spool import (
    STAMP,
    TABLES,
    HistoryError,
    file_stem,
    finished_files,
    safe,
)
from exporter.history.tables import ForeignFileError, last_end
from exporter.storage import Location
from exporter.storage.lease import Lease, TakenError

_STAMP = re.compile(r"\d{8}T\d{12}\.parquet")


class ExporterLock:
    """``<history>/serve-<exporter>.lock``, held as long as this process lives.

    Two processes of one name would overwrite each other's spool files. The holder writes the start of its polls into
    the file, and empties it at an orderly stop. The file's time is that of the last poll. The next holder therefore
    knows the last poll of a process that was killed.
    """

    def __init__(self, history: Location, exporter: str) -> None:
        """Take the lock. Raises HistoryError where another process holds it, and where locking fails."""
        self._path = path = history / f"serve-{safe(exporter)}.lock"
        self._spool = history / "spool"
        self._exporter = exporter
        self._held: Lease | _LockedFile
        try:
            self._held = _LockedFile(path) if isinstance(path, Path) else Lease(path)
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
        self._killed = self._left()

    def begin(self) -> None:
        """Record that this process polls from now on. A start that fails earlier leaves the file as it was.

        Raises HistoryError where the file cannot be written.
        """
        try:
            self._held.note(started=time.time())
        except OSError as error:
            raise HistoryError(
                f"{str(self._path)!r} cannot be written: {error.strerror}. Free space or give its owner write access."
            ) from error

    def polled(self) -> None:
        """Record a poll that was added to history."""
        self._held.note(polled=time.time())

    def lost_seconds(self, cluster: str) -> float | None:
        """Return how many seconds of polls of a cluster the previous process had not written when it was killed.

        0 after an orderly stop. None where the spool cannot be read.
        """
        if self._killed is None:
            return 0.0
        started, last_poll = self._killed
        written = started
        try:
            if last := self._last_coverage.get(file_stem(Coverage, self._exporter, cluster)):
                written = max(started, last_end(last))
        except (OSError, ForeignFileError):
            return None
        return max(0.0, last_poll - written)

    def latest_start(self, cluster: str) -> float:
        """Return the latest begin of an interval of a cluster that earlier processes wrote, Unix seconds.

        It is still to come where the clock was set back since. -inf without any, and where the spool cannot be listed,
        which upkeep reports.
        """
        with suppress(OSError, ValueError):  # a name may have digits that are no time
            if last := self._last_coverage.get(file_stem(Coverage, self._exporter, cluster)):
                return datetime.strptime(last.stem.rpartition("-")[2], STAMP).replace(tzinfo=UTC).timestamp()
        return -math.inf

    @cached_property
    def _last_coverage(self) -> Mapping[str, Location]:
        """The last file of coverage before this process, by its name without the time.

        Listed once, because that costs money in object storage.
        """
        last: dict[str, Location] = {}
        files = finished_files(self._spool, [TABLES[Coverage]])
        for path in sorted((file.path for file in files), key=lambda path: path.name):
            stem, _, stamp = path.name.rpartition("-")
            if _STAMP.fullmatch(stamp):
                last[stem] = path
        return last

    def require(self) -> None:
        """Raise OSError where this process no longer holds the lock, or cannot be sure."""
        try:
            self._held.require()
        except TakenError as error:
            raise BlockingIOError(
                errno.EBUSY, f"another `serve` of this name ({error}) took over: stop one of them", str(self._spool)
            ) from None

    def release(self, *, clean: bool) -> None:
        """Release the lock; ``clean`` means that all history was written."""
        self._held.release(clean=clean)

    def _left(self) -> tuple[float, float] | None:
        """Return start and last poll of a process that was killed, Unix seconds."""
        try:
            return float(self._held.left["started"]), float(self._held.left["polled"])
        except (ValueError, KeyError, TypeError):
            return None


class _LockedFile:
    """A file of this host, locked as long as this process lives; its time is that of the last poll."""

    def __init__(self, path: Path) -> None:
        """Raises TakenError where another process holds it, and OSError."""
        self._file = path.open("a+", encoding="utf-8")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise TakenError(_holder(path)) from None
        except OSError:
            self._file.close()
            raise
        self._file.seek(0)
        self.left: Mapping[str, Any] = {}
        """The note of the process before, where it did not release the lock; else nothing."""
        with suppress(ValueError, TypeError):
            self.left = {**json.loads(self._file.read()), "polled": os.fstat(self._file.fileno()).st_mtime}

    def note(self, *, started: float | None = None, polled: float | None = None) -> None:
        """Record the start or a poll. Raises OSError."""
        if started is not None:
            self._write(json.dumps({"process": os.getpid(), "host": socket.gethostname(), "started": started}) + "\n")
        if polled is not None:
            os.utime(self._file.fileno())

    def require(self) -> None:
        """The operating system holds the lock."""

    def release(self, *, clean: bool) -> None:
        """Release the lock; if not ``clean``, the records stay for the next process."""
        if clean:
            self._write("")
        self._file.close()

    def _write(self, text: str) -> None:
        self._file.truncate(0)
        self._file.write(text)
        self._file.flush()
        os.fsync(self._file.fileno())


def _holder(path: Path) -> str:
    try:
        holder = json.loads(path.read_text(encoding="utf-8"))
        return f"process {holder['process']} on host {holder['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "its process is not known"

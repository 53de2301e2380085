"""Spool files that are not written yet: kept in memory up to a limit, retried, counted where they are lost."""

from __future__ import annotations

import copy
import errno
import logging
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from exporter.domain import Coverage, Window
from exporter.history.columns import Columns, Row
from exporter.history.spool import TABLES, Loss, Spool
from exporter.subprocess_call import EndedError

log = logging.getLogger(__name__)

_ROWS_TOGETHER = 50_000
"""More rows are not copied at once, to be written."""


@dataclass(slots=True)
class HistoryCounts:
    """What was written and lost since the process started; ``dropped`` and ``failed_writes`` are by reason."""

    windows_written: int = 0
    bytes_written: int = 0
    last_write: float | None = None
    dropped: Counter[str] = field(default_factory=Counter)
    failed_writes: Counter[str] = field(default_factory=Counter)


class UnwrittenFile(NamedTuple):
    """A file to write: rows of one class, and the time in its name."""

    at: float
    batches: Sequence[Columns]

    @property
    def row(self) -> type[Row]:
        """The class of its rows."""
        return self.batches[0].row

    @property
    def rows(self) -> int:
        """How many it holds."""
        return sum(batch.count for batch in self.batches)


class Unwritten:
    """The unwritten files of one cluster, oldest first; past ``most`` the oldest are lost."""

    def __init__(self, cluster: str, spool: Spool, most: int) -> None:
        self._cluster, self._spool, self._most = cluster, spool, most
        self._counts = HistoryCounts()
        self._files: list[UnwrittenFile] = []
        self._lock = threading.Lock()
        """Held for access to files and counts, never during a write to storage."""
        self._writing = threading.Lock()

    @property
    def counts(self) -> HistoryCounts:
        """A copy of the present counts."""
        with self._lock:
            return copy.deepcopy(self._counts)

    @property
    def rows(self) -> int:
        """Rows that are not written yet."""
        with self._lock:
            return sum(file.rows for file in self._files)

    def add(self, file: UnwrittenFile) -> None:
        """Add a file to write."""
        with self._lock:
            self._files.append(file)

    def write_soon(self, at: float) -> None:
        """Write the files as of ``at``: now, or in another thread where storage may be slow.

        A poll never waits for object storage: during a write to it the next files stay in memory.
        """
        if self._spool.is_local:
            self.write(at)
        elif self._writing.locked():
            self._keep_bound()
        else:
            writer = threading.Thread(target=self.write, args=(at,), name=f"history of {self._cluster}", daemon=True)
            try:
                writer.start()
            except RuntimeError as error:
                self._failed(OSError(errno.EAGAIN, str(error)), "Raise the limit of processes and threads.")
                self._keep_bound()

    def write(self, at: float) -> None:
        """Write the files up to the first failure."""
        with self._writing:
            most = _ROWS_TOGETHER if self._spool.is_local else 0
            while files := self._next(most):
                try:
                    sizes = self._spool.write_files(self._cluster, files)
                except OSError as error:
                    hangs = isinstance(error, TimeoutError)  # and would for each of them
                    if hangs:
                        self._failed(error, "See whether the storage there answers.")
                    elif len(files) == 1 or isinstance(error, EndedError):
                        self._failed(error)
                    if len(files) == 1 or hangs:
                        break
                    most = 0  # which one cannot be written is found out one by one
                except Exception:
                    if len(files) == 1:
                        log.exception(
                            "history of cluster %s: internal error; %d rows of %s are lost",
                            self._cluster,
                            files[0].rows,
                            TABLES[files[0].row],
                        )
                        self._drop(files, Loss.ERROR)
                    most = 0
                else:
                    for file, size in zip(files, sizes, strict=True):
                        self._written(file, size, at)
        self._keep_bound()

    def count_lost(self, windows: int) -> None:
        """Count windows that an internal error lost before they were a file."""
        with self._lock:
            self._counts.dropped[Loss.ERROR] += windows

    def _next(self, most: int) -> list[UnwrittenFile]:
        """Return the oldest files, with at most ``most`` rows together, or else the oldest one.

        Several files share a process, because starting it costs more than writing a file.
        """
        with self._lock:
            rows = accumulate(file.rows for file in self._files)
            few = [file for file, count in zip(self._files, rows, strict=True) if count <= most]
            return few or self._files[:1]

    def _written(self, file: UnwrittenFile, size: int, at: float) -> None:
        with self._lock:
            # By what it is: past the bound it may have been lost while it was written.
            self._files = [other for other in self._files if other is not file]
            self._counts.bytes_written += size
            self._counts.last_write = at
            if file.row is Window:
                self._counts.windows_written += file.rows

    def _failed(self, error: OSError, advice: str = "Free space or give write access there.") -> None:
        reason = error.strerror or type(error).__name__
        with self._lock:
            self._counts.failed_writes[reason] += 1
            waiting = len(self._files)
        log.error(
            "history of cluster %s cannot be written to %s: %s; %d files are kept in memory and retried. %s",
            self._cluster,
            self._spool.folder,
            reason,
            waiting,
            advice,
        )

    def _keep_bound(self) -> None:
        with self._lock:
            lost = self._files[: -self._most]
        if not lost:
            return
        self._drop(lost, Loss.UNWRITABLE)
        rows: Counter[str] = Counter()
        for file in lost:
            rows[TABLES[file.row]] += file.rows
        log.error(
            "history of cluster %s: the buffer in memory is full, the oldest rows are lost: %s",
            self._cluster,
            ", ".join(f"{count} of {kind}" for kind, count in sorted(rows.items())),
        )

    def _drop(self, files: Sequence[UnwrittenFile], reason: Loss) -> None:
        """Drop files. Without its windows the coverage of an interval would prove silences, so it is dropped too."""
        gone = {id(file) for file in files}
        intervals = {file.at for file in files if file.row is Window}
        with self._lock:
            self._files = [
                file
                for file in self._files
                if id(file) not in gone and not (file.row is Coverage and file.at in intervals)
            ]
            self._counts.dropped[reason] += sum(file.rows for file in files if file.row is Window)

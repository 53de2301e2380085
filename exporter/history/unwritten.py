"""Spool files that wait to be written: kept in memory within a bound, tried again, counted where they are lost."""

from __future__ import annotations

import copy
import logging
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from exporter.domain import Coverage, Window
from exporter.history.spool import TABLES, Loss, Row, Spool

log = logging.getLogger(__name__)


@dataclass(slots=True)
class HistoryCounts:
    """What history has done since the process started; ``dropped`` and ``failed_writes`` are by reason."""

    windows_written: int = 0
    bytes_written: int = 0
    last_write: float | None = None
    dropped: Counter[str] = field(default_factory=Counter)
    failed_writes: Counter[str] = field(default_factory=Counter)


class UnwrittenFile(NamedTuple):
    """A file that is to be written: rows of one class, named by a moment."""

    at: float
    row: type[Row]
    table: pa.Table


class Unwritten:
    """The files of one cluster that wait to be written, oldest first; past ``most`` the oldest are lost."""

    def __init__(self, cluster: str, spool: Spool, most: int) -> None:
        self._cluster, self._spool, self._most = cluster, spool, most
        self._counts = HistoryCounts()
        self._files: list[UnwrittenFile] = []
        self._lock = threading.Lock()
        """Held to look at the files and counts, never for as long as storage takes."""
        self._writing = threading.Lock()

    @property
    def counts(self) -> HistoryCounts:
        """A copy of the counts as they are now."""
        with self._lock:
            return copy.deepcopy(self._counts)

    @property
    def rows(self) -> int:
        """Rows that are not written yet."""
        with self._lock:
            return sum(file.table.num_rows for file in self._files)

    def add(self, file: UnwrittenFile) -> None:
        """Add one that is to be written."""
        with self._lock:
            self._files.append(file)

    def write_soon(self, at: float) -> None:
        """Write what waits, as of ``at``: now, or beside the caller where storage may take its time to answer.

        A poll never waits for object storage: while a write to it is under way, the next ones wait in memory.
        """
        if self._spool.is_local:
            self.write(at)
        elif self._writing.locked():
            self._keep_bound()
        else:
            threading.Thread(target=self.write, args=(at,), name=f"history of {self._cluster}", daemon=True).start()

    def write(self, at: float) -> None:
        """Write what waits, up to the first that fails."""
        with self._writing:
            while (file := self._first()) is not None:
                try:
                    size = self._spool.write_table(self._cluster, *file)
                except OSError as error:
                    self._failed(error)
                    break
                except Exception:
                    log.exception(
                        "history of cluster %s: an error of this program; %d rows of %s are lost",
                        self._cluster,
                        file.table.num_rows,
                        TABLES[file.row],
                    )
                    self._drop([file], Loss.ERROR)
                else:
                    self._written(file, size, at)
        self._keep_bound()

    def count_lost(self, windows: int) -> None:
        """Count windows that an error of this program lost before they were a file."""
        with self._lock:
            self._counts.dropped[Loss.ERROR] += windows

    def _first(self) -> UnwrittenFile | None:
        with self._lock:
            return self._files[0] if self._files else None

    def _written(self, file: UnwrittenFile, size: int, at: float) -> None:
        with self._lock:
            # By what it is: past the bound it may have been lost while it was written.
            self._files = [other for other in self._files if other is not file]
            self._counts.bytes_written += size
            self._counts.last_write = at
            if file.row is Window:
                self._counts.windows_written += file.table.num_rows

    def _failed(self, error: OSError) -> None:
        reason = error.strerror or type(error).__name__
        with self._lock:
            self._counts.failed_writes[reason] += 1
            waiting = len(self._files)
        log.error(
            "history of cluster %s cannot be written to %s: %s; %d files are kept in memory and tried again. "
            "Free space or give write access there.",
            self._cluster,
            self._spool.folder,
            reason,
            waiting,
        )

    def _keep_bound(self) -> None:
        with self._lock:
            lost = self._files[: -self._most]
        if not lost:
            return
        self._drop(lost, Loss.UNWRITABLE)
        rows: Counter[str] = Counter()
        for file in lost:
            rows[TABLES[file.row]] += file.table.num_rows
        log.error(
            "history of cluster %s: the oldest rows are lost, memory holds no more: %s",
            self._cluster,
            ", ".join(f"{count} of {kind}" for kind, count in sorted(rows.items())),
        )

    def _drop(self, files: Sequence[UnwrittenFile], reason: Loss) -> None:
        """Drop files; without the windows of an interval its coverage would prove silences, and goes too."""
        gone = {id(file) for file in files}
        intervals = {file.at for file in files if file.row is Window}
        with self._lock:
            self._files = [
                file
                for file in self._files
                if id(file) not in gone and not (file.row is Coverage and file.at in intervals)
            ]
            self._counts.dropped[reason] += sum(file.table.num_rows for file in files if file.row is Window)

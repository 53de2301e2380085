"""Spool files that are not written yet: kept in memory up to a limit, retried, counted where they are lost."""

from __future__ import annotations

import copy
import logging
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from exporter.domain.history.rows import Coverage, Window
from exporter.domain.polls.cluster_state import ClusterState
from exporter.history.cluster_states import Progress
from exporter.history.columns import Columns, Row
from exporter.history.spool import TABLES, Loss, Spool
from exporter.storage.storage_thread import no_answer

log = logging.getLogger(__name__)


@dataclass(slots=True)
class HistoryCounts:
    """What was written and lost since the process started; ``dropped`` and ``failed_writes`` are by reason."""

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


class UnwrittenState(NamedTuple):
    """A state file to write."""

    state: ClusterState
    progress: Progress


class Unwritten:
    """The unwritten files of one cluster, oldest first; past ``most`` the oldest are lost."""

    def __init__(self, cluster: str, spool: Spool, most: int) -> None:
        self._cluster, self._spool, self._most = cluster, spool, most
        self._counts = HistoryCounts()
        self._files: list[UnwrittenFile | UnwrittenState] = []
        self._lock = threading.Lock()
        """Held for access to files and counts, never during a write to storage."""
        self._writing: Future[None] | None = None

    @property
    def counts(self) -> HistoryCounts:
        """A copy of the present counts."""
        with self._lock:
            return copy.deepcopy(self._counts)

    @property
    def rows(self) -> int:
        """Rows that are not written yet."""
        with self._lock:
            return sum(file.rows for file in self._files if isinstance(file, UnwrittenFile))

    def add(self, file: UnwrittenFile | UnwrittenState) -> None:
        """Add a file to write. A later state replaces an earlier one."""
        with self._lock:
            if isinstance(file, UnwrittenState):
                self._files = [one for one in self._files if isinstance(one, UnwrittenFile)]
            self._files.append(file)

    def write_soon(self, at: float) -> None:
        """Have the files written as of ``at``. A poll never waits for storage: meanwhile they stay in memory."""
        try:
            if self._writing is None or self._writing.done():
                self._writing = self._spool.thread.begin(partial(self._write, at))
            elif self._spool.thread.hangs:
                raise no_answer()
        except OSError as error:
            self._failed(error, "See whether the storage there answers, and the limit of threads.")
        self._keep_bound()

    def write(self, at: float) -> None:
        """Write the files up to the first failure, and wait for that."""
        try:
            self._spool.thread.call(partial(self._write, at))
        except OSError as error:
            self._failed(error, "See whether the storage there answers.")
        self._keep_bound()

    def _write(self, at: float) -> None:
        while (file := self._oldest()) is not None:
            try:
                if isinstance(file, UnwrittenState):
                    self._spool.write_state(self._cluster, file.state, file.progress)
                else:
                    self._spool.write_files(self._cluster, [(file.at, file.batches)])
            except OSError as error:
                self._failed(error)
                return
            except Exception:
                what = "the state" if isinstance(file, UnwrittenState) else f"{file.rows} rows of {TABLES[file.row]}"
                log.exception("history of cluster %s: internal error; lost: %s", self._cluster, what)
                self._drop([file], Loss.ERROR)
            else:
                self._written(file, at)

    def count_lost(self, windows: int) -> None:
        """Count windows that an internal error lost before they were a file."""
        with self._lock:
            self._counts.dropped[Loss.ERROR] += windows

    def _oldest(self) -> UnwrittenFile | UnwrittenState | None:
        with self._lock:
            return self._files[0] if self._files else None

    def _written(self, file: UnwrittenFile | UnwrittenState, at: float) -> None:
        with self._lock:
            # By what it is: past the bound it may have been lost while it was written.
            self._files = [other for other in self._files if other is not file]
            if isinstance(file, UnwrittenState):
                return
            self._counts.last_write = at

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
            lost = [file for file in self._files if isinstance(file, UnwrittenFile)][: -self._most]
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

    def _drop(self, files: Sequence[UnwrittenFile | UnwrittenState], reason: Loss) -> None:
        """Drop files. Without its windows the coverage of an interval would prove silences, so it is dropped too."""
        gone = {id(file) for file in files}
        windows = [file for file in files if isinstance(file, UnwrittenFile) and file.row is Window]
        intervals = {file.at for file in windows}
        with self._lock:
            self._files = [
                file
                for file in self._files
                if id(file) not in gone
                and not (isinstance(file, UnwrittenFile) and file.row is Coverage and file.at in intervals)
            ]
            self._counts.dropped[reason] += sum(file.rows for file in windows)

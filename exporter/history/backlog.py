"""What is not written yet of the history: kept in memory up to a limit, retried, counted where they are lost."""

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

import pyarrow as pa

from exporter.domain.history.rows import Window
from exporter.domain.polls.cluster_state import ClusterState
from exporter.history.cluster_states import HistoryProgress
from exporter.history.spool import Loss, Spool
from exporter.history.tables import TABLES, name_of
from exporter.storage.storage_thread import hang_error

log = logging.getLogger(__name__)


@dataclass(slots=True)
class HistoryCounts:
    """What was written and lost since the process started; ``dropped`` and ``failed_writes`` are by reason."""

    last_write: float | None = None
    dropped: Counter[str] = field(default_factory=Counter)
    failed_writes: Counter[str] = field(default_factory=Counter)


class BacklogFiles(NamedTuple):
    """Files that are written in this order, and lost together. Without its windows coverage would prove silences."""

    at: float
    """The time in their names."""
    tables: Sequence[pa.Table]

    def rows(self) -> Counter[str]:
        """Return how many rows they hold, by table."""
        return Counter({name_of(table): table.num_rows for table in self.tables})


class Backlog:
    """What is not written yet of one cluster: its state, and files, of which past ``most`` the oldest are lost."""

    def __init__(self, cluster: str, spool: Spool, most: int) -> None:
        self._cluster, self._spool, self._most = cluster, spool, most
        self._counts = HistoryCounts()
        self._state: tuple[ClusterState, HistoryProgress] | None = None
        self._files: list[BacklogFiles] = []
        self._lock = threading.Lock()
        """Held for access to state, files and counts, never during a write to storage."""
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
            return sum(files.rows().total() for files in self._files)

    def replace_state(self, state: ClusterState, progress: HistoryProgress) -> None:
        """Have a state written before all files: after a kill in between no record is counted twice."""
        with self._lock:
            self._state = state, progress

    def add(self, files: BacklogFiles) -> None:
        """Have files written after those before."""
        with self._lock:
            self._files.append(files)

    def write_soon(self, at: float) -> None:
        """Have all written as of ``at``. A poll never waits for storage: meanwhile it stays in memory."""
        try:
            if self._writing is None or self._writing.done():
                self._writing = self._spool.thread.begin(partial(self._write, at))
            elif self._spool.thread.hangs:
                raise hang_error()
        except OSError as error:
            self._failed(error, "See whether the storage there answers, and the limit of threads.")
        self._keep_bound()

    def write(self, at: float) -> None:
        """Write all up to the first failure, and wait for that."""
        try:
            self._spool.thread.call(partial(self._write, at))
        except OSError as error:
            self._failed(error, "See whether the storage there answers.")
        self._keep_bound()

    def _write(self, at: float) -> None:
        while True:
            with self._lock:
                state, files = self._state, self._files[0] if self._files else None
            try:
                if state is not None:
                    self._spool.write_state(self._cluster, *state)
                elif files is not None:
                    self._spool.write_files(self._cluster, *files)
                else:
                    return
            except OSError as error:
                self._failed(error)
                return
            except Exception:
                lost = _worded(files.rows()) if state is None and files is not None else "the state"
                log.exception("history of cluster %s: internal error; lost: %s", self._cluster, lost)
                self._drop([] if state is not None or files is None else [files], Loss.ERROR)
            with self._lock:
                if state is not None:
                    self._state = None if self._state is state else self._state
                elif files in self._files:
                    self._files.remove(files)
                    self._counts.last_write = at

    def count_lost(self, windows: int) -> None:
        """Count windows that an internal error lost before they were a file."""
        with self._lock:
            self._counts.dropped[Loss.ERROR] += windows

    def _failed(self, error: OSError, advice: str = "Free space or give write access there.") -> None:
        reason = error.strerror or type(error).__name__
        with self._lock:
            self._counts.failed_writes[reason] += 1
            waiting = sum(len(files.tables) for files in self._files)
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
        if lost:
            rows = self._drop(lost, Loss.UNWRITABLE)
            log.error(
                "history of cluster %s: the buffer in memory is full, the oldest rows are lost: %s",
                self._cluster,
                _worded(rows),
            )

    def _drop(self, lost: Sequence[BacklogFiles], reason: Loss) -> Counter[str]:
        rows = sum((files.rows() for files in lost), Counter[str]())
        with self._lock:
            self._files = [files for files in self._files if files not in lost]
            self._counts.dropped[reason] += rows[TABLES[Window]]
        return rows


def _worded(rows: Counter[str]) -> str:
    return ", ".join(f"{count} of {table}" for table, count in sorted(rows.items()))

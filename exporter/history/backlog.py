"""What is not written yet of the history: kept in memory up to a limit, retried, counted where they are lost."""

import logging
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple, Protocol

import pyarrow as pa

from exporter.domain.history.rows import Coverage, Window
from exporter.history.cluster_states import ClusterState
from exporter.history.spool import Loss, Spool
from exporter.history.tables import TABLES, name_of
from exporter.storage.storage_thread import hang_error

log = logging.getLogger(__name__)


class HistoryMetrics(Protocol):
    """Shows what is written and lost: metrics by their names without the prefix ``topic_liveness_``."""

    def add(self, name: str, amount: float, **labels: str) -> None:
        """Raise a counter."""

    def set(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""


class BacklogFiles(NamedTuple):
    """Files that are written in this order, and lost together. Without its windows coverage would prove silences."""

    at: float
    """The time in their names."""
    tables: Sequence[pa.Table]

    def rows(self) -> Counter[str]:
        """Return how many rows they hold, by table."""
        return Counter({name_of(table): table.num_rows for table in self.tables})


class Backlog:
    """What is not written yet of one cluster: its state, and the files of the last ``most`` windows."""

    def __init__(self, cluster: str, spool: Spool, most: int, own: HistoryMetrics) -> None:
        self._cluster, self._spool, self._most, self._own = cluster, spool, most, own
        self.spoilt = 0
        """Windows that internal errors lost."""
        self._state: ClusterState | None = None
        self._files: list[BacklogFiles] = []
        self._lock = threading.Lock()
        """Held for access to state and files, never during a write to storage."""
        self._writing: Future[None] | None = None

    @property
    def rows(self) -> int:
        """Rows that are not written yet."""
        with self._lock:
            return sum(files.rows().total() for files in self._files)

    def replace_state(self, state: ClusterState) -> None:
        """Have a state written before all files: after a kill in between no record is counted twice."""
        with self._lock:
            self._state = state

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
            self._failed(error)
        self._keep_bound()

    def write(self, at: float) -> None:
        """Write all up to the first failure, and wait for that."""
        try:
            self._spool.thread.call(partial(self._write, at))
        except OSError as error:
            self._failed(error)
        self._keep_bound()

    def _write(self, at: float) -> None:
        while True:
            with self._lock:
                state, files = self._state, self._files[0] if self._files else None
            try:
                if state is not None:
                    self._spool.write_state(self._cluster, state)
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
                    self._own.set("history_last_write_timestamp_seconds", at, kafka_cluster=self._cluster)

    def count_lost(self, windows: int, reason: Loss = Loss.ERROR) -> None:
        """Count windows that are lost."""
        self.spoilt += windows if reason is Loss.ERROR else 0
        self._own.add("history_windows_dropped_total", windows, kafka_cluster=self._cluster, reason=reason)

    def _failed(self, error: OSError) -> None:
        reason = error.strerror or type(error).__name__
        self._own.add("history_write_failures_total", 1, kafka_cluster=self._cluster, reason=reason)
        with self._lock:
            waiting = sum(len(files.tables) for files in self._files)
        log.error(
            "history of cluster %s cannot be written to %s: %s; %d files are kept in memory and retried. Free space or "
            "give write access there. See whether the storage answers, and the limit of threads.",
            self._cluster,
            self._spool.folder,
            reason,
            waiting,
        )

    def _keep_bound(self) -> None:
        with self._lock:
            closes = [place for place, files in enumerate(self._files) if files.rows()[TABLES[Coverage]]]
            lost = self._files[: closes[-self._most]] if len(closes) > self._most else []
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
        self.count_lost(rows[TABLES[Window]], reason)
        return rows


def _worded(rows: Counter[str]) -> str:
    return ", ".join(f"{count} of {table}" for table, count in sorted(rows.items()))

"""Windows in memory: the polls of the open interval of a cluster, closed on the wall clock."""

import logging
import math
import threading
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from exporter.domain.arrays import Floats
from exporter.domain.groups.readers import find_readers
from exporter.domain.groups.sweep import GroupSweep
from exporter.domain.history.rows import ROWS_AHEAD_SECONDS, Coverage, Source, Window
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.metadata import TopicInfo
from exporter.domain.polls.readings import PollFailure
from exporter.domain.polls.table import Snapshot
from exporter.domain.replicas.comparison import Comparison
from exporter.history.backlog import Backlog, BacklogFiles, HistoryMetrics
from exporter.history.cluster_states import ClusterState
from exporter.history.inventory import InventoryRows
from exporter.history.relations import Relations, copies_of
from exporter.history.spool import HistoryError, Spool
from exporter.history.tables import Column, look_up_names, spool_table, table_of
from exporter.history.windows import OpenWindow

log = logging.getLogger(__name__)

_JUST_BEFORE = 0.001


class History:
    """Folds the snapshots of one cluster into windows, and writes them at the end of every interval.

    A SnapshotSink; ``flush`` may come from another thread. A file that cannot be written stays in memory and is retried
    at the next close. Files older than ``kept_seconds`` are dropped and counted. A window that causes an internal
    error is dropped and counted too, and the next one begins.
    """

    rewritten_after_seconds = 3600.0
    """Where the clock is set forward by this or more, last advances are written again."""

    def __init__(
        self,
        cluster: str,
        spool: Spool,
        *,
        exporter: str,
        window_seconds: float,
        poll_interval_seconds: float,
        own: HistoryMetrics,
        kept_seconds: float = 86_400.0,
        last: ClusterState | None = None,
    ) -> None:
        """``last`` is the state that was left before the start."""
        self._cluster = cluster
        self._spool = spool
        self._backlog = Backlog(cluster, spool, math.ceil(kept_seconds / window_seconds), own)
        self._exporter = exporter
        self._window_seconds = window_seconds
        self._interval = poll_interval_seconds
        self._open: OpenWindow | None = None
        self._latest_start = -math.inf if last is None else last.latest_start
        self._latest_poll = -math.inf if last is None else last.written
        """The latest time that earlier rows are about, Unix seconds."""
        self._lists = False
        """Whether a window was begun that proves something: it lists all partitions."""
        self._state = last
        self._last: Snapshot | None = None
        """The last good poll, of which the state follows when its interval ends."""
        self._clock_moved = 0.0
        """The sum of all changes of the wall clock so far, forward or back."""
        self._moved_at_advance: Floats = np.zeros(0)
        """What that was at the last advance of each row of ``_layout``."""
        self._layout = Layout((), (), np.zeros(0, dtype=np.int32))
        self._inventory = InventoryRows(cluster, exporter)
        self._relations = Relations(cluster, exporter)
        self._topics: Mapping[str, TopicInfo] = {}
        self._lock = threading.Lock()
        self._ended = False

    def accept(self, snapshot: Snapshot) -> None:
        """Fold one good poll into the open window; close the window first when its interval is over."""
        with self._lock:
            if not self._ended:
                self._fold(snapshot)

    def take_failure(self, failure: PollFailure) -> None:
        """Close the open window when its interval is over. A failed poll proves nothing in the coverage of the next.

        Before the first good poll there is none: that begins a window, by which Spark knows that all was listed anew.
        """
        with self._lock:
            if not self._ended and self._last is not None:
                self._window_for(failure.failed_at)

    def take_sweep(self, sweep: GroupSweep) -> None:
        """Take the consumer groups of each topic, as far as known."""
        with self._lock:
            self._relations.readers = find_readers(sweep, list(self._topics))

    def take_comparison(self, comparison: Comparison) -> None:
        """Take which topics are replicas of topics of another cluster, and their state."""
        with self._lock:
            self._relations.copies[comparison.source] = copies_of(comparison)

    def forget_readers(self) -> None:
        """Write no consumer groups that nothing reads any more: the next daily rows have none."""
        with self._lock:
            self._relations.readers = None

    def flush(self, at: float) -> None:
        """Close the open window early. Raises HistoryError when rows could not be written.

        A poll that ends later is ignored: its window could not be written.
        """
        with self._lock:
            self._ended = True
            lost_before = self._backlog.spoilt
            if self._open is not None:
                # The clock may have been set back since the last poll.
                self._close(self._open, min(self._open.end, max(at, self._open.last_poll)))
                self._open = None
            self._backlog.write(at)
            if lost := self._backlog.spoilt - lost_before:
                raise HistoryError(f"cluster {self._cluster}: {lost} windows were lost to an internal error")
            if rows := self._backlog.rows:
                raise HistoryError(f"{rows} history rows could not be written to {str(self._spool.folder)!r}")

    def _fold(self, snapshot: Snapshot) -> None:
        table = snapshot.table
        current = self._window_for(snapshot.taken_at)
        first, self._last = self._last is None, snapshot
        if first:
            self._keep_state(current.start)
            self._backlog.write_soon(snapshot.taken_at)
        self._clock_moved += abs(snapshot.clock_set)
        if snapshot.clock_set >= self.rewritten_after_seconds:
            current.by_new_clock.append(self._by_new_clock(snapshot))
        if table.layout is not self._layout:
            here, there = table.layout.moves_from(self._layout)
            moved = np.zeros(len(table))
            moved[here] = self._moved_at_advance[there]
            self._moved_at_advance, self._layout = moved, table.layout
        current.fold(snapshot, self._clock_moved - self._moved_at_advance)
        self._moved_at_advance[table.advanced_by > 0] = self._clock_moved
        self._topics, self._relations.inspected = snapshot.metadata.topics, snapshot.inspected
        rows = None if current.behind else self._inventory.take_due(snapshot)
        if rows:
            self._backlog.add(BacklogFiles(snapshot.taken_at, [rows]))
            self._backlog.write_soon(snapshot.taken_at)

    def _window_for(self, at: float) -> OpenWindow:
        """Return the window for a poll at ``at``. Within a window time only increases.

        Windows begin at intervals of the wall clock. Only the first window begins with its first poll, which lists all
        partitions. Where the clock was set back over earlier intervals, also of an earlier process, windows begin just
        before their first poll, so that no key is used twice. While the clock is behind earlier rows, one of the two is
        wrong: such windows have advances, and prove no silence. Rows that lie more than a day ahead count for nothing.
        """
        if at < self._latest_poll - ROWS_AHEAD_SECONDS:
            self._latest_poll = at
        behind = at < self._latest_poll
        self._latest_poll = max(self._latest_poll, at)
        current = self._open
        if current is not None and current.behind == behind and current.last_poll <= at < current.end:
            current.last_poll = at
            return current
        length = round(self._window_seconds * 1e6)  # in seconds 7.2 would be a little more, and miss each hour
        start = min(at, int(at * 1e6) // length * length / 1e6)
        end = start + self._window_seconds
        if current is not None:
            closed_at = current.last_poll if at < current.end else current.end
            self._close(current, closed_at)
            self._backlog.write_soon(closed_at)
        if current is None or not (behind or self._lists):
            start = at
        elif start <= self._latest_start:
            start = at - _JUST_BEFORE
        self._lists = self._lists or not behind
        self._latest_start = max(self._latest_start, start)
        self._open = OpenWindow(start, end, last_poll=at, behind=behind)
        return self._open

    def _by_new_clock(self, snapshot: Snapshot) -> pa.Table:
        """Return last advances by the new clock, after it was set: otherwise Spark would see a silence."""
        table, topics = snapshot.table, snapshot.metadata.topics
        rows = np.flatnonzero(~np.isnan(table.last_advance) & (table.advanced_by == 0))
        names, topic, last = table.layout.topics, table.layout.topic[rows], table.last_advance[rows]
        columns: dict[str, Column] = {
            "cluster": self._cluster,
            "topic": look_up_names(names, topic),
            "topic_id": look_up_names([topics[name].topic_id for name in names], topic),
            "partition": table.layout.partition[rows],
            "window_start": last,
            "window_end": last,
            "exporter": self._exporter,
            "source": Source.POLL.value,
            "polls_ok": 0,
            "records": 0,
            "first_advance": last,
            "last_advance": last,
            "resolution_seconds": self._clock_moved,
            "future_timestamps": 0,
            "offset_regressions": 0,
        }
        return spool_table(Window, len(rows), columns)

    def _close(self, window: OpenWindow, end: float) -> None:
        lost = len(window)
        try:
            self._keep_state(end)
            self._write_window(window, end)
            lost = 0
            # As of the last poll: an aligned end comes again where the clock is set back.
            if not window.behind and (relations := self._relations.take_due(self._topics, window.last_poll)):
                self._backlog.add(BacklogFiles(window.last_poll, [relations]))
        except Exception:
            log.exception(
                "history of cluster %s: internal error at the end of an interval; %d windows of it are lost",
                self._cluster,
                lost,
            )
            self._backlog.count_lost(lost)

    def _keep_state(self, written: float) -> None:
        if self._last is not None:
            self._state = ClusterState.build(self._last)
        if self._state is not None:
            self._backlog.replace_state(replace(self._state, latest_start=self._latest_start, written=written))

    def _write_window(self, window: OpenWindow, end: float) -> None:
        rows = window.rows(self._cluster, self._exporter, end)
        coverage = Coverage(
            cluster=self._cluster,
            exporter=self._exporter,
            source=Source.POLL,
            window_start=window.start,
            window_end=end,
            last_good_poll=None if window.behind else window.last_good_poll,
            interval_seconds=self._interval,
        )
        # Coverage last: after a crash in between it must not prove a silence whose advances were not written.
        self._backlog.add(BacklogFiles(window.start, [*([rows] if rows.num_rows else []), table_of([coverage])]))

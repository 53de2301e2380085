"""Windows in memory: what a cluster's polls gave in the open interval, closed on the wall clock."""

from __future__ import annotations

import logging
import math
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from exporter.domain import (
    Activity,
    Comparison,
    Coverage,
    GroupSweep,
    Inventory,
    PollFailure,
    Reading,
    Snapshot,
    Source,
    State,
    TopicInfo,
    TopicPartition,
    Window,
)
from exporter.history.relations import Relations, copies_of
from exporter.history.spool import TABLES, HistoryError, Loss, Row, Spool

log = logging.getLogger(__name__)

_JUST_BEFORE = 0.001


@dataclass(slots=True)
class HistoryCounts:
    """What history has done since the process started; ``dropped`` and ``failed_writes`` are by reason."""

    windows_written: int = 0
    bytes_written: int = 0
    last_write: float | None = None
    dropped: Counter[str] = field(default_factory=Counter)
    failed_writes: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class _OpenWindow:
    """What one cluster's polls gave in the history interval that is still open."""

    start: float
    end: float
    last_poll: float
    polls_total: int = 0
    polls_ok: int = 0
    last_good_poll: float | None = None
    partitions_ok: int = 0
    partitions_failed: int = 0
    windows: dict[tuple[TopicPartition, str | None], Window] = field(default_factory=dict)
    failures: Counter[TopicPartition] = field(default_factory=Counter)
    told_again: list[Window] = field(default_factory=list)
    """Advances from before the clock was set, by the new clock."""


@dataclass(slots=True)
class _Listed:
    """What the inventory last said of a partition, and when."""

    row: Inventory
    standing: tuple[object, ...]
    written_at: float


class History:
    """Folds the snapshots of one cluster into windows and writes them at the end of every interval.

    A SnapshotSink; ``flush`` may come from another thread. A file that cannot be written is kept in memory
    and tried again at the next close; past ``max_pending`` closes the oldest is dropped and counted.
    """

    inventory_seconds = 86_400.0
    told_again_seconds = 3600.0
    """Where the clock is set forward by so much or more, last advances are told again; history is judged by hours."""

    def __init__(
        self,
        cluster: str,
        spool: Spool,
        *,
        exporter: str,
        window_seconds: float,
        poll_interval_seconds: float,
        max_pending: int = 288,
    ) -> None:
        self.counts = HistoryCounts()
        self._cluster = cluster
        self._spool = spool
        self._exporter = exporter
        self._window_seconds = window_seconds
        self._interval = poll_interval_seconds
        self._max_pending = max_pending
        self._open: _OpenWindow | None = None
        self._used_until = -math.inf
        self._clock_moved = 0.0
        """All settings of the wall clock so far added up, forward or back."""
        self._moved_at_advance: dict[TopicPartition, float] = {}
        self._listed: dict[TopicPartition, _Listed] = {}
        self._relations = Relations(cluster, exporter)
        self._topics: Mapping[str, TopicInfo] = {}
        self._pending: list[tuple[float, Sequence[Row]]] = []
        self._lock = threading.Lock()
        self._ended = False

    def accept(self, snapshot: Snapshot) -> None:
        """Fold one good poll into the open window; close it first when its interval is over."""
        with self._lock:
            if not self._ended:
                self._fold(snapshot)

    def missed(self, failure: PollFailure) -> None:
        """Count a poll that gave nothing: the interval's coverage shows it."""
        with self._lock:
            if not self._ended:
                self._window_for(failure.failed_at).polls_total += 1

    def take_sweep(self, sweep: GroupSweep) -> None:
        """Take how many consumer groups read each topic, as far as that is known."""
        with self._lock:
            self._relations.readers = sweep.readers(self._topics)

    def take_comparison(self, comparison: Comparison) -> None:
        """Take which topics are copies of topics of another cluster, and how they stand to these."""
        with self._lock:
            self._relations.copies[comparison.source] = copies_of(comparison)

    def flush(self, at: float) -> None:
        """Close the open window early, at shutdown. Raises HistoryError when rows could not be written.

        A poll that ends later is as if it had never been: no window could be written for it.
        """
        with self._lock:
            self._ended = True
            if self._open is not None:
                self._close(self._open, min(self._open.end, at))
                self._open = None
            elif self._pending:
                self._write_pending(at)
            if self._pending:
                rows = sum(len(rows) for _, rows in self._pending)
                raise HistoryError(
                    f"{rows} history rows could not be written to {str(self._spool.folder)!r} at shutdown"
                )

    def _fold(self, snapshot: Snapshot) -> None:
        current = self._window_for(snapshot.taken_at)
        self._clock_moved += abs(snapshot.clock_set)
        if snapshot.clock_set >= self.told_again_seconds:
            current.told_again += self._told_again(snapshot)
        unread = 0
        for partition, reading in snapshot.readings.items():
            if reading.latest is None:
                unread += 1
                current.failures[partition] += 1
            window = self._unit(current, snapshot, partition, reading)
            if window is not None:
                key = (partition, window.topic_id)
                before = current.windows.get(key)
                current.windows[key] = window if before is None else before.merge(window)
        current.polls_total += 1
        current.partitions_ok = len(snapshot.readings) - unread
        current.partitions_failed = unread
        if current.partitions_ok or not unread:
            current.polls_ok += 1
            current.last_good_poll = snapshot.taken_at
        self._topics, self._relations.readings = snapshot.metadata.topics, snapshot.readings
        self._take_inventory(snapshot)

    def _window_for(self, at: float) -> _OpenWindow:
        """Return the window that a poll at ``at`` belongs to; in each, time only goes on.

        Windows begin on the wall clock's intervals. Only the first begins with its first poll, which lists all
        that exists; where the clock was set back over intervals that were used before, windows begin just before
        their first poll, so that no key is used twice.
        """
        if self._open is not None and self._open.last_poll <= at < self._open.end:
            self._open.last_poll = at
            return self._open
        start = at - at % self._window_seconds
        end = start + self._window_seconds
        if self._open is None:
            start = at
        else:
            set_back = at < self._open.last_poll
            self._close(self._open, self._open.last_poll if set_back else self._open.end)
            self._used_until = max(self._used_until, self._open.end)
            start = at - _JUST_BEFORE if start < self._used_until else start
        self._open = _OpenWindow(start, end, last_poll=at)
        return self._open

    def _unit(
        self, current: _OpenWindow, snapshot: Snapshot, partition: TopicPartition, reading: Reading
    ) -> Window | None:
        """Return what this poll adds to the partition's window, None where nothing happened."""
        activity = reading.activity
        if reading.latest is not None and not activity.advanced_by and not activity.restarted:
            return None
        window = Window(
            cluster=self._cluster,
            topic=partition.topic,
            topic_id=snapshot.metadata.topics[partition.topic].topic_id,
            partition=partition.partition,
            window_start=current.start,
            window_end=current.end,
            exporter=self._exporter,
            source=Source.POLL,
            leader=reading.leader,
        )
        if reading.latest is None:
            return replace(window, reason=reading.reason, advances=0, records=0)
        advanced = activity.advanced_by > 0
        resolution = self._resolution(snapshot.taken_at, partition, activity) if advanced else None
        regressed = activity.restarted and not advanced
        return replace(
            window,
            advances=1 if advanced else 0,
            records=activity.advanced_by,
            first_advance=snapshot.taken_at if advanced else None,
            last_advance=snapshot.taken_at if advanced else None,
            max_inner_gap_seconds=0.0 if advanced else None,
            resolution_seconds=resolution,
            start_offset=reading.latest - activity.advanced_by,
            end_offset=reading.latest,
            log_start_offset=reading.earliest,
            max_timestamp=reading.newest,
            future_timestamps=1 if reading.state == State.FUTURE else 0,
            offset_regressions=1 if regressed else 0,
        )

    def _resolution(self, at: float, partition: TopicPartition, activity: Activity) -> float | None:
        """Return how long before this poll the record may have been written, by the clocks in use since then."""
        moved = self._clock_moved - self._moved_at_advance.get(partition, 0.0)
        if self._clock_moved:
            self._moved_at_advance[partition] = self._clock_moved
        return None if activity.previous_poll is None else max(0.0, at - activity.previous_poll) + moved

    def _told_again(self, snapshot: Snapshot) -> list[Window]:
        """Return when each partition had last advanced, by the clock that was set: else Spark sees it silent since."""
        rows = []
        for partition, reading in snapshot.readings.items():
            last = reading.activity.last_advance
            if last is not None and not reading.activity.advanced_by:
                row = Window(
                    cluster=self._cluster,
                    topic=partition.topic,
                    topic_id=snapshot.metadata.topics[partition.topic].topic_id,
                    partition=partition.partition,
                    window_start=last,
                    window_end=last,
                    exporter=self._exporter,
                    source=Source.POLL,
                    advances=0,
                    records=0,
                    first_advance=last,
                    last_advance=last,
                    resolution_seconds=self._clock_moved,
                )
                rows.append(row)
        return rows

    def _close(self, window: _OpenWindow, end: float) -> None:
        rows: list[Window] = [*window.told_again]
        for (partition, _), folded in sorted(window.windows.items(), key=lambda item: (item[0][0], item[0][1] or "")):
            polls_ok = max(0, window.polls_ok - window.failures[partition])
            share = polls_ok / window.polls_total if window.polls_total else 0.0
            rows.append(
                replace(
                    folded,
                    window_start=window.start,
                    window_end=end,
                    polls_ok=polls_ok,
                    observed_seconds=share * (end - window.start),
                )
            )
        coverage = Coverage(
            cluster=self._cluster,
            exporter=self._exporter,
            source=Source.POLL,
            window_start=window.start,
            window_end=end,
            polls_total=window.polls_total,
            polls_ok=window.polls_ok,
            partitions_ok=window.partitions_ok,
            partitions_failed=window.partitions_failed,
            last_good_poll=window.last_good_poll,
            interval_seconds=self._interval,
        )
        # Coverage last: a crash in between must not prove a silence whose advances were not written.
        if rows:
            self._pending.append((window.start, rows))
        self._pending.append((window.start, [coverage]))
        if relations := self._relations.due(self._topics, end):
            self._pending.append((end, relations))
        self._write_pending(end)

    def _write_pending(self, at: float) -> None:
        while self._pending:
            start, rows = self._pending[0]
            try:
                size = self._spool.write(self._cluster, start, rows)
            except OSError as error:
                reason = error.strerror or type(error).__name__
                self.counts.failed_writes[reason] += 1
                log.error(
                    "history of cluster %s cannot be written to %s: %s; %d files are kept in memory and tried again. "
                    "Free space or give write access there.",
                    self._cluster,
                    self._spool.folder,
                    reason,
                    len(self._pending),
                )
                break
            self._pending.pop(0)
            self.counts.bytes_written += size
            self.counts.last_write = at
            if isinstance(rows[0], Window):
                self.counts.windows_written += len(rows)
        lost: Counter[str] = Counter()
        while len(self._pending) > 2 * self._max_pending:
            _, rows = self._pending.pop(0)
            lost[TABLES[type(rows[0])]] += len(rows)
            if isinstance(rows[0], Window):
                self.counts.dropped[Loss.UNWRITABLE] += len(rows)
        if lost:
            log.error(
                "history of cluster %s: the oldest rows are lost, memory holds no more: %s",
                self._cluster,
                ", ".join(f"{count} of {kind}" for kind, count in sorted(lost.items())),
            )

    def _take_inventory(self, snapshot: Snapshot) -> None:
        at = snapshot.taken_at
        rows: list[Row] = []
        for partition, reading in snapshot.readings.items():
            standing = _standing(snapshot.metadata.topics[partition.topic], reading)
            listed = self._listed.get(partition)
            if (
                listed is None
                or not 0 <= at - listed.written_at < self.inventory_seconds
                or listed.standing != standing
                or (listed.row.latest_offset is None and reading.latest is not None)
            ):
                row = _inventory_row(self._cluster, self._exporter, snapshot, partition, reading)
                rows.append(row)
                self._listed[partition] = _Listed(row, standing, at)
        for partition in sorted(self._listed.keys() - snapshot.readings.keys()):
            topic = snapshot.metadata.topics.get(partition.topic)
            if topic is None or topic.reason is None:
                rows.append(replace(self._listed.pop(partition).row, observed_at=at, deleted=True))
                self._moved_at_advance.pop(partition, None)
        if rows:
            self._pending.append((at, rows))
            self._write_pending(at)


def _inventory_row(
    cluster: str, exporter: str, snapshot: Snapshot, partition: TopicPartition, reading: Reading
) -> Inventory:
    topic = snapshot.metadata.topics[partition.topic]
    config = topic.config
    return Inventory(
        cluster=cluster,
        topic=partition.topic,
        topic_id=topic.topic_id,
        partition=partition.partition,
        exporter=exporter,
        source=Source.POLL,
        observed_at=snapshot.taken_at,
        leader=reading.leader,
        earliest_offset=reading.earliest,
        latest_offset=reading.latest,
        max_timestamp=reading.newest,
        state=reading.state,
        reason=reading.reason,
        timestamp_type=None if config is None else config.timestamp_type,
        cleanup_policy=None if config is None else config.cleanup_policy,
        retention_seconds=None if config is None else config.retention_seconds,
        owner=topic.owner,
        deleted=False,
    )


_PASSING = {State.PENDING, State.FUTURE, State.PRESERVED, State.UNREADABLE}


def _standing(topic: TopicInfo, reading: Reading) -> tuple[object, ...]:
    """Return what of a partition is worth a new inventory row when it changes."""
    return (topic.topic_id, topic.config, topic.owner, State.OBSERVED if reading.state in _PASSING else reading.state)

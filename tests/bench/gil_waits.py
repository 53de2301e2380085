"""For how long one step of the exporter keeps other threads from running: a scrape beside it waits for that long.

Another thread sleeps for some milliseconds at a time. What it sleeps longer counts as far as this process used CPU
meanwhile: the rest is other work on the machine. Of several polls the median counts, because a busy machine may also
give the only CPU to the step.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from exporter.clock import SystemClock
from exporter.domain.polls.table import Snapshot
from exporter.history.published import Published
from exporter.history.recorder import History
from exporter.history.spool import Spool
from exporter.state.cluster import Rhythm
from exporter.state.monitor import Monitor
from exporter.state.monitor_settings import MonitorSettings

_NAP = 0.003
SHOWN = (
    "current_offset",
    "oldest_offset",
    "last_record_timestamp",
    "staleness",
    "last_advance_timestamp",
    "expected_by",
)


class _Watch:
    """A thread that naps, and records how much later than requested it wakes, by the step that runs."""

    def __init__(self) -> None:
        self.longest: dict[str, list[float]] = {}
        """By step, the longest wait in each poll."""
        self._waits = [0.0]
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._nap)
        self._thread.start()

    def begin(self, step: str) -> None:
        """Take which step runs from now on."""
        self._waits = self.longest.setdefault(step, [])
        self._waits.append(0.0)

    def end(self) -> None:
        """End the thread."""
        self._ended.set()
        self._thread.join()

    def _nap(self) -> None:
        while not self._ended.is_set():
            waits, began, cpu = self._waits, time.perf_counter(), time.process_time()
            time.sleep(_NAP)
            late = min(time.perf_counter() - began - _NAP, time.process_time() - cpu)
            if waits is self._waits:
                waits[-1] = max(waits[-1], late)


def longest_waits(snapshot: Snapshot, published: Published | None, polls: int = 12) -> Mapping[str, float]:
    """Return the longest wait in seconds in each step of a poll in which a tenth of the partitions move.

    It is the median of ``polls``; each closes a window of history.
    """
    name, now = snapshot.cluster, snapshot.taken_at
    monitor = Monitor(
        MonitorSettings(
            {name: Rhythm(30.0)}, partition_switches=SHOWN, expectations_max_age_seconds=10 * 365 * 86_400.0
        ),
        SystemClock(),
        version="bench",
    )
    monitor.take_expectations(published, None)
    with tempfile.TemporaryDirectory() as folder:
        spool = Spool(Path(folder), "bench")
        history = History(name, spool, exporter="bench", window_seconds=30, poll_interval_seconds=30)
        watch, table = _Watch(), snapshot.table
        try:
            for poll in range(polls):
                now += 30
                moved = np.arange(len(table)) % 10 == poll % 10
                table = table.changed(
                    latest=table.latest + 5 * moved,
                    advanced_by=np.where(moved, 5, 0),
                    last_advance=np.where(moved, now, table.last_advance),
                    newest=np.where(moved, now, table.newest),
                )
                given = replace(snapshot, table=table, taken_at=now)
                for step, work in (
                    ("history", lambda given=given: history.accept(given)),
                    ("judging and rendering", lambda given=given: monitor.accept(given)),
                    ("plain scrape", monitor.scrape),
                    ("gzip scrape", lambda: monitor.scrape(zipped=True)),
                ):
                    watch.begin(step)
                    work()
        finally:
            watch.end()
    # The first polls make what later ones change.
    return {step: statistics.median(longest[3:]) for step, longest in watch.longest.items()}

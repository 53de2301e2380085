"""Polls of a story by the exporter's own poller and history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from exporter.collectors.poller import Poller
from exporter.domain.polls.readings import TopicPartition
from exporter.history.cluster_states import LastState
from exporter.history.recorder import History
from exporter.history.spool import Spool
from exporter.history.tables import name_of
from exporter.metrics.self_metrics import SelfMetrics
from tests.spark.story import World, at
from tests.unit.readings import ManualClock, TableSource


class _OneFile(Spool):
    """A spool that keeps its rows and writes each table once: thousands of small files test nothing more."""

    def __init__(self, history: Path, exporter: str) -> None:
        super().__init__(history, exporter)
        self.rows_by_table: dict[str, list[pa.Table]] = {}

    def write_files(self, _cluster: str, _at: float, tables: Iterable[pa.Table]) -> None:
        """Keep the rows."""
        for table in tables:
            self.rows_by_table.setdefault(name_of(table), []).append(table)

    def write_all(self, cluster: str) -> None:
        """Write what was kept."""
        for rows in self.rows_by_table.values():
            super().write_files(cluster, at(0), [pa.concat_tables(rows)])


@dataclass(frozen=True)
class Settings:
    """Of an exporter: seconds between polls and of a window, and whether its spool has one file of each table."""

    pace: float = 600.0
    window: float = 1800.0
    in_one_file: bool = False


def run_exporter(
    world: World,
    exporter: str,
    since: float,
    until: float,
    settings: Settings = Settings(),
    *,
    set_by: float = 0.0,
    steps: Mapping[float, float] | None = None,
    last: LastState | None = None,
) -> None:
    """Let an exporter look from ``since`` on; ``last`` is what an earlier process left.

    Moments are those of a right clock; that of the exporter is ``set_by`` ahead and is set by so many seconds at
    each of the ``steps``.
    """
    clock, source = ManualClock(since, set_by), TableSource(topic_ids={name: f"id-{name}" for name, _ in world.logs})
    spool = (_OneFile if settings.in_one_file else Spool)(world.history, exporter)
    # Polls of days follow each other in seconds here, faster than the thread that writes them on an idle machine.
    given = {"window_seconds": settings.window, "poll_interval_seconds": settings.pace, "max_pending": 100_000}
    own = SelfMetrics("0")
    history = History(world.cluster, spool, exporter=exporter, own=own, last=last, **given)  # type: ignore[arg-type]
    poller = Poller(world.cluster, source, [history], clock, state=None if last is None else last.state)
    left = dict(steps or {})
    while clock.time < until:
        for when in [when for when in left if when <= clock.time]:
            clock.set_by += left.pop(when)
        for (topic, partition), log in world.logs.items():
            source.offsets[TopicPartition(topic, partition)] = (0, log.end(clock.time), None)
        poller.poll()
        clock.time += settings.pace
    history.flush(clock.now())
    if isinstance(spool, _OneFile):
        spool.write_all(world.cluster)

"""A poller with history behind it, as tests of the recorder use it."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from exporter.collectors.poller import Poller
from exporter.domain.polls.readings import TopicPartition
from exporter.history.cluster_states import read_state
from exporter.history.recorder import History
from exporter.history.spool import Spool
from exporter.metrics.self_metrics import SelfMetrics
from tests.unit.readings import Collected, ManualClock, TableSource

ORDERS = TopicPartition("orders", 0)
IDLE = TopicPartition("idle", 0)


class Bench:
    """A poller over a table of answers, with history behind it."""

    def __init__(self, folder: Path, start: float = 1_000_020.0, spool: Spool | None = None, **options: Any) -> None:
        self.folder, self.own = folder, SelfMetrics("0")
        self.clock = ManualClock(start)
        self.source = TableSource({ORDERS: (0, 10, 1.0), IDLE: (0, 5, 1.0)})
        self.spool = spool or Spool(folder, "exporter-1")
        self.history = History(
            "c",
            self.spool,
            exporter="exporter-1",
            window_seconds=300,
            poll_interval_seconds=30,
            own=self.own,
            last=read_state(folder, "c", "exporter-1"),
            **options,
        )
        self.poller = Poller("c", self.source, [self.history, Collected()], self.clock)

    def poll(self, *, after: float = 30.0, gained: int = 0) -> None:
        self.clock.time += after
        earliest, latest, newest = self.source.offsets[ORDERS]
        self.source.offsets[ORDERS] = (earliest, latest + gained, newest)
        self.poller.poll()
        self.wait()

    def polls(self, *gained: int) -> None:
        for records in gained:
            self.poll(gained=records)

    def wait(self) -> None:
        """Wait until what the polls left is written, or could not be."""
        with suppress(BlockingIOError):
            self.spool.thread.call(lambda: None)

    def flush(self) -> None:
        self.history.flush(self.clock.now())

    def rows(self, table: str) -> list[dict[str, Any]]:
        paths = sorted((self.folder / "spool" / table).glob("*.parquet"))
        return [row for path in paths for row in pq.read_table(path, partitioning=None).to_pylist()]

    def counted(self, what: str) -> dict[str, float]:
        """What was counted of the history, by reason."""
        samples = [one for metric in self.own.registry.collect() for one in metric.samples]
        return {
            one.labels["reason"]: one.value for one in samples if one.name == f"topic_liveness_history_{what}_total"
        }

    def records(self) -> int:
        return sum(row["records"] for row in self.rows("windows"))

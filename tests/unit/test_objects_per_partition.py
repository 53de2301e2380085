"""What a poll and a sweep over tiers cost in objects: none for a partition where nothing happened."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from exporter.collectors.poller import Poller
from exporter.collectors.remote_tier import BY_TIME, TierSweep, TierWatch
from exporter.domain.arrays import Offsets, Rows
from exporter.domain.expectations.columns import table_of
from exporter.domain.history.rows import Inventory, Relation, Window
from exporter.domain.judging.assessment import Judgement
from exporter.domain.polls.answers import ANSWERED, Answers
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.metadata import Membership, Metadata, PartitionInfo, PartitionsOf, TopicConfig, TopicInfo
from exporter.domain.polls.readings import Answer, Reason, TopicPartition
from exporter.domain.polls.silence import Silence
from exporter.domain.ports import SnapshotSink
from exporter.history.published import Published
from exporter.history.recorder import History
from exporter.history.spool import Spool
from exporter.kafka.kafka_python_answers import EARLIEST_LOCAL, LATEST_TIERED
from exporter.state.cluster import Rhythm
from exporter.state.monitor import Monitor
from exporter.state.monitor_settings import MonitorSettings
from tests.unit.expectations import DAY, MONDAY, by_wall
from tests.unit.readings import Collected, ManualClock
from tests.views import Activity, Inspected, Reading, readings_of

PER_TOPIC = 5
OBJECTS: tuple[type, ...] = (
    *(Activity, Answer, Inspected, Inventory, Judgement),
    *(PartitionInfo, Reading, Relation, Silence, TopicPartition, Window),
)
"""What stands for one partition, or for a topic of few: for people and tests alone."""


class ColumnSource:
    """A PollSource that answers in columns: every partition holds 10 records, the first one gains one at each poll.

    All have remote storage: it answers look-ups of tiers and by time too. Those of the last partition of a topic fail.
    """

    def __init__(self, partitions: int) -> None:
        topics = [f"topic-{number:03}" for number in range(partitions // PER_TOPIC)]
        numbers = np.tile(np.arange(PER_TOPIC, dtype=np.int32), len(topics))
        layout = Layout(topics, [PER_TOPIC] * len(topics), numbers)
        membership = Membership.led(layout, np.ones(partitions, dtype=np.int32))
        config = TopicConfig("CreateTime", "delete", math.inf, remote_storage=True)
        infos = {name: TopicInfo(f"id-{name}", PartitionsOf(membership, name), config) for name in topics}
        self.known = Metadata({1: "localhost:9092"}, infos, given=membership)
        self.ends = np.full(partitions, 10, dtype=np.int64)
        self.newest = np.full(partitions, MONDAY)
        self.asked: Counter[str] = Counter()

    def metadata(self, *, fresh: bool, doubted: Collection[str] = ()) -> Metadata:  # noqa: ARG002
        return self.known

    def earliest(self, rows: Rows) -> Answers:
        return self._answers(np.zeros(len(rows), dtype=np.int64), np.full(len(rows), np.nan))

    def latest(self, rows: Rows) -> Answers:
        return self._answers(self.ends[rows], np.full(len(rows), np.nan))

    def max_timestamp(self, rows: Rows, earliest: Offsets, latest: Offsets) -> Answers:  # noqa: ARG002
        return self._answers(latest - 1, self.newest[rows])

    def tier(self, spec: str, membership: Membership) -> Answers:
        count = len(membership.layout)
        self.asked[spec] += count
        return self._with_failures(
            self._answers(np.full(count, 4), np.full(count, np.nan)), membership.layout.partition
        )

    def by_time(self, membership: Membership, rows: Rows, milliseconds: Offsets) -> Answers:
        later = np.flatnonzero(milliseconds > self.newest[rows] * 1000)
        answers = self._answers(self.ends[rows] - 1, self.newest[rows])
        answers.found[later], answers.timestamp[later] = False, np.nan
        return self._with_failures(answers, membership.layout.partition[rows])

    @staticmethod
    def _with_failures(answers: Answers, partition: NDArray[np.int32]) -> Answers:
        failed = np.flatnonzero(partition == PER_TOPIC - 1)
        answers.put(failed, Answers.failed(len(failed), Reason.NOT_LEADER))
        return answers

    @staticmethod
    def _answers(offset: Offsets, timestamp: Any) -> Answers:
        count = len(offset)
        answered, found = np.full(count, ANSWERED, dtype=np.int8), np.ones(count, dtype=np.bool_)
        return Answers(answered, found, offset, timestamp, np.full(count, -1, dtype=np.int32))

    def cluster_id(self) -> str | None:
        return None

    def max_timestamp_supported(self) -> Mapping[int, bool]:
        return {1: True}

    def lookups(self) -> Mapping[str, int]:
        return {}

    def counts(self) -> Mapping[str, int]:
        return self.asked

    def left_out(self) -> tuple[str, ...]:
        return ()

    def close(self) -> None:
        pass


class Running:
    """A cluster that is polled, whose tiers are looked up, and that is judged, shown and kept in history."""

    def __init__(self, folder: Path, partitions: int) -> None:
        self.folder, self.clock, self.source = folder, ManualClock(MONDAY + DAY), ColumnSource(partitions)
        rhythm = {"prod": Rhythm(30.0)}
        settings = MonitorSettings(rhythm, partition_switches=["current_offset"], expectations_max_age_seconds=9 * DAY)
        self.monitor = Monitor(settings, self.clock, version="0")
        rows = [
            by_wall(topic=name, topic_id=info.topic_id, partition=number)
            for name, info in self.source.known.topics.items()
            for number in (None, *range(PER_TOPIC))
        ]
        limits = {"topic": 2.0, "partition": 2.0}
        self.monitor.take_expectations(Published(MONDAY, MONDAY, limits, {}, table_of(rows), {}), None)
        spool = Spool(folder, "exporter-1")
        self.history = History("prod", spool, exporter="exporter-1", window_seconds=300, poll_interval_seconds=30)
        self.tiers = TierWatch(
            "prod",
            self.clock,
            interval=300.0,
            lookups_per_second=1000.0,
            specs=(EARLIEST_LOCAL, LATEST_TIERED),
            times=lambda: nullcontext(self.source),
            tiers=lambda: nullcontext(self.source),  # type: ignore[arg-type, return-value]
        )
        sinks: list[SnapshotSink] = [self.tiers, self.monitor, self.history]
        self.poller = Poller("prod", self.source, sinks, self.clock, tier=self.tiers)

    def poll(self, after: float = 30.0) -> str:
        """Poll, and return what is exposed."""
        self.clock.time += after
        self.source.ends[0] += 1
        self.source.newest[0] = self.clock.time
        self.poller.poll()
        return self.monitor.metrics().decode()

    def sweep(self) -> TierSweep:
        """Look up the tiers."""
        sweep = self.tiers.sweep()
        self.monitor.take_tier_sweep(sweep)
        return sweep

    def written(self, table: str) -> int:
        """Count the rows in the spool."""
        return sum(pq.read_metadata(path).num_rows for path in (self.folder / "spool" / table).glob("*.parquet"))


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """Count the objects of each class that are made meanwhile."""
    counts: Counter[str] = Counter()

    def counted(kind: type, name: str) -> Any:
        make = getattr(kind, name)

        def create(first: Any, *given: Any, **named: Any) -> Any:
            counts[kind.__name__] += 1
            return make(first, *given, **named)

        return staticmethod(create) if name == "__new__" else create

    with pytest.MonkeyPatch.context() as patch:
        for kind in OBJECTS:
            name = "__new__" if issubclass(kind, tuple) else "__init__"
            patch.setattr(kind, name, counted(kind, name))
        yield counts


def test_what_is_counted_are_objects() -> None:
    """The readings of a snapshot are objects: one that makes them by partition does not pass."""
    source = ColumnSource(10)
    seen = Collected()
    Poller("prod", source, [seen], ManualClock(MONDAY + DAY)).poll()
    with counting() as counts:
        assert len(dict(readings_of(seen.snapshots[-1]))) == 10
    assert counts == {"Reading": 10, "Activity": 10, "TopicPartition": 10}


def made(folder: Path, partitions: int) -> Counter[str]:
    """Count the objects of two windows and a day later another one, after the first two polls."""
    running = Running(folder, partitions)
    running.poll()
    running.poll()
    with counting() as counts:
        sweep = running.sweep()
        for _ in range(20):
            running.poll()
        exposed = running.poll(after=DAY)
        running.history.flush(running.clock.time)
    topics = partitions // PER_TOPIC
    # The first partition moves: polls look up its newest record. Of the others one look-up finds what polls saw.
    assert sweep.lookups[BY_TIME] == partitions - 1
    assert sweep.failures == {(spec, Reason.NOT_LEADER): topics for spec in (EARLIEST_LOCAL, LATEST_TIERED, BY_TIME)}
    assert exposed.count("\nkafka_topic_partition_current_offset{") == partitions
    assert exposed.count('",verdict="dead"} 1\n') == partitions - 1 + (topics - 1)
    assert running.written("windows") == 4
    assert running.written("inventory") == 2 * partitions
    return counts


def test_a_poll_makes_no_object_for_a_partition_where_nothing_happened(tmp_path: Path) -> None:
    """Polled, swept, judged, shown, folded into windows and written, a hundred times the partitions make as many."""
    assert made(tmp_path / "few", 10) == made(tmp_path / "many", 1000)

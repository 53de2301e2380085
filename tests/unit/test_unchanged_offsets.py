"""A silence that nobody saw begin outlives the exporter: its inventory tells since when the end offset stands."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from exporter.collectors.poller import Poller
from exporter.domain import Inventory, TopicOverride, TopicPartition, Verdict
from exporter.domain.overrides import Overrides
from exporter.domain.polls.unchanged_offsets import UnchangedOffset, UnchangedOffsets
from exporter.history import History, Spool
from exporter.history.spool import STAMP
from exporter.history.tables import to_table
from exporter.history.unchanged_offsets import unchanged_since
from exporter.state import Monitor, MonitorSettings, Rhythm
from tests.exposed import verdict_of_orders
from tests.unit.expectations import HOUR, MONDAY
from tests.unit.readings import ManualClock, TableSource

ORDERS, BUSY = TopicPartition("orders", 0), TopicPartition("busy", 0)
LIMIT = TopicOverride("orders", max_silence_seconds=2 * HOUR)
POLL = 300
"""Seconds between two polls."""


class Life:
    """One life of an exporter, which is told that orders may be silent for two hours."""

    def __init__(self, folder: Path, clock: ManualClock, source: TableSource, exporter: str = "exporter-1") -> None:
        self.folder, self.clock, self.source = folder, clock, source
        self.spool = Spool(folder, exporter)
        self.history = History(
            "prod", self.spool, exporter=exporter, window_seconds=5 * POLL, poll_interval_seconds=POLL
        )
        self.monitor = Monitor(
            MonitorSettings(
                {"prod": Rhythm(POLL)},
                partition_switches=["last_advance_timestamp"],
                expectations_max_age_seconds=HOUR,
                overrides=Overrides([LIMIT]),
            ),
            clock,
            version="0",
        )
        self.poller = Poller("prod", source, [self.history, self.monitor], clock, unchanged=stands(folder))

    def polls(self, count: int) -> None:
        """Poll so often; busy gains a record each time."""
        for _ in range(count):
            self.clock.time += POLL
            start, end, newest = self.source.offsets[BUSY]
            self.source.offsets[BUSY] = (start, end + 1, newest)
            self.poller.poll()
            self.spool.thread.call(lambda: None)

    def next(self, after: float = 60.0, exporter: str = "exporter-1") -> Life:
        """The life that begins so many seconds after this one was told to end."""
        self.history.flush(self.clock.now())
        self.clock.time += after
        return Life(self.folder, self.clock, self.source, exporter)

    def verdict(self) -> str:
        """What it says of orders, where that is shown: live, quiet and learning are not."""
        return verdict_of_orders(self.metrics())

    def metrics(self) -> str:
        """The whole exposition."""
        return self.monitor.metrics().decode()


def stands(folder: Path) -> UnchangedOffsets:
    """What a life that begins is told of orders."""
    return unchanged_since(folder, lambda _, topic: topic == "orders").get("prod", UnchangedOffsets.nothing())


@pytest.fixture
def first(tmp_path: Path) -> Life:
    """A life that begins long after the last record of orders."""
    return Life(tmp_path, ManualClock(MONDAY), TableSource({ORDERS: (0, 10, None), BUSY: (0, 5, None)}))


@pytest.mark.parametrize("exporter", ["exporter-1", "exporter-2"])
def test_dead_past_its_limit_it_is_dead_after_a_restart(first: Life, exporter: str) -> None:
    """At the first poll of the next life, also under another name; when it last advanced is still not known."""
    first.polls(26)
    assert first.verdict() == Verdict.DEAD
    again = first.next(exporter=exporter)
    again.polls(1)
    assert again.verdict() == Verdict.DEAD
    assert 'last_advance_timestamp_seconds{kafka_cluster="prod",topic="orders"' not in again.metrics()


def test_lives_shorter_than_the_limit_add_up(first: Life) -> None:
    """An exporter that is restarted after every 36 minutes finds it dead after two hours, as one that was not."""
    life = first
    seen = []
    for _ in range(4):
        life.polls(7)
        seen.append(life.verdict())
        life = life.next()
    assert seen == ["nothing", "nothing", Verdict.SUSPECT, Verdict.DEAD]


def test_files_without_any_of_the_topics_tell_nothing(first: Life) -> None:
    """They are of another cluster, or of a listing of a topic that came later."""
    first.polls(5)
    first.source.offsets[TopicPartition("later", 0)] = (0, 3, None)
    first.polls(5)
    first.history.flush(first.clock.now())
    assert len(list((first.folder / "spool" / "inventory").iterdir())) == 2
    assert unchanged_since(first.folder, lambda _, topic: topic == "later")["prod"].keys() == {("later", 0)}
    assert stands(first.folder) == {ORDERS: UnchangedOffset("id-1", 10, MONDAY + POLL)}
    assert unchanged_since(first.folder, lambda cluster, _: cluster == "other") == {}


@pytest.mark.parametrize("offset", [11, 9])
def test_a_log_that_moved_between_two_lives_stands_since_the_second(first: Life, offset: int) -> None:
    """A record was written, or the log was truncated: the silence counts from the first poll after it."""
    first.polls(26)
    first.source.offsets[ORDERS] = (0, offset, None)
    again = first.next()
    began = again.clock.now() + POLL
    again.polls(10)
    assert again.verdict() == "nothing"
    again.history.flush(again.clock.now())
    assert stands(first.folder) == {ORDERS: UnchangedOffset("id-1", offset, began)}


def test_a_topic_made_again_does_not_inherit_the_silence(first: Life) -> None:
    """The end offset is the same and the topic is not."""
    first.polls(26)
    first.source.topic_ids = {"orders": "id-2"}
    again = first.next()
    again.polls(10)
    assert again.verdict() == "nothing"


def test_what_was_deleted_stands_nowhere(first: Life) -> None:
    """A partition that is gone, and comes again with the offset it had, begins anew."""
    first.polls(10)
    del first.source.offsets[ORDERS]
    first.polls(10)
    first.history.flush(first.clock.now())
    assert stands(first.folder) == {}


@pytest.mark.parametrize(("ahead", "trusted"), [(1.5 * HOUR, True), (5 * HOUR, False), (50 * 365 * 24 * HOUR, False)])
def test_a_clock_that_was_set_proves_no_silence(first: Life, ahead: float, trusted: bool) -> None:
    """What was seen by a clock two hours slow or more counts from the moment at which it was set."""
    first.polls(6)
    first.clock.time += ahead
    first.polls(6)
    again = first.next()
    again.polls(1)
    assert (again.verdict() != "nothing") == trusted
    assert (stands(first.folder)[ORDERS].since == MONDAY + POLL) == trusted


@pytest.mark.parametrize("part", range(9, 100, 22))
def test_what_the_first_poll_saw_counts_whatever_its_moment_is_rounded_to(first: Life, part: int) -> None:
    """Its file of coverage and its row of the inventory have the same moment, and no row is before its coverage."""
    began = MONDAY + part / 7919
    first.clock.time = began - POLL
    first.polls(6)
    first.history.flush(first.clock.now())
    assert stands(first.folder)[ORDERS].since == pytest.approx(began, abs=1e-6)


def row_by_row(rows: Sequence[Inventory], began: float) -> dict[TopicPartition, UnchangedOffset]:
    """What the inventory tells, read one row after the other."""
    found: dict[TopicPartition, UnchangedOffset] = {}
    for row in sorted(rows, key=lambda row: row.observed_at):
        key = TopicPartition(row.topic, row.partition)
        if row.deleted:
            found.pop(key, None)
        elif row.latest_offset is not None and row.observed_at >= began:
            now = UnchangedOffset(row.topic_id, row.latest_offset, row.observed_at)
            if key not in found or found[key][:2] != now[:2]:
                found[key] = now
    return found


@pytest.mark.parametrize("seed", range(20))
def test_all_rows_of_all_files_tell_what_they_would_one_after_the_other(tmp_path: Path, seed: int) -> None:
    """Offsets that come back, topics made again, deletions, unknown ids and offsets, and files that overlap in time."""
    chance, spool = random.Random(seed), tmp_path / "spool"
    times = iter(chance.sample(range(1000), 120))
    rows = []
    for _ in range(120):
        columns: dict[str, Any] = {
            **{column.name: None for column in fields(Inventory)},
            "cluster": "prod",
            "topic": chance.choice(["orders", "a", "z"]),
            "topic_id": chance.choice(["id-1", "id-1", "id-2", None]),
            "partition": chance.randrange(3),
            "exporter": "exporter-1",
            "source": "poll",
            "state": "observed",
            "observed_at": MONDAY + next(times),
            "latest_offset": chance.choice([7, 7, 8, None]),
            "deleted": chance.random() < 0.1,
        }
        rows.append(Inventory(**columns))
    for table in ("inventory", "coverage"):
        (spool / table).mkdir(parents=True)
    began = datetime.fromtimestamp(MONDAY + 200, UTC).strftime(STAMP)
    (spool / "coverage" / f"coverage-exporter-1-prod-{began}.parquet").touch()
    for number in range(4):
        pq.write_table(to_table(rows[number::4]), spool / "inventory" / f"inventory-{number}.parquet")
    found = unchanged_since(tmp_path, lambda _, topic: topic != "z")
    assert found["prod"] == row_by_row([row for row in rows if row.topic != "z"], MONDAY + 200)


def test_a_file_that_cannot_be_read_costs_itself(first: Life, caplog: pytest.LogCaptureFixture) -> None:
    """Torn, of another type, or with holes where there must be values: the other files tell all the same."""
    first.polls(5)
    first.history.flush(first.clock.now())
    folder = first.folder / "spool" / "inventory"
    [good] = folder.iterdir()
    (folder / "inventory-torn.parquet").write_bytes(b"torn")
    table = pq.read_table(good)
    foreign = table.set_column(table.column_names.index("latest_offset"), "latest_offset", pa.array([["a"]] * 2))
    pq.write_table(foreign, folder / "inventory-foreign.parquet")
    pq.write_table(table.drop_columns(["deleted"]), folder / "inventory-short.parquet")
    empty = table.set_column(
        table.column_names.index("observed_at"), "observed_at", pa.nulls(2, pa.timestamp("us", tz="UTC"))
    )
    pq.write_table(empty, folder / "inventory-empty.parquet")
    assert stands(first.folder) == {ORDERS: UnchangedOffset("id-1", 10, MONDAY + POLL)}
    assert caplog.text.count("cannot be read") == 3

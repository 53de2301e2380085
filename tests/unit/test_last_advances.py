"""An exporter that starts goes on from what its last life recorded, where offsets prove that nothing came since."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.collectors.poller import Poller
from exporter.domain import Advance, Expectation, TopicOverride, TopicPartition, Verdict
from exporter.domain.expectations.columns import table_of
from exporter.domain.overrides import Overrides
from exporter.domain.polls.last_advances import LastAdvances
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.silence import with_later_advance
from exporter.history import History, Spool
from exporter.history import last_advances as reader
from exporter.history.last_advances import last_advances
from exporter.history.published import Published
from exporter.state import Monitor, MonitorSettings, Rhythm
from tests.exposed import verdict_of_orders
from tests.unit.expectations import HOUR, MONDAY, by_wall
from tests.unit.readings import ManualClock, TableSource

ORDERS = TopicPartition("orders", 0)
BUSY = TopicPartition("busy", 0)
POLL = 300
"""Seconds between two polls."""


class Life:
    """One life of an exporter; windows of five polls go to the spool."""

    def __init__(
        self,
        folder: Path,
        clock: ManualClock,
        source: TableSource,
        row: Expectation | None,
        overrides: Sequence[TopicOverride] = (),
        max_age: float = 8 * 24 * HOUR,
    ) -> None:
        self.clock, self.source = clock, source
        self.history = History(
            "prod",
            Spool(folder, "exporter-1"),
            exporter="exporter-1",
            window_seconds=5 * POLL,
            poll_interval_seconds=POLL,
        )
        self.monitor = Monitor(
            MonitorSettings(
                {"prod": Rhythm(POLL)},
                partition_switches=["last_advance_timestamp"],
                expectations_max_age_seconds=max_age,
                overrides=Overrides(overrides),
            ),
            clock,
            version="0",
            advances=last_advances(folder, 0.0 if row is None else row.as_of),
        )
        if row is not None:
            self.monitor.take_expectations(Published(row.as_of, row.as_of, {}, {}, table_of([row])), None)
        self.poller = Poller("prod", source, [self.history, self.monitor], clock)

    def polls(self, count: int, gained: int = 0, busy: int = 0) -> None:
        """Poll so often; at the first poll orders has gained so many records, at each one busy has."""
        for number in range(count):
            self.clock.time += POLL
            for key, records in ((ORDERS, gained if number == 0 else 0), (BUSY, busy)):
                start, end, newest = self.source.offsets[key]
                self.source.offsets[key] = (start, end + records, newest)
            self.poller.poll()

    def verdict(self) -> str:
        """What it says of orders, where that is shown: live, quiet and learning are not."""
        return verdict_of_orders(self.metrics())

    def metrics(self) -> str:
        """The whole exposition."""
        return self.monitor.metrics().decode()


@pytest.fixture
def first(tmp_path: Path) -> Life:
    """A life that begins two hours after the rollup, when orders stands where the rollup saw it."""
    clock = ManualClock(MONDAY + 2 * HOUR)
    source = TableSource({ORDERS: (0, 10, None), BUSY: (0, 5, None)})
    return Life(tmp_path, clock, source, by_wall())


def restarted(life: Life, folder: Path) -> Life:
    """The next life, which begins when the first has ended."""
    life.history.flush(life.clock.now())
    return Life(folder, life.clock, life.source, by_wall())


def test_a_silence_that_began_after_the_rollup_outlives_the_exporter(first: Life, tmp_path: Path) -> None:
    """Dead before the restart: held for two polls after it, then dead again, since the same moment."""
    first.polls(3)
    first.polls(62, gained=1, busy=1)
    assert first.verdict() == Verdict.DEAD
    again = restarted(first, tmp_path)
    seen = []
    for _ in range(3):
        again.polls(1)
        seen.append(again.verdict())
    assert seen == [Verdict.HELD, Verdict.HELD, Verdict.DEAD]
    advance = 'last_advance_timestamp_seconds{kafka_cluster="prod",topic="orders",partition="0"}'
    matches = [re.search(rf"{re.escape(advance)} (\S+)", one.metrics()) for one in (first, again)]
    assert matches[0] is not None and matches[1] is not None
    assert float(matches[0][1]) == float(matches[1][1]) == MONDAY + 2 * HOUR + 4 * POLL


@pytest.mark.parametrize(
    ("row", "spool"),
    [
        (None, "spool"),
        (by_wall(topic="other"), "spool"),
        (by_wall(topic_id="id-0"), "spool"),
        (by_wall(last_advance=MONDAY + 2 * HOUR + 4 * POLL, end_offset=11), "expired"),
    ],
    ids=["nothing is published", "others are", "of an earlier topic", "what is published is stale"],
)
def test_a_limit_of_the_configuration_outlives_the_exporter(
    tmp_path: Path, row: Expectation | None, spool: str
) -> None:
    """Dead past max_silence before a restart is dead at the first poll after it: promises age, advances do not."""
    source = TableSource({ORDERS: (0, 10, None), BUSY: (0, 5, None)})
    limit = TopicOverride("orders", max_silence_seconds=HOUR)
    life = Life(tmp_path, ManualClock(MONDAY + 2 * HOUR), source, None, [limit])
    life.polls(3)
    life.polls(30, gained=1, busy=1)
    assert life.verdict() == Verdict.DEAD
    life.history.flush(life.clock.now())
    (tmp_path / "spool").rename(tmp_path / spool)
    again = Life(tmp_path, life.clock, source, row, [limit], max_age=HOUR)
    again.polls(1)
    assert again.verdict() == Verdict.DEAD


def test_files_too_many_to_be_read_at_a_start_are_left_out_oldest_first(
    first: Life, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What lies past the limit goes unread with a word; the newest files are read."""
    first.polls(10, busy=1)
    first.polls(10)
    first.polls(10, gained=1)
    first.history.flush(first.clock.now())
    files = len(list((tmp_path / "spool" / "windows").iterdir()))
    assert files > 1
    monkeypatch.setattr(reader, "_MOST_READ", 200_000)
    assert last_advances(tmp_path, 0.0).keys() == {("prod", "orders", 0)}
    assert f"{files - 1} of {files} files are too old to be read" in caplog.text


def test_a_record_written_between_two_lives_ends_the_silence(first: Life, tmp_path: Path) -> None:
    """The end offset is past the recorded one: when it moved is unknown, and the silence counts from the first poll."""
    first.polls(3)
    first.polls(62, gained=1, busy=1)
    again = restarted(first, tmp_path)
    again.polls(1, gained=1)
    again.polls(40)
    assert again.verdict() == "nothing"


def test_the_last_advance_of_each_stream_is_given_by_the_newest_window(first: Life, tmp_path: Path) -> None:
    """Of many files the last word counts; files from before the rollup are not read, and one torn costs itself."""
    began = first.clock.now()
    first.polls(1)
    first.polls(20, gained=1, busy=2)
    first.history.flush(first.clock.now())
    assert last_advances(tmp_path, 0.0) == {
        ("prod", "orders", 0): Advance("id-1", 11, began + 2 * POLL),
        ("prod", "busy", 0): Advance("id-1", 45, began + 21 * POLL),
    }
    (tmp_path / "spool" / "windows" / "windows-torn.parquet").write_bytes(b"torn")
    assert len(last_advances(tmp_path, 0.0)) == 2
    assert last_advances(tmp_path, 9e9) == {}
    assert last_advances(tmp_path / "nowhere", 0.0) == {}


def test_offsets_that_fell_are_no_advance(first: Life, tmp_path: Path) -> None:
    """After a truncation the last advance belongs to offsets that are gone."""
    first.polls(2, busy=2)
    start, end, newest = first.source.offsets[BUSY]
    first.polls(5)
    first.source.offsets[BUSY] = (start, end - 3, newest)
    first.polls(5)
    first.history.flush(first.clock.now())
    assert ("prod", "busy", 0) not in last_advances(tmp_path, 0.0)


def test_advances_are_given_for_the_partitions_of_the_same_life_of_a_topic() -> None:
    """A row has one where the topic's id is the same or not known; what went, came or was made again has none."""
    recorded = {
        ("prod", "orders", 0): Advance("id-1", 10, 1.0),
        ("prod", "orders", 2): Advance("id-2", 12, 2.0),
        ("prod", "orders", 7): Advance("id-1", 17, 3.0),
        ("prod", "older", 0): Advance(None, 20, 4.0),
        ("dr", "orders", 0): Advance("id-1", 30, 5.0),
    }
    advances = LastAdvances.of(recorded)
    assert advances == recorded
    layout = Layout.of({"older": [0], "orders": [0, 1, 2, 3], "other": [0]})

    def given(*topic_ids: str | None, cluster: str = "prod") -> dict[TopicPartition, tuple[int, float]]:
        known, end_offset, at = advances.for_layout(cluster, layout, topic_ids)
        assert [row for row, one in enumerate(at) if not math.isnan(one)] == known.nonzero()[0].tolist()
        return {key: (int(end_offset[row]), float(at[row])) for row, key in enumerate(layout) if known[row]}

    older, orders_2 = TopicPartition("older", 0), TopicPartition("orders", 2)
    assert given("id-9", "id-1", "id-1") == {older: (20, 4.0), ORDERS: (10, 1.0)}
    assert given(None, None, None) == {older: (20, 4.0), ORDERS: (10, 1.0), orders_2: (12, 2.0)}
    assert given("id-9", "id-3", None) == {older: (20, 4.0)}
    assert given(None, "id-1", None, cluster="dr") == {ORDERS: (30, 5.0)}
    assert given(None, None, None, cluster="elsewhere") == {}


def test_only_a_later_advance_of_the_same_topic_replaces_what_was_published() -> None:
    """An earlier one, and one of an earlier topic of that name, changes nothing."""
    row = by_wall()
    later = Advance("id-1", 11, MONDAY + 1.0)
    assert with_later_advance(row, later) == replace(row, end_offset=11, last_advance=MONDAY + 1.0)
    for advance in (None, later._replace(at=MONDAY - 1.0), later._replace(topic_id="id-0")):
        assert with_later_advance(row, advance) == row

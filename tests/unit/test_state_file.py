"""A start goes on from the state file as if the exporter had never stopped, in whatever order it was killed."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.collectors.poller import Poller
from exporter.domain.polls.readings import TopicPartition
from exporter.domain.polls.table import Snapshot
from exporter.domain.verdicts import Expectation, TopicOverride, Verdict
from exporter.history.cluster_states import STATE_COLUMNS, ClusterState, read_state, state_file, write_state
from exporter.history.published import Publication
from exporter.history.recorder import History
from exporter.history.spool import Spool
from tests.judging import table_of
from tests.monitors import monitor_of
from tests.unit.expectations import HOUR, MONDAY, by_wall
from tests.unit.readings import Collected, ManualClock, TableSource

ORDERS = TopicPartition("orders", 0)
BUSY = TopicPartition("busy", 0)
POLL = 300
LIMIT = TopicOverride("orders", max_silence_seconds=2 * HOUR)


class DyingSpool(Spool):
    """A spool whose process may be killed between two files."""

    files_left = 10**9

    def _die(self) -> None:
        if self.files_left == 0:
            raise OSError(errno.EIO, "killed")
        self.files_left -= 1

    def write_files(self, cluster: str, at: float, tables: Iterable[pa.Table]) -> None:
        for table in tables:
            self._die()
            super().write_files(cluster, at, [table])

    def write_state(self, cluster: str, state: ClusterState) -> None:
        self._die()
        super().write_state(cluster, state)


class Life:
    """One life of an exporter; windows of five polls go to the spool."""

    def __init__(
        self,
        folder: Path,
        clock: ManualClock,
        source: TableSource,
        row: Expectation | None = None,
        overrides: Sequence[TopicOverride] = (),
        exporter: str = "exporter-1",
    ) -> None:
        self.folder, self.clock, self.source, self.row, self.overrides = folder, clock, source, row, overrides
        last = read_state(folder, "prod", exporter)
        self.spool, self.seen = DyingSpool(folder, exporter), Collected()
        self.monitor = monitor_of(
            clock,
            poll={"interval": POLL},
            metrics={"partition": ["last_advance_timestamp"]},
            overrides=[{"topics": one.topics, "max_silence": one.max_silence_seconds} for one in overrides],
        )
        self.history = History(
            "prod",
            self.spool,
            exporter=exporter,
            window_seconds=5 * POLL,
            poll_interval_seconds=POLL,
            own=self.monitor.self_metrics,
            last=last,
        )
        if row is not None:
            self.monitor.take_expectations(Publication(row.as_of, row.as_of, {}, table_of([row])), None)
        self.poller = Poller("prod", source, [self.history, self.monitor, self.seen], clock, state=last)

    def polls(self, count: int, gained: int = 0, busy: int = 0) -> None:
        """Poll so often; at the first poll orders has gained so many records, at each one busy has."""
        for number in range(count):
            self.clock.time += POLL
            for key, records in ((ORDERS, gained if number == 0 else 0), (BUSY, busy)):
                if records:
                    start, end, newest = self.source.offsets[key]
                    self.source.offsets[key] = (start, end + records, newest)
            self.poller.poll()
            self.wait()

    def wait(self) -> None:
        """Wait until what the polls left is written, or could not be."""
        self.spool.thread.call(lambda: None)

    def next(self, after: float = 60.0, exporter: str = "exporter-1") -> Life:
        """The life that begins so many seconds after this one was told to end."""
        self.history.flush(self.clock.now())
        self.clock.time += after
        return Life(self.folder, self.clock, self.source, self.row, self.overrides, exporter)

    def verdict(self) -> str:
        """What it says of orders, where that is shown: live, quiet and learning are not."""
        labels = 'kafka_cluster="prod",topic="orders",partition="0"'
        metrics = self.monitor.metrics().decode()
        shown = re.search(rf'kafka_topic_partition_verdict{{{labels},verdict="(\w+)"}} 1', metrics)
        return "nothing" if shown is None else shown[1]

    def last(self) -> Snapshot:
        return self.seen.snapshots[-1]


@pytest.fixture
def first(tmp_path: Path) -> Life:
    """A life that begins two hours after the rollup, when orders stands where the rollup saw it."""
    source = TableSource({ORDERS: (0, 10, None), BUSY: (0, 5, None)})
    return Life(tmp_path, ManualClock(MONDAY + 2 * HOUR), source, by_wall())


@pytest.fixture
def limited(tmp_path: Path) -> Life:
    """A life with nothing published, in which orders may be silent for two hours."""
    source = TableSource({ORDERS: (0, 10, None), BUSY: (0, 5, None)})
    return Life(tmp_path, ManualClock(MONDAY), source, None, [LIMIT])


STEPS = st.lists(
    st.tuples(st.sampled_from(["poll"] * 6 + ["kill", "end"]), st.integers(0, 2), st.integers(0, 2), st.integers(0, 4)),
    max_size=25,
)
"""What happens, records that each topic gains before, and polls missed or files written until a kill."""


@settings(max_examples=25, deadline=None)
@given(steps=STEPS)
def test_after_any_kills_it_knows_what_a_run_that_never_stopped_knows(
    steps: Sequence[tuple[str, int, int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """That run misses the polls that a kill took along: the open window, and one whose files a kill came between.

    No window overlaps another one: no record counts twice.
    """
    folder, clock = tmp_path_factory.mktemp("kills"), ManualClock(MONDAY)
    source = TableSource({ORDERS: (0, 10, None), BUSY: (0, 5, None)})
    life, polled = Life(folder, clock, source), list[tuple[float, dict[Any, Any]]]()
    for step, orders, busy, number in [*steps, ("poll", 0, 0, 0), ("poll", 1, 1, 0)]:
        for key, gained in ((ORDERS, orders), (BUSY, busy)):
            start, end, newest = source.offsets[key]
            source.offsets[key] = (start, end + gained, newest)
        if step == "end":
            life = life.next(number * POLL)
        elif step == "kill":
            life.wait()
            life.spool.files_left = number
            life.polls(1)
            life.spool.files_left = 0
            life = Life(folder, clock, source)
            last = read_state(folder, "prod", "exporter-1")
            reached = -np.inf if last is None else last.taken_at
            polled = [poll for poll in polled if poll[0] <= reached]
            clock.time += number * POLL
            continue
        life.polls(1)
        polled.append((clock.time, dict(source.offsets)))
    replayed, seen, then = TableSource(), Collected(), ManualClock()
    truth = Poller("prod", replayed, [seen], then)
    for then.time, replayed.offsets in polled:
        truth.poll()
    found, wanted = life.last().table, seen.snapshots[-1].table
    assert found.layout == wanted.layout
    for name in STATE_COLUMNS:
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name), err_msg=name)
    life.history.flush(clock.now())
    spans: dict[str, list[tuple[int, int]]] = {"orders": [], "busy": []}
    for path in (folder / "spool" / "windows").glob("*.parquet"):
        for row in pq.read_table(path, partitioning=None).to_pylist():
            spans[row["topic"]].append((row["start_offset"], row["end_offset"]))
    for each in spans.values():
        each.sort()
        assert all(before[1] <= after[0] for before, after in pairwise(each))


def test_what_was_published_meanwhile_dates_an_advance_of_days_without_an_exporter(first: Life) -> None:
    """The end offset is the published one: the last record is as old as published, not as new as the first poll."""
    first.polls(3)
    advanced = first.clock.now() + HOUR
    first.row = by_wall(as_of=advanced + 9 * HOUR, last_advance=advanced, end_offset=11)
    again = first.next(after=10 * HOUR)
    again.polls(1, gained=1)
    silence = again.monitor.cluster_facts()[0].assessment.silences.silence(1)
    assert silence is not None and (silence.since, silence.known) == (advanced, True)


@pytest.mark.parametrize("exporter", ["exporter-1", "exporter-2"])
def test_dead_past_its_limit_it_is_dead_after_a_restart(limited: Life, exporter: str) -> None:
    """At the first poll of the next life, also under another name; when it last advanced is still not known."""
    limited.polls(26)
    assert limited.verdict() == Verdict.DEAD
    again = limited.next(exporter=exporter)
    again.polls(1)
    assert again.verdict() == Verdict.DEAD
    advance = 'last_advance_timestamp_seconds{kafka_cluster="prod",topic="orders"'
    assert advance not in again.monitor.metrics().decode()


def test_a_topic_made_again_or_gone_in_between_does_not_inherit_the_silence(limited: Life) -> None:
    """The end offset is the same and the topic is not."""
    limited.polls(26)
    limited.source.topic_ids = {"orders": "id-2"}
    again = limited.next()
    again.polls(10)
    assert again.verdict() == "nothing"
    del again.source.offsets[ORDERS]
    again.polls(10)
    again.source.offsets[ORDERS] = (0, 10, None)
    last = again.next()
    last.polls(10)
    assert last.verdict() == "nothing"


@pytest.mark.parametrize("booted", [False, True])
@pytest.mark.parametrize("step", [-2 * HOUR, 2 * HOUR])
def test_a_clock_that_was_set_between_two_lives_changes_no_silence(
    limited: Life, step: float, booted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The monotonic clock goes on. After a start of the machine only a clock behind the last poll is surely wrong."""
    limited.polls(20)
    limited.history.flush(limited.clock.now())
    if booted:
        monkeypatch.setattr("exporter.history.cluster_states.boot_id", lambda: "another")
    limited.clock.set_by = step
    again = Life(limited.folder, limited.clock, limited.source, None, [LIMIT])
    again.polls(1)
    silent = again.clock.now() - again.last().table.silent_since[1]
    assert silent == pytest.approx(20 * POLL + (step if booted and step > 0 else 0), abs=POLL)


def damaged(whole: bytes) -> list[bytes]:
    """A file that is cut, flipped, empty and of another kind."""
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    return [whole[:-7], bytes(flipped), b"", b"torn" * 100]


@pytest.mark.parametrize("number", range(4))
def test_a_damaged_state_file_is_said_and_counts_as_missing(
    limited: Life, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    limited.polls(6)
    limited.history.flush(limited.clock.now())
    path = state_file(limited.folder, "prod", "exporter-1")
    assert isinstance(path, Path)
    path.write_bytes(damaged(path.read_bytes())[number])
    again = Life(limited.folder, limited.clock, limited.source)
    assert f"the state file {path} is damaged" in caplog.text
    again.polls(1)
    assert read_state(limited.folder, "prod", "exporter-1") is not None


def test_a_state_file_holds_what_was_known(limited: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also without a topic id, without a cluster id and without any partition; one of a later version is refused."""
    limited.polls(3, busy=1)
    state = replace(ClusterState.build(limited.last()), latest_start=1.0, written=2.0)
    path = state_file(limited.folder, "prod", "other")
    nothing = np.zeros(0, dtype=np.intp)
    for each in (
        state,
        replace(state, topic_ids=[None, "id"]),
        replace(state, layout=state.layout.part(nothing), topic_ids=[], columns=dict.fromkeys(STATE_COLUMNS, nothing)),
    ):
        write_state(path, each)
        found = read_state(limited.folder, "prod", "other")
        assert found is not None
        assert (found.latest_start, found.written, found.layout) == (1.0, 2.0, each.layout)
        assert list(found.topic_ids) == list(each.topic_ids)
        for name in STATE_COLUMNS:
            np.testing.assert_array_equal(found.columns[name], each.columns[name])
    monkeypatch.setattr("exporter.history.cluster_states._VERSION", 3)
    write_state(path, state)
    monkeypatch.undo()
    assert read_state(limited.folder, "prod", "other") is not None, "that of the exporter that is older"
    assert state_file(limited.folder, "prod", "other") != state_file(limited.folder, "prod", "exporter-1")


def test_another_cluster_behind_the_name_is_said_and_begins_anew(first: Life) -> None:
    """Its records are no advances, its silences unknown, and what was published of the other one is not about it."""
    first.source.own_id = "first"
    first.polls(66, busy=1)
    assert first.verdict() == Verdict.DEAD
    first.source.own_id = "second"
    first.source.topic_ids = {"orders": "id-1", "busy": "id-1"}
    first.source.offsets = {ORDERS: (0, 500, None), BUSY: (0, 700, None)}
    life = first.next()
    life.polls(1)
    at = life.clock.now()
    life.polls(1)
    for _ in range(2):
        table = life.last().table
        assert not table.advanced_by.any() and np.isnan(table.last_advance).all()
        assert life.verdict() == "nothing"
        changed = re.search(r"cluster_changed_timestamp_seconds{.*} (.*)", life.monitor.metrics().decode())
        assert changed is not None and float(changed[1]) == at
        assert "its id was first and is second" in life.monitor.ready()[1]
        life = life.next()
        life.polls(1)
    life.clock.time += 24 * HOUR
    life.polls(1)
    assert "another Kafka cluster" not in life.monitor.ready()[1]

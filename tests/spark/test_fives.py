"""Polled history -> slots of five minutes -> a fast stream's death within the hour, by the exporter's own poller."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path

import numpy as np
import pyspark.sql
import pytest
from pyspark.sql import SparkSession

from exporter.collectors.poller import Poller
from exporter.domain.judging.detection import judge
from exporter.domain.polls.readings import State, TopicPartition
from exporter.domain.verdicts import Verdict
from exporter.history.published import Expectations
from exporter.history.recorder import History
from exporter.history.spool import Spool, finished_files
from exporter.history.tables import Columns
from exporter.history.tables import Row as HistoryRow
from spark_rollups.progress import Progress
from spark_rollups.rollup import RollupRequest, run_rollup
from spark_rollups.tables import Tables
from spark_rollups.views import hourly
from tests.delta import Row, rows_of
from tests.snapshots import silence_of
from tests.spark.spool_days import fold
from tests.spark.story import CLUSTER, HOUR, World, at, moment
from tests.unit.readings import ManualClock, TableSource
from tests.views import Activity, Reading

pytestmark = pytest.mark.timeout(600)

DAYS = 14.5
LAST = at(DAYS, -1.1)
"""The last record of what died: an hour before the last poll."""

BURSTS = [at(day, 9) + 60.0 * minute for day in range(15) for minute in (1, 2, 33)]
"""Three records of each morning, in the first and in the seventh slot after nine."""


class OneFile(Spool):
    """A spool that keeps its rows and writes each table once: thousands of small files test nothing more."""

    def __init__(self, folder: Path, exporter: str) -> None:
        super().__init__(folder, exporter)
        self.rows_by_table: dict[type[HistoryRow], list[Columns]] = {}

    def write_files(self, _cluster: str, files: Sequence[tuple[float, Sequence[Columns]]]) -> list[int]:
        """Keep the rows."""
        for _, rows in files:
            self.rows_by_table.setdefault(rows[0].row, []).extend(rows)
        return [0] * len(files)

    def write_all(self) -> None:
        """Write what was kept."""
        for rows in self.rows_by_table.values():
            super().write_files(CLUSTER, [(at(0), rows)])


@dataclass(frozen=True)
class FivesRun:
    """The verdicts by topic and partition, the hours by topic, and what was published."""

    history: Path
    tables: Tables
    verdicts: dict[tuple[str, int | None], Row]
    hours: dict[str, list[pyspark.sql.Row]]
    expectations: Expectations


@pytest.fixture(scope="module")
def fives_run(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FivesRun]:
    """Two weeks and half a day of polls: one stream died at the end, one goes on, one has short mornings."""
    history = tmp_path_factory.mktemp("history")
    world = World(history)
    drawn = np.random.default_rng(7)
    busy = np.sort(drawn.uniform(at(0), at(DAYS), int(DAYS * 24 * 120)))
    world.write("alive", 0, busy)
    world.write("dead", 0, busy[busy <= LAST])
    world.write("bursts", 0, BURSTS)
    spool = OneFile(history, "exporter-a")
    clock, source = ManualClock(at(0) + 7.0), TableSource(topic_ids={name: f"id-{name}" for name, _ in world.logs})
    sink = History(CLUSTER, spool, exporter="exporter-a", window_seconds=300.0, poll_interval_seconds=300.0)
    poller = Poller(CLUSTER, source, [sink], clock)
    while clock.time <= at(DAYS):
        for (topic, partition), log in world.logs.items():
            source.offsets[TopicPartition(topic, partition)] = (0, log.end(clock.time), None)
        poller.poll()
        clock.time += 300.0
    sink.flush(clock.now())
    spool.write_all()
    assert len(finished_files(history / "spool")) == 3
    run_rollup(spark, history, RollupRequest(moment(at(DAYS, 0.1))), Progress())
    tables, expectations = Tables(spark, history), Expectations(history)
    assert expectations.refresh()
    hours: dict[str, list[pyspark.sql.Row]] = {}
    for row in hourly(tables.read("daily").where("partition is not null")).orderBy("hour").collect():
        hours.setdefault(row.topic, []).append(row)
    verdicts = {(row.topic, row.partition): row for row in rows_of(history, "verdicts")}
    yield FivesRun(history, tables, verdicts, hours, expectations)
    spark.catalog.clearCache()


def test_an_hour_shows_in_which_of_its_slots_polls_saw_an_advance(fives_run: FivesRun) -> None:
    """Each bit is the slot of the poll that saw it, five minutes after the record at most."""
    mornings = [row for row in fives_run.hours["bursts"] if row.first_advance]
    assert {row.fives for row in mornings} == {0b1000_0010}


def test_days_that_are_made_again_have_the_same_slots(fives_run: FivesRun) -> None:
    """Days from any one on, made of windows and of what was known as it began, are those of the whole history."""
    whole, since = fold(fives_run.history), moment(at(13)).date()
    again = fold(fives_run.history, since=since, before=whole)
    later = [row for row in whole.days.to_pylist() if row["date"] >= since]
    assert sorted(map(str, again.days.to_pylist())) == sorted(map(str, later))
    assert sum(fives > 0 for row in later for fives in row["fives"]) > 60


def test_a_fast_stream_is_dead_within_the_hour_after_two_polled_weeks(fives_run: FivesRun) -> None:
    """Judged by the hour, such a silence would be nothing yet; the line names the slots that it counts."""
    row = fives_run.verdicts["dead", 0]
    assert row.verdict == Verdict.DEAD, row.evidence
    assert row.slot_seconds == 300.0
    assert (row.expected_by.astimezone(UTC) - moment(LAST)).total_seconds() < HOUR
    assert "active slots of 5 m" in row.evidence
    assert fives_run.verdicts["dead", None].verdict == Verdict.DEAD
    alive = fives_run.verdicts["alive", None]
    assert (alive.verdict, alive.slot_seconds) == (Verdict.LIVE, 300.0)


def test_the_exporter_judges_in_the_same_slots(fives_run: FivesRun) -> None:
    """Verdict, score and the moment at which the silence is dead are those of Spark."""
    assert fives_run.expectations.published is not None
    for (topic, partition), row in fives_run.verdicts.items():
        expectation = fives_run.expectations.published.rows[CLUSTER, topic, partition]
        until = row.observed_until.astimezone(UTC).timestamp()
        seen = Activity(last_good_poll=until, silent_since=until, end_offset=row.end_offset)
        judgement = judge(silence_of(Reading(State(row.state), seen), expectation), expectation, until)
        assert judgement.verdict == row.verdict, row.evidence
        if row.silence_score is not None:
            assert judgement.score == pytest.approx(row.silence_score)
            assert judgement.expected_by == pytest.approx(row.expected_by.astimezone(UTC).timestamp())

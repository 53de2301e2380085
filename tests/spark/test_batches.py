"""What Spark's workers judge of a whole story, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession

from exporter.domain.judging.detection import judge
from exporter.domain.learning.drops import Drop
from exporter.domain.learning.rest_days import Rests
from exporter.domain.polls.silence import Silence
from exporter.domain.scoring.calibration import calibrations
from exporter.domain.verdicts import Verdict
from exporter.history.published import Expectations
from spark_rollups.batches import column
from spark_rollups.calibration import UNITS, Exclusions, units, unusual_from
from spark_rollups.folding import UPDATED
from spark_rollups.frames import arrow_schema
from spark_rollups.learning import DAYS, LEARNED, learn_batch, week_of
from spark_rollups.publish import publish
from spark_rollups.schemas import BASELINES
from spark_rollups.update import update
from spark_rollups.update_rows import Task
from spark_rollups.verdicts import JUDGED, Rule, held, judge_batch
from tests.spark.spool_days import EVENTS, STATE, Rows, listing, observers, read, window
from tests.spark.story import HOUR, World, at, every, moment
from tests.spark.test_rollup import END, HALF, RETIRED, write_story


@dataclass(frozen=True)
class Made:
    """The tables after a run."""

    days: pa.Table
    streams: pa.Table


def number(day: date) -> int:
    """Days since 1970."""
    return (day - date(1970, 1, 1)).days


def struct_tables(table: pa.Table, *names: str) -> list[pa.Table]:
    """Return the structs of a table, each as a table of its own."""
    columns = [column(table, name) for name in names]
    return [pa.Table.from_struct_array(one.filter(one.is_valid())) for one in columns]


def run(events: Rows, state: pa.Table, task: Task) -> Made:
    """Run the update of one batch."""
    return Made(*struct_tables(update(pa.Table.from_pylist(events, schema=EVENTS), state, task=task), "day", "stream"))


@dataclass(frozen=True)
class Spool:
    """All rows of the story."""

    windows: Rows
    inventory: Rows
    coverage: Rows

    def until(self, day: float) -> Spool:
        """The rows of the time up to a day."""
        return Spool(
            [row for row in self.windows if row["window_end"] <= moment(at(day))],
            [row for row in self.inventory if row["observed_at"] <= moment(at(day))],
            [row for row in self.coverage if row["window_end"] <= moment(at(day))],
        )

    def all_at_once(self, day: float) -> Made:
        """Make everything of everything, as of a day."""
        events = [*map(window, self.windows), *map(listing, self.inventory)]
        return run(events, STATE.empty_table(), self.task(day, from_nothing=True))

    def task(self, day: float, **changed: Any) -> Task:
        """The task of a run as of a day."""
        options: dict[str, Any] = {
            "since": 0,
            "until": round(at(day) * 1e6),
            "of_the_past": False,
            "from_nothing": False,
            "observers": observers(self.coverage, self.inventory),
            "schema": arrow_schema(UPDATED),
            **changed,
        }
        return Task(**options)


@pytest.fixture(scope="module")
def spool(tmp_path_factory: pytest.TempPathFactory) -> Spool:
    """Six weeks of one cluster, polled in two lives of the exporter."""
    history = tmp_path_factory.mktemp("story")
    world = World(history)
    write_story(world)
    world.poll(at(0), at(HALF), every=HOUR)
    world.poll(at(HALF, 1), at(END), every=HOUR, unreadable={("unread", 0): (at(36), at(END))}, gone=[("gone", 0)])
    return Spool(*(read(Path(history), name) for name in ("windows", "inventory", "coverage")))


@pytest.fixture(scope="module")
def whole(spool: Spool) -> Made:
    """All of it at once."""
    return spool.all_at_once(END)


def table_of_judged(
    made: Made,
    spool: Spool,
    baselines: pa.Table,
    maxima: pa.Table,
    day: float,
    drops: Sequence[Drop] = (),
) -> pa.Table:
    """Return all that is judged and published as of a day; in the ``drops`` the topic ``legacy`` took part."""
    week = week_of(moment(at(day)).date())
    exclusions = Exclusions((), (RETIRED,), at(day))
    unusual = unusual_from(units(maxima, maxima[:0], exclusions=exclusions, schema=arrow_schema(UNITS)))
    thresholds = {one.kind: one.threshold for one in calibrations(unusual, week)}
    seen = observers(spool.coverage, []).polls
    polled = {name: max(int(one.good[-1]) for key, one in seen.items() if key[0] == name) for name, _ in seen}
    rests = Rests(drops=drops, today=number(moment(at(day)).date()))
    rule = Rule(at(day), thresholds, (RETIRED,), polled, rests)
    days = [one.day for one in drops]
    streams = made.streams
    part = [bool(days) and topic == "legacy" for topic in streams["topic"].to_pylist()]
    low = [days if one else None for one in part]
    streams = streams.append_column("low_on", pa.array(low, pa.list_(pa.int32())))
    return judge_batch(streams, baselines, rule=rule, schema=arrow_schema(JUDGED))


@pytest.fixture(scope="module")
def learned(whole: Made) -> list[pa.Table]:
    """The baselines of all weeks, and the maxima."""
    first, last = week_of(moment(at(0)).date()), week_of(moment(at(END)).date())
    nothing = arrow_schema(BASELINES).empty_table()
    weeks = list(range(first + 1, last + 1))
    return struct_tables(
        learn_batch(whole.days, nothing, weeks=weeks, schema=arrow_schema(LEARNED)),
        "baseline",
        "maximum",
    )


def test_a_drop_that_goes_on_holds_what_it_alone_makes_dead_and_is_published(
    spark: SparkSession, spool: Spool, learned: list[pa.Table], tmp_path: Path
) -> None:
    """Named by the rollup and judged alike between rollups; dead once no holiday lasts as long, as of any moment."""
    began = number(moment(at(38)).date())

    def drop_verdict(day: float, days: int) -> tuple[Row, Verdict]:
        drops = [Drop("prod", began + n, frozenset(["legacy"]), judged=7, low=1) for n in range(days)]
        then = spool.until(day)
        rows = table_of_judged(then.all_at_once(day), then, learned[0], learned[1], day, drops)
        frame = spark.createDataFrame([tuple(row.values()) for row in rows.to_pylist()], JUDGED)
        found = held(frame)
        publish(found, tmp_path, as_of=moment(at(day)), published_at=moment(at(day)), calibrated=(), watermark=None)
        known = Expectations(tmp_path)
        assert known.refresh(), known.problem
        assert known.published is not None
        row = known.published.rows["prod", "legacy", None]
        assert row.last_advance is not None
        return found.where("topic = 'legacy' and partition is null").collect()[0], judge(
            Silence(row.last_advance, at(day), known=True), row, at(day)
        ).verdict

    row, between = drop_verdict(40.5, 2)
    assert (row.verdict, row.incident, row.dead_since, between) == ("held", "drop-2025-02-13", None, Verdict.HELD)
    assert "; held: drop of the fleet since Thu 2025-02-13 00:00 UTC, 1 of 7 topics" in row.evidence
    assert "until Sun 2025-02-16 00:00 UTC at most; without it dead since Thu 2025-02-13" in row.evidence
    row, between = drop_verdict(41.5, 3)
    assert (row.verdict, row.incident, between) == ("dead", None, Verdict.DEAD)


def test_a_rhythm_that_is_new_since_monday_is_known_after_two_pauses(tmp_path: Path) -> None:
    """An hourly topic wrote once a day from Wednesday on. On Saturday the pause of a day is published as its own."""
    world, changed, day = World(tmp_path), 37, 40.9
    world.write("cron", 0, [*every(HOUR, at(0), at(changed)), *(at(one, 2) for one in range(changed, 41))])
    world.poll(at(0), at(day), every=HOUR)
    found = Spool(*(read(tmp_path, name) for name in ("windows", "inventory", "coverage")))
    made = found.all_at_once(day)
    nothing = arrow_schema(BASELINES).empty_table()
    week = week_of(moment(at(day)).date())
    baselines, maxima = struct_tables(
        learn_batch(made.days, nothing, weeks=[week], schema=arrow_schema(LEARNED)), "baseline", "maximum"
    )
    recent = made.days.select(list(DAYS))
    verdicts = []
    for learned in (baselines, pa.concat_tables([baselines, recent], promote_options="default")):
        rows = table_of_judged(made, found, learned, maxima, day).to_pylist()
        [whole] = [row for row in rows if row["partition"] is None]
        verdicts.append((whole["verdict"], whole["pause_slots"] > 20.0))
    assert verdicts == [(Verdict.DEAD, False), (Verdict.QUIET, True)]

"""What Spark's workers make of a whole story, without Spark: one day after the other, and as of the past."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession

from exporter.domain import Verdict
from exporter.domain.judging.detection import judge
from exporter.domain.learning.drops import Drop
from exporter.domain.learning.rest_days import Rests
from exporter.domain.polls.silence import Silence
from exporter.domain.scoring.calibration import calibrations
from exporter.history.published import Expectations
from spark_rollups.batches import column
from spark_rollups.calibration import UNITS, Exclusions, units, unusual_from
from spark_rollups.folding import UPDATED
from spark_rollups.frames import arrow_schema
from spark_rollups.learning import DAYS, LEARNED, learn_batch, week_of
from spark_rollups.publish import publish
from spark_rollups.schemas import BASELINES
from spark_rollups.update import update
from spark_rollups.update_rows import Observers, Task
from spark_rollups.verdicts import JUDGED, Rule, held, judge_batch
from tests.spark.spool_days import EVENTS, STATE, Rows, listing, observers, read, window
from tests.spark.story import HOUR, World, at, every, moment
from tests.spark.test_rollup import END, HALF, RETIRED, write_story

INVENTORY_AGE = timedelta(days=2)


@dataclass(frozen=True)
class Made:
    """The tables after a run."""

    days: pa.Table
    streams: pa.Table

    @property
    def state(self) -> pa.Table:
        """What the next run knows."""
        days = [{**row, "day": number(row["date"])} for row in self.days.to_pylist()]
        return pa.Table.from_pylist([*self.streams.to_pylist(), *days], schema=STATE)


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

    def since(self, day: date) -> Rows:
        """The windows that touch the days from one on."""
        midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
        return [row for row in self.windows if row["window_start"] >= midnight or row["window_end"] > midnight]


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


def judged(made: Made, spool: Spool, baselines: pa.Table, maxima: pa.Table, day: float) -> dict[Any, Mapping[str, Any]]:
    """Return the verdict rows as of a day."""
    rows = table_of_judged(made, spool, baselines, maxima, day).to_pylist()
    return {(row["topic"], row["partition"]): row for row in rows}


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


def test_each_topic_gets_the_verdict_of_its_story(spool: Spool, whole: Made, learned: list[pa.Table]) -> None:
    """Dead topics, single dead partitions, retired, learning, quiet and unreadable ones are told apart."""
    rows = judged(whole, spool, learned[0], learned[1], END)
    verdicts = {key: row["verdict"] for key, row in rows.items() if key[1] is None or key[0] == "orders"}
    assert verdicts == {
        ("orders", None): Verdict.LIVE, ("orders", 0): Verdict.LIVE, ("orders", 1): Verdict.LIVE,
        ("orders", 2): Verdict.DEAD, ("legacy", None): Verdict.DEAD, ("retired", None): Verdict.RETIRED,
        ("young", None): Verdict.LIVE, ("weekly", None): Verdict.QUIET, ("monthly", None): Verdict.QUIET,
        ("never", None): Verdict.LEARNING, ("unread", None): Verdict.HELD, ("nightly", None): Verdict.QUIET,
        ("fell", None): Verdict.LIVE, ("office", None): Verdict.QUIET,
    }  # fmt: skip
    assert ("gone", 0) not in rows
    assert "2 of 3 partitions of orders live" in rows["orders", 2]["evidence"]


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
        [whole] = [row for key, row in judged(made, found, learned, maxima, day).items() if key[1] is None]
        verdicts.append((whole["verdict"], whole["pause_slots"] > 20.0))
    assert verdicts == [(Verdict.DEAD, False), (Verdict.QUIET, True)]


def in_order(table: pa.Table) -> list[str]:
    """Return rows as text."""
    return sorted(map(str, table.to_pylist()))


@pytest.fixture(scope="module")
def in_two(spool: Spool) -> Made:
    """The first half, and then what is new: only its own days are read."""
    before = spool.until(HALF).all_at_once(HALF)
    since = moment(at(HALF)).date()
    recent = [row for row in spool.inventory if row["observed_at"].date() >= since - INVENTORY_AGE]
    coverage = [row for row in spool.coverage if row["window_start"].date() >= since - INVENTORY_AGE]
    seen = observers(coverage, recent)
    begin = number(since) * 86_400 * 10**6
    polls = {
        key: replace(
            one,
            window_start=one.window_start[one.window_start >= begin],
            last_good_poll=one.last_good_poll[one.window_start >= begin],
        )
        for key, one in seen.polls.items()
    }
    events = [*map(window, spool.since(since)), *map(listing, recent)]
    task = spool.task(END, since=number(since), observers=Observers(polls, {}))
    later = run(events, before.state, task)
    earlier = [row for row in before.days.to_pylist() if row["date"] < since]
    return Made(pa.Table.from_pylist([*earlier, *later.days.to_pylist()], schema=later.days.schema), later.streams)


def test_days_one_by_one_give_the_tables_of_a_rebuild(whole: Made, in_two: Made) -> None:
    """Days and streams are the same to the last digit."""
    assert in_order(in_two.days) == in_order(whole.days)
    assert in_order(in_two.streams) == in_order(whole.streams)


def test_nothing_that_came_later_changes_a_judgement_as_of_then(
    spool: Spool, in_two: Made, learned: list[pa.Table]
) -> None:
    """The verdicts as of the half are the same before and after the second half was written."""
    half, since = spool.until(HALF), moment(at(HALF)).date()
    then = half.all_at_once(HALF)
    touched = half.since(since)
    events = [{**window(row), "happened": window(row)["happened"] and row in touched} for row in half.windows]
    task = half.task(HALF, since=number(since), of_the_past=True)
    again = run([*events, *map(listing, half.inventory)], in_two.state, task)
    expected = judged(then, half, learned[0], learned[1], HALF)
    assert expected == judged(again, half, learned[0], learned[1], HALF)
    assert {row["verdict"] for row in expected.values()} >= {Verdict.LIVE, Verdict.LEARNING, Verdict.DEAD}

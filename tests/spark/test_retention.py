"""What upkeep deletes and what it must leave: for topics that died long ago, and by clocks that are wrong."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from exporter.domain import Verdict
from exporter.domain.retention import KEPT_DAYS
from spark_rollups.progress import Progress
from spark_rollups.report import write_report
from spark_rollups.rollup import Asked, run_rollup
from spark_rollups.tables import Tables
from spark_rollups.upkeep import Retention
from tests.spark.story import HOUR, World, at, every, moment

pytestmark = pytest.mark.timeout(900)

DIED, END, LATER = 18.0, 24.0, 45.0
"""Days after the start: when one of the two topics died, when a backfill ran, and when polls end."""


def told(history: Path) -> World:
    """A topic that lives, and one that dies."""
    world = World(history)
    world.write("orders", 0, every(HOUR, at(0), at(LATER)))
    world.write("died", 0, every(HOUR, at(0), at(DIED)))
    return world


@pytest.fixture(scope="module")
def history(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three weeks that a backfill told of, rolled up; tests change copies of it."""
    world = told(tmp_path_factory.mktemp("retention") / "history")
    world.backfill(at(0), at(END))
    roll_up(spark, world.history, END)
    return world.history


@pytest.fixture
def copied(history: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(history, tmp_path / "history"))


def roll_up(spark: SparkSession, history: Path, day: float, **kept: float) -> None:
    """Run the rollup as of a day, with tables kept for so many days."""
    run_rollup(spark, history, Asked(moment(at(day)), retention=Retention({**KEPT_DAYS, **kept})), Progress())


def verdicts(spark: SparkSession, history: Path, day: float) -> dict[str, Row]:
    """Return the verdicts of topics as of a day."""
    rows = Tables(spark, history).read("verdicts").where(F.col("as_of") == F.lit(moment(at(day))))
    return {row.topic: row for row in rows.where("partition is null").collect()}


def weeks(spark: SparkSession, history: Path, topic: str) -> list[float]:
    """Return of which weeks a topic has baselines, as days after the start."""
    rows = Tables(spark, history).read("baselines").where(F.col("topic") == topic)
    found = {row.week for row in rows.where("partition is null").collect()}
    return sorted((week - moment(at(0)).date()).days for week in found)


def test_a_clock_that_is_ahead_deletes_nothing_and_what_it_noted_counts_for_nothing(
    spark: SparkSession, copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the right clock days are made and the tables kept up again; the report is of no moment still to come.

    Nor does a moment still to come, which the tables took from a backfill, prove a silence up to now.
    A topic that died before the oldest baselines that are kept stays dead: its own is kept.
    """
    tables = Tables(spark, copied)
    windows = tables.count("windows")
    roll_up(spark, copied, END + 70)
    said = capsys.readouterr().out
    assert (
        "nothing deleted: it is 2025-04-10T00:00:00Z by the clock of this host, and the history ends at 2025-01" in said
    )
    assert tables.count("windows") == windows and tables.windows_from() is None

    layout, upkeep = (copied / "tables" / name for name in ("layout.json", "upkeep.json"))
    layout.write_text(json.dumps({**json.loads(layout.read_text()), "windows_from": "2999-01-01"}))
    upkeep.write_text('{"week": 53000}')
    to_come = F.lit(moment(at(9999)))
    tables.replace("streams", tables.read("streams").withColumns({"listed_at": to_come, "observed_until": to_come}))
    told(copied).poll(at(END), at(LATER), every=HOUR)
    roll_up(spark, copied, LATER, baselines=14.0)
    found = verdicts(spark, copied, LATER)
    assert {topic: row.verdict for topic, row in found.items()} == {"orders": Verdict.LIVE, "died": Verdict.DEAD}
    assert found["orders"].last_advance.astimezone(UTC) > moment(at(LATER - 1))
    assert moment(at(LATER)) >= found["died"].observed_until.astimezone(UTC) > moment(at(LATER - 1))
    assert "rows past their retention deleted from baselines" in capsys.readouterr().out
    assert tables.windows_from() is None
    assert json.loads(upkeep.read_text())["week"] < 53000

    assert weeks(spark, copied, "died")[0] == 14, "of the week in which it died"
    assert weeks(spark, copied, "orders")[0] == 35
    roll_up(spark, copied, LATER + 1 / 24, baselines=14.0)
    again = verdicts(spark, copied, LATER + 1 / 24)["died"]
    assert (again.verdict, again.dead_since) == (Verdict.DEAD, found["died"].dead_since)

    to_come = F.lit(datetime.now(UTC) + timedelta(days=2))
    tables.append("verdicts", tables.read("verdicts").withColumn("as_of", to_come))
    assert write_report(spark, copied, as_of=None, output=None).as_of == moment(at(END + 70))

"""What upkeep deletes and what it must leave: for topics that died long ago, and by clocks that are wrong."""

import io
import json
import math
import shutil
from contextlib import redirect_stdout
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from exporter.domain.history.retention import retention_days
from exporter.domain.verdicts import Verdict
from spark_rollups.progress import Progress
from spark_rollups.report.write import write_report
from spark_rollups.rollup import RollupRequest, run_rollup
from spark_rollups.stages.upkeep import Retention
from spark_rollups.store.tables import SCHEMAS, Tables, TablesError
from tests.delta import change_notes, commits, in_order, note_upkeep, rows_of
from tests.spark.judged import topics_as_of
from tests.spark.story import HOUR, World, at, every, moment

pytestmark = pytest.mark.timeout(900)

DIED, END, LATER = 18.0, 24.0, 45.0
"""Days after the start: when one of the two topics died, when a backfill ran, and when polls end."""
TODAY = datetime.now(UTC).date()


def write_world(history: Path) -> World:
    """A topic that lives, and one that dies before the first poll."""
    world = World(history)
    world.write("orders", 0, every(HOUR, at(0), at(LATER)))
    world.write("died", 0, every(HOUR, at(0), at(DIED)))
    return world


def roll_up(spark: SparkSession, history: Path, day: float, **kept: float) -> str:
    """Run the rollup as of a day, with tables kept for so many days; return what it printed."""
    request = RollupRequest(moment(at(day)), retention=Retention({**retention_days(), **kept}))
    with redirect_stdout(io.StringIO()) as printed:
        run_rollup(spark, history, request, Progress())
    return printed.getvalue()


def weeks(history: Path, topic: str) -> list[float]:
    """Return of which weeks a topic has baselines, as days after the start."""
    found = {row.week for row in rows_of(history, "baselines") if row.topic == topic and row.partition is None}
    return sorted((week - moment(at(0)).date()).days for week in found)


@dataclass
class Late:
    """A history folder with polls up to ``LATER``, and what its runs printed."""

    history: Path
    ahead: str
    """By a clock that was ahead."""
    late: str
    """By the right one, with windows kept for 18 days, in which two whole weeks end, and baselines for 30."""
    windows: int
    """In the table after the run that was ahead."""
    windows_from: date | None
    """The day from which windows are kept, as recorded then."""
    days: list[str]
    """The daily table as it was then."""
    commits: list[dict[str, Any]]
    """What the right run committed."""


@pytest.fixture(scope="module")
def late(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Late:
    """Three weeks by a backfill, a run with upkeep by a clock that is ahead, three weeks of polls, and a right run."""
    world = write_world(tmp_path_factory.mktemp("retention") / "history")
    history, tables = world.history, Tables(spark, world.history)
    world.backfill(at(0), at(END))
    note_upkeep(history)
    ahead = roll_up(spark, history, END + 70)
    windows, windows_from, made = tables.read("windows").count(), tables.windows_from(TODAY), days(history)
    known = commits(history)
    change_notes(history, windows_from="2999-01-01", upkeep_week=53_000)
    to_come = F.lit(moment(at(9999)))
    tables.replace("streams", tables.read("streams").withColumns({"listed_at": to_come, "observed_until": to_come}))
    known |= commits(history)
    world.poll(at(END), at(LATER), every=HOUR)
    output = roll_up(spark, history, LATER, baselines=30.0, windows=18.0)
    committed = [json.loads(path.read_text().splitlines()[0])["commitInfo"] for path in commits(history) - known]
    return Late(history, ahead, output, windows, windows_from, made, committed)


@pytest.fixture
def copied(late: Late, tmp_path: Path) -> Path:
    return Path(shutil.copytree(late.history, tmp_path / "history"))


def days(history: Path, before: float = math.inf, but: str | None = None) -> list[str]:
    """Return the rows of the daily table before a day, as text; ``but`` those of one cluster."""
    rows = [row for row in rows_of(history, "daily") if row.cluster != but]
    return in_order(row for row in rows if (row.date - moment(at(0)).date()).days < before)


OLDEST = moment(at(LATER - 18)).date()
"""The day from which windows are kept."""


def test_a_clock_that_is_ahead_deletes_nothing_and_what_it_recorded_counts_for_nothing(
    spark: SparkSession, late: Late
) -> None:
    """With the right clock days are made and the tables kept up; a moment still to come is no proof of a silence."""
    line = (
        "nothing deleted: it is 2025-04-10T00:00:00Z by the clock of this host, and the history ends at 2025-01-30T00"
    )
    assert line in late.ahead
    backfilled = late.history.glob("spool/windows/*backfill*")
    assert late.windows == sum(pq.read_metadata(file).num_rows for file in backfilled)
    assert late.windows_from is None
    found = topics_as_of(late.history, LATER)
    assert {topic: row.verdict for topic, row in found.items()} == {"orders": Verdict.LIVE, "died": Verdict.RETIRED}
    assert found["orders"].last_advance.astimezone(UTC) > moment(at(LATER - 1))
    assert moment(at(LATER)) >= found["died"].observed_until.astimezone(UTC) > moment(at(LATER - 1))
    notes = Tables(spark, late.history).notes()
    assert (notes["windows_from"], notes["upkeep_week"] < 53_000) == (OLDEST.isoformat(), True)


def test_what_is_past_its_retention_goes_and_what_was_made_of_it_stays(late: Late) -> None:
    """Days and weeks that were learned before, in commits of each kind."""
    assert "rows past their retention deleted from windows, baselines" in late.late
    assert min(row.date for row in rows_of(late.history, "windows")) == OLDEST
    assert days(late.history, before=END) == late.days
    assert weeks(late.history, "orders")[0] == weeks(late.history, "died")[0] == 21
    assert {"DELETE", "OPTIMIZE", "WRITE"} <= {commit["operation"] for commit in late.commits}


def test_a_backfill_of_the_past_adds_no_day_before_the_windows_that_are_kept(spark: SparkSession, copied: Path) -> None:
    """What lives is known by the days since, and what died long before is not dead without them: nothing is known.

    Once tables are lost all are made of the spool, and it is judged by the whole backfill. A report is of no run that
    is still to come.
    """
    before = days(copied)
    added = World(copied, "added")
    added.write("older", 0, every(HOUR, at(-20), at(20)))
    added.write("busy", 0, every(HOUR, at(-20), at(LATER)))
    added.write("ancient", 0, every(HOUR, at(-420), at(-400)))
    added.backfill(at(-420), at(LATER))
    output = roll_up(spark, copied, LATER)
    assert f"days before {OLDEST} stay as they are" in output
    assert days(copied, but="added") == before
    assert min(row.date for row in rows_of(copied, "daily") if row.cluster == "added") == OLDEST
    known = {"orders": Verdict.LIVE, "died": Verdict.RETIRED, "busy": Verdict.LIVE}
    found = topics_as_of(copied, LATER)
    assert {topic: row.verdict for topic, row in found.items()} == {
        **known, "older": Verdict.LEARNING, "ancient": Verdict.LEARNING
    }  # fmt: skip
    tables = Tables(spark, copied)
    to_come = F.lit(datetime.now(UTC) + timedelta(days=2))
    tables.append("verdicts", tables.read("verdicts").withColumn("as_of", to_come))
    assert write_report(Tables(spark, copied), as_of=None)[0] == moment(at(END + 70))

    published = (copied / "published" / "current.json").read_bytes()
    for name in ("daily", "streams", "windows", "baselines"):
        folder = copied / "tables" / name
        folder.rename(copied / name)
        lost = rf"^{folder} must have a _delta_log, and has none: restore {folder} .*, or move all of {folder.parent}"
        with pytest.raises(TablesError, match=lost):
            roll_up(spark, copied, LATER)
        (copied / name).rename(folder)
    shutil.rmtree(copied / "tables" / "daily" / "_delta_log")
    with pytest.raises(TablesError, match="daily must have a _delta_log, and has none"):
        roll_up(spark, copied, LATER)
    for name in ("notes.json", *(f"{table}/_delta_log" for table in SCHEMAS)):
        (copied / "lost" / name).parent.mkdir(parents=True, exist_ok=True)
        if (copied / "tables" / name).exists():
            (copied / "tables" / name).rename(copied / "lost" / name)
    kept = len(list((copied / "tables").rglob("*.parquet")))
    with pytest.raises(TablesError, match=r"notes\.json must state layout"):
        roll_up(spark, copied, LATER)
    assert len(list((copied / "tables").rglob("*.parquet"))) == kept > 0, "data without any log is no new table"
    assert (copied / "published" / "current.json").read_bytes() == published
    shutil.rmtree(copied / "tables")
    roll_up(spark, copied, LATER)
    found = topics_as_of(copied, LATER)
    assert {topic: row.verdict for topic, row in found.items()} == {
        **known, "older": Verdict.DEAD, "ancient": Verdict.RETIRED
    }  # fmt: skip
    assert found["older"].last_advance.timestamp() == at(20) - HOUR + 300.0

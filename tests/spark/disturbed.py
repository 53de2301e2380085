"""Rollups that are split, and tables that lose commits."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_rollups.spark.frames import spread
from spark_rollups.spool import ingest
from spark_rollups.stages.folding import FIRST_DAY
from spark_rollups.store.tables import SCHEMAS, Tables, TablesError
from tests.spark.judged import END, roll_up
from tests.spark.story import at, moment

LOST = ("windows", "coverage", "inventory", "daily", "streams", "drops")
"""Tables of which the last commit is moved away. They are made again from the spool."""


@contextmanager
def large_history(spark: SparkSession, history: Path, day: float) -> Iterator[list[int]]:
    """Have runs work in several parts and look which files they need; yield the numbers of parts.

    The files of windows before a day of the story are not there meanwhile.
    """
    counts, skipping = list[int](), "spark.databricks.delta.stats.skipping"
    before = str(spark.conf.get(skipping))
    date_then = f"date={moment(at(day)).date()}"
    past = [one for one in history.glob("tables/windows/date=*") if one.name < date_then]
    assert past

    def counted_spread(spark: SparkSession, *, rows: int, streams: int) -> int:
        counts.append(spread(spark, rows=rows, streams=streams))
        return counts[-1]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("spark_rollups.spark.frames._STREAMS_A_SHARD", 20)
        patched.setattr("spark_rollups.spark.frames._ROWS_A_SHARD", 8_000)
        patched.setattr("spark_rollups.rollup.spread", counted_spread)
        spark.conf.set(skipping, "true")
        away = {folder: folder.rename(history / folder.name) for folder in past}
        yield counts
    for folder, elsewhere in away.items():
        elsewhere.rename(folder)
    spark.conf.set(skipping, before)


def last_commits(spark: SparkSession, history: Path) -> dict[str, Path]:
    """Return the file of the last commit of each table."""
    names = Tables(spark, history).names()
    return {name: max((history / "tables" / name / "_delta_log").glob("[0-9]*.json")) for name in names}


def lose_commits(spark: SparkSession, history: Path) -> None:
    """Expect that no table is used whose last commit is empty, as after a power cut; then move some away.

    Delta reads an empty commit as one that added nothing.
    """
    published, lost = (history / "published" / "current.json").read_bytes(), last_commits(spark, history)
    assert set(lost) == set(SCHEMAS)
    assert ingest.find_pending_day(Tables(spark, history)) is None
    for commit in lost.values():
        content = commit.read_bytes()
        commit.write_bytes(b"")
        advice = rf"is empty, as after a power cut, and what it added would be lost: move {commit.stem}\* and "
        with pytest.raises(TablesError, match=f"^{re.escape(str(commit))} {advice}"):
            roll_up(spark, history, END)
        commit.write_bytes(content)
    assert ingest.find_pending_day(Tables(spark, history)) == FIRST_DAY, "the next plain run makes all days again"
    for commit in (lost[name] for name in LOST):
        assert int(commit.stem), "a table that lost its only commit is another matter"
        for path in [*commit.parent.glob(f"{commit.stem}*"), *commit.parent.glob(f".{commit.stem}*")]:
            path.unlink()
    ledger = history / "tables" / "ingested.json"
    with pytest.raises(TablesError, match=rf"when spool files were taken in, and has .* or move {ledger} away"):
        roll_up(spark, history, END)
    assert (history / "published" / "current.json").read_bytes() == published
    ledger.unlink()

"""Tables that lost a commit, as with the power: nothing is published from what is left."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from tempfile import mkdtemp

import pytest
from pyspark.sql import SparkSession

from spark_rollups import ingest, spool_files
from spark_rollups.progress import Progress
from spark_rollups.rollup import FIRST_DAY, RollupRequest, run_rollup
from spark_rollups.tables import Tables, TablesError
from tests.delta import in_order, rows_of
from tests.spark.story import HOUR, World, at, every

WINDOWS, *_ = spool_files.SPOOL_TABLES


def take_in(spark: SparkSession, history: Path) -> list[ingest.Ingested]:
    """Ingest the whole spool, as the rollup does."""
    tables = Tables(spark, history)
    taken = [ingest.ingest_table(tables, history, table) for table in spool_files.SPOOL_TABLES]
    ingest.record(tables, taken)
    return taken


@pytest.fixture(scope="module")
def history(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history folder whose spool was taken in, in two batches; tests cut copies of it."""
    world = World(tmp_path_factory.mktemp("lost") / "history")
    world.write("orders", 0, every(HOUR, at(0), at(4)))
    world.poll(at(0), at(2), every=HOUR)
    take_in(spark, world.history)
    world.poll(at(2), at(4), every=HOUR)
    take_in(spark, world.history)
    return world.history


def last_commit(history: Path, table: str) -> Path:
    """The file of a table's last commit."""
    return max((history / "tables" / table / "_delta_log").glob("[0-9]*.json"))


def after_a_power_cut(history: Path, table: str) -> Path:
    """A copy, which no session has read yet, whose last commit of a table is empty."""
    cut = Path(mkdtemp(dir=history.parent), "history")
    shutil.copytree(history, cut)
    last_commit(cut, table).write_bytes(b"")
    return cut


@pytest.mark.parametrize("table", ["windows", "ingested_files"])
def test_an_empty_commit_is_refused_before_anything_is_published(
    spark: SparkSession, history: Path, table: str
) -> None:
    """Delta reads it as one that added nothing; the message names the file and what to do with it."""
    cut = after_a_power_cut(history, table)
    lost = last_commit(cut, table)
    with pytest.raises(TablesError) as refused:
        run_rollup(spark, cut, RollupRequest(), Progress())
    assert str(refused.value).startswith(f"{lost} is empty, as after a power cut, and what it added would be lost: ")
    assert f"move {lost.stem}* and .{lost.stem}* away from there" in str(refused.value)
    assert not (cut / "published").exists()
    assert ingest.pending_since(Tables(spark, cut)) == FIRST_DAY, "the next plain run makes all days again"


def fixed(history: Path, table: str) -> Path:
    """The same history after what the message says was done."""
    cut = after_a_power_cut(history, table)
    lost = last_commit(cut, table)
    for path in [*lost.parent.glob(f"{lost.stem}*"), *lost.parent.glob(f".{lost.stem}*")]:
        path.unlink()
    return cut


@pytest.mark.parametrize("table", ["windows", "ingested_files"])
def test_what_an_empty_commit_had_added_comes_back_from_the_spool(
    spark: SparkSession, history: Path, table: str
) -> None:
    """Once it is moved away, each row is there once, and from what day on hours are to be made again is recorded."""
    whole = in_order(rows_of(history, "windows"))
    cut = fixed(history, table)
    (cut / "tables" / "pending.json").unlink()
    windows, *_ = take_in(spark, cut)
    assert in_order(rows_of(cut, "windows")) == whole
    assert windows.again == (table == "windows")
    pending = ingest.pending_since(Tables(spark, cut))
    assert pending == datetime.fromtimestamp(at(0 if table == "windows" else 2), UTC).date()
    assert not any(done.again for done in take_in(spark, cut)), "it is reported once"


def test_rows_that_the_spool_has_no_longer_are_reported_and_nothing_is_published(
    spark: SparkSession, history: Path
) -> None:
    """The table is compared with the ledger; with the ledger moved away, as the message says, it goes on."""
    cut = fixed(history, "windows")
    left = Tables(spark, cut).count("windows")
    whole = Tables(spark, history).count("windows")
    newest = max((cut / "spool" / "windows").glob("*.parquet"))
    newest.unlink()
    with pytest.raises(TablesError) as refused:
        run_rollup(spark, cut, RollupRequest(), Progress())
    ledger = cut / "tables" / "ingested_files"
    assert f"windows holds {left:,} rows, and {whole:,} had been taken in" in str(refused.value)
    assert f"Restore {cut / 'tables'} from a backup" in str(refused.value)
    assert f"move {ledger} away" in str(refused.value)
    assert not (cut / "published").exists()
    shutil.rmtree(ledger)
    take_in(spark, cut)
    assert Tables(spark, cut).count("windows") == left

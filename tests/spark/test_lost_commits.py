"""Tables that lost a commit, as with the power: nothing is published from what is left."""

from __future__ import annotations

import shutil
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


@pytest.mark.parametrize("table", ["windows", "coverage"])
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


def test_a_commit_that_is_missing_is_reported_and_the_spool_brings_it_back(spark: SparkSession, history: Path) -> None:
    """Nothing is published before a person decides; without the ledger, as the message says, each row is there once."""
    whole = in_order(rows_of(history, "windows"))
    cut = after_a_power_cut(history, "windows")
    lost = last_commit(cut, "windows")
    for path in [*lost.parent.glob(f"{lost.stem}*"), *lost.parent.glob(f".{lost.stem}*")]:
        path.unlink()
    with pytest.raises(TablesError) as refused:
        run_rollup(spark, cut, RollupRequest(), Progress())
    ledger = cut / "tables" / "ingested.json"
    assert "windows had commit 1 when spool files were taken in, and has 0 or fewer now" in str(refused.value)
    assert f"Restore {cut / 'tables'} from a backup; or move {ledger} away" in str(refused.value)
    assert not (cut / "published").exists()
    ledger.unlink()
    take_in(spark, cut)
    assert in_order(rows_of(cut, "windows")) == whole
    assert ingest.pending_since(Tables(spark, cut)) == FIRST_DAY, "all days are made again"
    assert not any(done.files for done in take_in(spark, cut))

"""Small tables are read by their log: the rows are those that Delta reads, and what it alone can read is left to it."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_rollups.delta_log import read_whole
from spark_rollups.frames import IN_OWN_PROCESS
from spark_rollups.progress import Progress
from spark_rollups.rollup import RollupRequest, run_rollup
from spark_rollups.tables import Tables
from tests.spark.story import HOUR, World, at, every, moment


def assert_as_delta_reads(spark: SparkSession, table: Path) -> None:
    """Assert that rows and columns are the same, read in either way."""
    whole, frame = read_whole(table), spark.read.format("delta").load(str(table))
    assert whole is not None
    assert whole.schema == frame.schema
    by_delta = frame.toArrow()
    assert whole.rows.schema.names == by_delta.schema.names
    assert whole.rows.schema.types == by_delta.schema.types
    assert sorted(map(str, whole.rows.to_pylist())) == sorted(map(str, by_delta.to_pylist()))


class RolledUp(NamedTuple):
    """A history folder, and the tables that its rollups left to Delta to read."""

    folder: Path
    left: list[str]


@pytest.fixture(scope="module")
def rolled_up(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> RolledUp:
    """Four weeks of two topics, after rollups of two days."""
    assert spark.conf.get(IN_OWN_PROCESS) == "true"
    left, by_delta = list[str](), Tables._by_delta  # noqa: SLF001 - whatever is left to Delta goes through it

    def noted(tables: Tables, name: str) -> DataFrame:
        left.append(name)
        return by_delta(tables, name)

    world = World(tmp_path_factory.mktemp("log") / "history")
    world.write("orders", 0, every(HOUR, at(0), at(26)))
    world.write("died", 0, every(HOUR, at(0), at(18)))
    world.backfill(at(0), at(24))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Tables, "_by_delta", noted)
        for day in (24, 25):
            world.poll(at(day), at(day + 1), every=6 * HOUR)
            run_rollup(spark, world.history, RollupRequest(moment(at(day + 1))), Progress())
    return RolledUp(world.history, left)


@pytest.fixture
def history(rolled_up: RolledUp) -> Path:
    """The folder of it."""
    return rolled_up.folder


def test_rows_are_those_that_delta_reads(spark: SparkSession, history: Path) -> None:
    """Of every table that rollups wrote, partitioned or not."""
    names = Tables(spark, history).names()
    assert {"windows", "daily", "streams", "verdicts", "maxima"} <= {*names}
    for name in names:
        assert_as_delta_reads(spark, history / "tables" / name)


def rows(spark: SparkSession) -> DataFrame:
    """Return rows of several types, some null."""
    began = datetime(2025, 1, 6, 12, 30, 0, 123456, UTC)
    return (
        spark.range(6)
        .withColumn("at", F.when(F.col("id") > 0, F.lit(began)))
        .withColumn("day", F.when(F.col("id") % 3 > 0, F.date_add(F.lit(began.date()), F.col("id").cast("int"))))
        .withColumn("lists", F.array(F.struct(F.col("id").alias("x"), F.lit(None).cast("double").alias("y"))))
        .withColumn("kind", F.concat(F.lit("a b/ü%="), F.col("id") % 2))
    )


@pytest.fixture(scope="module")
def odd(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table partitioned by a day that may be unknown and a text of odd characters; two commits a checkpoint."""
    made = tmp_path_factory.mktemp("odd") / "table"
    writer = rows(spark).write.format("delta").option("delta.checkpointInterval", "2")
    writer.partitionBy("day", "kind").save(str(made))
    return made


@pytest.fixture
def table(odd: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(odd, tmp_path / "table"))


def test_odd_partitions_further_columns_and_old_timestamps_are_read(spark: SparkSession, table: Path) -> None:
    """A column that later files alone have is null in earlier ones. Spark's default once was INT96 for moments."""
    assert_as_delta_reads(spark, table)
    spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    more = rows(spark).withColumn("more", F.lit(1)).withColumn("at", F.lit(datetime(1901, 1, 1, tzinfo=UTC)))
    more.write.format("delta").mode("append").option("mergeSchema", "true").save(str(table))
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    assert_as_delta_reads(spark, table)


def test_deleted_and_compacted_files_count_with_and_without_the_commits_before_a_checkpoint(
    spark: SparkSession, table: Path
) -> None:
    """Delta deletes such commits after some weeks."""
    by_delta = DeltaTable.forPath(spark, str(table))
    rows(spark).write.format("delta").mode("append").save(str(table))
    by_delta.delete("id = 3")
    by_delta.optimize().executeCompaction()
    assert_as_delta_reads(spark, table)
    log = table / "_delta_log"
    [checkpoint] = log.glob("*.checkpoint.parquet")
    commits = sorted(log.glob("*.json"))
    assert [commit.stem for commit in commits][2:] == [checkpoint.name.partition(".")[0], f"{3:020}"]
    for commit in commits[:3]:
        commit.unlink()
    assert_as_delta_reads(spark, table)
    rows(spark).write.format("delta").mode("overwrite").save(str(table))
    assert_as_delta_reads(spark, table)


def test_what_delta_alone_can_read_is_left_to_it(spark: SparkSession, table: Path) -> None:
    """Deletion vectors, and a log of which a commit is missing."""
    lost = table.with_name("lost")
    DeltaTable.forPath(spark, str(table)).delete("id = 1")
    shutil.copytree(table, lost)
    (lost / "_delta_log" / f"{0:020}.json").unlink()
    assert read_whole(lost) is None
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    DeltaTable.forPath(spark, str(table)).delete("id = 2")
    assert read_whole(table) is None


def test_a_rollup_of_a_small_history_leaves_no_table_to_delta(rolled_up: RolledUp) -> None:
    """To read one takes Delta half a second, whatever its size: neither when tables are new nor when they are not."""
    assert not rolled_up.left, "read by Delta"


def test_a_file_that_cannot_be_read_is_named_by_delta(spark: SparkSession, history: Path, tmp_path: Path) -> None:
    """A rollup ends with the error that names it, as with a larger history."""
    copied = Path(shutil.copytree(history, tmp_path / "history"))
    for file in (copied / "tables" / "streams").glob("*.parquet"):
        file.unlink()
    with pytest.raises(Exception, match="streams"):
        Tables(spark, copied).read("streams").collect()

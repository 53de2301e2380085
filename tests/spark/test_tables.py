"""Delta tables of a history folder, wherever that folder is."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from spark_rollups.store.schemas import COVERAGE
from spark_rollups.store.tables import SCHEMAS, Tables, TablesError
from tests.delta import change_notes

DROP = (date(2026, 1, 1), "prod", 9, ["orders"])


@pytest.mark.parametrize("history", ["history", "../{}/history"])
def test_a_relative_history_folder_is_a_folder(
    history: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta takes `history/tables/x` for the name of a catalog table and refuses `..`; both are written and read."""
    monkeypatch.chdir(tmp_path)
    rows = spark.createDataFrame([DROP], SCHEMAS["drops"])
    tables = Tables(spark, Path(history.format(tmp_path.name)))
    tables.append("drops", rows)
    assert [row.topics for row in tables.read("drops").collect()] == [["orders"]]
    assert (tmp_path / "history" / "tables" / "drops" / "_delta_log").is_dir()


def test_data_without_its_log_is_named_with_the_next_step(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing is written over it or taken for a table: what it holds is not known."""
    left = tmp_path / "tables" / "drops" / "part-00000.snappy.parquet"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"PAR1")
    rows = spark.createDataFrame([DROP], SCHEMAS["drops"])
    with pytest.raises(TablesError, match=r"drops must have a _delta_log, and has none: .* or move all of"):
        Tables(spark, tmp_path).append("drops", rows)
    assert left.read_bytes() == b"PAR1"


def test_a_table_that_a_run_was_killed_in_the_first_commit_of_is_begun_anew(
    spark: SparkSession, tmp_path: Path
) -> None:
    """What it left counts for nothing; one commit follows, which names its run."""
    left = tmp_path / "tables" / "drops" / "part-00000.snappy.parquet"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"PAR1")
    change_notes(tmp_path, begun="drops")
    tables = Tables(spark, tmp_path)
    tables.append("drops", spark.createDataFrame([DROP], SCHEMAS["drops"]))
    assert "begun" not in tables.notes()
    assert tables.count("drops") == 1
    [commit] = DeltaTable.forPath(spark, tables.path("drops")).history().collect()
    assert commit.userMetadata == f"run {tables.run}"


def test_what_a_killed_run_left_is_removed_before_another_table_is_begun(spark: SparkSession, tmp_path: Path) -> None:
    """One note is for all tables: overwritten, it would leave data that is refused for ever. Readers remove nothing."""
    left = tmp_path / "tables" / "relations" / "part-00000.snappy.parquet"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"PAR1")
    change_notes(tmp_path, begun="relations")
    tables = Tables(spark, tmp_path)
    assert tables.names() == [] and left.exists()
    tables.remove_begun()
    assert not left.parent.exists() and "begun" not in tables.notes()
    tables.append("drops", spark.createDataFrame([DROP], SCHEMAS["drops"]))
    assert Tables(spark, tmp_path).names() == ["drops"]
    # Killed between the commit and the note of it.
    change_notes(tmp_path, begun="drops")
    again = Tables(spark, tmp_path)
    again.remove_begun()
    assert again.count("drops") == 1 and "begun" not in again.notes()


def test_a_commit_that_nobody_finds_is_no_commit(spark: SparkSession, tmp_path: Path) -> None:
    """Delta writes its number in the digits of Java's language, and takes it for written."""
    jvm = spark.sparkContext._jvm  # noqa: SLF001 - there is no other way to it
    assert jvm is not None
    before = jvm.java.util.Locale.getDefault()
    jvm.java.util.Locale.setDefault(jvm.java.util.Locale.forLanguageTag("fa"))
    try:
        with pytest.raises(TablesError) as lost:
            Tables(spark, tmp_path).append("drops", spark.createDataFrame([DROP], SCHEMAS["drops"]))
    finally:
        jvm.java.util.Locale.setDefault(before)
    log = tmp_path / "tables" / "drops" / "_delta_log"
    assert str(lost.value).startswith(f"{log} has no commit {0:020}.json of this run, and Delta reported")


def test_moments_in_files_are_those_of_utc_for_every_reader(spark: SparkSession, tmp_path: Path) -> None:
    """Others than Spark would take a moment without a zone for one of their own."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    row = ("c", "e", "poll", at, at, at, 300.0, at.date())
    Tables(spark, tmp_path).append("coverage", spark.createDataFrame([row], COVERAGE))
    (file,) = tmp_path.glob("tables/coverage/date=*/*.parquet")
    assert pq.read_schema(file).field("window_start").type == pa.timestamp("us", tz="UTC")

"""Delta tables of a history folder, wherever that folder is."""

from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from spark_rollups.store.schemas import COVERAGE
from spark_rollups.store.tables import SCHEMAS, Tables, TablesError

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
    assert str(lost.value).startswith(f"{log} must have commit 0 now, and its newest one is -1: ")


def test_moments_in_files_are_those_of_utc_for_every_reader(spark: SparkSession, tmp_path: Path) -> None:
    """Others than Spark would take a moment without a zone for one of their own."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    row = ("c", "e", "poll", at, at, at, 300.0, at.date())
    Tables(spark, tmp_path).append("coverage", spark.createDataFrame([row], COVERAGE))
    (file,) = tmp_path.glob("tables/coverage/date=*/*.parquet")
    assert pq.read_schema(file).field("window_start").type == pa.timestamp("us", tz="UTC")

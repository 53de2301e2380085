"""Delta tables of a history folder, wherever that folder is said to be."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_rollups.tables import SCHEMAS, Tables, TablesError


@pytest.mark.parametrize("history", ["history", "../{}/history"])
def test_a_relative_history_folder_is_a_folder(
    history: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta takes `history/tables/x` for the name of a catalog table and refuses `..`; both are written and read."""
    monkeypatch.chdir(tmp_path)
    rows = spark.createDataFrame([("windows", "one.parquet", 3, 3)], SCHEMAS["ingested_files"])
    tables = Tables(spark, Path(history.format(tmp_path.name)))
    tables.append("ingested_files", rows)
    assert [row.file for row in tables.read("ingested_files").collect()] == ["one.parquet"]
    assert (tmp_path / "history" / "tables" / "ingested_files" / "_delta_log").is_dir()


def test_data_without_its_log_is_named_with_the_next_step(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing is written over it or taken for a table: what it holds is not known."""
    left = tmp_path / "tables" / "ingested_files" / "part-00000.snappy.parquet"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"PAR1")
    rows = spark.createDataFrame([("windows", "one.parquet", 3, 3)], SCHEMAS["ingested_files"])
    with pytest.raises(TablesError, match=r"ingested_files must have a _delta_log .* move .*tables away"):
        Tables(spark, tmp_path).append("ingested_files", rows)
    assert left.read_bytes() == b"PAR1"

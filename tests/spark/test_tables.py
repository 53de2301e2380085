"""Delta tables of a history folder, wherever that folder is said to be."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_rollups.tables import SCHEMAS, Tables


def test_a_relative_history_folder_is_a_folder(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta would take `history/tables/ingested_files` for the name of a catalog table; it is written and read."""
    monkeypatch.chdir(tmp_path)
    rows = spark.createDataFrame([("windows", "one.parquet", 3)], SCHEMAS["ingested_files"])
    tables = Tables(spark, Path("history"))
    tables.append("ingested_files", rows)
    assert [row.file for row in tables.read("ingested_files").collect()] == ["one.parquet"]
    assert (tmp_path / "history" / "tables" / "ingested_files" / "_delta_log").is_dir()

"""The spool of a story as the DataFrames that the transformations take, without tables in between."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_rollups.ingest import SPOOL_TABLES
from spark_rollups.rollups import hourly


@dataclass
class Known:
    """What is in the spool of one history folder."""

    windows: DataFrame
    coverage: DataFrame
    inventory: DataFrame
    relations: DataFrame

    def hourly(self) -> DataFrame:
        """All hours, made of everything."""
        return hourly(self.windows, self.inventory, self.coverage)


def known(spark: SparkSession, history: Path) -> Known:
    """Read every file of the spool."""
    frames: dict[str, DataFrame] = {}
    for table in SPOOL_TABLES:
        path = history / "spool" / table.name
        rows = spark.createDataFrame([], table.schema)
        if any(path.glob("*.parquet")):
            rows = spark.read.schema(table.schema).parquet(str(path))
        frames[table.name] = rows.withColumn("date", F.to_date(table.dated_by))
    return Known(**frames)

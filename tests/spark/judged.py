"""The verdicts of a rollup, as tests read them."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from spark_rollups.tables import Tables
from tests.spark.story import at, moment


def verdicts_as_of(spark: SparkSession, history: Path, day: float) -> DataFrame:
    """Return the rows of the table as of a day of the story."""
    return Tables(spark, history).read("verdicts").where(F.col("as_of") == F.lit(moment(at(day))))


def topics_as_of(spark: SparkSession, history: Path, day: float) -> dict[str, Row]:
    """Return those of topics, by their names."""
    return {row.topic: row for row in verdicts_as_of(spark, history, day).where("partition is null").collect()}

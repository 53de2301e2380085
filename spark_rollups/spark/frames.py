"""DataFrames that the core computes: Spark reads, joins, groups and writes; Python gets batches of whole topics."""

import threading
from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark_rollups.spark.batches import import_core

_ROWS_A_SHARD = 400_000
_STREAMS_A_SHARD = 2_000
_ROWS_A_CORE, _STREAMS_A_CORE = 50_000, 500
"""Minimum number of rows, and of streams, for a task. With fewer its overhead is larger than its work."""


def spread(spark: SparkSession, *, rows: int = 0, streams: int = 0) -> int:
    """Set the number of parts for the next steps, by the number of rows and streams; return it.

    There is at least one part for each core, unless rows are few.
    """
    cores = min(spark.sparkContext.defaultParallelism, 1 + rows // _ROWS_A_CORE + streams // _STREAMS_A_CORE)
    shards = max(cores, rows // _ROWS_A_SHARD, streams // _STREAMS_A_SHARD)
    spark.conf.set("spark.sql.shuffle.partitions", str(shards))
    return shards


def start_worker(spark: SparkSession) -> None:
    """Start a Python worker in the background, and return at once: files are taken in while it imports the core.

    A small fleet needs no second one, and with a large one it does not matter.
    """

    def start() -> None:
        with suppress(Exception):  # the first stage that needs workers says what is wrong
            spark.range(0, 1, 1, 1).mapInArrow(import_core, "id long").collect()

    threading.Thread(target=start, name="worker", daemon=True).start()


def merge_parts(rows: DataFrame, shards: int) -> DataFrame:
    """Put rows that ``shards`` tasks make into one part, which becomes one file."""
    return rows.coalesce(1) if shards == 1 else rows.repartition(1)


def make_empty(spark: SparkSession, schema: StructType) -> DataFrame:
    """Return no rows with these columns, in a plan that needs no job."""
    columns = (f"cast(null as {field.dataType.simpleString()}) as {field.name}" for field in schema.fields)
    return spark.range(1).selectExpr(*columns).limit(0)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of the rows that a worker passes to Spark."""
    return to_arrow_schema(schema, timezone="UTC")


def apply_by_shard(
    left: DataFrame, right: DataFrame, shards: int, make: Callable[[pa.Table, pa.Table], pa.Table], schema: StructType
) -> DataFrame:
    """Return the results of ``make`` for batches of whole topics of both; ``shards`` is the number of batches.

    ``cluster`` and ``topic`` identify a topic, so that one that was created again is in the same batch.
    """
    shard = shard_of_topic(shards)
    return left.groupBy(shard).cogroup(right.groupBy(shard)).applyInArrow(make, schema)


def shard_of_topic(shards: int) -> Column:
    """Return the number of the batch that all rows of a topic are in, of so many."""
    return F.pmod(F.xxhash64("cluster", "topic"), F.lit(shards)).alias("shard")


def compute_once(rows: DataFrame, *, also_after_writes: bool = False) -> DataFrame:
    """Return rows that are computed once, however often they are read.

    With ``also_after_writes`` they stay the same even if a table that they come from is written to in the meantime. If
    a worker is lost then, its rows are lost too.
    """
    if not also_after_writes:
        return rows.persist(StorageLevel.DISK_ONLY)
    return rows.localCheckpoint(eager=False, storageLevel=StorageLevel.DISK_ONLY)

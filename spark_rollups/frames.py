"""DataFrames that the core computes: batches of whole topics, on Spark's workers.

A history of a few MiB is computed in the job's own process instead, and its tables are held there: to start workers,
to shuffle and to read tables again costs more than all the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

IN_OWN_PROCESS = "spark.topicLiveness.inOwnProcess"
"""The Spark setting that says so; ``start_session`` sets it by the size of the history."""

_HELD: WeakKeyDictionary[DataFrame, pa.Table] = WeakKeyDictionary()
"""What this process holds of DataFrames that it made."""

_SHARD = "shard"
_ROWS_A_SHARD = 400_000
_STREAMS_A_SHARD = 2_000
_ROWS_A_CORE, _STREAMS_A_CORE = 50_000, 500
"""Minimum number of rows, and of streams, for a task. With fewer its overhead is larger than its work."""

_ROWS_ALONE, _STREAMS_ALONE = 200_000, 2_000
"""So much this process computes in a second or two. Bytes are no measure: a million rows alike take few."""

BY_WORKERS = {
    IN_OWN_PROCESS: "false",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.databricks.delta.writeChecksumFile.enabled": "true",
}
"""Settings of a session that computes by workers: the defaults of Spark and Delta."""


def spread(spark: SparkSession, *, rows: int = 0, streams: int = 0) -> int:
    """Set the number of parts for the next steps, by the number of rows and streams; return it.

    There is at least one part for each core, unless rows are few. Work that takes this process long goes to workers.
    """
    if (rows > _ROWS_ALONE or streams > _STREAMS_ALONE) and in_own_process(spark):
        for name, value in BY_WORKERS.items():
            spark.conf.set(name, value)
    cores = min(spark.sparkContext.defaultParallelism, 1 + rows // _ROWS_A_CORE + streams // _STREAMS_A_CORE)
    shards = max(cores, rows // _ROWS_A_SHARD, streams // _STREAMS_A_SHARD)
    spark.conf.set("spark.sql.shuffle.partitions", str(shards))
    return shards


def in_one(rows: DataFrame, shards: int) -> DataFrame:
    """Put rows that ``shards`` tasks make into one part."""
    if in_own_process(rows.sparkSession):
        return rows  # they are written in one
    return rows.coalesce(1) if shards == 1 else rows.repartition(1)


def no_rows(spark: SparkSession, schema: StructType) -> DataFrame:
    """Return no rows with these columns, in a plan that needs no job."""
    if in_own_process(spark):
        return held_here(spark, arrow_schema(schema).empty_table(), schema)
    columns = [F.lit(None).cast(field.dataType).alias(field.name) for field in schema.fields]
    return spark.range(1).select(*columns).limit(0)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of the rows that a worker passes to Spark."""
    return to_arrow_schema(schema, timezone="UTC")


def by_shard(
    left: DataFrame, right: DataFrame, shards: int, make: Callable[[pa.Table, pa.Table], pa.Table], schema: StructType
) -> DataFrame:
    """Return the results of ``make`` for batches of whole topics of both; ``shards`` is the number of batches.

    ``cluster`` and ``topic`` identify a topic, so that one that was created again is in the same batch.
    """
    if in_own_process(left.sparkSession):
        pair = as_arrow(left), as_arrow(right)
        made = make(*pair) if any(map(len, pair)) else arrow_schema(schema).empty_table()
        return held_here(left.sparkSession, made, schema)
    shard = F.pmod(F.xxhash64("cluster", "topic"), F.lit(shards))
    pairs = left.withColumn(_SHARD, shard).groupBy(_SHARD).cogroup(right.withColumn(_SHARD, shard).groupBy(_SHARD))
    return pairs.applyInArrow(make, schema)


def in_groups(rows: DataFrame, by: str | None, make: Callable[[pa.Table], pa.Table], schema: StructType) -> DataFrame:
    """Return what ``make`` makes of the rows of each group, or of all of them."""
    if in_own_process(rows.sparkSession):
        made = [make(group) for group in _groups(as_arrow(rows), by)]
        return held_here(rows.sparkSession, pa.concat_tables([arrow_schema(schema).empty_table(), *made]), schema)
    grouped = rows.groupBy() if by is None else rows.groupBy(by)
    # Spark cannot read the type hints of a partial function, and fails over that.
    return grouped.applyInArrow(lambda table: make(table), schema)  # noqa: PLW0108


def in_batches(
    rows: DataFrame, make: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: StructType
) -> DataFrame:
    """Return what ``make`` makes of the rows, whatever batches they come in."""
    if in_own_process(rows.sparkSession):
        made = pa.Table.from_batches(make(as_arrow(rows).to_batches()), arrow_schema(schema))
        return held_here(rows.sparkSession, made, schema)
    # Spark cannot read the type hints of a partial function, and fails over that.
    return rows.mapInArrow(lambda batches: make(batches), schema)  # noqa: PLW0108


def computed_once(rows: DataFrame, *, also_after_writes: bool = False) -> DataFrame:
    """Return rows that are computed once, however often they are read.

    With ``also_after_writes`` they stay the same even if a table that they come from is written to in the meantime. If
    a worker is lost then, its rows are lost too.
    """
    if in_own_process(rows.sparkSession):
        return rows if rows in _HELD else held_here(rows.sparkSession, rows.toArrow(), rows.schema)
    if not also_after_writes:
        return rows.persist(StorageLevel.DISK_ONLY)
    return rows.localCheckpoint(eager=False, storageLevel=StorageLevel.DISK_ONLY)


def held_here(spark: SparkSession, rows: pa.Table, schema: StructType) -> DataFrame:
    """Return rows that this process holds as a DataFrame; ``as_arrow`` and ``count`` then need no job."""
    # Spark takes a batch without rows for the last one (measured with 4.2.0), and rows after it would be lost.
    batches = [batch for batch in rows.to_batches() if len(batch)]
    given = pa.Table.from_batches(batches, rows.schema) if batches else rows.schema.empty_table()
    frame = spark.createDataFrame(given, schema)
    _HELD[frame] = rows
    return frame


def as_arrow(rows: DataFrame) -> pa.Table:
    """Return rows as this process holds them."""
    held = _HELD.get(rows)
    return rows.toArrow() if held is None else held


def count(rows: DataFrame) -> int:
    """Return how many rows there are."""
    held = _HELD.get(rows)
    return rows.count() if held is None else len(held)


def in_own_process(spark: SparkSession) -> bool:
    """Return whether the history is small enough for this process to compute and to hold it."""
    return spark.conf.get(IN_OWN_PROCESS, "false") == "true"


def from_rows(spark: SparkSession, rows: Sequence[Sequence[Any]], schema: StructType) -> DataFrame:
    """Return a few rows, values in the order of ``schema``, in one part and a plan that starts no worker."""
    columns = zip(*rows, strict=True) if rows else [[] for _ in schema]
    fields = arrow_schema(schema)
    made = [pa.array(values, field.type) for values, field in zip(columns, fields, strict=True)]
    table = pa.Table.from_arrays(made, schema=fields)
    if in_own_process(spark):
        return held_here(spark, table, schema)
    return spark.createDataFrame(table, schema).coalesce(1)


def _groups(rows: pa.Table, by: str | None) -> Sequence[pa.Table]:
    """Return the rows of each group; no group is empty."""
    if by is None or not len(rows):
        return [rows] if len(rows) else []
    return [rows.filter(pc.equal(rows.column(by), value)) for value in pc.unique(rows.column(by))]

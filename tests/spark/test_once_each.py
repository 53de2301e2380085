"""Rows that are taken in are in a table once, whether Spark chooses among copies or the job's own process."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_rollups.frames import arrow_schema
from spark_rollups.ingest import once_each, once_each_here
from spark_rollups.spool_files import SPOOL_TABLES, SpoolTable
from spark_rollups.tables import SCHEMAS


def some(kind: pa.DataType, chance: random.Random) -> Any:
    """One of two values of a kind, so that many rows have the same."""
    one = chance.randrange(2)
    if pa.types.is_timestamp(kind):
        return datetime(2025, 1, 6 + one, 23 * one, tzinfo=UTC)
    return f"é{one}" if pa.types.is_string(kind) else pa.scalar(one).cast(kind).as_py()


def rows_with_copies(table: SpoolTable) -> pa.Table:
    """Rows of which many have one key, and of those some differ; what may be null often is, the id of a topic too."""
    chance, kinds = random.Random(table.name), arrow_schema(table.schema)
    made = [
        {field.name: None if field.nullable and chance.random() < 0.3 else some(field.type, chance) for field in kinds}
        for _ in range(400)
    ]
    return pa.Table.from_pylist(made, kinds)


def in_order(rows: pa.Table, table: SpoolTable) -> list[str]:
    """The rows as texts, with the columns of the table that they become, whatever their order."""
    return sorted(map(str, rows.select(SCHEMAS[table.name].names).to_pylist()))


@pytest.mark.parametrize("table", SPOOL_TABLES, ids=lambda table: table.name)
def test_the_own_process_keeps_the_rows_that_spark_keeps(spark: SparkSession, table: SpoolTable) -> None:
    """The latest of each key by its other columns, and none that is there."""
    rows = rows_with_copies(table)
    frame = spark.createDataFrame(rows, table.schema).withColumn("date", F.to_date(table.dated_by))
    nothing = arrow_schema(SCHEMAS[table.name]).empty_table()
    here = once_each_here(rows, nothing, table)
    assert in_order(here, table) == in_order(once_each(frame, None, table, few=True).toArrow(), table)
    assert 1 < len(here) < len(rows)
    there, others = (here.take(list(range(first, len(here), 2))) for first in range(2))
    stored = spark.createDataFrame(there, SCHEMAS[table.name])
    new = in_order(once_each_here(rows, there, table), table)
    assert new == in_order(once_each(frame, stored, table, few=True).toArrow(), table) == in_order(others, table)
    assert once_each_here(rows, here, table).num_rows == 0
    assert once_each_here(rows.slice(0, 0), there, table).num_rows == 0

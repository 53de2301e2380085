"""Rows that are taken in are in a table once."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_rollups.spark.frames import arrow_schema
from spark_rollups.spool.ingest import keep_one_of_each
from spark_rollups.spool.spool_files import SPOOL_TABLES, SpoolTable
from spark_rollups.store.tables import SCHEMAS


def some(kind: pa.DataType, chance: random.Random) -> Any:
    """One of two values of a kind, so that many rows have the same."""
    one = chance.randrange(2)
    if pa.types.is_timestamp(kind):
        return datetime(2025, 1, 6 + one, 23 * one, tzinfo=UTC)
    return f"é{one}" if pa.types.is_string(kind) else pa.scalar(one).cast(kind).as_py()


@pytest.mark.parametrize("table", SPOOL_TABLES, ids=lambda table: table.name)
def test_of_rows_with_one_key_one_is_kept_and_none_that_is_there(spark: SparkSession, table: SpoolTable) -> None:
    """The latest by its other columns, in whatever order rows come; a missing topic id is an id too."""
    chance, kinds = random.Random(table.name), arrow_schema(table.schema)
    made = [
        {field.name: None if field.nullable and chance.random() < 0.3 else some(field.type, chance) for field in kinds}
        for _ in range(400)
    ]

    def kept(rows: list[dict[str, Any]], there: pa.Table | None) -> pa.Table:
        frame = spark.createDataFrame(pa.Table.from_pylist(rows, kinds), table.schema)
        stored = None if there is None else spark.createDataFrame(there, SCHEMAS[table.name])
        dated = frame.withColumn("date", F.to_date(table.dated_by))
        return keep_one_of_each(dated, stored, table, few=True).select(SCHEMAS[table.name].names).toArrow()

    found = kept(made, None)
    keys = [tuple(row[name] for name in table.key) for row in made]
    assert {tuple(row[name] for name in table.key) for row in found.to_pylist()} == set(keys)
    assert len(found) == len(set(keys)) < len(made)
    assert sorted(map(str, kept(made[::-1], None).to_pylist())) == sorted(map(str, found.to_pylist()))
    there, others = (found.take(list(range(first, len(found), 2))) for first in range(2))
    assert sorted(map(str, kept(made, there).to_pylist())) == sorted(map(str, others.to_pylist()))

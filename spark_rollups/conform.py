"""Holds rows to the columns of the table that they are meant for."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from spark_rollups.frames import arrow_schema, as_arrow, held_here, in_own_process


class SchemaMismatchError(ValueError):
    """Rows do not have the columns of the table they are meant for."""


def conform(rows: DataFrame, schema: StructType, name: str = "table") -> DataFrame:
    """Return ``rows`` with exactly the columns of ``schema``, in its order.

    Nothing is cast: a missing column or another type raises SchemaMismatchError with every problem
    at once. So does a null in a required column where this process holds the rows; else it fails the running query,
    naming ``name`` and the column. Further columns of ``rows`` are dropped.
    """
    if in_own_process(rows.sparkSession):
        return held_here(rows.sparkSession, conform_here(rows, schema, name), schema)
    found = _found(rows, schema, name)
    columns = []
    for field in schema.fields:
        column = F.col(field.name)
        if not field.nullable and found[field.name].nullable:
            column = F.coalesce(column, F.raise_error(F.lit(f"{name}.{field.name} must not be null")))
        columns.append(column.alias(field.name, metadata=field.metadata))
    return rows.select(*columns)


def conform_here(rows: DataFrame, schema: StructType, name: str = "table") -> pa.Table:
    """Do the same in this process: with many columns and few rows, planning takes longer than the work itself."""
    _found(rows, schema, name)
    table = as_arrow(rows).select(schema.names)
    for field in schema.fields:
        if not field.nullable and table.column(field.name).null_count:
            raise SchemaMismatchError(f"{name}.{field.name} must not be null")
    return table.cast(arrow_schema(schema))


def _found(rows: DataFrame, schema: StructType, name: str) -> Mapping[str, StructField]:
    """Return the columns of ``rows``. Raises SchemaMismatchError where they are not those of ``schema``."""
    found = {field.name: field for field in rows.schema.fields}
    problems = []
    for field in schema.fields:
        if field.name not in found:
            problems.append(f"column {field.name} is missing")
        elif found[field.name].dataType.simpleString() != field.dataType.simpleString():
            problems.append(
                f"column {field.name} must be {field.dataType.simpleString()}, "
                f"got {found[field.name].dataType.simpleString()}"
            )
    if problems:
        raise SchemaMismatchError(f"{name}: {'; '.join(problems)}")
    return found

"""Holds rows to the columns of the table that they are meant for."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType


class SchemaMismatchError(ValueError):
    """Rows do not have the columns of the table they are meant for."""


def conform(rows: DataFrame, schema: StructType, name: str = "table") -> DataFrame:
    """Return ``rows`` with exactly the columns of ``schema``, in its order.

    Nothing is cast: a missing column or another type raises SchemaMismatchError with every problem
    at once. A null in a required column fails the running query, naming ``name`` and the column. Further columns of
    ``rows`` are dropped.
    """
    found = {field.name: field for field in rows.schema.fields}
    problems, columns = [], []
    for field in schema.fields:
        there = found.get(field.name)
        if there is None:
            problems.append(f"column {field.name} is missing")
            continue
        kind, wanted = there.dataType.simpleString(), field.dataType.simpleString()
        if kind != wanted:
            problems.append(f"column {field.name} must be {wanted}, got {kind}")
        column = F.col(field.name)
        if not field.nullable and there.nullable:
            column = F.coalesce(column, F.raise_error(F.lit(f"{name}.{field.name} must not be null"))).alias(field.name)
        columns.append(column)
    if problems:
        raise SchemaMismatchError(f"{name}: {'; '.join(problems)}")
    return rows.select(*columns)

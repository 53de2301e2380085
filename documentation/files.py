"""The reference of files that are kept: the columns of the spool and of the Delta tables, from their schemas."""

from __future__ import annotations

import dataclasses
import inspect

from pyspark.sql.types import StructType

from exporter.domain.history.rows import SCHEMA_VERSION
from exporter.history.spool import TABLES as SPOOL
from spark_rollups import schemas, spool_schemas


def spool() -> str:
    """The tables of the spool with their columns; the schema version that each file carries."""
    sections = [f"Schema version {SCHEMA_VERSION}. Times are UTC timestamps in microseconds, durations seconds."]
    for row, name in SPOOL.items():
        about = inspect.cleandoc(row.__doc__ or "").replace("``", "`")
        columns = ", ".join(f"`{field.name}`" for field in dataclasses.fields(row))
        sections.append(f"### `spool/{name}`\n\n{about}\n\nColumns: {columns}.")
    return "\n\n".join(sections)


def tables() -> str:
    """The Delta tables with the name and type of each column."""
    found = {**vars(schemas), **vars(spool_schemas)}
    known = {name.lower(): value for name, value in found.items() if isinstance(value, StructType)}
    shown = {name: schema for name, schema in known.items() if not name.startswith(("_", "spool_"))}
    return "\n\n".join(f"### `{name}`\n\n{_columns(schema)}" for name, schema in shown.items())


def _columns(schema: StructType) -> str:
    rows = [
        f"| `{column.name}` | {column.dataType.simpleString()} | {'' if column.nullable else 'never null'} |"
        for column in schema
    ]
    return "\n".join(["| column | type | |", "|---|---|---|", *rows])

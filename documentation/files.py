"""The reference of files that are kept: the columns of the spool and of the Delta tables, from their schemas."""

import ast
import dataclasses
import inspect

from pyspark.sql.types import StructType

from documentation.docstrings import read_docstrings
from exporter.domain.history.rows import SCHEMA_VERSION
from exporter.history.tables import TABLES as SPOOL
from spark_rollups.store import schemas


def describe_spool() -> str:
    """The tables of the spool with their columns; the schema version that each file carries."""
    sections = [f"Schema version {SCHEMA_VERSION}. Times are UTC timestamps in microseconds, durations seconds."]
    for row, name in SPOOL.items():
        about = inspect.cleandoc(row.__doc__ or "").replace("``", "`")
        columns = ", ".join(f"`{field.name}`" for field in dataclasses.fields(row))
        sections.append(f"### `spool/{name}`\n\n{about}\n\nColumns: {columns}.")
    return "\n\n".join(sections)


def describe_tables() -> str:
    """The tables with what their schemas say of them, and the name and type of each column."""
    known = {name: value for name, value in vars(schemas).items() if isinstance(value, StructType)}
    shown = {name: schema for name, schema in known.items() if not name.startswith(("_", "SPOOL_"))}
    says = read_docstrings(ast.parse(inspect.getsource(schemas)).body)
    return "\n\n".join(f"### `{name.lower()}`\n\n{says[name]}\n\n{_columns(schema)}" for name, schema in shown.items())


def _columns(schema: StructType) -> str:
    rows = [
        f"| `{column.name}` | {column.dataType.simpleString()} | {'' if column.nullable else 'never null'} |"
        for column in schema
    ]
    return "\n".join(["| column | type | |", "|---|---|---|", *rows])

"""Writes a Parquet file of columns that are bytes: with Arrow and the standard library, in little memory."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from exporter import storage
from exporter.memory import leave_out
from exporter.storage import Location

if TYPE_CHECKING:
    import pyarrow as pa

Kind: TypeAlias = Literal["string", "int32", "int64", "double", "bool", "timestamp"]
"""What a column holds; a timestamp is in microseconds, UTC."""


class Column(NamedTuple):
    """A column: one value for all rows, or the bytes of its rows as Arrow lays them out.

    Of texts the bytes are a number for each row (int32), an index into ``texts``.
    """

    name: str
    kind: Kind
    value: str | int | float | bool | None = None
    rows: Any = None
    """Anything with a buffer, None where all rows have ``value``."""
    known: Any = None
    """A bit for each row; None: every row has a value."""
    texts: Sequence[str | None] = ()


class Batch(NamedTuple):
    """Some rows of a file, column by column."""

    length: int
    columns: Sequence[Column]


def write(files: Sequence[tuple[Location, Sequence[Batch]]], metadata: Mapping[str, str]) -> list[int]:
    """Write files in this order, each whole or not at all; return their sizes in bytes. Raises OSError."""
    if "numpy" not in sys.modules:
        leave_out("numpy")  # Arrow imports it where it can, which is 13 MiB and most of the time
    return [_write(path, table(batches, metadata)) for path, batches in files]


def _write(path: Location, rows: pa.Table) -> int:
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    return storage.put(path, lambda file: pq.write_table(rows, file, write_page_checksum=True))


def table(batches: Sequence[Batch], metadata: Mapping[str, str]) -> pa.Table:
    """Return rows as an Arrow table."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    fields = [pa.field(column.name, arrow_type(column.kind)) for column in batches[0].columns]
    schema = pa.schema(fields, dict(metadata))
    return pa.concat_tables(
        pa.Table.from_arrays([_array(column, batch.length) for column in batch.columns], schema=schema)
        for batch in batches
    )


@cache
def arrow_type(kind: Kind) -> pa.DataType:
    """Return how Arrow names what a column holds."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    types = {"string": pa.string(), "int32": pa.int32(), "int64": pa.int64(), "double": pa.float64()}
    return (types | {"bool": pa.bool_(), "timestamp": pa.timestamp("us", tz="UTC")})[kind]


def _array(column: Column, count: int) -> pa.Array:
    import pyarrow as pa  # noqa: PLC0415 - as above

    kind = arrow_type(column.kind)
    if column.rows is None:
        return pa.nulls(count, kind) if column.value is None else pa.repeat(pa.scalar(column.value, kind), count)
    if column.kind == "string":
        # Arrow's own decoding would need pyarrow.compute, which is 10 MiB.
        return pa.array([column.texts[number] for number in memoryview(column.rows).cast("B").cast("i")], kind)
    known = None if column.known is None else pa.py_buffer(column.known)
    return pa.Array.from_buffers(kind, count, [known, pa.py_buffer(column.rows)])

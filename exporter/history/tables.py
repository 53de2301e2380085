"""Rows of the spool: numpy columns until they are written as one Arrow table, and files of it that are read again."""

import errno
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import IO, Any, TypeAlias
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from exporter.domain.arrays import Flags
from exporter.domain.history.rows import (
    FILE_BYTES,
    FILE_ROWS,
    INTEGERS_OF_32_BITS,
    MOMENTS,
    SCHEMA_VERSION,
    Coverage,
    Inventory,
    Relation,
    Window,
)
from exporter.storage import files as storage
from exporter.storage.files import Location

Row = Window | Coverage | Inventory | Relation

TABLES: Mapping[type, str] = {
    Window: "windows",
    Coverage: "coverage",
    Inventory: "inventory",
    Relation: "relations",
}
_VERSION, _TABLE = "topic_liveness.schema_version", "topic_liveness.table"
"""The metadata of each file."""

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_TYPES = {"str": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}

Column: TypeAlias = pa.Array | NDArray[Any] | str | float | bool | None
"""The values of one column, or one value for all rows. Moments are Unix seconds; NaN is null."""


def spool_schema(row: type[Row]) -> pa.Schema:
    """Return the Arrow schema of the spool table that holds rows of this class."""
    columns = [(column.name, _type(column.name, str(column.type))) for column in fields(row)]
    metadata = {_VERSION: str(SCHEMA_VERSION), _TABLE: TABLES[row]}
    return pa.schema([*columns, ("schema_version", pa.int32())], metadata)


def _type(name: str, kind: str) -> pa.DataType:
    if name in MOMENTS:
        return _TIMESTAMP
    return pa.int32() if name in INTEGERS_OF_32_BITS else _TYPES[kind.removesuffix(" | None")]


def name_of(table: pa.Table) -> str:
    """Return the name of the spool table of which these are rows."""
    return str(table.schema.metadata[_TABLE.encode()].decode())


def look_up_names(names: Sequence[str | None], number: NDArray[np.integer]) -> pa.Array:
    """Return a text for each row, by its number; a negative number is null."""
    # Members of enums are texts too.
    texts = pa.array([None if text is None else str(text) for text in names], pa.string())
    return texts.take(pa.array(number, pa.int64(), mask=number < 0))


def make_nullable(values: NDArray[Any], unknown: Flags) -> pa.Array:
    """Return a value for each row, null where it is unknown."""
    return pa.array(values, mask=unknown)


def spool_table(row: type[Row], count: int, columns: Mapping[str, Column]) -> pa.Table:
    """Return ``count`` rows of one class, as they are written. Every value of a column that is not given is null."""
    given: Mapping[str, Column] = {**columns, "schema_version": SCHEMA_VERSION}
    schema = spool_schema(row)
    return pa.table([_array(given.get(one.name), one.type, count) for one in schema], schema=schema)


def table_of(rows: Sequence[Row]) -> pa.Table:
    """Return rows of one class, as they are written. Raises ValueError when there are none."""
    if not rows:
        raise ValueError("a spool file needs at least one row")
    row, found = type(rows[0]), dict[str, Column]()
    for column in list(spool_schema(row))[:-1]:
        values = [getattr(one, column.name) for one in rows]
        is_moment = column.name in MOMENTS
        found[column.name] = np.array(values, np.float64) if is_moment else pa.array(values, column.type)
    return spool_table(row, len(rows), found)


def _array(values: Column, kind: pa.DataType, count: int) -> pa.Array:
    if values is None:
        return pa.nulls(count, kind)
    if isinstance(values, str | float | bool | int):
        values = np.full(count, values, object if isinstance(values, str) else None)
    if kind == _TIMESTAMP:
        unknown = np.isnan(values)
        return pa.array(np.rint(np.where(unknown, 0.0, values) * 1e6).astype(np.int64), mask=unknown).cast(kind)
    return pa.array(values, from_pandas=True).cast(kind)


def escape_name(name: str) -> str:
    """Return the name in a form for file names, still different for different names."""
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    return safe if safe == name else f"{safe}.{crc32(name.encode()):08x}"


class ForeignFileError(ValueError):
    """A file in the spool was not written by an exporter; the text says what is wrong with it."""


def open_regular_file(path: Location) -> IO[bytes]:
    """Open a file to read it. Raises OSError, and ForeignFileError for a pipe, on which a reader would hang."""
    if isinstance(path, Path) and storage.file_info(path) is None and os.path.lexists(path):
        raise ForeignFileError("it is not a regular file")
    return storage.open_file(path)


def read_whole(path: Location, most: int) -> bytes:
    """Return the content of a file. Raises OSError, and ForeignFileError for a pipe and past ``most`` bytes."""
    with open_regular_file(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ForeignFileError(f"it must hold at most {most} bytes")
    return content


def read_columns(path: Location, row: type[Row], names: Sequence[str], where: pc.Expression | None = None) -> pa.Table:
    """Return these columns of a spool file, where the condition holds.

    Raises OSError where it cannot be read, and ForeignFileError where an exporter did not write it.
    """
    # Open the file here: from a path pyarrow would derive partition values from folder names.
    with open_regular_file(path) as file:
        try:
            rows = _columns(file, spool_schema(row), names)
            return rows if where is None else rows.filter(where)
        except MemoryError as error:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)) from error
        except (OSError, ValueError, pa.ArrowException) as error:
            if isinstance(error, ForeignFileError) or getattr(error, "errno", None) is not None:
                raise
            raise ForeignFileError(f"it is not a complete Parquet file: {type(error).__name__}") from error


def _columns(file: IO[bytes], schema: pa.Schema, names: Sequence[str]) -> pa.Table:
    parquet = pq.ParquetFile(file, page_checksum_verification=True)
    there, footer = parquet.schema_arrow, parquet.metadata
    row_count = footer.num_rows
    size = sum(footer.row_group(place).total_byte_size for place in range(footer.num_row_groups))
    if row_count > FILE_ROWS:
        raise ForeignFileError(f"a file holds at most {FILE_ROWS} rows, got {row_count}")
    if size > FILE_BYTES:
        raise ForeignFileError(f"a file holds at most {FILE_BYTES} bytes, got {size}")
    for name in names:
        kinds = [there.field(place).type for place in there.get_all_field_indices(name)]
        if kinds != [schema.field(name).type]:
            raise ForeignFileError(f"column {name} must be {schema.field(name).type}, got {[*map(str, kinds)]}")
    texts = [name for name in names if schema.field(name).type == pa.string()]
    # A text of many rows is stored once: keep the numbers until the size in memory is known.
    coded = pq.ParquetFile(file, metadata=footer, page_checksum_verification=True, read_dictionary=texts)
    rows = coded.read(list(names))
    # Pages have checksums. The footer has none, but its counts can contradict each other.
    if rows.num_rows != row_count:
        raise ForeignFileError(f"its footer has {row_count} rows, got {rows.num_rows}")
    rows.validate(full=True)
    written_out = sum(map(_text_bytes, (rows.column(name) for name in texts)))
    if written_out > FILE_BYTES:
        raise ForeignFileError(f"a file holds at most {FILE_BYTES} bytes of text, got {written_out}")
    return rows.cast(pa.schema([schema.field(name) for name in names]))


def _text_bytes(column: pa.ChunkedArray) -> int:
    lengths = (pc.sum(pc.binary_length(chunk.dictionary).take(chunk.indices)).as_py() for chunk in column.chunks)
    return sum(filter(None, lengths))

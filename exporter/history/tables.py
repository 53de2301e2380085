"""Files of the spool, read as Arrow tables."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import IO
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from exporter.domain.history.rows import FILE_BYTES, FILE_ROWS
from exporter.history.columns import Row, spool_schema
from exporter.storage import files as storage
from exporter.storage.files import Location


def safe(name: str) -> str:
    """Return the name in a form for file names, still different for different names."""
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    return safe if safe == name else f"{safe}.{crc32(name.encode()):08x}"


class ForeignFileError(ValueError):
    """A file in the spool was not written by an exporter; the text says what is wrong with it."""


def opened(path: Location) -> IO[bytes]:
    """Open a file to read it. Raises OSError, and ForeignFileError for a pipe, on which a reader would hang."""
    if isinstance(path, Path) and storage.file_info(path) is None and os.path.lexists(path):
        raise ForeignFileError("it is not a regular file")
    return storage.opened(path)


def read_columns(path: Location, row: type[Row], names: Sequence[str], where: pc.Expression | None = None) -> pa.Table:
    """Return these columns of a spool file, where the condition holds.

    Raises OSError where it cannot be read, and ForeignFileError where an exporter did not write it.
    """
    # Open the file here: from a path pyarrow would derive partition values from folder names.
    with opened(path) as file:
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

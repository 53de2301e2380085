"""The spool: Parquet files for Spark to ingest, each written whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import logging
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from exporter import storage
from exporter.domain import FILE_BYTES, FILE_ROWS, SCHEMA_VERSION, Coverage, Inventory, Relation, Window
from exporter.storage import Location, Stored

if TYPE_CHECKING:
    import pyarrow.compute as pc

log = logging.getLogger(__name__)

Row = Window | Coverage | Inventory | Relation

TABLES: Mapping[type, str] = {
    Window: "windows",
    Coverage: "coverage",
    Inventory: "inventory",
    Relation: "relations",
}
STAMP = "%Y%m%dT%H%M%S%f"
"""The time at the end of a file name, UTC."""

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_TIMES = {
    "window_start",
    "window_end",
    "first_advance",
    "last_advance",
    "max_timestamp",
    "last_good_poll",
    "observed_at",
}
_OBJECT_UPKEEP_SECONDS = 900.0
_LEDGER_BYTES = 64 * 2**20
_FINISHED = re.compile(r"[^.].*\.parquet")
_INT32 = {"partition", "leader"}
_ARROW_TYPES = {"str": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}


class Loss(StrEnum):
    """Why history windows were lost."""

    SPOOL_FULL = "spool-full"
    """The spool passed ``history.max_bytes`` with files that Spark had not ingested."""
    UNWRITABLE = "unwritable"
    """The spool could not be written for so long that memory had to be freed."""
    ERROR = "error"
    """An internal error; the log has its traceback."""


class HistoryError(Exception):
    """The history folder cannot be used; the message names the folder, the cause and the next step."""


class ForeignFileError(ValueError):
    """A file in the spool was not written by an exporter; the text says what is wrong with it."""


def spool_schema(row: type[Row]) -> pa.Schema:
    """Return the Arrow schema of the spool table that holds rows of this class."""
    columns = []
    for column in fields(row):
        kind = str(column.type).removesuffix(" | None")
        if column.name in _TIMES:
            arrow = _TIMESTAMP
        elif column.name in _INT32:
            arrow = pa.int32()
        else:
            arrow = _ARROW_TYPES[kind]
        columns.append(pa.field(column.name, arrow))
    columns.append(pa.field("schema_version", pa.int32()))
    return pa.schema(columns, metadata={"topic_liveness.schema_version": str(SCHEMA_VERSION)})


def to_table(rows: Sequence[Row]) -> pa.Table:
    """Return rows of one class as an Arrow table. Raises ValueError when there are none."""
    if not rows:
        raise ValueError("a spool file needs at least one row")
    schema = spool_schema(type(rows[0]))
    columns = []
    for column in schema:
        if column.name == "schema_version":
            columns.append(pa.array([SCHEMA_VERSION] * len(rows), pa.int32()))
            continue
        values = [getattr(row, column.name) for row in rows]
        if column.name in _TIMES:
            values = [None if value is None else round(value * 1_000_000) for value in values]
        columns.append(pa.array(values, column.type))
    return pa.Table.from_arrays(columns, schema=schema)


Column: TypeAlias = pa.Array | NDArray[Any] | str | float | bool
"""The values of one column, or one value for all rows."""


def from_columns(row: type[Row], count: int, columns: Mapping[str, Column]) -> pa.Table:
    """Return ``count`` rows of one class as an Arrow table, without an object for each row.

    Times are Unix seconds. NaN is null, and so is every value of a missing column.
    """
    given = {**columns, "schema_version": SCHEMA_VERSION}
    schema = spool_schema(row)
    arrays = [
        _array(given[column.name], column.type, count) if column.name in given else pa.nulls(count, column.type)
        for column in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _array(values: Column, kind: pa.DataType, count: int) -> pa.Array:
    if isinstance(values, pa.Array):
        return values if values.type == kind else values.cast(kind)
    if not isinstance(values, np.ndarray):
        return pa.repeat(_array(np.array([values]), kind, 1)[0], count)
    if kind == _TIMESTAMP:
        unknown = np.isnan(values)
        micros = np.rint(np.where(unknown, 0.0, values) * 1_000_000).astype(np.int64)
        return pa.array(micros, kind, mask=unknown)
    return pa.array(values, kind, from_pandas=True)


def named(names: Sequence[str | None], number: NDArray[np.integer]) -> pa.Array:
    """Return the name of each number, null where it is negative."""
    choices = np.array([*names, None], dtype=np.object_)  # Arrow's ``take`` would need pyarrow.compute
    return pa.array(choices[np.where(number < 0, len(names), number)], pa.string())


class Spool:
    """The folder of spool files, ``<history>/spool/<table>/*.parquet``."""

    def __init__(self, history: Location, exporter: str) -> None:
        """Create the folders. Raises HistoryError when they cannot be created or written."""
        self.folder = history / "spool"
        self.guard: Callable[[], None] | None = None
        """Called before each write; raises OSError where this process may not write."""
        self._looked_after = -math.inf
        self._ledger = history / "published" / "ingested.txt"
        self._exporter = exporter
        self._strays: set[Path] = set()
        try:
            for table in TABLES.values():
                _require_writable(self.folder / table)
        except OSError as error:
            raise HistoryError(
                f"history.folder {str(history)!r} must be a folder this process can write to: {error.strerror}. "
                "Give its owner write access, or set history.folder to another folder."
            ) from error

    @property
    def is_local(self) -> bool:
        """Whether it is a folder of this host, where a write takes milliseconds."""
        return isinstance(self.folder, Path)

    def upkeep_is_due(self, at: float) -> bool:
        """Return whether to check the limits of the spool now (monotonic seconds): always on this host.

        In object storage only every quarter of an hour, because each check lists all files, which costs money.
        """
        if not self.is_local and at < self._looked_after + _OBJECT_UPKEEP_SECONDS:
            return False
        self._looked_after = at
        return True

    def target(self, cluster: str, at: float, row: type[Row]) -> Location:
        """Return the file that ``write`` would write rows of this class to."""
        stamp = datetime.fromtimestamp(at, UTC).strftime(STAMP)
        return self.folder / TABLES[row] / f"{file_stem(row, self._exporter, cluster)}-{stamp}.parquet"

    def write(self, cluster: str, at: float, rows: Sequence[Row]) -> int:
        """Write rows of one class as one file; return its size in bytes. Raises OSError, leaving no file."""
        return self.write_table(cluster, at, type(rows[0]), to_table(rows))

    def write_table(self, cluster: str, at: float, row: type[Row], table: pa.Table) -> int:
        """Write an Arrow table of rows of this class, as ``write`` does."""
        if self.guard is not None:
            self.guard()
        return storage.put(
            self.target(cluster, at, row), lambda file: pq.write_table(table, file, write_page_checksum=True)
        )

    def remove_unfinished(self) -> Counter[str]:
        """Delete the temporary files whose writers are gone; return how many, by table."""
        removed: Counter[str] = Counter()
        if not isinstance(self.folder, Path):
            return removed
        for table in TABLES.values():
            for path in (self.folder / table).glob(".*.parquet.*"):
                try:
                    with opened(path) as file:
                        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        path.unlink()
                except (OSError, ForeignFileError):  # it is still being written, or was finished meanwhile
                    continue
                removed[table] += 1
        return removed

    def warn_of_strays(self) -> None:
        """Log once for each pipe, socket, device or folder named like a spool file that it is ignored."""
        if not isinstance(self.folder, Path):
            return
        found = {
            path
            for table in TABLES.values()
            for path in (self.folder / table).glob("[!.]*.parquet")
            if storage.file_info(path) is None and os.path.lexists(path)
        }
        for path in sorted(found - self._strays):
            log.warning("%s is not a regular file and is ignored; the next rollup moves it to quarantine", path)
        self._strays = found

    def expire(self, *, older_than: float, inventory_older_than: float = math.inf) -> int:
        """Delete files from before ``older_than`` that Spark has ingested; return how many.

        Inventory and coverage, from which a restart learns since when offsets are unchanged, are kept for longer where
        ``inventory_older_than`` is earlier. Unix seconds.
        """
        longer = dict.fromkeys((TABLES[Inventory], TABLES[Coverage]), inventory_older_than)
        old = [
            file
            for file in finished_files(self.folder)
            if file.written < min(older_than, longer.get(file.path.parent.name, math.inf))
        ]
        ingested = self._ingested() if old else frozenset()
        expired = [file for file in old if file.name in ingested]
        for file in expired:
            storage.delete(file.path)
        return len(expired)

    def shrink(self, max_bytes: int) -> Counter[str]:
        """Delete the oldest files until the spool fits in ``max_bytes``, and log what is lost with them.

        Return the windows that Spark had not ingested yet, by cluster: they are lost.
        """
        files = finished_files(self.folder)
        total = sum(file.size for file in files)
        lost: Counter[str] = Counter()
        lost_files: Counter[str] = Counter()
        ingested = self._ingested() if total > max_bytes else frozenset()
        for file in files:
            if total <= max_bytes:
                break
            total -= file.size
            if file.name not in ingested:
                table = file.path.parent.name
                lost_files[table] += 1
                if table == TABLES[Window]:
                    lost.update(_clusters_of(file.path))
            storage.delete(file.path)
        if lost_files:
            log.error(
                "the spool %s was over history.max_bytes: the oldest files are lost before they were ingested: %s; "
                "%d windows were in them. Run `topic-liveness rollup` more often, or raise history.max_bytes.",
                self.folder,
                ", ".join(f"{count} of {table}" for table, count in sorted(lost_files.items())),
                lost.total(),
            )
        return lost

    def _ingested(self) -> frozenset[str]:
        """Return the files in Spark's ledger, as ``<table>/<name>``; none without a rollup."""
        try:
            with opened(self._ledger) as file:
                return frozenset(file.read(_LEDGER_BYTES).decode().splitlines())
        except (OSError, ValueError):
            return frozenset()


def finished_files(spool: Location, tables: Iterable[str] = TABLES.values()) -> list[Stored]:
    """Return the finished files of these tables, oldest first.

    Files that disappear meanwhile, and those that are not regular files, are left out.
    """
    files = (file for table in tables for file in storage.files_in(spool / table, _FINISHED))
    return sorted(files, key=lambda file: (file.written, file.path.name))


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
    footer = parquet.metadata
    told, size = footer.num_rows, sum(footer.row_group(place).total_byte_size for place in range(footer.num_row_groups))
    if told > FILE_ROWS:
        raise ForeignFileError(f"a file holds at most {FILE_ROWS} rows, got {told}")
    if size > FILE_BYTES:
        raise ForeignFileError(f"a file holds at most {FILE_BYTES} bytes, got {size}")
    for name in names:
        places = parquet.schema_arrow.get_all_field_indices(name)
        kinds = [parquet.schema_arrow.field(place).type for place in places]
        if kinds != [schema.field(name).type]:
            raise ForeignFileError(f"column {name} must be {schema.field(name).type}, got {[*map(str, kinds)]}")
    texts = [name for name in names if schema.field(name).type == pa.string()]
    # A text of many rows is stored once: keep the numbers until the size in memory is known.
    coded = pq.ParquetFile(file, metadata=footer, page_checksum_verification=True, read_dictionary=texts)
    rows = coded.read(list(names))
    # Pages have checksums. The footer has none, but its counts can contradict each other.
    if rows.num_rows != told:
        raise ForeignFileError(f"its footer has {told} rows, got {rows.num_rows}")
    rows.validate(full=True)
    written_out = sum(map(_text_bytes, (rows.column(name) for name in texts)))
    if written_out > FILE_BYTES:
        raise ForeignFileError(f"a file holds at most {FILE_BYTES} bytes of text, got {written_out}")
    return rows.cast(pa.schema([schema.field(name) for name in names]))


def _text_bytes(column: pa.ChunkedArray) -> int:
    import pyarrow.compute as pc  # noqa: PLC0415 - 10 MiB, and an exporter without history reads no file

    lengths = (pc.sum(pc.binary_length(chunk.dictionary).take(chunk.indices)).as_py() for chunk in column.chunks)
    return sum(filter(None, lengths))


def opened(path: Location) -> IO[bytes]:
    """Open a file to read it. Raises OSError, and ForeignFileError for a pipe, on which a reader would hang."""
    if isinstance(path, Path) and storage.file_info(path) is None and os.path.lexists(path):
        raise ForeignFileError("it is not a regular file")
    return storage.opened(path)


def _clusters_of(path: Location) -> list[str]:
    try:
        return [str(name) for name in read_columns(path, Window, ["cluster"]).column("cluster").to_pylist()]
    except (OSError, ForeignFileError):
        return []


def file_stem(row: type[Row], exporter: str, cluster: str) -> str:
    """Return the begin of the names of files with rows of this class, up to their time."""
    return f"{TABLES[row]}-{safe(exporter)}-{safe(cluster)}"


def safe(name: str) -> str:
    """Return the name in a form for file names, still different for different names."""
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    return safe if safe == name else f"{safe}.{crc32(name.encode()):08x}"


def _require_writable(folder: Location) -> None:
    probe = folder / f".writable-{os.getpid()}"
    if isinstance(folder, Path):
        folder.mkdir(parents=True, exist_ok=True)
    storage.put(probe, lambda file: file.write(b"."))
    storage.delete(probe)

"""What is taken in of the spool: its files by their footers, their rows by conditions in SQL.

A file that is not the exporter's goes to ``<history>/quarantine/<table>/`` with the reason beside it. A row that cannot
be true is left out of the table.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from exporter.domain.history.rows import FILE_BYTES, FILE_ROWS, FIRST_YEAR, ROWS_AHEAD_SECONDS, SCHEMA_VERSION, Source
from exporter.storage.files import Location, ObjectPath, file_info, files_in, make_folder, move, open_file
from spark_rollups.spark.failures import KnownError
from spark_rollups.store.durable import write_whole
from spark_rollups.store.schemas import SPOOL_COVERAGE, SPOOL_INVENTORY, SPOOL_RELATIONS, SPOOL_WINDOWS

VERSION_KEY = b"topic_liveness.schema_version"
EARLIEST = datetime(FIRST_YEAR, 1, 1, tzinfo=UTC)
"""Earliest plausible time of a poll. An exporter with an earlier one has a clock that nobody set."""

AHEAD = timedelta(seconds=ROWS_AHEAD_SECONDS)
"""Largest plausible lead of a row over now. A row dated later is from a host whose clock is ahead."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_END_OF_TIME = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
_STREAM = ("cluster", "topic", "topic_id", "partition")
_SPOOL_NAME = re.compile(r"[A-Za-z0-9._~-]+")
_LONGEST_STEM, _CUT_STEM = 200, 180
"""Bytes of a name in quarantine, to which ``.parquet.reason.txt`` and the number of a process come: 255 at most."""

_POLLED = f"source = '{Source.POLL.value}'"

_FINISHED = re.compile(r"[^.].*\.parquet")
_ARROW = {
    "string": pa.string(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
}


@dataclass(frozen=True, slots=True)
class SpoolTable:
    """One kind of spool file: its columns, what makes a row unique, and the column that dates it."""

    name: str
    schema: StructType
    key: tuple[str, ...]
    dated_by: str


SPOOL_TABLES = (
    SpoolTable("windows", SPOOL_WINDOWS, (*_STREAM, "window_start", "exporter", "source"), "window_start"),
    SpoolTable("coverage", SPOOL_COVERAGE, ("cluster", "exporter", "source", "window_start"), "window_start"),
    SpoolTable("inventory", SPOOL_INVENTORY, (*_STREAM, "observed_at", "exporter", "source"), "observed_at"),
    SpoolTable("relations", SPOOL_RELATIONS, (*_STREAM[:-1], "observed_at", "exporter", "source"), "observed_at"),
)


class SpoolFileError(ValueError):
    """A spool file cannot be taken in; the text names the rule, the value and the next step."""


class UnreadFileError(KnownError):
    """A spool file cannot be read now; the text names it, the cause and the next step."""


class ClockError(UnreadFileError):
    """The clock of this host is behind that of the storage; the text names both and the next step."""


def list_spool(folder: Location) -> list[Location]:
    """Return all entries of a folder of the spool by name, including those that are no files of an exporter.

    A folder that is not there has none. Raises OSError.
    """
    if isinstance(folder, ObjectPath):
        return sorted((file.path for file in files_in(folder, _FINISHED)), key=lambda path: path.name)
    try:
        # Not by glob, which takes a folder that may not be read for an empty one.
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries]
    except FileNotFoundError:
        return []
    return sorted(folder / name for name in names if not name.startswith(".") and name.endswith(".parquet"))


def count_rows(path: Location, table: SpoolTable, now: datetime, *, pages: bool = False) -> int:
    """Return how many rows a spool file has by its footer; with ``pages`` all of the file is read too.

    No column is asked for its metadata: of a damaged one that ends the process. Raises SpoolFileError for a torn,
    foreign or unknown file, UnreadFileError for one that cannot be read now, ClockError where it was written more than
    a day after now, and FileNotFoundError.
    """
    if _SPOOL_NAME.fullmatch(path.name) is None:
        # It becomes a line of what is published.
        raise SpoolFileError(
            f"{path.name!r} is not the name of a spool file, which has only letters, digits and ._~-: "
            "find out who writes into the spool"
        )
    try:
        # The path is opened here: given a name, pyarrow would read partition values out of folder names.
        with _opened(path) as file:
            parquet = pq.ParquetFile(file, page_checksum_verification=True)
            _require_columns(path, parquet, table.schema)
            found = int(parquet.metadata.num_rows)
            if pages:
                parquet.read()
    except (SpoolFileError, FileNotFoundError):
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        if getattr(error, "errno", None) is not None:
            raise UnreadFileError(
                f"{path} cannot be read: {getattr(error, 'strerror', error)}. It stays there, and nothing is "
                "published: fix the storage or the rights and run this again; to go on without the file, move it away"
            ) from error
        raise SpoolFileError(
            f"{path.name} is not a whole Parquet file ({_first_line(error)}): it was torn or is not from the "
            "exporter; delete it, or restore it from a backup into the spool"
        ) from error
    _require_clock(path, now)
    return found


def _opened(path: Location) -> IO[bytes]:
    """Open a file to read it; a reader of a pipe would hang. Raises SpoolFileError for what is no regular file."""
    if isinstance(path, Path) and not path.is_file() and os.path.lexists(path):
        raise SpoolFileError(f"{path.name} is no regular file: find out who writes into the spool")
    return open_file(path)


def _require_columns(path: Location, parquet: pq.ParquetFile, schema: StructType) -> None:
    there, footer = parquet.schema_arrow, parquet.metadata
    size = sum(footer.row_group(place).total_byte_size for place in range(footer.num_row_groups))
    stated = (there.metadata or {}).get(VERSION_KEY)
    if stated is None:
        raise SpoolFileError(
            f"{path.name} states no schema version (Parquet metadata {VERSION_KEY.decode()}): "
            "it is not from the exporter; find out who writes into the spool"
        )
    if stated.decode(errors="replace") != str(SCHEMA_VERSION):
        raise SpoolFileError(
            f"{path.name}: schema_version must be {SCHEMA_VERSION}, the one known here, got "
            f"{stated.decode(errors='replace')}; run the rollup at the exporter's release, then move the file back "
            "into the spool"
        )
    wanted = {column.name: _ARROW[column.dataType.simpleString()] for column in schema.fields}
    found = {column.name: column.type for column in there}
    problems = [
        f"column {name} must be {kind}, got {found.get(name, 'none')}"
        for name, kind in wanted.items()
        if kind != found.get(name)
    ]
    if len(found) != len(there):
        problems.append("a column name occurs twice")
    # Pages have checksums; of the footer only its counts can contradict each other.
    counted = sum(footer.row_group(place).num_rows for place in range(footer.num_row_groups))
    if counted != footer.num_rows:
        problems.append(f"its footer says {footer.num_rows:,} rows, and its parts have {counted:,}")
    if footer.num_rows > FILE_ROWS:
        problems.append(f"it must hold at most {FILE_ROWS:,} rows, got {footer.num_rows:,}")
    if size > FILE_BYTES:
        problems.append(f"it must hold at most {FILE_BYTES:,} bytes uncompressed, got {size:,}")
    if problems:
        raise SpoolFileError(
            f"{path.name} claims schema version {SCHEMA_VERSION}, but {'; '.join(problems)}: "
            "it is not from this exporter; find out who writes into the spool"
        )


def _require_clock(path: Location, now: datetime) -> None:
    """Refuse to call rows wrong where the storage says that their file was written later than now."""
    stored = file_info(path)
    if stored is None or stored.written <= (now + AHEAD).timestamp():
        return
    written = datetime.fromtimestamp(stored.written, UTC)
    raise ClockError(
        f"it is {now:%Y-%m-%d %H:%M} UTC by the clock of this host, and {path} was written at "
        f"{written:%Y-%m-%d %H:%M}: set the clock. If it is right, that of the host that wrote the file was "
        "ahead: `touch` the file, and the next rollup leaves its rows out"
    )


def is_wrong(schema: StructType, now: datetime) -> Column:
    """Return whether a row cannot be true."""
    return F.expr(f"coalesce({' or '.join(f'({wrong})' for *_, wrong in _rules(schema, now))}, false)")


def find_fault(schema: StructType, now: datetime) -> Column:
    """Return the first rule that a row breaks and its value, as a struct of texts; null where the row can be true."""
    broken = []
    for rule, name, wrong in _rules(schema, now):
        got = F.make_valid_utf8(F.col(name).cast("string"))
        broken.append(F.when(F.expr(wrong), F.struct(F.lit(rule).alias("rule"), got.alias("got"))))
    return F.coalesce(*broken)


def _rules(schema: StructType, now: datetime) -> Iterator[tuple[str, str, str]]:
    """Yield every rule with its column, and the SQL that is true for rows that break it.

    Nothing counted, measured or dated here is ever negative, and nothing is yet to come. It is SQL because the JVM is
    asked a dozen times for each rule that is made of columns: half a second of a small rollup (measured).
    """
    yield (
        f"schema_version must be {SCHEMA_VERSION}, the one known here: run the rollup at the exporter's release",
        "schema_version",
        f"coalesce(schema_version <> {SCHEMA_VERSION}, true)",
    )
    for column in schema.fields:
        name, kind = column.name, column.dataType.simpleString()
        if not column.nullable:
            yield f"{name} must not be null", name, f"{name} is null"
        if kind == "string":
            yield f"{name} must be text in UTF-8", name, f"not is_valid_utf8({name})"
        if kind in ("bigint", "int"):
            yield f"{name} must be 0 or more", name, f"{name} < 0"
        if kind == "timestamp":
            at = f"unix_micros({name})"
            possible = f"{at} between {_micros(_EPOCH)} and {_micros(_END_OF_TIME)}"
            yield f"{name} must be a time from 1970 to 9999", name, f"not ({possible})"
            if name != "max_timestamp":  # which producers set as they please
                later = f"{at} > {_micros(now + AHEAD)}"
                rule = f"{name} of a poll must be from {EARLIEST:%Y} to now: set the clock of the exporter's host"
                yield rule, name, f"{_POLLED} and ({at} < {_micros(EARLIEST)} or {later})"
                rule = f"{name} of a backfill must not be after now: set the clock of the host that ran it"
                yield rule, name, f"not {_POLLED} and {later}"
        if kind == "double":
            odd = f"isnan({name}) or {name} < 0"
            if name != "retention_seconds":  # without end where nothing is deleted
                odd += f" or {name} = double('infinity')"
            yield f"{name} must be a finite number, 0 or more", name, odd
    if "readers" in schema.names:
        no_list = "from_json(readers, 'array<string>') is null or not startswith(ltrim(readers), '[')"
        yield "readers must be a JSON array of names", "readers", f"readers is not null and ({no_list})"
    sources = ", ".join(f"'{source.value}'" for source in Source)
    yield "source must be poll or backfill", "source", f"source not in ({sources})"
    for early, late in (("window_start", "window_end"), ("first_advance", "last_advance")):
        if early in schema.names and late in schema.names:
            yield f"{early} must not be after {late}", early, f"{early} > {late}"


def _micros(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1)


def put_aside(path: Location, folder: Location, reason: str) -> str:
    """Move a whole file into quarantine, with the reason beside it; return the reason."""
    make_folder(folder)
    name = os.fsencode(path.stem)
    # Cut where names of notes would be too long for a file system.
    stem = path.stem if len(name) <= _LONGEST_STEM else f"{os.fsdecode(name[:_CUT_STEM])}.{crc32(name):08x}"
    write_whole(folder / f"{stem}.parquet.reason.txt", f"{reason}\n")
    move(path, folder / f"{stem}.parquet")
    return reason


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]

"""Checks spool files, and moves invalid files and impossible rows to quarantine.

An invalid file goes to ``<history>/quarantine/<table>/`` with the reason beside it. Of a file with some impossible rows
only these rows go there.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.types import StructType

from exporter.domain import FILE_BYTES, FILE_ROWS, SCHEMA_VERSION, Source
from exporter.domain.history.rows import FIRST_YEAR
from exporter.storage import Location, ObjectPath, file_info, files_in, make_folder, move, opened, put
from spark_rollups.durable import write_whole
from spark_rollups.spool_schemas import SPOOL_COVERAGE, SPOOL_INVENTORY, SPOOL_RELATIONS, SPOOL_WINDOWS

VERSION_KEY = b"topic_liveness.schema_version"
EARLIEST = datetime(FIRST_YEAR, 1, 1, tzinfo=UTC)
"""Earliest plausible time of a poll. An exporter with an earlier one has a clock that nobody set."""

AHEAD = timedelta(days=1)
"""Largest plausible lead of a row over now. A row dated later is from a host whose clock is ahead."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_END_OF_TIME = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
_STREAM = ("cluster", "topic", "topic_id", "partition")
_SPOOL_NAME = re.compile(r"[A-Za-z0-9._~-]+")
_LONGEST_STEM, _CUT_STEM = 200, 180
"""Bytes of a name in quarantine, to which ``.parquet.reason.txt`` and the number of a process come: 255 at most."""
_LONGEST_VALUE = 100
"""Characters of a wrong value in a reason."""
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


class RefusedFileError(ValueError):
    """A spool file cannot be taken in; the text names the rule, the value and the next step."""


class UnreadFileError(Exception):
    """A spool file cannot be read now; the text names it, the cause and the next step."""


class ClockError(UnreadFileError):
    """The clock of this host is behind that of the storage; the text names both and the next step."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """What was put into quarantine: a whole file, or ``rows`` of one."""

    path: Location
    reason: str
    rows: int | None = None


def spooled(folder: Location) -> list[Location]:
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


def read_spool_file(path: Location, schema: StructType) -> pa.Table:
    """Return all rows of one spool file.

    Raises RefusedFileError for a torn, foreign or unknown one, UnreadFileError for one that cannot be read now, and
    FileNotFoundError.
    """
    if _SPOOL_NAME.fullmatch(path.name) is None:
        # It becomes a line of what is published.
        raise RefusedFileError(
            f"{path.name!r} is not the name of a spool file, which has only letters, digits and ._~-: "
            "find out who writes into the spool"
        )
    try:
        # The path is opened here: given a name, pyarrow would read partition values out of folder names.
        with _opened(path) as file:
            return _read(path, file, schema)
    except (RefusedFileError, FileNotFoundError):
        raise
    except MemoryError as error:
        raise UnreadFileError(
            f"{path} cannot be read: there is too little memory. It stays there, and nothing is published: give the "
            "job more memory and run this again"
        ) from error
    except (pa.ArrowException, OSError, ValueError) as error:
        if getattr(error, "errno", None) is not None:
            raise UnreadFileError(
                f"{path} cannot be read: {getattr(error, 'strerror', error)}. It stays there, and nothing is "
                "published: fix the storage or the rights and run this again; to go on without the file, move it away"
            ) from error
        raise RefusedFileError(
            f"{path.name} is not a whole Parquet file ({_first_line(error)}): it was torn or is not from the "
            "exporter; delete it, or restore it from a backup into the spool"
        ) from error


def _opened(path: Location) -> IO[bytes]:
    """Open a file to read it; on a pipe a reader would hang."""
    if isinstance(path, ObjectPath):
        return opened(path)
    try:
        regular = stat.S_ISREG(path.stat().st_mode)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOENT) or not path.is_symlink():
            raise
        regular = False  # a link that leads nowhere
    if not regular:
        raise RefusedFileError(f"{path.name} is no regular file: find out who writes into the spool")
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")


def _read(path: Location, file: IO[bytes], schema: StructType) -> pa.Table:
    parquet = pq.ParquetFile(file, page_checksum_verification=True)
    there, footer = parquet.schema_arrow, parquet.metadata
    row_count, size = (
        footer.num_rows,
        sum(footer.row_group(place).total_byte_size for place in range(footer.num_row_groups)),
    )
    stated = (there.metadata or {}).get(VERSION_KEY)
    if stated is None:
        raise RefusedFileError(
            f"{path.name} states no schema version (Parquet metadata {VERSION_KEY.decode()}): "
            "it is not from the exporter; find out who writes into the spool"
        )
    _require_version(path, {stated.decode(errors="replace")})
    wanted = {column.name: _ARROW[column.dataType.simpleString()] for column in schema.fields}
    found = {column.name: column.type for column in there}
    problems = [f"column {name} is missing" for name in wanted if name not in found]
    problems += [f"column {name} is not part of this version" for name in found if name not in wanted]
    problems += [
        f"column {name} must be {kind}, got {found[name]}"
        for name, kind in wanted.items()
        if name in found and found[name] != kind
    ]
    if len(found) != len(there):
        problems.append("a column name occurs twice")
    if row_count > FILE_ROWS:
        problems.append(f"it must hold at most {FILE_ROWS:,} rows, got {row_count:,}")
    if size > FILE_BYTES:
        problems.append(f"it must hold at most {FILE_BYTES:,} bytes uncompressed, got {size:,}")
    if problems:
        raise RefusedFileError(
            f"{path.name} claims schema version {SCHEMA_VERSION}, but {'; '.join(problems)}: "
            "it is not from this exporter; find out who writes into the spool"
        )
    texts = [name for name, kind in wanted.items() if kind == pa.string()]
    # A text that many rows share is in the file once: its rows are numbers until it is known how long they get.
    coded = pq.ParquetFile(file, metadata=footer, page_checksum_verification=True, read_dictionary=texts)
    rows = coded.read(list(wanted))
    # Pages have checksums; of the footer only its counts can contradict each other.
    if rows.num_rows != row_count:
        raise pa.ArrowInvalid(f"its footer says {row_count} rows, got {rows.num_rows}")
    rows.validate(full=True)
    written_out = sum(map(_text_bytes, (rows.column(name) for name in texts)))
    if written_out > FILE_BYTES:
        raise RefusedFileError(
            f"{path.name} must hold at most {FILE_BYTES:,} bytes of text, got {written_out:,}: "
            "it is not from this exporter; find out who writes into the spool"
        )
    _require_version(path, set(map(str, pc.unique(rows.column("schema_version")).to_pylist())))
    # In a foreign file columns may be declared as never null, and then fit no others.
    return rows.cast(pa.schema(wanted.items(), metadata=there.metadata))


def _text_bytes(column: pa.ChunkedArray) -> int:
    lengths = (pc.sum(pc.binary_length(chunk.dictionary).take(chunk.indices)).as_py() for chunk in column.chunks)
    return sum(filter(None, lengths))


def _require_version(path: Location, versions: set[str]) -> None:
    if versions - {str(SCHEMA_VERSION)}:
        found = ", ".join(sorted(versions))
        raise RefusedFileError(
            f"{path.name}: schema_version must be {SCHEMA_VERSION}, the one known here, got {found}; "
            "run the rollup at the exporter's release, then move the file back into the spool"
        )


def sound_rows(
    path: Location, table: SpoolTable, quarantine: Location, now: datetime
) -> tuple[pa.Table, Refusal | None]:
    """Return the rows that can be true; the others leave the file for the quarantine.

    Raises ClockError where rows are still to come, and the file was written then too.
    """
    rows = read_spool_file(path, table.schema)
    faults = [fault for fault in _faults(rows, table.schema, now) if pc.any(fault.rows).as_py()]
    if not faults:
        return rows, None
    if any(fault.later is not None and pc.any(fault.later).as_py() for fault in faults):
        _require_clock(path, now)
    bad = pc.fill_null(_any_of([fault.rows for fault in faults]), False)
    refused, sound = rows.filter(bad), rows.filter(pc.invert(bad))
    stem = _quarantine_stem(path)
    aside = quarantine / f"{stem}.rows.parquet"
    violations = "; ".join(f"{fault.rule}, got {_first_value(rows, fault)}" for fault in faults)
    reason = (
        f"{refused.num_rows} of {rows.num_rows} rows of {path.name} cannot be true: {violations}. "
        f"They are kept in {aside}: find out who wrote them; moved into the spool that file is looked at again"
    )
    make_folder(quarantine)
    _write_parquet(aside, refused)
    write_whole(quarantine / f"{stem}.parquet.reason.txt", f"{reason}\n")
    # From here on the file holds what Spark may read; its age stays that of the exporter's write.
    _write_parquet(path, sound, as_old=True)
    return sound, Refusal(path, reason, refused.num_rows)


def _require_clock(path: Location, now: datetime) -> None:
    """Refuse to call a file's rows wrong where its storage too says that they were written later than now."""
    stored = file_info(path)
    if stored is None or stored.written <= (now + AHEAD).timestamp():
        return
    written = datetime.fromtimestamp(stored.written, UTC)
    raise ClockError(
        f"it is {now:%Y-%m-%d %H:%M} UTC by the clock of this host, and {path} was written at "
        f"{written:%Y-%m-%d %H:%M}: set the clock. If it is right, that of the host that wrote the file was "
        "ahead: `touch` the file, and the next rollup puts it into quarantine"
    )


@dataclass(frozen=True, slots=True)
class _Fault:
    """A rule about a column, and the rows that break it; ``later`` are the rows dated after now."""

    rule: str
    column: str
    rows: pa.ChunkedArray
    later: pa.ChunkedArray | None = None


def _faults(rows: pa.Table, schema: StructType, now: datetime) -> Iterator[_Fault]:
    """Yield every rule. Nothing counted, measured or dated here is ever negative, and nothing is yet to come."""
    polled = pc.equal(rows.column("source"), Source.POLL.value)
    for column in schema.fields:
        name, values = column.name, rows.column(column.name)
        kind = column.dataType.simpleString()
        if not column.nullable:
            yield _Fault(f"{name} must not be null", name, pc.is_null(values))
        if kind in ("bigint", "int"):
            yield _Fault(f"{name} must be 0 or more", name, pc.less(values, 0))
        if kind == "timestamp":
            yield _Fault(f"{name} must be a time from 1970 to 9999", name, _outside(values, _EPOCH, _END_OF_TIME))
            if name != "max_timestamp":  # which producers set as they please
                wrong = pc.and_(polled, _outside(values, EARLIEST, now + AHEAD))
                rule = f"{name} of a poll must be from {EARLIEST:%Y} to now: set the clock of the exporter's host"
                yield _Fault(rule, name, wrong, _later(values, now))
                wrong = pc.and_(pc.invert(polled), _later(values, now))
                rule = f"{name} of a backfill must not be after now: set the clock of the host that ran it"
                yield _Fault(rule, name, wrong, wrong)
        if kind == "double":
            endless = pc.and_(pc.is_inf(values), name != "retention_seconds")  # without end where nothing is deleted
            odd = pc.or_(pc.or_(pc.is_nan(values), endless), pc.less(values, 0.0))
            yield _Fault(f"{name} must be a finite number, 0 or more", name, odd)
    if "readers" in rows.schema.names:
        yield _Fault("readers must be a JSON array of names", "readers", _no_names(rows.column("readers")))
    known = pa.array([source.value for source in Source])
    yield _Fault("source must be poll or backfill", "source", pc.invert(pc.is_in(rows.column("source"), known)))
    for early, late in (("window_start", "window_end"), ("first_advance", "last_advance")):
        if early in rows.schema.names and late in rows.schema.names:
            later = pc.greater(rows.column(early), rows.column(late))
            yield _Fault(f"{early} must not be after {late}", early, later)


def _no_names(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return which texts are not lists of names; null is none."""
    wrong = [text for text in pc.unique(texts.drop_null()).to_pylist() if not _is_list_of_names(text)]
    return pc.is_in(texts, pa.array(wrong, pa.string()))


def _is_list_of_names(text: str) -> bool:
    try:
        names = json.loads(text)
        "".join(names).encode()  # half a surrogate pair is no text that can be written
    except (ValueError, TypeError, RecursionError):
        return False
    return isinstance(names, list)


def _later(moments: pa.ChunkedArray, now: datetime) -> pa.ChunkedArray:
    return pc.greater(moments, _moment(now + AHEAD))


def _outside(moments: pa.ChunkedArray, first: datetime, last: datetime) -> pa.ChunkedArray:
    return pc.or_(pc.less(moments, _moment(first)), pc.greater(moments, _moment(last)))


def _moment(at: datetime) -> pa.Scalar:
    return pa.scalar(at, _ARROW["timestamp"])


def _first_value(rows: pa.Table, fault: _Fault) -> str:
    value = rows.column(fault.column).filter(pc.fill_null(fault.rows, False))[0]
    if pa.types.is_timestamp(value.type) and value.is_valid and not 0 <= value.value <= _moment(_END_OF_TIME).value:
        return f"{value.value / 1e6:.0f} s since 1970"  # no calendar of Python's has it
    return str(value.as_py())[:_LONGEST_VALUE]


def _any_of(masks: Sequence[pa.Array]) -> pa.Array:
    combined = masks[0]
    for mask in masks[1:]:
        combined = pc.or_kleene(combined, mask)
    return combined


def _write_parquet(path: Location, rows: pa.Table, *, as_old: bool = False) -> None:
    """Write a file whole; where it is as old as the one that it replaces, by the times of a file of this host."""
    times = (path.stat().st_atime_ns, path.stat().st_mtime_ns) if as_old and isinstance(path, Path) else None

    def write(file: IO[bytes]) -> None:
        pq.write_table(rows, file, write_page_checksum=True)
        if times is not None:
            file.flush()
            os.utime(file.fileno(), ns=times)

    put(path, write)


def put_aside(path: Location, folder: Location, reason: str) -> Refusal:
    """Move a whole file into quarantine, with the reason beside it."""
    make_folder(folder)
    aside = folder / f"{_quarantine_stem(path)}.parquet"
    write_whole(folder / f"{aside.name}.reason.txt", f"{reason}\n")
    move(path, aside)
    return Refusal(aside, reason)


def _quarantine_stem(path: Location) -> str:
    """Return the name of a file in quarantine without its suffix: cut where others would be too long with theirs."""
    name = os.fsencode(path.stem)
    return path.stem if len(name) <= _LONGEST_STEM else f"{os.fsdecode(name[:_CUT_STEM])}.{crc32(name):08x}"


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]

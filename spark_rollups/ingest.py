"""Spool files -> the tables ``windows``, ``coverage`` and ``inventory``: each row once, however often it runs.

A file that is not what it should be goes to ``<history>/quarantine/<table>/`` with the reason beside it;
of a file with some impossible rows only those go there. A file that cannot be read stays where it is, and ends the
rollup: what it tells may be what proves that something lives. The ledger ``ingested_files`` is written after the
rows: after a crash between the two only rows are added that the table has not. ``windows``, ``inventory`` and
``relations`` hold what the files tell, a row told by two files twice; what is made of them counts each once.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import IO, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from exporter.domain import FILE_BYTES, FILE_ROWS, SCHEMA_VERSION, Source
from exporter.storage import (
    Location,
    ObjectPath,
    delete,
    for_pyarrow,
    listed,
    make_folder,
    move,
    opened,
    put,
    spark_uri,
)
from spark_rollups import schemas
from spark_rollups.durable import read_text, sync_tree, write_whole
from spark_rollups.frames import spread
from spark_rollups.tables import Tables, TablesError

VERSION_KEY = b"topic_liveness.schema_version"
EARLIEST = datetime(1980, 1, 1, tzinfo=UTC)
"""Exporters that date their polls before it have a clock that nobody set."""

AHEAD = timedelta(days=1)
"""A row dated so much later than now is from an exporter whose clock is ahead."""

RENAME_MARGIN = timedelta(minutes=10)
"""A file may get its final name this long after its last write; the watermark stays behind by as much."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_END_OF_TIME = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
_STREAM = ("cluster", "topic", "topic_id", "partition")
_SPOOL_NAME = re.compile(r"[A-Za-z0-9._-]+")
_FINISHED = re.compile(r"[^.].*\.parquet")
_BATCH_ROWS = 100_000
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
    SpoolTable("windows", schemas.SPOOL_WINDOWS, (*_STREAM, "window_start", "exporter", "source"), "window_start"),
    SpoolTable("coverage", schemas.SPOOL_COVERAGE, ("cluster", "exporter", "source", "window_start"), "window_start"),
    SpoolTable("inventory", schemas.SPOOL_INVENTORY, (*_STREAM, "observed_at", "exporter", "source"), "observed_at"),
    SpoolTable(
        "relations", schemas.SPOOL_RELATIONS, (*_STREAM[:-1], "observed_at", "exporter", "source"), "observed_at"
    ),
)


class RefusedFileError(ValueError):
    """A spool file cannot be taken in; the text names the rule, the value and the next step."""


class UnreadFileError(Exception):
    """A spool file cannot be read now; the text names it, the cause and the next step."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """What was put into quarantine: a whole file, or ``rows`` of one."""

    path: Location
    reason: str
    rows: int | None = None


@dataclass(slots=True)
class Ingested:
    """What one ingest of one table took in: file -> its rows, between the UTC days ``first`` and ``last``."""

    table: str
    listed: list[Location] = field(default_factory=list)
    """The files in the spool that are in the tables, by this ingest or an earlier one."""
    files: dict[Location, int] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)
    first: date | None = None
    last: date | None = None
    table_rows: int | None = None
    """Rows that the table holds afterwards; None where nothing was taken in."""
    again: bool = False
    """The table had lost rows, and the whole spool was taken in again."""

    @property
    def rows(self) -> int:
        """All rows taken in; those that the table had already are among them."""
        return sum(self.files.values())


@dataclass(frozen=True, slots=True)
class Taken:
    """What the ledger tells of one table: the files that were taken in, and how many rows it held with them."""

    files: frozenset[str] = frozenset()
    table_rows: int = 0


def read_ledger(tables: Tables) -> Mapping[str, Taken]:
    """Return what was taken in by earlier runs, by table."""
    rows = tables.read("ingested_files").collect()
    return {
        name: Taken(
            frozenset(row.file for row in rows if row.table == name),
            max((row.table_rows or 0 for row in rows if row.table == name), default=0),
        )
        for name in {row.table for row in rows}
    }


def ingest_table(
    tables: Tables, history: Location, table: SpoolTable, ledger: Mapping[str, Taken] | None = None
) -> Ingested:
    """Take in every finished spool file of one table that the ledger (default: as it is now) does not name yet.

    The ledger itself is written by ``record``, when all tables have their rows. Where the table holds fewer rows
    than the ledger says, all files are taken in again; raises TablesError where that brings not all of them back.
    Raises UnreadFileError where a file cannot be read.
    """
    before = (read_ledger(tables) if ledger is None else ledger).get(table.name, Taken())
    known = before.files
    done, now = Ingested(table.name), datetime.now(UTC)
    done.again = bool(before.table_rows) and tables.count(table.name) < before.table_rows
    if done.again:
        known = frozenset()
    quarantine = history / "quarantine" / table.name
    with _Batch(tables.folder / f"new-{table.name}.parquet") as batch:
        for path in _spooled(history / "spool" / table.name):
            if path.name in known:
                done.listed.append(path)
                continue
            try:
                rows, refusal = _sound_rows(path, table, quarantine, now)
            except RefusedFileError as error:
                done.refusals.append(_quarantine_file(path, quarantine, str(error)))
                continue
            except FileNotFoundError:
                continue  # the exporter deleted it since it was listed
            if refusal is not None:
                done.refusals.append(refusal)
            done.listed.append(path)
            done.files[path] = rows.num_rows
            if rows.num_rows:
                batch.add(rows)
                span = pc.min_max(rows.column(table.dated_by)).as_py()
                first, last = (span[side].astimezone(UTC).date() for side in ("min", "max"))
                done.first = min(first, done.first or first)
                done.last = max(last, done.last or last)
        if done.rows:
            note_pending(tables, done.first)
            _append(tables, table, done, batch.written())
    if done.rows or done.again:
        done.table_rows = held = tables.count(table.name)
        if held < before.table_rows:
            raise TablesError(
                f"{tables.folder / table.name} holds {held:,} rows, and {before.table_rows:,} had been taken in: the "
                f"others are lost, and not in the spool any more. Restore {tables.folder} from a backup; or, to go on "
                f"without them, move {tables.folder / 'ingested_files'} away"
            )
    return done


def _spooled(folder: Location) -> list[Location]:
    """Return what lies in a folder of the spool by name, also what is no file of an exporter."""
    if isinstance(folder, ObjectPath):
        return sorted((file.path for file in listed(folder, _FINISHED)), key=lambda path: path.name)
    return sorted(folder.glob("[!.]*.parquet"))


def record(tables: Tables, taken: Sequence[Ingested]) -> None:
    """Write to the ledger which files have been taken in, so that no later run looks at them again."""
    rows = [
        (done.table, path.name, count, done.table_rows) for done in taken for path, count in sorted(done.files.items())
    ]
    if rows:
        listed = tables.spark.createDataFrame(rows, schemas.INGESTED_FILES)
        tables.append("ingested_files", listed.coalesce(1))


def note_pending(tables: Tables, first: date | None) -> None:
    """Keep on disk that days must be made again from the UTC day ``first`` on.

    Written before the rows are, so that no crash can forget it.
    """
    before = pending_since(tables)
    if first is None or (before is not None and before <= first):
        return
    make_folder(tables.folder)
    write_whole(tables.folder / "pending.json", json.dumps({"from": first.isoformat()}) + "\n")


def pending_since(tables: Tables) -> date | None:
    """Return the UTC day from which days are not up to date, None where all are.

    A note that cannot be read stands for all days.
    """
    try:
        noted = json.loads(read_text(tables.folder / "pending.json"))
        return date.fromisoformat(noted["from"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        return _EPOCH.date()


def clear_pending(tables: Tables) -> None:
    """Forget what ``note_pending`` kept: all that is made of windows is up to date."""
    delete(tables.folder / "pending.json")


def publish_ingested(history: Location, taken: Sequence[Ingested], listed_at: datetime) -> datetime:
    """Tell the exporter which spool files it may delete; ``listed_at`` is from before the spool was read.

    Every file last written at or before the returned moment has been taken in or put into quarantine. The tables
    are synced first: what they hold must not be lost with the power once the files are gone.
    """
    watermark = listed_at.astimezone(UTC) - RENAME_MARGIN
    sync_tree(history / "tables", changed_since=watermark.timestamp())
    published = history / "published"
    make_folder(published)
    names = [f"{done.table}/{path.name}\n" for done in taken for path in done.listed]
    write_whole(published / "ingested.txt", "".join(names))
    content = {"schema_version": SCHEMA_VERSION, "watermark": watermark.isoformat().replace("+00:00", "Z")}
    write_whole(published / "ingest.json", json.dumps(content) + "\n")
    return watermark


def read_spool_file(path: Location, schema: StructType) -> pa.Table:
    """Return all rows of one spool file.

    Raises RefusedFileError for a torn, foreign or unknown one, UnreadFileError for one that cannot be read now, and
    FileNotFoundError.
    """
    if _SPOOL_NAME.fullmatch(path.name) is None:
        # It becomes a line of what is published.
        raise RefusedFileError(
            f"{path.name!r} is not the name of a spool file, which has only letters, digits and ._-: "
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
                "published: mend the storage or the rights and run this again; to go on without the file, move it away"
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
    told, size = footer.num_rows, sum(footer.row_group(place).total_byte_size for place in range(footer.num_row_groups))
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
    if told > FILE_ROWS:
        problems.append(f"it must hold at most {FILE_ROWS:,} rows, got {told:,}")
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
    if rows.num_rows != told:
        raise pa.ArrowInvalid(f"its footer tells of {told} rows, got {rows.num_rows}")
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


def _sound_rows(
    path: Location, table: SpoolTable, quarantine: Location, now: datetime
) -> tuple[pa.Table, Refusal | None]:
    """Return the rows that can be true; the others leave the file for the quarantine."""
    rows = read_spool_file(path, table.schema)
    faults = [fault for fault in _faults(rows, table.schema, now) if pc.any(fault.rows).as_py()]
    if not faults:
        return rows, None
    bad = pc.fill_null(_any_of([fault.rows for fault in faults]), False)
    refused, kept = rows.filter(bad), rows.filter(pc.invert(bad))
    aside = quarantine / f"{path.stem}.rows.parquet"
    told = "; ".join(f"{fault.rule}, got {_first_value(rows, fault)}" for fault in faults)
    reason = (
        f"{refused.num_rows} of {rows.num_rows} rows of {path.name} cannot be true: {told}. "
        f"They are kept in {aside}: find out who wrote them; moved into the spool that file is looked at again"
    )
    make_folder(quarantine)
    _write_parquet(aside, refused)
    write_whole(quarantine / f"{path.name}.reason.txt", f"{reason}\n")
    # From here on the file holds what Spark may read; its age stays that of the exporter's write.
    _write_parquet(path, kept, as_old=True)
    return kept, Refusal(path, reason, refused.num_rows)


@dataclass(frozen=True, slots=True)
class _Fault:
    """A rule about a column, and which rows break it."""

    rule: str
    column: str
    rows: pa.ChunkedArray


def _faults(rows: pa.Table, schema: StructType, now: datetime) -> Iterator[_Fault]:
    """Yield every rule. Nothing counted, measured or dated here is ever negative, and no poll is yet to come."""
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
                yield _Fault(rule, name, wrong)
        if kind == "double":
            endless = pc.and_(pc.is_inf(values), name != "retention_seconds")  # without end where nothing is deleted
            odd = pc.or_(pc.or_(pc.is_nan(values), endless), pc.less(values, 0.0))
            yield _Fault(f"{name} must be a finite number, 0 or more", name, odd)
    known = pa.array([source.value for source in Source])
    yield _Fault("source must be poll or backfill", "source", pc.invert(pc.is_in(rows.column("source"), known)))
    for early, late in (("window_start", "window_end"), ("first_advance", "last_advance")):
        if early in rows.schema.names and late in rows.schema.names:
            later = pc.greater(rows.column(early), rows.column(late))
            yield _Fault(f"{early} must not be after {late}", early, later)


def _outside(moments: pa.ChunkedArray, first: datetime, last: datetime) -> pa.ChunkedArray:
    return pc.or_(pc.less(moments, _moment(first)), pc.greater(moments, _moment(last)))


def _moment(at: datetime) -> pa.Scalar:
    return pa.scalar(at, _ARROW["timestamp"])


def _first_value(rows: pa.Table, fault: _Fault) -> str:
    value = rows.column(fault.column).filter(pc.fill_null(fault.rows, False))[0]
    if pa.types.is_timestamp(value.type) and value.is_valid and not 0 <= value.value <= _moment(_END_OF_TIME).value:
        return f"{value.value / 1e6:.0f} s since 1970"  # no calendar of Python's has it
    return str(value.as_py())


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


def _quarantine_file(path: Location, folder: Location, reason: str) -> Refusal:
    make_folder(folder)
    write_whole(folder / f"{path.name}.reason.txt", f"{reason}\n")
    move(path, folder / path.name)
    return Refusal(folder / path.name, reason)


class _Batch:
    """New rows in one file for Spark, which would end at files that can be read here; a context manager."""

    def __init__(self, path: Location) -> None:
        self._path = path
        self._waiting: list[pa.Table] = []
        self._rows = 0
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._writer is None:
            return
        # Where something failed it may be the storage: to say that this failed too would hide it.
        with nullcontext() if kind is None else suppress(OSError):
            self._writer.close()
            delete(self._path)

    def add(self, rows: pa.Table) -> None:
        """Add the rows of one spool file."""
        self._waiting.append(rows)
        self._rows += rows.num_rows
        if self._rows >= _BATCH_ROWS:
            self._write()

    def written(self) -> Location:
        """Return the whole file. Some rows have been added."""
        self._write().close()
        return self._path

    def _write(self) -> pq.ParquetWriter:
        if self._writer is None:
            make_folder(self._path.parent)
            name, storage = for_pyarrow(self._path)
            self._writer = pq.ParquetWriter(name, self._waiting[0].schema, filesystem=storage)
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting))
            self._waiting.clear()
            self._rows = 0
        return self._writer


def _append(tables: Tables, table: SpoolTable, done: Ingested, batch: Location) -> None:
    """Add the rows of a batch, each once, but for those that the table has: by copies, or by a run that was killed."""
    spread(tables.spark, rows=done.rows)
    read = tables.spark.read.schema(table.schema).option("recursiveFileLookup", "true").parquet(spark_uri(batch))
    rows = read.withColumn("date", F.to_date(table.dated_by))
    there = None
    if tables.exists(table.name):
        # Delta reads the days that this batch touches, and no others.
        there = tables.read(table.name).where(F.col("date").between(F.lit(done.first), F.lit(done.last)))
    tables.append(table.name, once_each(rows, there, table, few=done.rows < _BATCH_ROWS))


def once_each(rows: DataFrame, there: DataFrame | None, table: SpoolTable, *, few: bool) -> DataFrame:
    """Keep of ``rows`` one of each key, whatever the order of the files, and none whose key is ``there``.

    Of rows with one key the latest by its other columns is kept. Rows are shuffled and sorted once, by their day:
    so they are written too.
    """
    key = (*table.key, "date")
    told = rows.withColumn("old", F.lit(False))
    if there is not None:
        told = told.unionByName(there.select(*key, F.lit(True).alias("old")), allowMissingColumns=True)
    told = told.coalesce(1) if few else told.repartition("date")
    others: list[Column] = [F.col(name).desc_nulls_last() for name in rows.columns if name not in key]
    order = Window.partitionBy("date", *table.key).orderBy(F.col("old").desc(), *others)
    return told.withColumn("place", F.row_number().over(order)).where("place = 1 and not old").drop("place", "old")


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]

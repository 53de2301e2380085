"""The spool: Parquet files for Spark to ingest, each written whole or not at all."""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq

from exporter.domain import SCHEMA_VERSION, Coverage, Inventory, Relation, Window

log = logging.getLogger(__name__)

Row = Window | Coverage | Inventory | Relation

TABLES: Mapping[type, str] = {
    Window: "windows",
    Coverage: "coverage",
    Inventory: "inventory",
    Relation: "relations",
}
STAMP = "%Y%m%dT%H%M%S%f"
"""The moment at the end of a file's name, UTC."""

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
_INT32 = {"partition", "leader"}
_ARROW_TYPES = {"str": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}


class Loss(StrEnum):
    """Why history windows were lost."""

    SPOOL_FULL = "spool-full"
    """The spool passed ``history.max_bytes`` with files that Spark had not ingested."""
    UNWRITABLE = "unwritable"
    """The spool could not be written for so long that memory had to be freed."""


class HistoryError(Exception):
    """The history folder cannot be used; the message names the folder, the cause and the next step."""


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


class Spool:
    """The folder of spool files, ``<history>/spool/<table>/*.parquet``."""

    def __init__(self, history: Path, exporter: str) -> None:
        """Make the folders. Raises HistoryError when they cannot be made or written."""
        self.folder = history / "spool"
        self._exporter = exporter
        try:
            for table in TABLES.values():
                (self.folder / table).mkdir(parents=True, exist_ok=True)
                probe = self.folder / table / f".writable-{os.getpid()}"
                probe.touch()
                probe.unlink()
        except OSError as error:
            raise HistoryError(
                f"history.folder {str(history)!r} must be a folder this process can write to: {error.strerror}. "
                "Give its owner write access, or set history.folder to another folder."
            ) from error

    def target(self, cluster: str, at: float, row: type[Row]) -> Path:
        """Return the file that ``write`` would write rows of this class to."""
        stamp = datetime.fromtimestamp(at, UTC).strftime(STAMP)
        return self.folder / TABLES[row] / f"{file_stem(row, self._exporter, cluster)}-{stamp}.parquet"

    def write(self, cluster: str, at: float, rows: Sequence[Row]) -> int:
        """Write rows of one class as one file; return its size in bytes. Raises OSError, leaving no file."""
        target = self.target(cluster, at, type(rows[0]))
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            with temporary.open("wb") as file:
                pq.write_table(to_table(rows), file)
                file.flush()
                os.fsync(file.fileno())
                size = file.tell()
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(target.parent)
        return size

    def expire(self, *, older_than: float, ingested_until: float | None) -> int:
        """Delete files from before ``older_than`` that Spark has ingested; return how many."""
        if ingested_until is None:
            return 0
        before = min(older_than, ingested_until)
        expired = [file for file in finished_files(self.folder) if file.written < before]
        for file in expired:
            file.path.unlink(missing_ok=True)
        return len(expired)

    def shrink(self, max_bytes: int, *, ingested_until: float | None) -> Counter[str]:
        """Delete the oldest files until the spool fits in ``max_bytes``; say in the log what is lost with them.

        Return the windows that Spark had not ingested yet, by cluster: they are lost.
        """
        files = finished_files(self.folder)
        total = sum(file.size for file in files)
        lost: Counter[str] = Counter()
        lost_files: Counter[str] = Counter()
        for file in files:
            if total <= max_bytes:
                break
            total -= file.size
            if ingested_until is None or file.written > ingested_until:
                table = file.path.parent.name
                lost_files[table] += 1
                if table == TABLES[Window]:
                    lost.update(_clusters_of(file.path))
            file.path.unlink(missing_ok=True)
        if lost_files:
            log.error(
                "the spool %s was over history.max_bytes: the oldest files are lost before they were ingested: %s; "
                "%d windows were in them. Run `topic-liveness rollup` more often, or raise history.max_bytes.",
                self.folder,
                ", ".join(f"{count} of {table}" for table, count in sorted(lost_files.items())),
                lost.total(),
            )
        return lost


class SpoolFile(NamedTuple):
    """A finished file: when it was written (Unix seconds), and its bytes."""

    written: float
    path: Path
    size: int


def finished_files(spool: Path, tables: Iterable[str] = TABLES.values()) -> list[SpoolFile]:
    """Return the finished files of these tables, oldest first; those that go away meanwhile are left out."""
    found = []
    for table in tables:
        for path in (spool / table).glob("[!.]*.parquet"):
            try:
                seen = path.stat()
            except FileNotFoundError:
                continue
            found.append(SpoolFile(seen.st_mtime, path, seen.st_size))
    return sorted(found, key=lambda file: (file.written, file.path.name))


def _clusters_of(path: Path) -> list[str]:
    try:
        return [str(name) for name in pq.read_table(path, columns=["cluster"]).column("cluster").to_pylist()]
    except (OSError, pa.ArrowException):
        return []


def file_stem(row: type[Row], exporter: str, cluster: str) -> str:
    """Return what the names of an exporter's files with rows of this class begin with, up to their moment."""
    return f"{TABLES[row]}-{safe(exporter)}-{safe(cluster)}"


def safe(name: str) -> str:
    """Return the name fit for a file name, still different for different names."""
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    return safe if safe == name else f"{safe}.{crc32(name.encode()):08x}"


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a crash of the machine."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

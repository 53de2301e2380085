"""The spool: Parquet files for Spark to ingest, each written whole or not at all."""

import errno
import logging
import math
import os
import re
import secrets
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from exporter.domain.history.rows import Source, Window
from exporter.history.cluster_states import ClusterState, read_state, state_file, state_files, write_state
from exporter.history.tables import TABLES, ForeignFileError, escape_name, name_of, read_columns, read_whole
from exporter.storage import files as storage
from exporter.storage.files import FileInfo, Location
from exporter.storage.storage_thread import StorageThread

log = logging.getLogger(__name__)

STAMP = "%Y%m%dT%H%M%S%f"
"""The time in a file name, UTC."""

_EPOCH = datetime.fromtimestamp(0, UTC)

_OBJECT_UPKEEP_SECONDS = 900.0
_LEDGER_BYTES = 64 * 2**20
_FINISHED = re.compile(r"[^.].*\.parquet")
_DRAFT = re.compile(r"\..*\.parquet\..*")


class Loss(StrEnum):
    """Why history windows were lost."""

    SPOOL_FULL = "spool-full"
    """The spool passed ``history.max_bytes`` with files that Spark had not ingested."""
    UNWRITABLE = "unwritable"
    """Writing failed until the buffer in memory was full."""
    ERROR = "error"
    """An internal error; the log has its traceback."""


class HistoryError(Exception):
    """The history folder cannot be used; the message names the folder, the cause and the next step."""


class Spool:
    """The folder of spool files, ``<history>/spool/<table>/*.parquet``."""

    def __init__(self, history: Location, exporter: str, source: Source = Source.POLL) -> None:
        """Create the folders. Raises HistoryError when they cannot be created or written.

        ``source`` is that of all rows that this object writes, and part of the names of its files.
        """
        self.folder = history / "spool"
        self.thread = StorageThread("history-writer")
        """Writes what polls leave."""
        self._last_upkeep = -math.inf
        self._ledger = history / "published" / "ingested.txt"
        self._exporter = exporter
        self._source = source
        self._writer = secrets.token_hex(4)
        """In the name of each file: another process of this exporter's name overwrites none of them."""
        folder = self.folder
        try:
            for table in TABLES.values():
                folder = self.folder / table
                _require_writable(folder)
        except OSError as error:
            who = f"this process (user id {os.getuid()})" if self.is_local else "this process"
            raise HistoryError(
                f"history.folder {str(history)!r} must be a folder that {who} can write to, and {str(folder)!r} is "
                f"not: {error.strerror}. Give it write access there, or set history.folder to another folder."
            ) from error

    @property
    def is_local(self) -> bool:
        """Whether it is a folder of this host, where a write takes milliseconds."""
        return isinstance(self.folder, Path)

    def upkeep_is_due(self, at: float) -> bool:
        """Return whether to check the limits of the spool now (monotonic seconds): always on this host.

        In object storage only every quarter of an hour, because each check lists all files, which costs money.
        """
        if not self.is_local and at < self._last_upkeep + _OBJECT_UPKEEP_SECONDS:
            return False
        self._last_upkeep = at
        return True

    def target(self, cluster: str, at: float, table: str) -> Location:
        """Return the file that rows of this table are written to."""
        # Where it is not of polls the name has a character that no exporter or cluster can bring.
        of_source = "" if self._source is Source.POLL else f"~{self._source.value}"
        stem = f"{table}-{escape_name(self._exporter)}-{escape_name(cluster)}{of_source}"
        return self.folder / table / f"{stem}-{_stamped(at)}-{self._writer}.parquet"

    def write_files(self, cluster: str, at: float, tables: Iterable[pa.Table]) -> None:
        """Write a file for each table, in this order. Raises OSError.

        After an error some may be written. To write them again does no harm: their names and rows are the same.
        """
        for table in tables:
            _write(self.target(cluster, at, name_of(table)), table)

    def write_state(self, cluster: str, state: ClusterState) -> None:
        """Write the state file of a cluster. Raises OSError, leaving the one before."""
        write_state(state_file(self.folder.parent, cluster, self._exporter), state)

    def expire(self, *, older_than: float) -> int:
        """Delete files from before ``older_than`` (Unix seconds) that Spark has ingested; return how many.

        State files that nobody has written since go too, and what writers left that were killed.
        """
        old = [file for file in list_finished_files(self.folder) if file.written < older_than]
        ingested = self.read_ledger() if old else None
        expired = [file for file in old if file.name in (ingested or ())]
        tables = TABLES.values() if self.is_local else ()  # in object storage no draft has a name
        drafts = [file for table in tables for file in storage.files_in(self.folder / table, _DRAFT)]
        left = [file for file in drafts if file.written < older_than]
        for file in [*expired, *state_files(self.folder.parent, older_than), *left]:
            storage.delete(file.path)
        return len(expired)

    def shrink(self, max_bytes: int) -> Counter[str]:
        """Delete the oldest intervals until the spool fits in ``max_bytes``, and log what is lost with them.

        All files of an interval go: coverage without its windows would prove silences that nobody saw, and the
        inventory of a backfill says that they are written. Return the windows that Spark had not ingested yet, by
        cluster: they are lost. None count where its ledger cannot be read.
        """
        intervals: dict[str, list[FileInfo]] = {}
        for file in list_finished_files(self.folder):
            # Files that belong together have one name in the folders of their tables.
            intervals.setdefault(file.path.name.removeprefix(file.path.parent.name), []).append(file)
        total, surplus = sum(file.size for files in intervals.values() for file in files), list[FileInfo]()
        for files in intervals.values():
            if total <= max_bytes:
                break
            total -= sum(file.size for file in files)
            surplus += files
        ingested = self.read_ledger() if surplus else None
        lost = [file.path for file in surplus if ingested is not None and file.name not in ingested]
        windows: Counter[str] = Counter()
        for path in lost:
            if path.parent.name == TABLES[Window]:
                with suppress(OSError, ForeignFileError):
                    windows.update(map(str, read_columns(path, Window, ["cluster"]).column("cluster").to_pylist()))
        # By table, coverage first and windows last: whenever this ends, nothing is left that says that they are there.
        for file in sorted(surplus, key=lambda file: file.path.parent.name):
            storage.delete(file.path)
        if lost or (surplus and ingested is None):
            how = f"before they were ingested, {windows.total()} windows in them"
            log.error(
                "the spool %s was over history.max_bytes: its %d oldest files were deleted, %s. Run `topic-liveness "
                "rollup` more often, or raise history.max_bytes.",
                self.folder,
                len(lost or surplus),
                how if lost else f"and it is unknown whether they were ingested: {self._ledger} cannot be read",
            )
        return windows

    def read_ledger(self) -> frozenset[str] | None:
        """Return the files in Spark's ledger, as ``<table>/<name>``; None where it cannot be read."""
        try:
            return frozenset(read_whole(self._ledger, _LEDGER_BYTES).decode().splitlines())
        except FileNotFoundError:
            return frozenset()
        except (OSError, ValueError):
            return None


def read_states(history: Location, clusters: Iterable[str], exporter: str) -> dict[str, ClusterState]:
    """Return what the exporter knew of each cluster when it ended. Raises HistoryError."""

    def read() -> dict[str, ClusterState]:
        found = {cluster: read_state(history, cluster, exporter) for cluster in clusters}
        return {cluster: state for cluster, state in found.items() if state is not None}

    try:
        return StorageThread("history-reader").call(read)
    except OSError as error:
        raise HistoryError(
            f"history.folder {str(history)!r} cannot be read: {error.strerror}. Fix that and start it again"
        ) from error


def list_finished_files(spool: Location, tables: Iterable[str] = TABLES.values()) -> list[FileInfo]:
    """Return the finished files of these tables, oldest first.

    Files that disappear in the meantime, and those that are not regular files, are left out.
    """
    files = (file for table in tables for file in storage.files_in(spool / table, _FINISHED))
    return sorted(files, key=lambda file: (file.written, file.path.name))


def _write(path: Location, table: pa.Table) -> None:
    try:
        storage.put(path, lambda file: pq.write_table(table, file, write_page_checksum=True))
    except MemoryError as error:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)) from error


def _stamped(at: float) -> str:
    # Rounded as times in rows are: ``fromtimestamp`` rounds some to the next microsecond.
    return (_EPOCH + timedelta(microseconds=round(at * 1_000_000))).strftime(STAMP)


def _require_writable(folder: Location) -> None:
    probe = folder / f".writable-{os.getpid()}"
    if isinstance(folder, Path):
        folder.mkdir(parents=True, exist_ok=True)
    storage.put(probe, lambda file: file.write(b"."))
    storage.delete(probe)

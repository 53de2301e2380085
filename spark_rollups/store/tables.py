"""The Delta tables of one history folder: where they are, how they are read and replaced."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from pathlib import Path
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType

from exporter.storage.files import FileInfo, Location, delete_folder, files_below, files_in, make_folder, spark_uri
from spark_rollups.spark.failures import KnownError
from spark_rollups.spark.frames import make_empty
from spark_rollups.store import schemas
from spark_rollups.store.durable import read_text, write_whole


def conform(rows: DataFrame, schema: StructType, name: str) -> DataFrame:
    """Return ``rows`` with exactly the columns of ``schema``, in its order.

    A null in a required column fails the running query, naming ``name`` and the column. Nothing is cast: another type
    raises TypeError.
    """
    # In SQL, which is one call of the JVM for each column in place of a dozen.
    columns = [
        field.name
        if field.nullable
        else f"coalesce({field.name}, raise_error('{name}.{field.name} must not be null')) as {field.name}"
        for field in schema.fields
    ]
    found = rows.selectExpr(*columns)
    if found.schema.simpleString() != schema.simpleString():
        raise TypeError(f"{name} must be {schema.simpleString()}, got {found.schema.simpleString()}")
    return found


SCHEMAS: Mapping[str, StructType] = {
    "windows": schemas.WINDOWS,
    "coverage": schemas.COVERAGE,
    "inventory": schemas.INVENTORY,
    "relations": schemas.RELATIONS,
    "daily": schemas.DAILY,
    "streams": schemas.STREAMS,
    "drops": schemas.DROPS,
    "baselines": schemas.BASELINES,
    "maxima": schemas.MAXIMA,
    "calibration": schemas.CALIBRATION,
    "verdicts": schemas.VERDICTS,
}
"""The columns of each table."""

LAYOUT = 8
"""The layout of the tables, and of what is noted beside them. A release reads its own alone."""

_PARTITIONED = {"baselines": "week", "maxima": "week_ended"}
"""Beside those with a ``date``, which are partitioned by it."""

_STATISTICS_COLUMNS = {"windows": "window_start,window_end"}
"""The columns for which Delta keeps the range of each file, so that a query for a day skips files of other days."""

_COMMIT = re.compile(r"[0-9]{20}\.json")
_ANY = re.compile(r".*\.(json|parquet)")

_AGAIN = "the next rollup takes in what the spool still has, and what is older is lost"


class TablesError(KnownError):
    """The tables cannot be used; the text names the folder, what is wrong with it and the next step."""


class Tables:
    """The tables below ``<history>/tables``, each made when it is first needed."""

    def __init__(self, spark: SparkSession, history: Location) -> None:
        self.spark = spark
        # Delta takes a relative path for the name of a catalog table, and refuses one with `..` in it.
        self.history = history.resolve() if isinstance(history, Path) else history
        self.folder = self.history / "tables"
        self.guard: Callable[[], None] = lambda: None
        """Called before each commit; raises where this run may not write any more."""
        self._whole: set[str] = set()

    def read(self, name: str) -> DataFrame:
        """Return the present table; one that was never written is empty."""
        if not self.exists(name):
            return make_empty(self.spark, SCHEMAS[name])
        return self.spark.read.format("delta").load(self.path(name))

    def append(self, name: str, rows: DataFrame) -> None:
        """Add ``rows`` in one commit. Raises TablesError where data is there, but no log of it."""
        self._write(name, rows, "append")

    def replace(self, name: str, rows: DataFrame) -> None:
        """Put ``rows`` in the place of all that the table holds, in one commit."""
        self._write(name, rows, "overwrite")

    def replace_where(self, name: str, rows: DataFrame, where: str) -> None:
        """Put ``rows`` in the place of those that meet ``where``, a condition in SQL, in one commit."""
        self._write(name, rows, "overwrite", where)

    def delete(self, name: str, where: Column) -> None:
        """Delete the rows that meet ``where``, of which there are some, in one commit."""
        with self._commit(name):
            DeltaTable.forPath(self.spark, self.path(name)).delete(where)

    def compact(self, name: str) -> None:
        """Put small files of a table together, in one commit or none."""
        self.guard()
        DeltaTable.forPath(self.spark, self.path(name)).optimize().executeCompaction()

    def vacuum(self, name: str, hours: float) -> None:
        """Remove files that the table has not needed for so long."""
        self.guard()
        DeltaTable.forPath(self.spark, self.path(name)).vacuum(hours)

    def _write(self, name: str, rows: DataFrame, mode: str, where: str | None = None) -> None:
        writer = conform(rows, SCHEMAS[name], name).write.format("delta").mode(mode)
        by = _PARTITIONED.get(name, "date" if "date" in SCHEMAS[name].names else None)
        if by is not None:
            writer = writer.partitionBy(by)
        with self._commit(name) as before:
            if before < 0:
                # Killed before its first commit, Delta leaves data, and a log without any that it refuses ever after.
                delete_folder(self.folder / name)
                if name in _STATISTICS_COLUMNS:
                    writer = writer.option("delta.dataSkippingStatsColumns", _STATISTICS_COLUMNS[name])
            elif where is not None:
                writer = writer.option("replaceWhere", where)
            writer.save(self.path(name))

    @contextmanager
    def _commit(self, name: str) -> Iterator[int]:
        """Yield the number of the newest commit of a table, to which the block adds one.

        Raises TablesError where it is not found: Delta names commits by Java's digits and folders by Hadoop's settings,
        so that a commit may succeed in a place where nobody finds it.
        """
        self.guard()
        before = self.version(name)
        if before < 0:
            self.note()  # what layout the tables have, before there is one
        yield before
        found = self.version(name)
        if found != before + 1:
            raise TablesError(
                f"{self.folder / name / '_delta_log'} must have commit {before + 1} now, and its newest one is "
                f"{found}: what this run wrote is lost. A setting of Java, Hadoop or Spark leads the job elsewhere, or "
                "another program writes to these tables: end that, then run `topic-liveness rollup --rebuild`"
            )
        made = self.notes().get("made", ())
        if name not in made:
            self.note(made=sorted({name, *made}))

    def put_as_of(self, name: str, rows: DataFrame, as_of: datetime) -> None:
        """Put ``rows`` in the place of those with the same ``as_of``, which are few or none, in one commit."""
        noted = self.notes().get(f"{name}_as_of")
        if noted is not None and as_of <= datetime.fromisoformat(noted):
            self.replace_where(name, rows, f"as_of = timestamp'{as_of.isoformat()}'")
            return
        # Before the rows: after a crash between both the next run looks for rows to replace, and there are none.
        self.note(**{f"{name}_as_of": as_of.isoformat()})
        self.append(name, rows)

    def exists(self, name: str) -> bool:
        """Return whether the table was ever written. Raises TablesError where its log is damaged or lost."""
        return self.version(name) >= 0

    def version(self, name: str) -> int:
        """Return the number of a table's newest commit, -1 where it was never written.

        Raises TablesError where its log is damaged or lost.
        """
        commits = files_in(self.folder / name / "_delta_log", _COMMIT)
        if name not in self._whole:
            self._require_log(name, sorted(commits, key=lambda commit: commit.path.name))
            self._whole.add(name)
        return max((int(commit.path.stem) for commit in commits), default=-1)

    def _require_log(self, name: str, commits: Sequence[FileInfo]) -> None:
        """Refuse a table that lost its log, or has a commit that a power cut left empty: to Delta both are no rows."""
        folder = self.folder / name
        if not commits and name in self.notes().get("made", ()):
            raise TablesError(
                f"{folder} must have a _delta_log, and has none: restore {folder} from a backup, or move all of "
                f"{self.folder} away; {_AGAIN}"
            )
        empty = [commit for commit in commits if not commit.size]
        if not empty:
            return
        lost = empty[0].path
        advice = (
            f"move {lost.stem}* and .{lost.stem}* away from there, and {self.folder / 'ingested.json'} too, "
            "then run `topic-liveness rollup --rebuild`: it takes in again all that the spool still has"
        )
        if empty != commits[-1:]:
            advice = f"restore {self.folder} from a backup, or move it away; {_AGAIN}"
        raise TablesError(f"{lost} is empty, as after a power cut, and what it added would be lost: {advice}")

    def path(self, name: str) -> str:
        """Return where the table is."""
        return spark_uri(self.folder / name)

    def notes(self) -> dict[str, Any]:
        """Return what runs noted beside the tables. Raises TablesError where another release made them."""
        path = self.folder / "notes.json"
        try:
            found = json.loads(read_text(path))
        except FileNotFoundError:
            # Before a table has any file its layout is noted.
            found = {"layout": None if any(files_below(self.folder / name, _ANY) for name in SCHEMAS) else LAYOUT}
        except ValueError:
            found = None
        if isinstance(found, dict) and found.get("layout") == LAYOUT:
            return found
        raise TablesError(
            f"{self.folder} was made by another release: {path} must state layout {LAYOUT}. Run the release that made "
            f"it, or move {self.folder} away; {_AGAIN}"
        )

    def note(self, **changes: str | int | Sequence[str] | None) -> None:
        """Keep on disk what later runs need to know; None is as if it had never been noted."""
        notes = {name: value for name, value in (self.notes() | changes).items() if value is not None}
        make_folder(self.folder)
        write_whole(self.folder / "notes.json", json.dumps(notes) + "\n")

    def windows_from(self, today: date) -> date | None:
        """Return the UTC day from which windows are kept, None where none was ever deleted.

        A day to come was noted by a clock that was ahead, and counts for nothing.
        """
        noted = self.notes().get("windows_from")
        day = None if noted is None else date.fromisoformat(noted)
        return None if day is None or day > today else day

    def names(self) -> list[str]:
        """Return the tables that were ever written."""
        return [name for name in SCHEMAS if self.exists(name)]

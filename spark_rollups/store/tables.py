"""The Delta tables of one history folder: where they are, how they are read and replaced."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime
from pathlib import Path
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType

from exporter.storage.files import (
    Location,
    delete_folder,
    files_below,
    files_in,
    make_folder,
    spark_uri,
)
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

LAYOUT = 7
"""The layout of the tables, and of what is noted beside them. A release reads its own alone."""

_PARTITIONED = {"baselines": "week", "maxima": "week_ended"}
"""Beside those with a ``date``, which are partitioned by it."""

_STATISTICS_COLUMNS = {"windows": "window_start,window_end"}
"""The columns for which Delta keeps the range of each file, so that a query for a day skips files of other days."""

_COMMIT = re.compile(r"[0-9]{20}\.json")
_DATA = re.compile(r".*\.parquet")

_COMMIT_NOTE = "spark.databricks.delta.commitInfo.userMetadata"

_AGAIN = "the next rollup makes all tables from the spool"


class TablesError(KnownError):
    """The tables cannot be used; the text names the folder, what is wrong with it and the next step."""


class Tables:
    """The tables below ``<history>/tables``, each made when it is first needed."""

    def __init__(self, spark: SparkSession, history: Location) -> None:
        self.spark = spark
        self.run = uuid.uuid4().hex
        """The id of this run. Its commits to tables name it."""
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

    def count(self, name: str) -> int:
        """Return how many rows the table holds."""
        return self.read(name).count() if self.exists(name) else 0

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
        before = self._before_commit(name)
        DeltaTable.forPath(self.spark, self.path(name)).delete(where)
        self._require_commit(name, before + 1)

    def compact(self, name: str) -> None:
        """Put small files of a table together, in one commit or none."""
        before = self._before_commit(name)
        done = DeltaTable.forPath(self.spark, self.path(name)).optimize().executeCompaction()
        if done.select("metrics.numFilesAdded").collect()[0][0]:
            self._require_commit(name, before + 1)

    def vacuum(self, name: str, hours: float) -> None:
        """Remove files that the table has not needed for so long."""
        self.guard()
        DeltaTable.forPath(self.spark, self.path(name)).vacuum(hours)

    def _write(self, name: str, rows: DataFrame, mode: str, where: str | None = None) -> None:
        writer = conform(rows, SCHEMAS[name], name).write.format("delta").mode(mode)
        by = _PARTITIONED.get(name, "date" if "date" in SCHEMAS[name].names else None)
        if by is not None:
            writer = writer.partitionBy(by)
        before = self._before_commit(name)
        if before < 0:
            # Killed before its first commit, Delta leaves data, and a log without any that it refuses ever after.
            self.note(begun=name)
            delete_folder(self.folder / name)
            if name in _STATISTICS_COLUMNS:
                writer = writer.option("delta.dataSkippingStatsColumns", _STATISTICS_COLUMNS[name])
        elif where is not None:
            writer = writer.option("replaceWhere", where)
        writer.save(self.path(name))
        self._require_commit(name, before + 1)
        if before < 0:
            self._note_made(name)

    def _before_commit(self, name: str) -> int:
        """Have the next commit of the session name this run; return the number of the newest one."""
        self.guard()
        self.spark.conf.set(_COMMIT_NOTE, f"run {self.run}")
        return self.version(name)

    def _require_commit(self, name: str, version: int) -> None:
        """Raise TablesError where the log of the table has no commit of this run under its number.

        Delta names commits by Java's digits and folders by Hadoop's settings: a commit may succeed in a place where
        nobody finds it.
        """
        commit = self.folder / name / "_delta_log" / f"{version:020}.json"
        with suppress(FileNotFoundError):
            if f"run {self.run}" in read_text(commit):
                return
        raise TablesError(
            f"{commit.parent} has no commit {commit.name} of this run, and Delta reported one: what this run wrote is "
            "lost. A setting of Java, Hadoop or Spark leads the job elsewhere, or another program writes to these "
            "tables: end that, then run `topic-liveness rollup --rebuild`"
        )

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
        if name not in self._whole:
            self._require_whole_log(name)
        commits = files_in(self.folder / name / "_delta_log", _COMMIT)
        if name not in self._whole and not commits:
            self._require_never_made(name)
        self._whole.add(name)
        return max((int(commit.path.stem) for commit in commits), default=-1)

    def _require_never_made(self, name: str) -> None:
        """Refuse a table that lost its log, except where a run was killed in the first commit of the table."""
        folder, notes = self.folder / name, self.notes()
        if notes.get("begun") == name or (name not in notes.get("made", ()) and not files_below(folder, _DATA)):
            return
        raise TablesError(
            f"{folder} must have a _delta_log, and has none: restore {folder} from a backup, or move all of "
            f"{self.folder} away; {_AGAIN}"
        )

    def _note_made(self, name: str) -> None:
        """Keep on disk that the table has its first commit."""
        self.note(begun=None, made=sorted({name, *self.notes().get("made", ())}))

    def _require_whole_log(self, name: str) -> None:
        """Refuse a commit that a power cut left empty: to Delta its rows were never there."""
        if not isinstance(self.folder, Path):
            return  # object storage has a commit whole or not at all
        commits = sorted((self.folder / name / "_delta_log").glob("[0-9]*.json"))
        empty = [commit for commit in commits if not commit.stat().st_size]
        if not empty:
            return
        advice = (
            f"move {empty[0].stem}* and .{empty[0].stem}* away from there, and {self.folder / 'ingested.json'} too, "
            "then run `topic-liveness rollup --rebuild`: it takes in again all that the spool still has"
        )
        if empty != commits[-1:]:
            advice = f"restore {self.folder} from a backup, or move it away; {_AGAIN}"
        raise TablesError(f"{empty[0]} is empty, as after a power cut, and what it added would be lost: {advice}")

    def remove_begun(self) -> None:
        """Remove what a run left that was killed in the first commit of a table. No other run may write meanwhile."""
        begun = self.notes().get("begun")
        if begun is None:
            return
        self.guard()
        if self.exists(begun):
            self._note_made(begun)
        else:
            delete_folder(self.folder / begun)
            self.note(begun=None)

    def path(self, name: str) -> str:
        """Return where the table is."""
        return spark_uri(self.folder / name)

    def notes(self) -> dict[str, Any]:
        """Return what runs noted beside the tables. Raises TablesError where another release made them."""
        path = self.folder / "notes.json"
        try:
            found = json.loads(read_text(path))
        except FileNotFoundError:
            logs = (self.folder / name / "_delta_log" for name in SCHEMAS)
            found = {"layout": None if any(files_in(log, _COMMIT) for log in logs) else LAYOUT}
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

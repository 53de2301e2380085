"""The Delta tables of one history folder: where they are, how they are read and replaced."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from exporter.storage import (
    Location,
    Stored,
    delete,
    delete_folder,
    file_info,
    files_below,
    files_in,
    make_folder,
    spark_uri,
)
from spark_rollups import schemas, spool_schemas
from spark_rollups.conform import conform, conform_here
from spark_rollups.delta_commit import Change, Where, can_commit, commit_here
from spark_rollups.delta_log import Log, read_log, read_whole, version_of
from spark_rollups.durable import read_text, write_whole
from spark_rollups.frames import as_arrow, computed_once, count, held_here, in_own_process, no_rows

SCHEMAS: Mapping[str, StructType] = {
    "windows": spool_schemas.WINDOWS,
    "coverage": spool_schemas.COVERAGE,
    "inventory": spool_schemas.INVENTORY,
    "relations": spool_schemas.RELATIONS,
    "ingested_files": spool_schemas.INGESTED_FILES,
    "daily": schemas.DAILY,
    "streams": schemas.STREAMS,
    "drops": schemas.DROPS,
    "baselines": schemas.BASELINES,
    "maxima": schemas.MAXIMA,
    "calibration": schemas.CALIBRATION,
    "verdicts": schemas.VERDICTS,
}
"""The columns of each table."""

LAYOUT = 4
"""The layout of the tables that are made of others; it is in ``layout.json`` beside them."""

_MADE = ("hourly", "yardsticks", "daily", "streams", "drops", "baselines", "maxima")
"""Tables, of this layout and earlier ones, that are made again where the layout is another one."""

_PARTITIONED = {"baselines": "week", "maxima": "week_ended"}
"""Beside those with a ``date``, which are partitioned by it."""

_STATISTICS_COLUMNS = {"windows": "window_start,window_end"}
"""The columns for which Delta keeps the range of each file, so that a query for a day skips files of other days."""

_DEFAULTS = "spark.databricks.delta.properties.defaults."
"""The Spark settings that give properties to new tables begin so."""

_COMMIT = re.compile(r"[0-9].*\.json")
_BEGUN = re.compile(r".*\.begun")
_DATA = re.compile(r".*\.parquet")

_COMMIT_NOTE = "spark.databricks.delta.commitInfo.userMetadata"

_AGAIN = "the next rollup makes all tables from the spool"


_Found = TypeVar("_Found")


class TablesError(Exception):
    """The tables cannot be used; the text names the folder, what is wrong with it and the next step."""


@dataclass(slots=True)
class _Held:
    """All rows of a table as of its newest commit, or of one without any."""

    newest: Stored | None
    rows: pa.Table
    frame: DataFrame | None = None
    """The rows for Spark, made when they are first read: it takes longer than most other work on few rows."""


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
        self._held: dict[str, _Held] = {}

    @cached_property
    def _settings(self) -> Mapping[str, str]:
        """The settings with which Spark was started."""
        return dict(self.spark.sparkContext.getConf().getAll())

    @contextmanager
    def named_commits(self) -> Iterator[None]:
        """Within this context every commit of the session to a Delta table names this run."""
        self.spark.conf.set(_COMMIT_NOTE, f"run {self.run}")
        try:
            yield
        finally:
            self.spark.conf.unset(_COMMIT_NOTE)

    def read(self, name: str) -> DataFrame:
        """Return the present table; one that was never written is empty."""
        newest = self._newest(name)
        held = self._held.get(name)
        if held is not None and held.newest == newest:
            if held.frame is None:
                held.frame = held_here(self.spark, held.rows, SCHEMAS[name])
            return held.frame
        alone = in_own_process(self.spark)
        rows = no_rows(self.spark, SCHEMAS[name]) if newest is None else None
        if rows is None and alone:
            rows = self._by_log(name)
        if rows is None:
            rows = self._by_delta(name)
        # A table that an earlier version made may lack columns that may be null.
        lacking = [field for field in SCHEMAS[name].fields if field.nullable and field.name not in rows.columns]
        if lacking:
            rows = rows.withColumns({field.name: F.lit(None).cast(field.dataType) for field in lacking})
        if alone:
            rows = computed_once(rows)
            self._held[name] = _Held(newest, as_arrow(rows), rows)
        return rows

    def _by_delta(self, name: str) -> DataFrame:
        return self.spark.read.format("delta").load(self.path(name))

    def _by_log(self, name: str) -> DataFrame | None:
        """Return the table as this process reads it itself, None where Delta must, also to name an error."""
        whole = self._read_here(name, read_whole)
        return None if whole is None else held_here(self.spark, *whole)

    def log(self, name: str) -> Log | None:
        """Return the content of a small table's log, None where it is left to Delta."""
        return self._read_here(name, read_log) if in_own_process(self.spark) else None

    def _read_here(self, name: str, read: Callable[[Location], _Found | None]) -> _Found | None:
        try:
            return read(self.folder / name)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, pa.ArrowException):
            return None

    def count(self, name: str) -> int:
        """Return how many rows the table holds."""
        return count(self.read(name))

    def append(self, name: str, rows: DataFrame) -> None:
        """Add ``rows`` in one commit. Raises TablesError where data is there, but no log of it."""
        self._write(name, rows, "append")

    def replace(self, name: str, rows: DataFrame) -> None:
        """Put ``rows`` in the place of all that the table holds, in one commit."""
        self._write(name, rows, "overwrite")

    def replace_where(self, name: str, rows: DataFrame, where: Where) -> None:
        """Put ``rows`` in the place of those that meet ``where``, in one commit."""
        there = self.exists(name)
        self._write(name, rows, "overwrite" if there else "append", where if there else None)

    def delete(self, name: str, where: Column) -> None:
        """Delete the rows that meet ``where``, in one commit. The table was written before."""
        self.guard()
        DeltaTable.forPath(self.spark, self.path(name)).delete(where)

    def _write(self, name: str, rows: DataFrame, mode: str, where: Where | None = None) -> None:
        self.guard()
        here = conform_here(rows, SCHEMAS[name], name) if in_own_process(self.spark) else None
        before = self._newest(name)
        after = None if here is None else self._with_others(name, before, here, mode, where)
        if first := before is None:
            self._begin(name)
        if here is None or not self._commit_here(name, here, mode, where, after, first=first):
            rows = conform(rows, SCHEMAS[name], name)
            self._commit_by_delta(name, rows if here is None else rows.coalesce(1), mode, where, first=first)
        if first:
            delete(self._beginning(name))
        newest = self._newest(name)
        if after is not None and version_of(newest) == version_of(before) + 1:  # else another program wrote too
            self._held[name] = _Held(newest, after)

    def _commit_here(
        self, name: str, rows: pa.Table, mode: str, where: Where | None, after: pa.Table | None, *, first: bool
    ) -> bool:
        """Commit rows that this process holds; return whether that was possible."""
        if not can_commit(self.folder, self._settings):
            return False
        by, note, follows = _partitioned_by(name), f"run {self.run}", None
        if after is not None and where is not None and where.column != by:  # the rows that go share files with others
            rows, mode, where, follows = after, "overwrite", None, version_of(self._held[name].newest)
        change = Change(rows, SCHEMAS[name], by, mode == "overwrite", where, note, follows)
        try:
            return commit_here(self.folder / name, change, _new_properties(name, self._settings) if first else {})
        except FileExistsError as error:
            raise TablesError(
                f"{error.filename} was written by another program while this run was about to: run it again"
            ) from error

    def _commit_by_delta(self, name: str, rows: DataFrame, mode: str, where: Where | None, *, first: bool) -> None:
        writer = rows.write.format("delta").mode(mode).option("mergeSchema", "true")
        if first and name in _STATISTICS_COLUMNS:
            writer = writer.option("delta.dataSkippingStatsColumns", _STATISTICS_COLUMNS[name])
        if where is not None:
            writer = writer.option("replaceWhere", where.sql)
        if (by := _partitioned_by(name)) is not None:
            writer = writer.partitionBy(by)
        writer.save(self.path(name))

    def _with_others(
        self, name: str, newest: Stored | None, rows: pa.Table, mode: str, where: Where | None
    ) -> pa.Table | None:
        """Return all that the table holds once ``rows`` are written; None where its other rows are not held here."""
        held = self._held.get(name)
        if newest is None or (mode == "overwrite" and where is None):
            return rows
        if held is None or held.newest != newest:
            return None
        others = held.rows
        if where is not None:
            others = others.filter(pc.invert(pc.fill_null(where.mask(others), False)))
        return pa.concat_tables([others.select(rows.column_names).cast(rows.schema), rows])

    def put_as_of(self, name: str, rows: DataFrame, as_of: datetime) -> None:
        """Replace the rows with the same ``as_of``, which are few or none, by ``rows``."""
        where = Where("as_of", (as_of,))
        if not self.exists(name) or self.read(name).where(where.sql).isEmpty():
            self.append(name, rows)
        else:
            self.replace_where(name, rows, where)

    def exists(self, name: str) -> bool:
        """Return whether the table was ever written. Raises TablesError where its log is damaged or lost."""
        return self._newest(name) is not None

    def _newest(self, name: str) -> Stored | None:
        """Return the newest commit of a table, None where it was never written. Raises TablesError as ``exists``."""
        if name not in self._whole:
            self._require_whole_log(name)
        commits = files_in(self.folder / name / "_delta_log", _COMMIT)
        if name not in self._whole and not commits:
            self._require_no_data(name)
        self._whole.add(name)
        return max(commits, key=lambda commit: commit.name, default=None)

    def _require_no_data(self, name: str) -> None:
        """Refuse data that no log lists, except where a run was killed in the first commit of the table."""
        folder = self.folder / name
        if not files_below(folder, _DATA) or file_info(self._beginning(name)) is not None:
            return
        advice = f"move {self.folder} away; {_AGAIN}"
        if name in _MADE:
            advice = (
                f"move {folder} away and run `topic-liveness rollup --rebuild`, which makes this table again from the "
                "windows that are still kept"
            )
        raise TablesError(
            f"{folder} must have a _delta_log beside its data files, and has none: restore it from a backup, or "
            f"{advice}"
        )

    def _require_whole_log(self, name: str) -> None:
        """Refuse a commit that a power cut left empty: to Delta its rows were never there."""
        if not isinstance(self.folder, Path):
            return  # object storage has a commit whole or not at all
        commits = sorted((self.folder / name / "_delta_log").glob("[0-9]*.json"))
        empty = [commit for commit in commits if not commit.stat().st_size]
        if not empty:
            return
        advice = (
            f"move {empty[0].stem}* and .{empty[0].stem}* away from there, then run `topic-liveness rollup --rebuild`: "
            "it takes in again what the spool still has, and says so where that is not all"
        )
        if empty != commits[-1:]:
            advice = f"restore {self.folder} from a backup, or move it away; {_AGAIN}"
        raise TablesError(f"{empty[0]} is empty, as after a power cut, and what it added would be lost: {advice}")

    def _begin(self, name: str) -> None:
        """Make way for the first commit of a table, be it that a run was killed in the middle of it."""
        # Killed before its first commit, Delta leaves data, and a log without any that it refuses ever after.
        make_folder(self.folder)
        write_whole(self._beginning(name), f"run {self.run} began {name}\n")
        delete_folder(self.folder / name)

    def _beginning(self, name: str) -> Location:
        """Return the note that there is while the first commit of a table is written."""
        return self.folder / f"{name}.begun"

    def path(self, name: str) -> str:
        """Return where the table is."""
        return spark_uri(self.folder / name)

    def layout(self) -> int:
        """Return the layout of the tables, 0 where the note of it is damaged.

        Raises TablesError where a newer release made them.
        """
        note = self.folder / "layout.json"
        try:
            found = int(json.loads(read_text(note))["layout"])
        except FileNotFoundError:
            return 1
        except (ValueError, KeyError, TypeError):
            return 0
        if found > LAYOUT:
            raise TablesError(
                f"{self.folder} has layout {found} and this release knows {LAYOUT}: run this with the release that "
                f"made it, or move {self.folder} away; {_AGAIN}"
            )
        return found

    def of_earlier_layout(self) -> dict[Location, bool]:
        """Return the folders of tables of an earlier layout that are made of others, and whether each still reads."""
        if self.layout() == LAYOUT:
            return {}
        there = [name for name in _MADE if files_below(self.folder / name, _DATA)]
        return {self.folder / name: name in SCHEMAS and self._reads(name) for name in there}

    def _reads(self, name: str) -> bool:
        """Return whether a table has the columns of this layout, but for some that may be null."""
        if not self.exists(name):
            return False  # a run was killed in its first commit
        found = {field.name: field.dataType for field in self.spark.read.format("delta").load(self.path(name)).schema}
        return all(
            found[field.name].simpleString() == field.dataType.simpleString() if field.name in found else field.nullable
            for field in SCHEMAS[name].fields
        )

    def note_layout(self, windows_from: date | None) -> None:
        """Keep on disk which layout the tables have, and from which UTC day on windows are kept."""
        make_folder(self.folder)
        content = {"layout": LAYOUT, **({} if windows_from is None else {"windows_from": windows_from.isoformat()})}
        write_whole(self.folder / "layout.json", json.dumps(content) + "\n")

    def windows_from(self) -> date | None:
        """Return the recorded UTC day from which windows are kept, None where none is recorded."""
        try:
            day = json.loads(read_text(self.folder / "layout.json")).get("windows_from")
            return None if day is None else date.fromisoformat(day)
        except (OSError, ValueError, AttributeError, TypeError):
            return None

    def data_files(self, name: str) -> list[Stored]:
        """Return the data files in the folder of a table, also those that it needs no more."""
        found = files_below(self.folder / name, _DATA)
        return [file for file in found if file.path.parent.name != "_delta_log"]

    def names(self) -> list[str]:
        """Return the tables that were ever written."""
        there = [name for name in SCHEMAS if self.exists(name)]
        for note in files_in(self.folder, _BEGUN):
            if note.path.stem in there:
                delete(note.path)  # its run was killed right after the commit
        return there


def _new_properties(name: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that Delta gives a new table of this name, by the settings of Spark."""
    properties = {
        f"delta.{key.removeprefix(_DEFAULTS)}": value for key, value in settings.items() if key.startswith(_DEFAULTS)
    }
    if name in _STATISTICS_COLUMNS:
        properties["delta.dataSkippingStatsColumns"] = _STATISTICS_COLUMNS[name]
    return properties


def _partitioned_by(name: str) -> str | None:
    """Return the column by which a table is partitioned."""
    return _PARTITIONED.get(name, "date" if "date" in SCHEMAS[name].names else None)

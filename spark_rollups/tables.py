"""The Delta tables of one history folder: where they are, how they are read and replaced."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date, datetime
from pathlib import Path

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from exporter.storage.files import (
    Location,
    delete,
    delete_folder,
    file_info,
    files_below,
    files_in,
    make_folder,
    spark_uri,
)
from spark_rollups import schemas
from spark_rollups.durable import read_text, write_whole
from spark_rollups.frames import KEEPS_TABLES, Where, no_rows


class SchemaMismatchError(ValueError):
    """Rows do not have the columns of the table they are meant for."""


def conform(rows: DataFrame, schema: StructType, name: str = "table") -> DataFrame:
    """Return ``rows`` with exactly the columns of ``schema``, in its order.

    Nothing is cast: a missing column or another type raises SchemaMismatchError with every problem
    at once. A null in a required column fails the running query, naming ``name`` and the column. Further columns of
    ``rows`` are dropped.
    """
    found = {field.name: field for field in rows.schema.fields}
    problems, columns = [], []
    for field in schema.fields:
        there = found.get(field.name)
        if there is None:
            problems.append(f"column {field.name} is missing")
            continue
        kind, wanted = there.dataType.simpleString(), field.dataType.simpleString()
        if kind != wanted:
            problems.append(f"column {field.name} must be {wanted}, got {kind}")
        column = F.col(field.name)
        if not field.nullable and there.nullable:
            column = F.coalesce(column, F.raise_error(F.lit(f"{name}.{field.name} must not be null"))).alias(field.name)
        columns.append(column)
    if problems:
        raise SchemaMismatchError(f"{name}: {'; '.join(problems)}")
    return rows.select(*columns)


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

LAYOUT = 5
"""The layout of the tables; it is in ``layout.json`` beside them."""

_MADE = ("daily", "streams", "drops", "baselines", "maxima")
"""Tables that are made again where the layout is an earlier one."""

_PARTITIONED = {"baselines": "week", "maxima": "week_ended"}
"""Beside those with a ``date``, which are partitioned by it."""

_STATISTICS_COLUMNS = {"windows": "window_start,window_end"}
"""The columns for which Delta keeps the range of each file, so that a query for a day skips files of other days."""

_COMMIT = re.compile(r"[0-9]{20}\.json")
_BEGUN = re.compile(r".*\.begun")
_DATA = re.compile(r".*\.parquet")

_COMMIT_NOTE = "spark.databricks.delta.commitInfo.userMetadata"

_AGAIN = "the next rollup makes all tables from the spool"


class TablesError(Exception):
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
        self._reads: dict[str, tuple[int, DataFrame]] = {}
        """Tables that were read or written, each with its version then."""
        self._keeps = spark.conf.get(KEEPS_TABLES, "false") == "true"

    @contextmanager
    def name_commits(self) -> Iterator[None]:
        """Within this context every commit of the session to a Delta table names this run."""
        self.spark.conf.set(_COMMIT_NOTE, f"run {self.run}")
        try:
            yield
        finally:
            self.spark.conf.unset(_COMMIT_NOTE)

    def read(self, name: str) -> DataFrame:
        """Return the present table; one that was never written is empty."""
        version = self.version(name)
        if version < 0:
            return no_rows(self.spark, SCHEMAS[name])
        held = self._reads.get(name)
        if held is not None and held[0] == version:
            return held[1]
        rows = self.spark.read.format("delta").load(self.path(name))
        # A table that an earlier version made may lack columns that may be null.
        lacking = [field for field in SCHEMAS[name].fields if field.nullable and field.name not in rows.columns]
        rows = rows.withColumns({field.name: F.lit(None).cast(field.dataType) for field in lacking})
        return self._keep(name, version, rows)

    def _keep(self, name: str, version: int, rows: DataFrame) -> DataFrame:
        if self._keeps:
            self._reads[name] = version, rows.persist()
        return rows

    def count(self, name: str) -> int:
        """Return how many rows the table holds."""
        return self.read(name).count()

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
        """Delete the rows that meet ``where``, of which there are some, in one commit."""
        with self._read_back(name):
            DeltaTable.forPath(self.spark, self.path(name)).delete(where)

    def _write(self, name: str, rows: DataFrame, mode: str, where: Where | None = None) -> None:
        rows = conform(rows, SCHEMAS[name], name)
        rows = rows.persist() if self._keeps else rows
        writer = rows.write.format("delta").mode(mode).option("mergeSchema", "true")
        if where is not None:
            writer = writer.option("replaceWhere", where.sql)
        by = _PARTITIONED.get(name, "date" if "date" in SCHEMAS[name].names else None)
        if by is not None:
            writer = writer.partitionBy(by)
        with self._read_back(name) as before:
            first = before < 0
            if first:
                self._begin(name)
                if name in _STATISTICS_COLUMNS:
                    writer = writer.option("delta.dataSkippingStatsColumns", _STATISTICS_COLUMNS[name])
            writer.save(self.path(name))
        if first:
            delete(self._beginning(name))
        version, others = self._reads.pop(name, (-1, None))
        if first or (mode == "overwrite" and where is None):
            self._keep(name, before + 1, rows)
        elif others is not None and version == before:
            left = others if where is None else others.where(f"not ({where.sql})")
            self._keep(name, before + 1, left.select(rows.columns).unionByName(rows))

    @contextmanager
    def _read_back(self, name: str) -> Iterator[int]:
        """Yield the newest version. Raise TablesError where the log of the table has no later one afterwards.

        Delta names commits by Java's digits and folders by Hadoop's settings: a commit may succeed in a place where
        nobody finds it.
        """
        self.guard()
        before = self.version(name)
        yield before
        if self.version(name) <= before:
            raise TablesError(
                f"{self.folder / name / '_delta_log'} has no commit {before + 1:020}.json, and Delta reported one: "
                "what this run wrote is lost. A setting of Java, Hadoop or Spark leads the job elsewhere: remove it, "
                "then run `topic-liveness rollup --rebuild`"
            )

    def put_as_of(self, name: str, rows: DataFrame, as_of: datetime) -> None:
        """Replace the rows with the same ``as_of``, which are few or none, by ``rows``."""
        where = Where("as_of", (as_of,))
        if not self.exists(name) or self.read(name).where(where.sql).isEmpty():
            self.append(name, rows)
        else:
            self.replace_where(name, rows, where)

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
            self._require_no_data(name)
        self._whole.add(name)
        return max((int(commit.path.stem) for commit in commits), default=-1)

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
            f"move {empty[0].stem}* and .{empty[0].stem}* away from there, and {self.folder / 'ingested.json'} too, "
            "then run `topic-liveness rollup --rebuild`: it takes in again all that the spool still has"
        )
        if empty != commits[-1:]:
            advice = f"restore {self.folder} from a backup, or move it away; {_AGAIN}"
        raise TablesError(f"{empty[0]} is empty, as after a power cut, and what it added would be lost: {advice}")

    def _begin(self, name: str) -> None:
        # Killed before its first commit, Delta leaves data, and a log without any that it refuses ever after.
        make_folder(self.folder)
        write_whole(self._beginning(name), f"run {self.run} began {name}\n")
        delete_folder(self.folder / name)

    def _beginning(self, name: str) -> Location:
        return self.folder / f"{name}.begun"

    def path(self, name: str) -> str:
        """Return where the table is."""
        return spark_uri(self.folder / name)

    def layout(self) -> int:
        """Return the layout of the tables, 0 where the note of it is lost or damaged.

        Raises TablesError where a newer release made them.
        """
        try:
            found = int(json.loads(read_text(self.folder / "layout.json"))["layout"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return 0
        if found > LAYOUT:
            raise TablesError(
                f"{self.folder} has layout {found} and this release knows {LAYOUT}: run this with the release that "
                f"made it, or move {self.folder} away; {_AGAIN}"
            )
        return found

    def drop_outdated(self) -> bool:
        """Return whether tables that are made of others are of an earlier layout, and delete those that do not read.

        A table reads if it has the columns of this layout, but for some that may be null.
        """
        if self.layout() == LAYOUT:
            return False
        there = [name for name in _MADE if files_below(self.folder / name, _DATA)]
        for name in there:
            schema = self.spark.read.format("delta").load(self.path(name)).schema if self.exists(name) else StructType()
            found = {field.name: field.dataType.simpleString() for field in schema}
            wanted = SCHEMAS[name].fields
            if not all(found.get(one.name, one.nullable) in (True, one.dataType.simpleString()) for one in wanted):
                delete_folder(self.folder / name)
        return bool(there)

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

    def names(self) -> list[str]:
        """Return the tables that were ever written."""
        there = [name for name in SCHEMAS if self.exists(name)]
        for note in files_in(self.folder, _BEGUN):
            if note.path.stem in there:
                delete(note.path)  # its run was killed right after the commit
        return there

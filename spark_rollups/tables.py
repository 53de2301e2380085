"""The Delta tables of one history folder: where they are, how they are read and replaced."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spark_rollups import schemas

SCHEMAS: Mapping[str, StructType] = {
    "windows": schemas.WINDOWS,
    "coverage": schemas.COVERAGE,
    "inventory": schemas.INVENTORY,
    "relations": schemas.RELATIONS,
    "ingested_files": schemas.INGESTED_FILES,
    "hourly": schemas.HOURLY,
    "daily": schemas.DAILY,
    "yardsticks": schemas.YARDSTICKS,
    "maxima": schemas.MAXIMA,
    "calibration": schemas.CALIBRATION,
    "verdicts": schemas.VERDICTS,
}


class TablesError(Exception):
    """The tables cannot be used; the text names the folder, what is wrong with it and the next step."""


class Tables:
    """The tables below ``<history>/tables``, each made when it is first needed."""

    def __init__(self, spark: SparkSession, history: Path) -> None:
        self.spark = spark
        # Delta takes a relative path for the name of a catalog table, and refuses one with `..` in it.
        self.folder = history.resolve() / "tables"
        self._whole: set[str] = set()

    def read(self, name: str) -> DataFrame:
        """Return the table as it is now; one that was never written is empty."""
        if not self._exists(name):
            return self.spark.createDataFrame([], SCHEMAS[name])
        rows = self.spark.read.format("delta").load(self._path(name))
        # A table that an earlier version made may lack columns that may be null.
        lacking = [field for field in SCHEMAS[name].fields if field.nullable and field.name not in rows.columns]
        return rows.withColumns({field.name: F.lit(None).cast(field.dataType) for field in lacking})

    def count(self, name: str) -> int:
        """Return how many rows the table holds."""
        return self.read(name).count()

    def merge_new(self, name: str, rows: DataFrame, same: str) -> None:
        """Add those ``rows`` of which the table holds none yet that is the ``same``.

        ``same`` is a SQL condition over ``old`` and ``new``. Adding the same rows twice changes nothing.
        """
        if not self._exists(name):
            self.append(name, rows)
            return
        rows = schemas.conform(rows, SCHEMAS[name], name)
        table = DeltaTable.forPath(self.spark, self._path(name))
        table.alias("old").merge(rows.alias("new"), same).whenNotMatchedInsertAll().execute()

    def append(self, name: str, rows: DataFrame) -> None:
        """Add ``rows`` in one commit. Raises TablesError where data is there, but no log of it."""
        rows = schemas.conform(rows, SCHEMAS[name], name)
        if not self._exists(name):
            self._make(name)
        rows.write.format("delta").mode("append").option("mergeSchema", "true").save(self._path(name))

    def replace_where(self, name: str, rows: DataFrame, where: str) -> None:
        """Put ``rows`` in the place of those that meet ``where``, in one commit."""
        if not self._exists(name):
            self.append(name, rows)
            return
        rows = schemas.conform(rows, SCHEMAS[name], name)
        writer = rows.write.format("delta").mode("overwrite").option("replaceWhere", where)
        writer.option("mergeSchema", "true").save(self._path(name))

    def put_as_of(self, name: str, rows: DataFrame, as_of: datetime) -> None:
        """Put ``rows`` in the place of those of the same ``as_of``, which are few or none."""
        if self.read(name).where(F.col("as_of") == F.lit(as_of)).isEmpty():
            self.append(name, rows)
        else:
            self.replace_where(name, rows, f"as_of = timestamp'{as_of.isoformat()}'")

    def _exists(self, name: str) -> bool:
        if name not in self._whole:
            self._require_whole_log(name)
            self._whole.add(name)
        return DeltaTable.isDeltaTable(self.spark, self._path(name))

    def _require_whole_log(self, name: str) -> None:
        """Refuse a commit that a power cut left empty: to Delta its rows were never there."""
        commits = sorted((self.folder / name / "_delta_log").glob("[0-9]*.json"))
        empty = [commit for commit in commits if not commit.stat().st_size]
        if not empty:
            return
        advice = (
            f"move {empty[0].stem}* and .{empty[0].stem}* away from there, then run `topic-liveness rollup --rebuild`: "
            "it takes in again what the spool still has, and says so where that is not all"
        )
        if empty != commits[-1:]:
            advice = (
                f"restore {self.folder} from a backup, or move it away; all tables are then made again of what is in "
                "the spool"
            )
        raise TablesError(f"{empty[0]} is empty, as after a power cut, and what it added would be lost: {advice}")

    def _make(self, name: str) -> None:
        folder = self.folder / name
        if any(folder.rglob("*.parquet")):
            raise TablesError(
                f"{folder} must have a _delta_log beside its data files, and has none: restore it from a backup, or "
                f"move {self.folder} away; all tables are then made again of what is in the spool"
            )
        if not any(folder.glob("_delta_log/*.json")):
            # Killed before its first commit, Delta leaves a log without any, and refuses that ever after.
            shutil.rmtree(folder, ignore_errors=True)
        schema = SCHEMAS[name]
        builder = DeltaTable.createIfNotExists(self.spark).location(self._path(name)).addColumns(schema)
        if "date" in schema.names:
            builder = builder.partitionedBy("date")
        builder.execute()

    def _path(self, name: str) -> str:
        return str(self.folder / name)

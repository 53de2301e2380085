"""What keeps the tables small: rows past their retention deleted, small files put together, old files removed.

Once a week, after all else. The ledger is cut first: it never says that a table holds more than it does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

from delta.tables import DeltaTable
from pyspark.sql import functions as F

from exporter.domain.retention import KEPT_DAYS
from exporter.storage import Location, listed
from spark_rollups.durable import read_text, write_whole
from spark_rollups.learning import week_of
from spark_rollups.schemas import INGESTED_FILES
from spark_rollups.tables import Tables

_BY_RUN = ("calibration", "contradictions", "verdicts")
_DATED_BY = {"baselines": "week", "maxima": "week_ended", **dict.fromkeys(_BY_RUN, "as_of")}
_APPENDED = ("windows", "coverage", "inventory", "relations", "ingested_files", *_BY_RUN)
_SPOOL_FILE = re.compile(r".*\.parquet")
_SPOOLED = ("windows", "coverage", "inventory", "relations")


@dataclass(frozen=True, slots=True)
class Retention:
    """For how many days rows are kept, by table, and for how many hours files that no table needs any more."""

    days: Mapping[str, float] = field(default_factory=lambda: dict(KEPT_DAYS))
    file_hours: float = 7 * 24.0


def is_due(tables: Tables, moment: datetime) -> bool:
    """Tell whether a week has begun since the last time; the first run only notes its week."""
    week = week_of(moment.astimezone(UTC).date())
    path = tables.folder / "upkeep.json"
    try:
        last = int(json.loads(read_text(path))["week"])
    except (OSError, ValueError, KeyError, TypeError):
        note(tables, moment)
        return False
    return last < week


def note(tables: Tables, moment: datetime) -> None:
    """Keep on disk that the tables were kept up in the week of a moment."""
    week = week_of(moment.astimezone(UTC).date())
    write_whole(tables.folder / "upkeep.json", json.dumps({"week": week}) + "\n")


def keep_up(tables: Tables, history: Location, moment: datetime, retention: Retention) -> str:
    """Delete, put together and remove; return what was done, in words."""
    deleted = []
    for name, days in retention.days.items():
        cutoff = (moment - timedelta(days=days)).astimezone(UTC).date()
        if tables.exists(name) and _drop(tables, history, name, cutoff):
            deleted.append(name)
    for name in _APPENDED:
        if tables.exists(name):
            DeltaTable.forPath(tables.spark, tables.path(name)).optimize().executeCompaction()
    for name in tables.names():
        DeltaTable.forPath(tables.spark, tables.path(name)).vacuum(retention.file_hours)
    return f"rows past their retention deleted from {', '.join(deleted)}" if deleted else "nothing past its retention"


def _drop(tables: Tables, history: Location, name: str, cutoff: date) -> bool:
    """Delete what is dated before a UTC day; tell whether there was any."""
    dated = F.to_date(_DATED_BY.get(name, "date"))
    rows = tables.read(name)
    if rows.where(dated < F.lit(cutoff)).isEmpty():
        return False
    if name in _SPOOLED:
        _cut_ledger(tables, history, name, rows.where(dated >= F.lit(cutoff)).count())
    if name == "windows":
        tables.note_windows_from(cutoff)
    DeltaTable.forPath(tables.spark, tables.path(name)).delete(dated < F.lit(cutoff))
    return True


def _cut_ledger(tables: Tables, history: Location, name: str, count: int) -> None:
    """Forget files that the exporter has deleted, and how many rows the table once held."""
    there = {file.path.name for file in listed(history / "spool" / name, _SPOOL_FILE)}
    ledger = tables.read("ingested_files").collect()
    rows = [tuple(row) for row in ledger if row.table != name]
    rows += [(name, row.file, row.rows, count) for row in ledger if row.table == name and row.file in there]
    rows.append((name, "", 0, count))
    tables.replace("ingested_files", tables.spark.createDataFrame(rows, INGESTED_FILES).coalesce(1))

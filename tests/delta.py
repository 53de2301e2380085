"""Delta tables as their logs tell of them. Without Spark: to it, reading a history is as much work as a rollup."""

import json
from collections.abc import Collection, Iterable, Mapping
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_rollups.spark.frames import arrow_schema
from spark_rollups.store.tables import LAYOUT, SCHEMAS

Row = SimpleNamespace
"""A row of a table: its columns by name, moments in UTC."""


def commits(history: Path, name: str = "*") -> set[Path]:
    """Return the files of all commits to tables of a history, or to one of them."""
    return set(history.glob(f"tables/{name}/_delta_log/[0-9]*.json"))


def present(table: Path) -> Collection[Mapping[str, Any]]:
    """The files that make up a table, as its log has them; one that was never written has none."""
    files = dict[str, Mapping[str, Any]]()
    logged = sorted(table.glob("_delta_log/[0-9]*.json"))
    assert [int(commit.stem) for commit in logged] == list(range(len(logged))), f"{table} lacks a commit"
    for action in (json.loads(line) for commit in logged for line in commit.read_text().splitlines()):
        if removed := action.get("remove"):
            files.pop(removed["path"], None)
        if added := action.get("add"):
            files[added["path"]] = added
    return files.values()


def rows_of(history: Path, name: str) -> list[Row]:
    """Return all rows of a table of a history; one that was never written has none."""
    columns, found = arrow_schema(SCHEMAS[name]), list[Row]()
    for file in present(history / "tables" / name):
        content = pq.ParquetFile(history / "tables" / name / unquote(file["path"])).read()
        rows = content.cast(pa.schema([columns.field(one) for one in content.column_names])).to_pylist()
        days = {key: date.fromisoformat(value) for key, value in file["partitionValues"].items()}
        found += [Row(**{**dict.fromkeys(columns.names), **row, **days}) for row in rows]
    return found


def in_order(rows: Iterable[Row]) -> list[str]:
    """Return rows as text, in order."""
    return sorted(str(sorted(vars(row).items())) for row in rows)


class Size(NamedTuple):
    """What a table holds now."""

    rows: int
    files: int


def table_size(table: Path) -> Size:
    """Return what a Delta table holds now, by its log."""
    files = present(table)
    return Size(sum(json.loads(file["stats"])["numRecords"] for file in files), len(files))


def active_hours(daily: Path) -> int:
    """Return how many hours of partitions the daily table calls active."""
    counted = 0
    for file in present(daily):
        rows = pq.read_table(daily / unquote(file["path"]), columns=["partition", "first_ms"])
        counted += sum(map(len, rows.filter(pc.is_valid(rows["partition"]))["first_ms"]))
    return counted


def note_upkeep(history: Path) -> None:
    """Let the next rollup do the weekly upkeep, which prints most."""
    change_notes(history, upkeep_week=0)


def change_notes(history: Path, **changes: object) -> None:
    """Change what is noted beside the tables."""
    notes = history / "tables" / "notes.json"
    notes.parent.mkdir(exist_ok=True)
    before = json.loads(notes.read_text()) if notes.exists() else {"layout": LAYOUT}
    changed = notes.with_name("notes.new")  # an S3 server keeps the checksum of an object beside its file
    changed.write_text(json.dumps({**before, **changes}))
    changed.replace(notes)

"""Delta tables as their logs tell of them. Without Spark: to it, reading a history is as much work as a rollup."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq

Row = SimpleNamespace
"""A row of a table: its columns by name, moments in UTC."""


def present(table: Path) -> Collection[dict[str, Any]]:
    """The files that make up a table, as its log has them; the log is younger than any checkpoint's clean-up."""
    files: dict[str, dict[str, Any]] = {}
    for commit in sorted((table / "_delta_log").glob("[0-9]*.json")):
        for line in commit.read_text(encoding="utf-8").splitlines():
            action = json.loads(line)
            if "remove" in action:
                files.pop(action["remove"]["path"], None)
            if "add" in action:
                files[action["add"]["path"]] = action["add"]
    return files.values()


def rows_of(history: Path, name: str) -> list[Row]:
    """Return all rows of a table of a history; one that was never written has none."""
    rows = list[Row]()
    table = history / "tables" / name
    for file in present(table):
        assert not file.get("deletionVector"), "this reads whole files"
        parts = {column: date.fromisoformat(value) for column, value in file["partitionValues"].items()}
        rows += [Row(**parts | row) for row in pq.ParquetFile(table / unquote(file["path"])).read().to_pylist()]
    return rows


def in_order(rows: Iterable[Row]) -> list[str]:
    """Return rows as text, in order."""
    return sorted(str(sorted(vars(row).items())) for row in rows)

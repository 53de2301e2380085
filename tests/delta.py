"""Delta tables as their logs tell of them. Without Spark: to it, reading a history is as much work as a rollup.

The reader is the product's; ``tests/spark/test_delta_log.py`` holds it to what Delta reads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from spark_rollups.delta_log import read_log, read_whole

Row = SimpleNamespace
"""A row of a table: its columns by name, moments in UTC."""


def present(table: Path) -> Collection[Mapping[str, Any]]:
    """The files that make up a table, as its log has them; one that was never written has none."""
    if not (table / "_delta_log").is_dir():
        return []
    log = read_log(table)
    assert log is not None, f"{table} lacks a commit"
    return log.files.values()


def rows_of(history: Path, name: str) -> list[Row]:
    """Return all rows of a table of a history; one that was never written has none."""
    table = history / "tables" / name
    if not (table / "_delta_log").is_dir():
        return []
    whole = read_whole(table)
    assert whole is not None, f"{table} holds what Delta alone can read"
    return [Row(**row) for row in whole.rows.to_pylist()]


def in_order(rows: Iterable[Row]) -> list[str]:
    """Return rows as text, in order."""
    return sorted(str(sorted(vars(row).items())) for row in rows)

"""What a backfill found, as the objects that a person reads."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from exporter.backfill.cutoff import Request
from exporter.backfill.run import BackfillResult, Found
from exporter.backfill.spool_rows import inventory_rows, window_rows
from exporter.domain import Inventory, Window
from exporter.history.columns import Columns
from exporter.history.tables import table_of

T = TypeVar("T", Window, Inventory)


class Run(NamedTuple):
    """What a backfill wrote, and its result."""

    windows: list[Window]
    inventory: list[Inventory]
    result: BackfillResult


def windows_of(request: Request, found: Sequence[Found]) -> list[Window]:
    """Windows as they are written."""
    return _objects(Window, window_rows(request, found))


def inventory_of(request: Request, result: BackfillResult) -> list[Inventory]:
    """Partitions as they are written."""
    return _objects(Inventory, inventory_rows(request, result.inventory))


def _objects(kind: type[T], columns: Sequence[Columns]) -> list[T]:
    rows = table_of(columns).drop_columns(["schema_version"]).to_pylist() if columns else []
    return [kind(**{name: _seconds(value) for name, value in row.items()}) for row in rows]


def _seconds(value: Any) -> Any:
    return value.timestamp() if isinstance(value, datetime) else value

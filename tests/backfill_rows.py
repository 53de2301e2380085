"""What a backfill found, as the objects that a person reads."""

from collections.abc import Collection
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from exporter.backfill.cutoff import Cutoffs, Request, Stream
from exporter.backfill.run import Backfill, BackfillResult
from exporter.backfill.slot_search import Windows
from exporter.backfill.spool_rows import coverage_rows, inventory_rows, window_rows
from exporter.domain.history.rows import Coverage, Inventory, Window
from exporter.domain.ports import Clock, OffsetSource

T = TypeVar("T", Window, Inventory, Coverage)


class Run(NamedTuple):
    """What a backfill wrote, and its result."""

    windows: list[Window]
    inventory: list[Inventory]
    result: BackfillResult
    coverage: list[Coverage]


def run_backfill(
    source: OffsetSource, request: Request, clock: Clock, backfilled: Collection[Stream] = (), **given: Any
) -> Run:
    """Backfill, and return what was written."""
    windows: list[Window] = []
    inventory: list[Inventory] = []
    coverage: list[Coverage] = []

    def emit(cutoffs: Cutoffs, found: Windows) -> None:
        windows.extend(_objects(Window, window_rows(request, cutoffs, found)))
        inventory.extend(_objects(Inventory, inventory_rows(request, cutoffs)))
        coverage.extend(_objects(Coverage, coverage_rows(request, cutoffs)))

    result = Backfill(source, request, clock=clock, emit=emit, **given).run(backfilled)
    return Run(windows, inventory, result, coverage)


def _objects(kind: type[T], table: pa.Table) -> list[T]:
    rows = table.drop_columns(["schema_version"]).to_pylist()
    return [kind(**{name: _seconds(value) for name, value in row.items()}) for row in rows]


def _seconds(value: Any) -> Any:
    return value.timestamp() if isinstance(value, datetime) else value

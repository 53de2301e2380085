"""What a backfill found, as the objects that a person reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

import numpy as np

from exporter.backfill.cutoff import Cutoffs, Request
from exporter.backfill.run import Backfill, BackfillResult
from exporter.backfill.spool_rows import coverage_rows, inventory_rows, window_rows
from exporter.backfill.to_windows import Windows
from exporter.domain.arrays import Rows
from exporter.domain.history.rows import Coverage, Inventory, Window
from exporter.domain.history.stream_rows import FirstPolls, StreamRows
from exporter.domain.polls.readings import TopicPartition
from exporter.domain.ports import Clock, OffsetSource
from exporter.history.tables import Columns, table_of

T = TypeVar("T", Window, Inventory, Coverage)


class Stream(NamedTuple):
    """A partition of one topic id."""

    partition: TopicPartition
    topic_id: str | None


def first_polls_of(polls: Mapping[Stream, tuple[int, float]]) -> FirstPolls:
    """First polls, as end offset and time, in columns."""
    offsets, times = zip(*polls.values(), strict=True) if polls else ([], [])
    return FirstPolls(streams_of(polls), np.array(offsets, dtype=np.int64), np.array(times, dtype=np.float64))


def first_polls_by_stream(polls: FirstPolls) -> dict[Stream, tuple[int, float]]:
    """First polls in objects."""
    return dict(zip(each(polls.streams), zip(polls.end_offset.tolist(), polls.at.tolist(), strict=True), strict=True))


def streams_of(streams: Mapping[Stream, object]) -> StreamRows:
    """Streams in columns."""
    lives = [(stream.partition.topic, stream.topic_id) for stream in streams]
    return StreamRows.of(lives, [stream.partition.partition for stream in streams])


def each(streams: StreamRows) -> Iterator[Stream]:
    """Streams as objects."""
    for life, partition in zip(streams.life.tolist(), streams.partition.tolist(), strict=True):
        topic, topic_id = streams.lives[life]
        yield Stream(TopicPartition(topic, partition), topic_id)


class Run(NamedTuple):
    """What a backfill wrote, and its result."""

    windows: list[Window]
    inventory: list[Inventory]
    result: BackfillResult
    coverage: list[Coverage]


def run_backfill(
    source: OffsetSource, request: Request, clock: Clock, backfilled: StreamRows | None = None, **given: Any
) -> Run:
    """Backfill, and return what was written."""
    windows: list[Window] = []
    inventory: list[Inventory] = []
    coverage: list[Coverage] = []

    def emit(cutoffs: Cutoffs, found: Windows, rows: Rows) -> None:
        windows.extend(_objects(Window, [window_rows(request, cutoffs, found)]))
        inventory.extend(_objects(Inventory, [inventory_rows(request, cutoffs, rows)]))
        coverage.extend(_objects(Coverage, [coverage_rows(request, cutoffs, found, rows)]))

    result = Backfill(source, request, clock=clock, emit=emit, **given).run(backfilled)
    return Run(windows, inventory, result, coverage)


def _objects(kind: type[T], columns: Sequence[Columns]) -> list[T]:
    rows = table_of(columns).drop_columns(["schema_version"]).to_pylist()
    return [kind(**{name: _seconds(value) for name, value in row.items()}) for row in rows]


def _seconds(value: Any) -> Any:
    return value.timestamp() if isinstance(value, datetime) else value

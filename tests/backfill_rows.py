"""What a backfill found, as the objects that a person reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from exporter.backfill.cutoff import Request
from exporter.backfill.run import BackfillResult, Found
from exporter.backfill.spool_rows import inventory_rows, window_rows
from exporter.domain.history.backfill_plan import FirstPoll, Spans, Starts, WrittenStreams
from exporter.domain.history.rows import Inventory, Window
from exporter.domain.history.stream_rows import StreamRows
from exporter.domain.polls.readings import TopicPartition
from exporter.history.columns import Columns, table_of

T = TypeVar("T", Window, Inventory)


class Stream(NamedTuple):
    """A partition of one topic id."""

    partition: TopicPartition
    topic_id: str | None


class Written(NamedTuple):
    """A row of Spans."""

    start: float
    end: float
    end_offset: int
    polled: bool = False


def written_streams(written: Mapping[Stream, Written]) -> WrittenStreams:
    """What was written, in columns."""
    return WrittenStreams(_streams(written), Spans.of(*(zip(*written.values(), strict=True) if written else [()] * 4)))


def written_by_stream(written: WrittenStreams) -> dict[Stream, Written]:
    """What was written, in objects."""
    rows = zip(*(column.tolist() for column in written.spans.columns()), strict=True)
    return dict(zip(_each(written.streams), (Written(*row) for row in rows), strict=True))


def starts_of(starts: Mapping[Stream, tuple[int, float]]) -> Starts:
    """First polls in columns."""
    return Starts(_streams(starts), FirstPoll.of(*(zip(*starts.values(), strict=True) if starts else [()] * 2)))


def starts_by_stream(starts: Starts) -> dict[Stream, tuple[int, float]]:
    """First polls in objects."""
    first = zip(starts.first.end_offset.tolist(), starts.first.at.tolist(), strict=True)
    return dict(zip(_each(starts.streams), first, strict=True))


def _streams(streams: Mapping[Stream, object]) -> StreamRows:
    lives = [(stream.partition.topic, stream.topic_id) for stream in streams]
    return StreamRows.of(lives, [stream.partition.partition for stream in streams])


def _each(streams: StreamRows) -> Iterator[Stream]:
    for life, partition in zip(streams.life.tolist(), streams.partition.tolist(), strict=True):
        topic, topic_id = streams.lives[life]
        yield Stream(TopicPartition(topic, partition), topic_id)


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

"""Which part of each partition's history a backfill has written, and which is still missing. Pure functions on columns.

A backfill may be interrupted, run again, or run with another horizon. For each partition it has written one span of
time. The span grows at both ends: earlier with a longer horizon, later up to the first poll.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from exporter.domain.arrays import Flags, Floats, Offsets, Rows
from exporter.domain.column_set import ColumnSet
from exporter.domain.history.stream_rows import StreamRows

UNKNOWN = -1
"""A ``start_offset`` that is not known."""


@dataclass(frozen=True, slots=True, eq=False)
class Spans(ColumnSet):
    """Windows were written for every slot of [``start``, ``end``) that has records, up to ``end_offset``."""

    start: Floats
    end: Floats
    end_offset: Offsets
    """One past the last record that the windows cover."""
    polled: Flags
    """Polls begin at ``end`` and cover what follows."""

    @classmethod
    def of(
        cls, start: Sequence[float], end: Sequence[float], end_offset: Sequence[int], polled: Sequence[bool]
    ) -> Self:
        """Return lists as columns. Raises ValueError or TypeError for values of other types."""
        return cls(
            np.array(start, dtype=np.float64),
            np.array(end, dtype=np.float64),
            np.array(end_offset, dtype=np.int64),
            np.array(polled, dtype=np.bool_),
        )

    def same_as(self, others: Spans) -> Flags:
        """Return which rows are the same."""
        same: Flags = np.logical_and.reduce(
            [mine == other for mine, other in zip(self.columns(), others.columns(), strict=True)]
        )
        return same


class WrittenStreams:
    """Which span of each stream a backfill has written."""

    def __init__(self, streams: StreamRows, spans: Spans) -> None:
        """Row i of ``spans`` belongs to stream i."""
        self.streams, self.spans = streams, spans

    @classmethod
    def none(cls) -> WrittenStreams:
        """Return no streams, for a backfill that has not begun."""
        return cls(StreamRows.of([], []), Spans.of([], [], [], []))

    def __len__(self) -> int:
        return len(self.streams)

    @classmethod
    def joined(cls, batches: Sequence[WrittenStreams]) -> WrittenStreams:
        """Return the streams of all batches (at least one). If several have a stream, the last one counts."""
        streams = StreamRows.joined([batch.streams for batch in batches])
        spans = Spans.joined([batch.spans for batch in batches])
        last = streams.latest_rows()
        return cls(streams[last], spans[last])

    def about(self, streams: StreamRows) -> tuple[Flags, Spans]:
        """Return which streams have a written span, and these spans. Spans of the others are meaningless."""
        row = self.streams.find(streams)
        spans = self.spans if len(self) else Spans.of([0.0], [0.0], [0], [False])
        return row >= 0, spans[row]

    def changed_since(self, before: WrittenStreams) -> WrittenStreams:
        """Return the streams whose span differs from the one before."""
        known, spans = before.about(self.streams)
        changed = ~(known & self.spans.same_as(spans))
        return WrittenStreams(self.streams[changed], self.spans[changed])


@dataclass(frozen=True, slots=True, eq=False)
class FirstPoll(ColumnSet):
    """The end offset and the time (Unix seconds) of the first poll of each row."""

    end_offset: Offsets
    at: Floats

    @classmethod
    def of(cls, end_offset: Sequence[int], at: Sequence[float]) -> Self:
        """Return lists as columns."""
        return cls(np.array(end_offset, dtype=np.int64), np.array(at, dtype=np.float64))


class Starts:
    """The first poll of each stream that is polled."""

    def __init__(self, streams: StreamRows, first: FirstPoll) -> None:
        """Row i of ``first`` belongs to stream i."""
        self.streams, self.first = streams, first

    @classmethod
    def none(cls) -> Starts:
        """Return no streams, for a cluster that nobody polls."""
        return cls(StreamRows.of([], []), FirstPoll.of([], []))

    @classmethod
    def earliest(cls, batches: Sequence[Starts]) -> Starts:
        """Return the first poll of each stream in these batches (at least one)."""
        streams = StreamRows.joined([batch.streams for batch in batches])
        first = FirstPoll.joined([batch.first for batch in batches])
        latest_first = np.argsort(-first.at, kind="stable")
        streams, first = streams[latest_first], first[latest_first]
        rows = streams.latest_rows()
        return cls(streams[rows], first[rows])

    def about(self, streams: StreamRows) -> tuple[Flags, FirstPoll]:
        """Return which streams are polled, and their first polls. Those of the others are meaningless."""
        row = self.streams.find(streams)
        first = self.first if len(self.streams) else FirstPoll.of([0], [0.0])
        return row >= 0, first[row]


@dataclass(frozen=True, slots=True, eq=False)
class Stretches(ColumnSet):
    """Spans of history to write, at most one for each partition: [``start``, ``end``), in Unix seconds."""

    row: Rows
    """The partition, as a row of the scope."""
    start: Floats
    end: Floats
    end_offset: Offsets
    """One past the last record that the windows may cover."""
    start_offset: Offsets
    """The first record that the windows may cover, or UNKNOWN. Where known, late records count in the first slot."""
    before_written: Flags
    """History after it is already written: records dated ``end`` or later do not belong to this stretch."""
    restarted: Flags
    """Offsets started over since the last run."""


@dataclass(frozen=True, slots=True, eq=False)
class Scope(ColumnSet):
    """Partitions at their cutoff, and how far back their history is to be written."""

    start: Floats
    end: Floats
    earliest: Offsets
    end_offset: Offsets
    """One past the last record that polls do not cover."""
    polled: Flags


class Plan(NamedTuple):
    """What to search, and which span of each row is written afterwards."""

    rounds: tuple[Stretches, ...]
    """A partition's stretches are in different rounds, and follow one another in time."""
    written: Spans


def complete(known: Flags, written: Spans, start: Floats) -> Flags:
    """Return which rows are complete from ``start`` on: the backfill has written that, and polls cover the rest."""
    return known & written.polled & (written.start <= start)


def plan(scope: Scope, known: Flags, written: Spans, *, again: bool = False) -> Plan:
    """Return the stretches to write: those that are missing, and with ``again`` also those already written (``known``).

    Stretches of a partition never overlap. They are split where an earlier run ended, so that a rewrite gives the same
    windows. A stretch that cannot contain a record is left out.
    """
    every, no = np.arange(len(scope)), np.zeros(len(scope), dtype=np.bool_)
    start = np.where(known, np.minimum(scope.start, written.start), scope.start)
    grows = ~known | (~written.polled & (written.end < scope.end))
    # Truncated (unclean election), or created again on a broker without topic ids: offsets start over.
    restarted = known & grows & (scope.end_offset < written.end_offset)
    continued = np.where(known & ~restarted, np.maximum(written.end_offset, scope.earliest), UNKNOWN)
    earlier = Stretches(
        row=every,
        start=start,
        end=written.end if again else written.start,
        end_offset=np.minimum(written.end_offset, scope.end_offset) if again else written.end_offset,
        start_offset=np.full(len(scope), UNKNOWN, dtype=np.int64),
        before_written=np.full(len(scope), not again),
        restarted=no,
    )
    later = Stretches(
        row=every,
        start=np.where(known, written.end, scope.start),
        end=scope.end,
        end_offset=scope.end_offset,
        start_offset=continued.astype(np.int64),
        before_written=no,
        restarted=restarted,
    )
    two = known & ~restarted & (again | (start < written.start)) & _with_records(earlier, scope)
    last = grows & _with_records(later, scope)
    first = Stretches.joined([earlier[two], later[last & ~two]])
    rounds = first[np.argsort(first.row, kind="stable")], later[last & two]
    after = Spans(
        np.where(restarted, written.start, start),
        np.where(grows, scope.end, written.end),
        np.where(grows, scope.end_offset, written.end_offset),
        scope.polled | (known & written.polled),
    )
    return Plan(tuple(each for each in rounds if len(each)), after)


def _with_records(stretches: Stretches, scope: Scope) -> Flags:
    first = np.maximum(scope.earliest, stretches.start_offset)
    found: Flags = (stretches.start < stretches.end) & (first < stretches.end_offset)
    return found

"""One history interval of one cluster in columns: polls are folded in, and the result is rows of the spool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from exporter.domain.arrays import Codes, ColumnSet, Flags, Floats, Offsets, Rows
from exporter.domain.history.rows import Source, Window
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.metadata import Metadata
from exporter.domain.polls.readings import ANSWERED, REASONS
from exporter.domain.polls.table import Snapshot, Table
from exporter.history.tables import Column, look_up_names, make_nullable, spool_table

_PARTITION_BITS = 32


@dataclass(frozen=True, slots=True, eq=False)
class _Folded(ColumnSet):
    """The polls of one interval for n streams. Unknown is NaN, or marked by ``read``."""

    read: Flags
    """Whether a poll saw it advance or start over; elsewhere its offsets are invalid."""
    failures: NDArray[np.int32]
    """Polls that could not read it."""
    reason: Codes
    """The reason of the last failure, as a reason code."""
    records: Offsets
    first_advance: Floats
    last_advance: Floats
    resolution: Floats
    start_offset: Offsets
    end_offset: Offsets
    offset_regressions: NDArray[np.int32]

    def find_changed(self) -> Rows:
        """Return the streams with an advance, a fall or a failure."""
        return np.flatnonzero(self.read | (self.failures > 0))

    def fold_unread(self, streams: Rows, table: Table, rows: Rows) -> None:
        """Fold in a poll that could not read these rows, each of one of ``streams``."""
        self.failures[streams] += 1
        self.reason[streams] = np.where(table.unread[rows] > ANSWERED, table.unread[rows], self.reason[streams])

    def fold_read(self, streams: Rows, table: Table, rows: Rows, at: float, moved: Floats) -> None:
        """Fold in a good poll at ``at``, at which these rows advanced or started over.

        ``moved`` is by how many seconds the clock was set since the previous advance of each row.
        """
        gained = table.advanced_by[rows]
        advanced = gained > 0
        first = ~self.read[streams]
        self.start_offset[streams[first]] = (table.latest[rows] - gained)[first]
        self.read[streams] = True
        self.end_offset[streams] = table.latest[rows]
        self.offset_regressions[streams] += table.restarted[rows] & ~advanced
        self.records[streams] += gained
        streams, rows = streams[advanced], rows[advanced]
        resolution = np.maximum(0.0, at - table.previous_poll[rows]) + moved[rows]
        self.resolution[streams] = np.fmax(self.resolution[streams], resolution)
        self.first_advance[streams] = np.fmin(self.first_advance[streams], at)
        self.last_advance[streams] = at


class _StreamNumbers:
    """Numbers for partitions, by topic id: a topic that is created again has another id."""

    def __init__(self) -> None:
        self.topics: dict[tuple[str, str | None], int] = {}
        """(name, id) -> the number of the topic in this life."""
        self._keys = np.zeros(0, dtype=np.int64)

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def topic(self) -> Rows:
        """[n]: the number of each stream's topic."""
        return self._keys >> _PARTITION_BITS

    @property
    def partition(self) -> NDArray[np.int64]:
        """[n]: the number of each stream's partition."""
        return self._keys & ((1 << _PARTITION_BITS) - 1)

    def number(self, layout: Layout, topic_ids: Sequence[str | None]) -> Rows:
        """Return the stream of each row, including new ones; ``topic_ids`` are by topic of the layout."""
        lives = zip(layout.topics, topic_ids, strict=True)
        numbers = [self.topics.setdefault(life, len(self.topics)) for life in lives]
        wanted = (np.array(numbers, dtype=np.int64)[layout.topic] << _PARTITION_BITS) | layout.partition
        unseen = wanted[~np.isin(wanted, self._keys)]
        self._keys = np.concatenate([self._keys, unseen])
        order = np.argsort(self._keys)
        return order[np.searchsorted(self._keys, wanted, sorter=order)]


@dataclass(slots=True, eq=False)
class OpenWindow:
    """The polls of one cluster in the open history interval."""

    start: float
    end: float
    last_poll: float
    behind: bool = False
    """Whether the clock is behind earlier rows: no silence is proved then."""
    last_good_poll: float | None = None
    by_new_clock: list[pa.Table] = field(default_factory=list)
    """Advances from before the clock was set, by the new clock."""
    _folded: _Folded = field(default_factory=lambda: _Folded.blank(0))
    _streams: _StreamNumbers = field(default_factory=_StreamNumbers)
    _stream: Rows = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    """The stream of each row, of the last layout and metadata."""
    _metadata: Metadata | None = None
    _layout: Layout | None = None
    _listed_polls: int = 0
    """Polls that listed the partitions, also those that could read none of them."""

    def __len__(self) -> int:
        """Return the number of streams with anything to write."""
        return len(self._folded.find_changed())

    def fold(self, snapshot: Snapshot, moved: Floats) -> None:
        """Fold in one good poll.

        ``moved`` is by how many seconds the clock was set since the previous advance of each row.
        """
        table = snapshot.table
        if snapshot.metadata is not self._metadata or table.layout is not self._layout:
            self._number(snapshot)
        unread = np.flatnonzero(~table.read)
        self._folded.fold_unread(self._stream[unread], table, unread)
        rows = np.flatnonzero(table.read & ((table.advanced_by > 0) | table.restarted))
        self._folded.fold_read(self._stream[rows], table, rows, snapshot.taken_at, moved)
        self._listed_polls += 1
        if not len(table) or len(unread) < len(table):
            self.last_good_poll = snapshot.taken_at

    def _number(self, snapshot: Snapshot) -> None:
        layout, topics = snapshot.table.layout, snapshot.metadata.topics
        self._stream = self._streams.number(layout, [topics[name].topic_id for name in layout.topics])
        new = len(self._streams) - len(self._folded)
        self._folded = _Folded.concatenate([self._folded, _Folded.blank(new)])
        self._metadata, self._layout = snapshot.metadata, layout

    def rows(self, cluster: str, exporter: str, end: float) -> pa.Table:
        """Return the window of each stream with anything to write.

        They end at ``end``, sorted by topic, partition and topic id, after rows for a clock that was set.
        """
        folded = self._folded
        streams = folded.find_changed()
        topic, partition = self._streams.topic[streams], self._streams.partition[streams]
        names, ids = zip(*self._streams.topics, strict=True) if self._streams.topics else ((), ())
        of_name, of_id = _places(names)[topic], _places([one or "" for one in ids])[topic]
        order = np.lexsort((of_id, partition, of_name))
        streams, topic, partition, of_name = streams[order], topic[order], partition[order], of_name[order]
        # A poll that failed for an earlier topic of this name did not see this one either.
        _, which = np.unique((of_name << _PARTITION_BITS) | partition, return_inverse=True)
        failures = np.bincount(which, folded.failures[streams])[which].astype(np.int64)
        unread = ~folded.read[streams]
        columns: dict[str, Column] = {
            "cluster": cluster,
            "topic": look_up_names(names, topic),
            "topic_id": look_up_names(ids, topic),
            "partition": partition,
            "window_start": self.start,
            "window_end": end,
            "exporter": exporter,
            "source": Source.POLL.value,
            "polls_ok": self._listed_polls - failures,
            "records": folded.records[streams],
            "first_advance": folded.first_advance[streams],
            "last_advance": folded.last_advance[streams],
            "resolution_seconds": folded.resolution[streams],
            "start_offset": make_nullable(folded.start_offset[streams], unread),
            "end_offset": make_nullable(folded.end_offset[streams], unread),
            "future_timestamps": 0,
            "offset_regressions": folded.offset_regressions[streams],
            "reason": look_up_names(REASONS, folded.reason[streams].astype(np.intp) - 1),
        }
        return pa.concat_tables([*self.by_new_clock, spool_table(Window, len(streams), columns)])


def _places(names: Sequence[str]) -> Rows:
    places = {name: place for place, name in enumerate(sorted(set(names)))}
    return np.array([places[name] for name in names], dtype=np.intp)

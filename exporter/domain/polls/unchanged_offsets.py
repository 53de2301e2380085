"""Since when end offsets are unchanged, as an earlier life of the exporter saw them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Flags, Floats, Offsets, Rows
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.readings import TopicPartition


class UnchangedOffset(NamedTuple):
    """A partition's end offset before the restart of the exporter, and since when it was unchanged."""

    topic_id: str | None
    end_offset: int
    since: float
    """Unix seconds of a poll with this end offset; when it was reached is unknown."""


class UnchangedOffsets(Mapping[TopicPartition, UnchangedOffset]):
    """The unchanged end offsets of one cluster, in columns; an UnchangedOffset is created on access."""

    def __init__(
        self,
        layout: Layout,
        topic_ids: Sequence[str | None],
        topic_id: NDArray[np.int64],
        end_offset: Offsets,
        since: Floats,
    ) -> None:
        """``topic_id`` [n] are indices into ``topic_ids``; all columns have a row for each partition of the layout."""
        self._layout, self._topic_ids, self._topic_id = layout, topic_ids, topic_id
        self.end_offset, self.since = end_offset, since

    @classmethod
    def nothing(cls) -> UnchangedOffsets:
        """Return no offsets, for a cluster that was never polled before."""
        none = np.zeros(0, dtype=np.int64)
        return cls(Layout((), (), none.astype(np.int32)), (), none, none, np.zeros(0))

    def rows_in(self, layout: Layout) -> Rows:
        """Return the row that each has in this layout; -1 where it is not there."""
        return layout.find(self._layout.topics, self._layout.topic, self._layout.partition)

    def is_of(self, rows: Rows, topic_ids: Mapping[str, str | None]) -> Flags:
        """Return which of some rows are of the topic that has this id, and not of an earlier one of that name."""
        numbers = {each: number for number, each in enumerate(self._topic_ids)}
        topics, place = np.unique(self._layout.topic[rows], return_inverse=True)
        wanted = [numbers.get(topic_ids[self._layout.topics[topic]], -1) for topic in topics.tolist()]
        same: Flags = np.array(wanted, dtype=np.int64)[place] == self._topic_id[rows]
        return same

    def part(self, rows: Rows) -> UnchangedOffsets:
        """Return some rows, which are in order."""
        if not len(rows):
            return UnchangedOffsets.nothing()
        return UnchangedOffsets(
            self._layout.part(rows), self._topic_ids, self._topic_id[rows], self.end_offset[rows], self.since[rows]
        )

    def __getitem__(self, key: TopicPartition) -> UnchangedOffset:
        row = self._layout.row(key)
        if row is None:
            raise KeyError(key)
        topic_id = self._topic_ids[self._topic_id[row]]
        return UnchangedOffset(topic_id, int(self.end_offset[row]), float(self.since[row]))

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._layout)

    def __len__(self) -> int:
        return len(self._layout)

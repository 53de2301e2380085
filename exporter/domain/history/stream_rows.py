"""Partitions by topic id, and the row of each in a history's tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Flags, Floats, Offsets, Rows
from exporter.domain.polls.layout import Layout

Life: TypeAlias = tuple[str, str | None]
"""Name and id of a topic. One that is deleted and created again has another id."""


class StreamRows:
    """One row for each stream, a partition of one topic id, in any order."""

    __slots__ = ("life", "lives", "partition")

    def __init__(self, lives: Sequence[Life], life: Rows, partition: NDArray[np.int32]) -> None:
        """``life`` [n] are indices into the distinct ``lives``, ``partition`` [n] the partition numbers."""
        self.lives, self.life, self.partition = lives, life, partition

    @classmethod
    def of(cls, lives: Iterable[Life], partitions: Sequence[int]) -> StreamRows:
        """Return the streams with these names, ids and partition numbers."""
        numbers: dict[Life, int] = {}
        life = [numbers.setdefault(each, len(numbers)) for each in lives]
        return cls(list(numbers), np.array(life, dtype=np.intp), np.array(partitions, dtype=np.int32))

    @classmethod
    def of_layout(cls, layout: Layout, topic_ids: Sequence[str | None]) -> StreamRows:
        """Return a stream for each row of a layout; ``topic_ids`` are by topic."""
        return cls(list(zip(layout.topics, topic_ids, strict=True)), layout.topic, layout.partition)

    def __len__(self) -> int:
        return len(self.life)

    def __getitem__(self, rows: Rows | Flags) -> StreamRows:
        return StreamRows(self.lives, self.life[rows], self.partition[rows])

    def find(self, others: StreamRows) -> Rows:
        """Return the row of each of ``others``, -1 where it has none."""
        numbers = {life: number for number, life in enumerate(self.lives)}
        number = np.array([numbers.get(life, -1) for life in others.lives], dtype=np.int64)[others.life]
        if not len(self) or not len(others):
            return np.full(len(others), -1, dtype=np.intp)
        known, wanted = self._keys(self.life), others._keys(number)
        order = np.argsort(known, kind="stable")
        at = order[np.maximum(np.searchsorted(known, wanted, side="right", sorter=order) - 1, 0)]
        return np.where((number >= 0) & (known[at] == wanted), at, -1).astype(np.intp)

    def _keys(self, life: NDArray[np.int64] | Rows) -> NDArray[np.int64]:
        keys: NDArray[np.int64] = (life.astype(np.int64) << 32) | self.partition
        return keys


@dataclass(frozen=True, slots=True, eq=False)
class FirstPolls:
    """The first poll of each stream that is polled: the end offset that it found, and its time in Unix seconds."""

    streams: StreamRows
    end_offset: Offsets
    at: Floats

    @classmethod
    def none(cls) -> FirstPolls:
        """Return those of a cluster that nobody polls."""
        return cls(StreamRows.of([], []), np.zeros(0, dtype=np.int64), np.zeros(0))

    def about(self, streams: StreamRows) -> tuple[Flags, Offsets, Floats]:
        """Return which streams are polled, and their first polls. Those of the others are meaningless."""
        row = self.streams.find(streams)
        # The row that is added is the one that -1 means.
        return row >= 0, np.append(self.end_offset, 0)[row], np.append(self.at, 0.0)[row]

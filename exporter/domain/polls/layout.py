"""The rows of the partitions of a cluster: the index of all columns."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Rows
from exporter.domain.polls.readings import TopicPartition

NO_LEADER = -1
"""The broker id of a partition without a usable leader."""


class Layout:
    """One row for each partition, sorted by topic and partition, so that a topic is a range of rows.

    Rows stay the same as long as no partition is added or removed; ``moves_from`` then carries columns over.
    """

    __slots__ = ("_index", "first", "partition", "topic", "topics")

    def __init__(self, topics: Iterable[str], counts: Iterable[int], partition: NDArray[np.int32]) -> None:
        """``topics`` are sorted names, ``counts`` the rows of each, and ``partition`` [n] the partition numbers."""
        self.topics = tuple(topics)
        each = np.fromiter(counts, dtype=np.intp, count=len(self.topics))
        self.first: Rows = np.concatenate([[0], np.cumsum(each)]).astype(np.intp)
        """[topics + 1]: the rows of topic i are ``first[i]`` up to ``first[i + 1]``."""
        self.partition = partition
        self.topic: Rows = np.repeat(np.arange(len(self.topics), dtype=np.intp), each)
        """[n]: the number of each row's topic."""
        self._index = {name: number for number, name in enumerate(self.topics)}

    @classmethod
    def build(cls, partitions: Mapping[str, Iterable[int]]) -> Self:
        """Return the layout of topic name -> partition numbers, in any order."""
        numbered = {name: sorted(partitions[name]) for name in sorted(partitions)}
        numbers = [number for of_topic in numbered.values() for number in of_topic]
        return cls(numbered, map(len, numbered.values()), np.array(numbers, dtype=np.int32))

    def __len__(self) -> int:
        return len(self.partition)

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Layout)
            and self.topics == other.topics
            and np.array_equal(self.first, other.first)
            and np.array_equal(self.partition, other.partition)
        )

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[type[Self], tuple[tuple[str, ...], Rows, NDArray[np.int32]]]:
        """Pickle what the other columns follow from."""
        return type(self), (self.topics, np.diff(self.first), self.partition)

    def __iter__(self) -> Iterator[TopicPartition]:
        for topic, number in zip(self.topic.tolist(), self.partition.tolist(), strict=True):
            yield TopicPartition(self.topics[topic], number)

    def number_of(self, topic: str) -> int | None:
        """Return the number of a topic, None where it is unknown."""
        return self._index.get(topic)

    def rows_of(self, topic: str) -> slice:
        """Return the rows of a topic. Raises KeyError where it is unknown."""
        number = self._index[topic]
        return slice(int(self.first[number]), int(self.first[number + 1]))

    def row(self, key: TopicPartition) -> int | None:
        """Return the row of a partition, None where it is unknown."""
        number = self._index.get(key.topic)
        if number is None:
            return None
        start, end = self.first[number], self.first[number + 1]
        at = int(start + np.searchsorted(self.partition[start:end], key.partition))
        return at if at < end and self.partition[at] == key.partition else None

    def key(self, row: int) -> TopicPartition:
        """Return the partition of a row."""
        return TopicPartition(self.topics[self.topic[row]], int(self.partition[row]))

    def find(self, topics: Sequence[str], topic: NDArray[np.integer[Any]], partition: NDArray[np.int32]) -> Rows:
        """Return the row of each partition, -1 where it is not here; ``topic`` has indices into ``topics``."""
        if not len(self) or not len(topic):
            return np.full(len(topic), -1, dtype=np.intp)
        numbers = np.array([self._index.get(name, -1) for name in topics], dtype=np.int64)[topic]
        wanted = (numbers << 32) | partition
        known = (self.topic.astype(np.int64) << 32) | self.partition
        at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        return np.where((numbers >= 0) & (known[at] == wanted), at, -1).astype(np.intp)

    def part(self, rows: Rows) -> Self:
        """Return the layout of some rows, which are in order and each given once."""
        topics, counts = np.unique(self.topic[rows], return_counts=True)
        return type(self)([self.topics[number] for number in topics.tolist()], counts.tolist(), self.partition[rows])

    def join(self, rows: Rows, other: Self, others: Rows) -> tuple[Self, Rows]:
        """Return a layout of these rows and of ``others`` of another layout, which have no partition in common.

        All topics of this one stay. The second is where each row comes from: a row here, or ``len(self)`` and a row of
        the other one.
        """
        added = {other.topics[number] for number in np.unique(other.topic[others]).tolist()}
        topics = self.topics if added <= self._index.keys() else tuple(sorted(added | self._index.keys()))
        number = {name: place for place, name in enumerate(topics)}
        here = np.array([number[name] for name in self.topics], dtype=np.int64)
        there = np.array([number.get(name, -1) for name in other.topics], dtype=np.int64)
        topic = np.concatenate([here[self.topic[rows]], there[other.topic[others]]])
        partition = np.concatenate([self.partition[rows], other.partition[others]])
        # Stable: two sequences that are sorted already are merged in a single pass.
        order = np.argsort((topic << 32) | partition, kind="stable")
        counts = np.bincount(topic, minlength=len(topics)).tolist()
        return type(self)(topics, counts, partition[order]), np.concatenate([rows, len(self) + others])[order]

    def reduce(self, function: np.ufunc, values: NDArray[Any], otherwise: Any) -> NDArray[Any]:
        """Return ``function`` (as ``np.maximum``) of the rows of each topic; ``otherwise`` where it has none."""
        found = np.full(len(self.topics), otherwise, values.dtype)
        filled = np.flatnonzero(np.diff(self.first))
        if len(filled):
            found[filled] = function.reduceat(values, self.first[:-1][filled])
        return found

    def moves_from(self, before: Self) -> tuple[Rows, Rows]:
        """Return the rows of partitions of both layouts, here and in ``before``."""
        there = before.find(self.topics, self.topic, self.partition)
        here = np.flatnonzero(there >= 0)
        return here, there[here]

"""What inspections found of the partitions of a cluster, as columns; sums and counts of topics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Flags, Floats, Rows
from exporter.domain.layout import Layout
from exporter.domain.readings import Inspected, Producers, TopicPartition


class Counts(NamedTuple):
    """Whole numbers, and where they are known; elsewhere they are invalid."""

    value: NDArray[np.int64]
    known: Flags


class _Results(Protocol):
    """Results for one partition, as ``Inspected`` has them."""

    @property
    def producers(self) -> Producers | None: ...

    @property
    def log_bytes(self) -> int | None: ...

    @property
    def disk_bytes(self) -> int | None: ...


class ProducerIds(NamedTuple):
    """Ids of producers: the rows that they write to, in order, and the ids."""

    row: Rows
    id: NDArray[np.int64]

    def of(self, row: int) -> frozenset[int]:
        """Return the ids of one row."""
        start, end = np.searchsorted(self.row, [row, row + 1])
        return frozenset(self.id[start:end].tolist())


class OfTopic(NamedTuple):
    """The values of one topic; None where unknown. Sizes are in bytes, times Unix seconds."""

    log_bytes: int | None = None
    disk_bytes: int | None = None
    producers: int | None = None
    open_transactions: int | None = None
    last_write: float | None = None
    open_since: float | None = None


@dataclass(frozen=True, slots=True)
class OfTopics:
    """The values of topics as the union of their partitions, by topic: only those known of all partitions."""

    log_bytes: Counts
    disk_bytes: Counts
    producers: Counts
    open_transactions: Counts
    last_write: Floats
    open_since: Floats

    def topic(self, number: int) -> OfTopic:
        """Return one topic as an object."""
        counts = (self.log_bytes, self.disk_bytes, self.producers, self.open_transactions)
        moments = (self.last_write, self.open_since)
        return OfTopic(*(_whole(each, number) for each in counts), *(_moment(each[number]) for each in moments))


@dataclass(frozen=True, eq=False)
class Inspections(Mapping[TopicPartition, Inspected]):
    """The results for n partitions, each a column [n] by ``layout``; an Inspected is created on access.

    Without slots, to keep the values of topics.
    """

    layout: Layout
    there: Flags
    """Whether an inspection knew the partition; elsewhere a row is invalid."""
    log_bytes: Counts
    disk_bytes: Counts
    producers_known: Flags
    last_write: Floats
    open_since: Floats
    producers: ProducerIds
    open_transactions: ProducerIds

    @classmethod
    def of(cls, layout: Layout, found: Mapping[TopicPartition, Inspected]) -> Inspections:
        """Return results as columns; those of partitions that are not in the layout are left out."""
        inspected = [(row, each) for key, each in found.items() if (row := layout.row(key)) is not None]
        inspected.sort(key=lambda one: one[0])
        rows = np.array([row for row, _ in inspected], dtype=np.intp)
        return cls.by_row(layout, rows, [each for _, each in inspected])

    @classmethod
    def by_row(cls, layout: Layout, rows: Rows, found: Sequence[_Results]) -> Inspections:
        """Return the results of ``rows``, which are in order and each given once, as columns."""
        writers = [(row, each.producers) for row, each in zip(rows, found, strict=True) if each.producers is not None]
        writer_rows = np.array([row for row, _ in writers], dtype=np.intp)
        last_write, open_since = np.full(len(layout), np.nan), np.full(len(layout), np.nan)
        last_write[writer_rows] = np.array([each.last_write for _, each in writers], dtype=np.float64)
        open_since[writer_rows] = np.array([each.open_since for _, each in writers], dtype=np.float64)
        return cls(
            layout,
            _flags(layout, rows),
            _counts(layout, rows, [each.log_bytes for each in found]),
            _counts(layout, rows, [each.disk_bytes for each in found]),
            _flags(layout, writer_rows),
            last_write,
            open_since,
            _ids(writer_rows, [each.ids for _, each in writers]),
            _ids(writer_rows, [each.open_transactions for _, each in writers]),
        )

    def laid_out(self, layout: Layout, sizes: Flags, producers: Flags) -> Inspections:
        """Return the same by another layout, with sizes and producers of those of its rows for which these are True."""
        here, there = layout.moves_from(self.layout)
        writer = np.full(len(self.layout), -1, dtype=np.intp)
        writer[there] = np.where(producers[there], here, -1)
        return Inspections(
            layout,
            _moved(self.there, here, there, len(layout), fill=False),
            _moved_counts(self.log_bytes, sizes, here, there, len(layout)),
            _moved_counts(self.disk_bytes, sizes, here, there, len(layout)),
            _moved(self.producers_known & producers, here, there, len(layout), fill=False),
            _moved(np.where(producers, self.last_write, np.nan), here, there, len(layout), fill=np.nan),
            _moved(np.where(producers, self.open_since, np.nan), here, there, len(layout), fill=np.nan),
            _moved_ids(self.producers, writer),
            _moved_ids(self.open_transactions, writer),
        )

    @cached_property
    def of_topics(self) -> OfTopics:
        """The values of topics."""
        producers = self._known(self.producers_known)
        return OfTopics(
            self._summed(self.log_bytes),
            self._summed(self.disk_bytes),
            Counts(self._distinct(self.producers), producers),
            Counts(self._distinct(self.open_transactions), producers),
            self._extreme(self.last_write, producers, np.fmax),
            self._extreme(self.open_since, producers, np.fmin),
        )

    def _known(self, known: Flags) -> Flags:
        """Return for each topic whether a value is known of all partitions that an inspection knew."""
        count = len(self.layout.topics)
        inspected = np.bincount(self.layout.topic[self.there], minlength=count)
        complete: Flags = (inspected > 0) & (inspected == np.bincount(self.layout.topic[known], minlength=count))
        return complete

    def _summed(self, counts: Counts) -> Counts:
        sums = np.concatenate([[0], np.cumsum(np.where(counts.known, counts.value, 0))])[self.layout.first]
        known = self._known(counts.known)
        return Counts(np.where(known, np.diff(sums), 0), known)

    def _distinct(self, ids: ProducerIds) -> NDArray[np.int64]:
        """Count the ids of each topic, each once."""
        topic = self.layout.topic[ids.row]
        order = np.lexsort((ids.id, topic))
        topic, found = topic[order], ids.id[order]
        first = np.ones(len(topic), dtype=np.bool_)
        first[1:] = (topic[1:] != topic[:-1]) | (found[1:] != found[:-1])
        return np.bincount(topic[first], minlength=len(self.layout.topics))

    def _extreme(self, moments: Floats, known: Flags, choose: np.ufunc) -> Floats:
        found = np.full(len(known), np.nan)
        filled = np.flatnonzero(np.diff(self.layout.first))
        if len(filled):
            found[filled] = choose.reduceat(moments, self.layout.first[:-1][filled])
        return np.where(known, found, np.nan)

    def __getitem__(self, key: TopicPartition) -> Inspected:
        row = self.layout.row(key)
        if row is None or not self.there[row]:
            raise KeyError(key)
        producers = None
        if self.producers_known[row]:
            producers = Producers(
                self.producers.of(row),
                _moment(self.last_write[row]),
                self.open_transactions.of(row),
                _moment(self.open_since[row]),
            )
        return Inspected(producers, _whole(self.log_bytes, row), _whole(self.disk_bytes, row))

    def __iter__(self) -> Iterator[TopicPartition]:
        return (self.layout.key(row) for row in np.flatnonzero(self.there).tolist())

    def __len__(self) -> int:
        return int(np.count_nonzero(self.there))


def _flags(layout: Layout, rows: Rows) -> Flags:
    flags = np.zeros(len(layout), dtype=np.bool_)
    flags[rows] = True
    return flags


def _counts(layout: Layout, rows: Rows, values: Sequence[int | None]) -> Counts:
    counts = Counts(np.zeros(len(layout), dtype=np.int64), np.zeros(len(layout), dtype=np.bool_))
    counts.value[rows], counts.known[rows] = [each or 0 for each in values], [each is not None for each in values]
    return counts


def _ids(rows: Rows, ids: Sequence[frozenset[int]]) -> ProducerIds:
    lengths = np.array([len(each) for each in ids], dtype=np.intp)
    return ProducerIds(np.repeat(rows, lengths), np.array([one for each in ids for one in each], dtype=np.int64))


def _moved(column: NDArray, here: Rows, there: Rows, count: int, *, fill: float) -> NDArray:  # type: ignore[type-arg]
    moved = np.full(count, fill, dtype=column.dtype)
    moved[here] = column[there]
    return moved


def _moved_counts(counts: Counts, wanted: Flags, here: Rows, there: Rows, count: int) -> Counts:
    known = _moved(counts.known & wanted, here, there, count, fill=False)
    return Counts(_moved(counts.value, here, there, count, fill=0), known)


def _moved_ids(ids: ProducerIds, place: Rows) -> ProducerIds:
    rows = place[ids.row]
    return ProducerIds(rows[rows >= 0], ids.id[rows >= 0])


def _moment(at: float) -> float | None:
    return None if np.isnan(at) else float(at)


def _whole(counts: Counts, row: int) -> int | None:
    return int(counts.value[row]) if counts.known[row] else None


NO_INSPECTIONS = Inspections.of(Layout((), (), np.zeros(0, dtype=np.int32)), {})
"""Where nothing is inspected."""

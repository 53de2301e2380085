"""What inspections found of the partitions of a cluster, as columns; sums and counts of topics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Counts, Flags, Floats, Rows, or_none, runs
from exporter.domain.polls.answers import ANSWERED
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.log_sizes import SizesOfPartitions
from exporter.domain.polls.producer_answers import FoundProducers, OpenTransactions, ProducersRead
from exporter.domain.polls.readings import Inspected, Producers, TopicPartition


class ProducerIds(NamedTuple):
    """Ids of producers: the rows that they write to, in order, and the ids."""

    row: Rows
    id: NDArray[np.int64]

    def of(self, row: int) -> frozenset[int]:
        """Return the ids of one row."""
        start, end = np.searchsorted(self.row, [row, row + 1])
        return frozenset(self.id[start:end].tolist())

    def replaced(self, outdated: Flags, row: Rows, ids: NDArray[np.int64]) -> ProducerIds:
        """Return the same ids, with the given ids in place of those of ``outdated`` rows."""
        others = ~outdated[self.row]
        rows, all_ids = np.concatenate([self.row[others], row]), np.concatenate([self.id[others], ids])
        order = np.argsort(rows, kind="stable")
        return ProducerIds(rows[order], all_ids[order])


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
        return OfTopic(*(_whole(each, number) for each in counts), *(or_none(each[number]) for each in moments))


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
    def nothing(cls, layout: Layout) -> Inspections:
        """Return the columns of partitions that no inspection knew."""
        count = len(layout)
        unknown = Counts.unknown(count)
        nobody = ProducerIds(np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.int64))
        never = np.full(count, np.nan)
        return cls(layout, unknown.known, unknown, unknown, unknown.known, never, never, nobody, nobody)

    def laid_out(self, layout: Layout, sizes: Flags, producers: Flags) -> Inspections:
        """Return the same by another layout. Only rows where ``sizes`` or ``producers`` is True keep these values."""
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

    def with_sizes(self, sizes: SizesOfPartitions) -> Inspections:
        """Return the same, with new sizes where all brokers were asked for them."""
        new = sizes.complete
        return replace(
            self,
            log_bytes=_either(new, sizes.log, self.log_bytes),
            disk_bytes=_either(new, sizes.disk, self.disk_bytes),
        )

    def with_producers(self, read: ProducersRead, found: FoundProducers, opened: OpenTransactions) -> Inspections:
        """Return the same, with the producers that were ``found``; ``opened`` are all transactions open now."""
        requested = read.requested
        last_write, seen = np.where(requested, np.nan, self.last_write), np.full(len(requested), np.nan)
        np.fmax.at(last_write, found.row, found.last_write)
        opened = opened[read.reason[opened.row] == ANSWERED]
        np.fmin.at(seen, opened.row, opened.seen)
        return replace(
            self,
            producers_known=np.where(requested, read.reason == ANSWERED, self.producers_known),
            last_write=last_write,
            # By the present wall clock: setting it must not make a transaction older.
            open_since=np.where(requested, np.round(read.clocks_differ + seen, 3), self.open_since),
            producers=self.producers.replaced(requested, found.row, found.id),
            open_transactions=self.open_transactions.replaced(requested, opened.row, opened.id),
        )

    @cached_property
    def of_topics(self) -> OfTopics:
        """The values of topics."""
        producers = self._known_of_topics(self.producers_known)
        return OfTopics(
            self._summed(self.log_bytes),
            self._summed(self.disk_bytes),
            Counts(self._distinct(self.producers), producers),
            Counts(self._distinct(self.open_transactions), producers),
            self._extreme(self.last_write, producers, np.fmax),
            self._extreme(self.open_since, producers, np.fmin),
        )

    def _known_of_topics(self, known: Flags) -> Flags:
        """Return for each topic whether a value is known of all partitions that an inspection knew."""
        count = len(self.layout.topics)
        inspected = np.bincount(self.layout.topic[self.there], minlength=count)
        complete: Flags = (inspected > 0) & (inspected == np.bincount(self.layout.topic[known], minlength=count))
        return complete

    def _summed(self, counts: Counts) -> Counts:
        sums = np.concatenate([[0], np.cumsum(np.where(counts.known, counts.value, 0))])[self.layout.first]
        known = self._known_of_topics(counts.known)
        return Counts(np.where(known, np.diff(sums), 0), known)

    def _distinct(self, ids: ProducerIds) -> NDArray[np.int64]:
        """Count the ids of each topic, each once."""
        topic = self.layout.topic[ids.row]
        order = np.lexsort((ids.id, topic))
        topic, found = topic[order], ids.id[order]
        return np.bincount(topic[runs(topic, found)], minlength=len(self.layout.topics))

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
                or_none(self.last_write[row]),
                self.open_transactions.of(row),
                or_none(self.open_since[row]),
            )
        return Inspected(producers, _whole(self.log_bytes, row), _whole(self.disk_bytes, row))

    def __iter__(self) -> Iterator[TopicPartition]:
        return (self.layout.key(row) for row in np.flatnonzero(self.there).tolist())

    def __len__(self) -> int:
        return int(np.count_nonzero(self.there))


def _either(new: Flags, one: Counts, other: Counts) -> Counts:
    return Counts(np.where(new, one.value, other.value), np.where(new, one.known, other.known))


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


def _whole(counts: Counts, row: int) -> int | None:
    return int(counts.value[row]) if counts.known[row] else None


NO_INSPECTIONS = Inspections.nothing(Layout((), (), np.zeros(0, dtype=np.int32)))
"""Where nothing is inspected."""

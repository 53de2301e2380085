"""The log sizes of replicas, from the answers of brokers, and those of partitions and topics."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Counts, Flags, Rows
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.metadata import Membership
from exporter.domain.polls.readings import Reason


@dataclass(frozen=True, slots=True, eq=False)
class LogSizes:
    """The logs of n partitions on one broker, in bytes."""

    log: Counts
    """[n], known where the broker has a log."""
    moving: NDArray[np.int64]
    """[n]: copies that will replace a log on another disk of the broker."""
    missing: Reason = Reason.MISSING_ANSWER
    """Why a partition has no log: ``storage-error`` where a disk of the broker is offline."""


class SizesOfPartitions(NamedTuple):
    """Log sizes of n partitions, each a column [n], in bytes."""

    complete: Flags
    """Whether all brokers with a replica were asked; elsewhere the others are invalid."""
    log: Counts
    """The replica at the leader."""
    disk: Counts
    """All replicas, and copies that are being moved to another disk."""


class LogReplicas:
    """Replicas with their log sizes, each a row of the columns [r], sorted by the row of the partition and broker."""

    __slots__ = ("broker", "log", "moving", "row")

    def __init__(self, membership: Membership) -> None:
        """Replicas of unknown size."""
        row = np.repeat(np.arange(len(membership.layout)), np.diff(membership.first_replica))
        order = np.lexsort((membership.replicas, row))
        self.row: Rows = row[order]
        self.broker = membership.replicas[order]
        self.log = Counts.unknown(len(row))
        """Bytes, known where the broker answered that it has the replica."""
        self.moving = np.zeros(len(row), dtype=np.int64)
        """Bytes of a copy that is being moved to another disk of the broker."""

    def group_by_broker(self) -> Iterator[tuple[int, Rows]]:
        """Return for each broker the indices of its replicas, by partition."""
        order = np.argsort(self.broker, kind="stable")
        brokers, first = np.unique(self.broker[order], return_index=True)
        return zip(brokers.tolist(), np.split(order, first[1:]), strict=False)

    def put(self, places: Rows, sizes: LogSizes) -> None:
        """Write a broker's answer about the replicas at these indices."""
        there = sizes.log.known
        self.log.value[places[there]], self.log.known[places[there]] = sizes.log.value[there], True
        self.moving[places[there]] = sizes.moving[there]

    def count_unknown(self, places: Rows) -> int:
        """Return how many of the replicas at these indices have no size."""
        return int(np.count_nonzero(~self.log.known[places]))

    def of_partitions(self, leader: NDArray[np.int32], brokers: Collection[int]) -> SizesOfPartitions:
        """Return the sizes of n partitions with these leaders [n], after these brokers were asked for theirs."""
        count = len(leader)
        unasked = self.row[~np.isin(self.broker, np.fromiter(brokers, dtype=np.int32, count=len(brokers)))]
        log = Counts.unknown(count)
        led = self.log.known & (self.broker == leader[self.row])
        log.value[self.row[led]], log.known[self.row[led]] = self.log.value[led], True
        replicas, missing = (np.bincount(rows, minlength=count) for rows in (self.row, self.row[~self.log.known]))
        disk = Counts(np.zeros(count, dtype=np.int64), (replicas > 0) & (missing == 0))
        np.add.at(disk.value, self.row, self.log.value + self.moving)
        return SizesOfPartitions(np.bincount(unasked, minlength=count) == 0, log, disk)


@dataclass(frozen=True, slots=True)
class SizesOfTopics:
    """Bytes of topics, by topic: only where known of all partitions."""

    log_bytes: Counts
    disk_bytes: Counts

    def topic(self, number: int) -> tuple[int | None, int | None]:
        """Return the two values of one topic."""
        return _whole(self.log_bytes, number), _whole(self.disk_bytes, number)


@dataclass(frozen=True, eq=False)
class Inspections:
    """The log sizes of n partitions in bytes, each a column [n] by ``layout``, without the remote tier."""

    layout: Layout
    there: Flags
    """Whether an inspection knew the partition; elsewhere a row is invalid."""
    log_bytes: Counts
    """The replica at the leader."""
    disk_bytes: Counts
    """All replicas, and copies that are being moved to another disk."""

    @classmethod
    def nothing(cls, layout: Layout) -> Inspections:
        """Return the columns of partitions that no inspection knew."""
        unknown = Counts.unknown(len(layout))
        return cls(layout, unknown.known, unknown, unknown)

    def laid_out(self, layout: Layout, valid: Flags) -> Inspections:
        """Return the same by another layout. Only rows where ``valid`` is True keep their values."""
        here, there = layout.moves_from(self.layout)
        known = np.zeros(len(layout), dtype=np.bool_)
        known[here] = self.there[there]
        return Inspections(
            layout,
            known,
            _moved(self.log_bytes, valid, here, there, len(layout)),
            _moved(self.disk_bytes, valid, here, there, len(layout)),
        )

    def replace_sizes(self, sizes: SizesOfPartitions) -> Inspections:
        """Return the same, with new sizes where all brokers were asked for them."""
        new = sizes.complete
        return replace(
            self,
            log_bytes=_either(new, sizes.log, self.log_bytes),
            disk_bytes=_either(new, sizes.disk, self.disk_bytes),
        )

    @cached_property
    def of_topics(self) -> SizesOfTopics:
        """The values of topics."""
        return SizesOfTopics(self._summed(self.log_bytes), self._summed(self.disk_bytes))

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

    def partition(self, row: int) -> tuple[int | None, int | None]:
        """Return the two values of one row."""
        return _whole(self.log_bytes, row), _whole(self.disk_bytes, row)


def _either(new: Flags, one: Counts, other: Counts) -> Counts:
    return Counts(np.where(new, one.value, other.value), np.where(new, one.known, other.known))


def _moved(counts: Counts, valid: Flags, here: Rows, there: Rows, count: int) -> Counts:
    moved = Counts.unknown(count)
    moved.value[here], moved.known[here] = counts.value[there], (counts.known & valid)[there]
    return moved


def _whole(counts: Counts, row: int) -> int | None:
    return int(counts.value[row]) if counts.known[row] else None


NO_INSPECTIONS = Inspections.nothing(Layout((), (), np.zeros(0, dtype=np.int32)))
"""Where nothing is inspected."""

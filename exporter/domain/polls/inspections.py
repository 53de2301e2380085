"""The log sizes of the partitions of a cluster, as columns, and those of topics."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from exporter.domain.arrays import Counts, Flags, Rows
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.log_sizes import SizesOfPartitions


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

    def with_sizes(self, sizes: SizesOfPartitions) -> Inspections:
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

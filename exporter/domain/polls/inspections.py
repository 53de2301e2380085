"""The log sizes of replicas, from the answers of brokers, and those of partitions and topics."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from exporter.domain.arrays import Counts
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.metadata import Metadata
from exporter.domain.polls.readings import Reason, TopicPartition


@dataclass(frozen=True, slots=True, eq=False)
class LogSizes:
    """The logs of n partitions on one broker, in bytes."""

    log: Counts
    """[n], known where the broker has a log."""
    missing: Reason = Reason.MISSING_ANSWER
    """Why a partition has no log: ``storage-error`` where a disk of the broker is offline."""

    @classmethod
    def make_failed(cls, count: int, reason: Reason) -> Self:
        """Return n partitions of which a broker told nothing."""
        return cls(Counts.unknown(count), reason)


class BrokerLogs(NamedTuple):
    """The last answer of one broker."""

    layout: Layout
    """The partitions that it was asked about."""
    topic_ids: Mapping[str, str | None]
    sizes: LogSizes
    at: float
    """Monotonic seconds."""


@dataclass(frozen=True, eq=False)
class Inspections:
    """The log sizes of n partitions in bytes, each a column [n] by ``layout``, without the remote tier."""

    layout: Layout
    log_bytes: Counts
    """The replica at the leader."""
    disk_bytes: Counts
    """All replicas."""

    @cached_property
    def disk_bytes_of_topics(self) -> Counts:
        """By topic, all replicas; only where known of all partitions."""
        return self._summed(self.disk_bytes)

    def _summed(self, counts: Counts) -> Counts:
        known = self.layout.reduce(np.logical_and, counts.known, otherwise=False)
        return Counts(np.where(known, self.layout.reduce(np.add, counts.value, 0), 0), known)

    def find_sizes(self, topic: str, partition: int | None) -> list[int | None]:
        """Return the two values of a topic (``partition`` None) or partition, None where they are unknown."""
        both = [self.log_bytes, self.disk_bytes]
        if partition is None:
            row, both = self.layout.number_of(topic), list(map(self._summed, both))
        else:
            row = self.layout.row(TopicPartition(topic, partition))
        return [None if row is None or not one.known[row] else int(one.value[row]) for one in both]


def sizes_of(metadata: Metadata, brokers: Mapping[int, BrokerLogs]) -> Inspections:
    """Return the sizes of partitions from the answers of brokers, by broker id; none of topics that were made again."""
    membership, layout = metadata.membership, metadata.membership.layout
    row = np.repeat(np.arange(len(layout)), np.diff(membership.first_replica))
    sizes, there = Counts.unknown(len(row)), np.zeros(len(layout), dtype=np.bool_)
    for broker, answer in brokers.items():
        same = [answer.topic_ids.get(name, "") == metadata.topics[name].topic_id for name in layout.topics]
        places = np.flatnonzero((membership.replicas == broker) & np.array(same, dtype=np.bool_)[layout.topic[row]])
        rows = row[places]
        at = answer.layout.find(layout.topics, layout.topic[rows], layout.partition[rows])
        places, at = places[at >= 0], at[at >= 0]
        there[row[places]] = True
        sizes.value[places], sizes.known[places] = answer.sizes.log.value[at], answer.sizes.log.known[at]
    log, disk = Counts.unknown(len(layout)), np.zeros(len(layout), dtype=np.int64)
    led = sizes.known & (membership.replicas == membership.leader[row])
    log.value[row[led]], log.known[row[led]] = sizes.value[led], True
    np.add.at(disk, row, sizes.value)
    lacking = np.bincount(row[~sizes.known], minlength=len(layout))
    return Inspections(layout, log, Counts(disk, there & (lacking == 0)))


NO_INSPECTIONS = sizes_of(Metadata({}, {}), {})
"""Where nothing is inspected."""

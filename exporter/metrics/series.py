"""The Kafka series of one cluster, as of its last good poll.

Series are written as text from cached label sets, and only where a value changed: the client library's renderer is
an order of magnitude slower at 100,000 series.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from exporter.domain.judging.assessment import Assessment
from exporter.domain.polls.table import Snapshot
from exporter.metrics.blocks import Block
from exporter.metrics.partition_series import PartitionSeries
from exporter.metrics.samples import NOTHING, Samples
from exporter.metrics.topic_series import TopicSeries


class Series(Protocol):
    """The samples of one cluster."""

    def blocks(self, name: str, now: float) -> list[Block]:
        """Return the samples of one metric, without its header."""


class ClusterSeries:
    """The series of the partitions and topics of one cluster.

    One thread updates, any thread renders: samples are replaced as a whole.
    """

    def __init__(self, cluster: str, *, partition_switches: Collection[str], partitions: bool = True) -> None:
        """With ``partitions`` False only series of topics are exposed."""
        self._partitions = PartitionSeries(cluster, partition_switches) if partitions else None
        self._topics = TopicSeries(cluster)
        self._shown = NOTHING

    def update(self, snapshot: Snapshot, assessment: Assessment) -> None:
        """Take a good poll; the series of deleted topics and partitions end."""
        shown = self._topics.update(snapshot, assessment)
        if self._partitions is not None:
            of_partitions = self._partitions.update(snapshot, assessment)
            shown = Samples({**of_partitions.fixed, **shown.fixed}, {**of_partitions.ages, **shown.ages})
        self._shown = shown

    def withdraw(self) -> None:
        """Remove every series: the values are too old."""
        self._shown = NOTHING

    def blocks(self, name: str, now: float) -> list[Block]:
        """Return the samples of one metric, without its header."""
        return self._shown.blocks(name, now)

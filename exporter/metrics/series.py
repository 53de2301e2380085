"""The Kafka series of one cluster, as of its last good poll."""

from __future__ import annotations

from collections.abc import Collection

from exporter.domain.judging.assessment import Assessment
from exporter.domain.polls.table import Snapshot
from exporter.metrics.lines import Samples
from exporter.metrics.partition_series import PartitionSeries
from exporter.metrics.topic_series import TopicSeries


class ClusterSeries:
    """The series of the partitions and topics of one cluster.

    One thread updates, any thread renders what is ``shown``: it is replaced as a whole.
    """

    def __init__(self, cluster: str, *, partition_switches: Collection[str], partitions: bool = True) -> None:
        """With ``partitions`` False only series of topics are exposed."""
        self._partitions = PartitionSeries(cluster, partition_switches) if partitions else None
        self._topics = TopicSeries(cluster)
        self.shown: Samples = {}

    def update(self, snapshot: Snapshot, assessment: Assessment) -> None:
        """Take a good poll; the series of deleted topics and partitions end."""
        of_partitions = {} if self._partitions is None else self._partitions.update(snapshot, assessment)
        self.shown = {**of_partitions, **self._topics.update(snapshot, assessment)}

    def withdraw(self) -> None:
        """Remove every series: the values are too old."""
        self.shown = {}

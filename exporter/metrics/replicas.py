"""Series of replicas, rendered once per comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

from exporter.domain import Comparison, NotCompared, Replica, ReplicaReading
from exporter.metrics.blocks import Block, blocks_of
from exporter.metrics.family import Metric
from exporter.metrics.lines import escape, number
from exporter.metrics.replica_catalogue import REPLICA_METRICS

_VALUES: Mapping[str, Callable[[ReplicaReading], float | None]] = {
    "kafka_replica_lag_seconds": lambda reading: reading.lag_seconds,
    "kafka_replica_lag_records_lower_bound": lambda reading: reading.at_least,
    "kafka_replica_lag_records_upper_bound": lambda reading: reading.at_most,
}


class ReplicaSeries:
    """The series of one pair of clusters. Made by whoever compares, read by any thread."""

    def __init__(self, comparison: Comparison) -> None:
        self._comparison = comparison
        self._unread: dict[NotCompared, ReplicaSeries] = {}
        readings = comparison.readings
        self.states = Counter((reading.state, reading.reason) for reading in readings.values())
        """How many partitions are in each state, for each reason."""
        labels = {replica: _labels(comparison, replica) for replica in readings}
        self._blocks = {
            name: blocks_of(
                f"{name}{{{labels[replica]}}} {number(found)}\n"
                for replica, reading in readings.items()
                if (found := value(reading)) is not None
            )
            for name, value in _VALUES.items()
        }
        self._blocks["kafka_replica_state"] = blocks_of(
            f'kafka_replica_state{{{labels[replica]},state="{reading.state}",reason="{reading.reason or ""}"}} 1\n'
            for replica, reading in readings.items()
        )

    def unread(self, reason: NotCompared) -> ReplicaSeries:
        """Return what is shown while one of the clusters is not read: nothing is known of any replica then."""
        if reason not in self._unread:
            self._unread[reason] = ReplicaSeries(self._comparison.unread(reason))
        return self._unread[reason]

    def blocks(self, name: str) -> Sequence[Block]:
        """Return the samples of one metric, without its header."""
        return self._blocks[name]


def _labels(pair: Comparison, replica: Replica) -> str:
    return (
        f'source_cluster="{escape(pair.source)}",source_topic="{escape(replica.source_topic)}",'
        f'target_cluster="{escape(pair.target)}",target_topic="{escape(replica.target_topic)}",'
        f'partition="{replica.partition}"'
    )


class Replicas:
    """The series of all pairs of clusters. Any thread may take comparisons, and any may show them."""

    def __init__(self) -> None:
        self._pairs: Mapping[tuple[str, str], ReplicaSeries] = {}

    def take(self, comparison: Comparison) -> None:
        """Show a comparison until the next one of its pair."""
        self._pairs = {**self._pairs, (comparison.source, comparison.target): ReplicaSeries(comparison)}

    def keep(self, pairs: Collection[tuple[str, str]]) -> None:
        """Show pairs (source, target) other than these no more."""
        self._pairs = {pair: series for pair, series in self._pairs.items() if pair in pairs}

    def shown(self, readable: Callable[[str], bool]) -> Mapping[tuple[str, str], ReplicaSeries]:
        """Return the series of each pair; nothing is known of replicas while one of the two clusters is not read."""
        shown = {}
        for (source, target), series in self._pairs.items():
            reason = unreadable(source, target, readable)
            shown[source, target] = series if reason is None else series.unread(reason)
        return shown


def unreadable(source: str, target: str, readable: Callable[[str], bool]) -> NotCompared | None:
    """Return why nothing is known of a pair's replicas: of a cluster not read any more the last poll proves nothing."""
    if not readable(source):
        return NotCompared.SOURCE_UNREADABLE
    return None if readable(target) else NotCompared.REPLICA_UNREADABLE


def replica_families(pairs: Mapping[tuple[str, str], ReplicaSeries]) -> list[tuple[Metric, list[Block]]]:
    """Return the samples of all pairs, by metric; pairs sorted by their clusters."""
    return [
        (metric, [block for pair in sorted(pairs) for block in pairs[pair].blocks(metric.name)])
        for metric in REPLICA_METRICS
    ]

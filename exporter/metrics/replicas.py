"""Series of replicas, rendered once per comparison."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from exporter.domain.polls.layout import Layout
from exporter.domain.replicas.comparison import (
    REASONS_NOT_COMPARED,
    REPLICA_STATES,
    Comparison,
    Lag,
    NotCompared,
    ReplicaState,
)
from exporter.metrics.lines import Column, RowSeries, escape, mask_nan

_REASONS = len(REASONS_NOT_COMPARED)


def _state(lag: Lag) -> Column:
    return lag.state.astype(np.int64) * _REASONS + lag.reason, np.ones(len(lag.state), dtype=np.bool_)


def _of_state(code: int) -> tuple[ReplicaState, NotCompared | None]:
    return REPLICA_STATES[code // _REASONS], REASONS_NOT_COMPARED[code % _REASONS]


def _state_tail(code: int) -> str:
    state, reason = _of_state(code)
    return f',state="{state}",reason="{reason or ""}"}} 1\n'


_COLUMNS: Mapping[str, Callable[[Lag], Column]] = {
    "kafka_replica_lag_seconds": lambda lag: mask_nan(lag.seconds),
    "kafka_replica_lag_records": lambda lag: lag.records,
    "kafka_replica_state": _state,
}


_Pair = RowSeries[tuple[Layout, tuple[str, ...]]]
"""The lines of one pair of clusters; its rows are the partitions of the source, and the replica of each topic."""


def _rendered(source: str, target: str) -> _Pair:
    start = f'{{source_cluster="{escape(source)}",source_topic="'
    middle = f'",target_cluster="{escape(target)}",target_topic="'

    def labels_of(rows: tuple[Layout, tuple[str, ...]]) -> list[str]:
        layout, replicas = rows
        topics = [
            f'{start}{escape(topic)}{middle}{escape(replica)}",partition="'
            for topic, replica in zip(layout.topics, replicas, strict=True)
        ]
        numbers = zip(layout.topic.tolist(), layout.partition.tolist(), strict=True)
        return [f'{topics[topic]}{partition}"' for topic, partition in numbers]

    return RowSeries(labels_of, {"kafka_replica_state": _state_tail})


class ReplicaSeries:
    """The series of one pair of clusters. Made by whoever compares, read by any thread."""

    def __init__(self, comparison: Comparison, before: ReplicaSeries | None = None) -> None:
        """``before`` are the series of the comparison before: what did not change is not rendered again."""
        self.comparison = comparison
        self._unread: dict[NotCompared, ReplicaSeries] = {}
        codes, counts = np.unique(_state(comparison.lag)[0], return_counts=True)
        self.states = {_of_state(code): count for code, count in zip(codes.tolist(), counts.tolist(), strict=True)}
        """How many partitions are in each state, for each reason."""
        self.rendered: _Pair = _rendered(comparison.source, comparison.target) if before is None else before.rendered
        columns = {name: column(comparison.lag) for name, column in _COLUMNS.items()}
        self.shown = self.rendered.update((comparison.layout, comparison.targets), columns)

    def withdraw(self, reason: NotCompared) -> ReplicaSeries:
        """Return what is shown while one of the clusters is not read; each scrape of an outage asks for it."""
        if reason not in self._unread:
            self._unread[reason] = ReplicaSeries(self.comparison.unread(reason))
        return self._unread[reason]


class Replicas:
    """The series of all pairs of clusters. One thread compares each pair, and any may show them."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[str, str], ReplicaSeries] = {}

    def take(self, comparison: Comparison) -> None:
        """Show a comparison until the next one of its pair."""
        pair = comparison.source, comparison.target
        self._pairs[pair] = ReplicaSeries(comparison, self._pairs.get(pair))

    def get_series(self, readable: Callable[[str], bool]) -> Mapping[tuple[str, str], ReplicaSeries]:
        """Return the series of each pair; nothing is known of replicas while one of the two clusters is not read."""
        shown = {}
        for (source, target), series in list(self._pairs.items()):
            reason = explain_unread(source, target, readable)
            shown[source, target] = series if reason is None else series.withdraw(reason)
        return shown


def explain_unread(source: str, target: str, readable: Callable[[str], bool]) -> NotCompared | None:
    """Return why nothing is known of a pair's replicas: of a cluster not read any more the last poll proves nothing."""
    if not readable(source):
        return NotCompared.SOURCE_UNREADABLE
    return None if readable(target) else NotCompared.REPLICA_UNREADABLE

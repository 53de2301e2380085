"""Series of replicas, rendered once per comparison."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from exporter.domain.polls.readings import TopicPartition
from exporter.domain.replicas.comparison import (
    REPLICA_STATES,
    Comparison,
    NotCompared,
    ReplicaState,
    ReplicaTable,
    not_compared_of_code,
)
from exporter.metrics.blocks import Block
from exporter.metrics.family import Metric
from exporter.metrics.lines import LabelledRows, Lines, escape
from exporter.metrics.replica_catalogue import REPLICA_METRICS
from exporter.metrics.samples import Column, known_of

_REASONS = len(NotCompared) + 1


def _state(table: ReplicaTable) -> Column:
    """Return state and reason as one number."""
    return table.state.astype(np.int64) * _REASONS + table.reason, np.ones(len(table), dtype=np.bool_)


def _of_state(code: int) -> tuple[ReplicaState, NotCompared | None]:
    return REPLICA_STATES[code // _REASONS], not_compared_of_code(code % _REASONS)


def _state_tail(code: int) -> str:
    state, reason = _of_state(code)
    return f',state="{state}",reason="{reason or ""}"}} 1\n'


_COLUMNS: Mapping[str, Callable[[ReplicaTable], Column]] = {
    "kafka_replica_lag_seconds": lambda table: known_of(table.lag_seconds),
    "kafka_replica_lag_records_lower_bound": lambda table: (table.at_least, table.counted),
    "kafka_replica_state": _state,
}


class _PairLines:
    """The lines of one pair of clusters, kept from comparison to comparison: only changes are formatted again."""

    def __init__(self, source: str, target: str) -> None:
        self._start = f'{{source_cluster="{escape(source)}",source_topic="'
        self._target = f'",target_cluster="{escape(target)}",target_topic="'
        self._targets: Mapping[str, str] = {}
        self._lines: Mapping[str, Lines] = {}
        self._rows = LabelledRows(self._labels_of)

    def show(self, table: ReplicaTable) -> Mapping[str, Sequence[Block]]:
        """Return the lines of a comparison by metric."""
        targets = dict(zip(table.layout.topics, table.targets, strict=True))
        if any(targets.get(topic, name) != name for topic, name in self._targets.items()) or not self._lines:
            self._rows = LabelledRows(self._labels_of)
            self._lines = {
                name: Lines(name, _state_tail if column is _state else None) for name, column in _COLUMNS.items()
            }
        self._targets = targets
        moves = self._rows.follow(table.layout)
        if moves is not None:
            for lines in self._lines.values():
                lines.move(len(table), *moves)
        return {name: self._lines[name].show(self._rows.labels, *column(table)) for name, column in _COLUMNS.items()}

    def _labels_of(self, key: TopicPartition) -> str:
        target = escape(self._targets[key.topic])
        return f'{self._start}{escape(key.topic)}{self._target}{target}",partition="{key.partition}"'


class ReplicaSeries:
    """The series of one pair of clusters. Made by whoever compares, read by any thread."""

    def __init__(self, comparison: Comparison, lines: _PairLines | None = None) -> None:
        """``lines`` are those of the comparison before."""
        self.comparison = comparison
        self._unread: dict[NotCompared, ReplicaSeries] = {}
        codes, counts = np.unique(_state(comparison.table)[0], return_counts=True)
        self.states = {_of_state(code): count for code, count in zip(codes.tolist(), counts.tolist(), strict=True)}
        """How many partitions are in each state, for each reason."""
        lines = _PairLines(comparison.source, comparison.target) if lines is None else lines
        self._blocks = lines.show(comparison.table)

    def unread(self, reason: NotCompared) -> ReplicaSeries:
        """Return what is shown while one of the clusters is not read: nothing is known of any replica then."""
        if reason not in self._unread:
            self._unread[reason] = ReplicaSeries(self.comparison.unread(reason))
        return self._unread[reason]

    def blocks(self, name: str) -> Sequence[Block]:
        """Return the samples of one metric, without its header."""
        return self._blocks[name]


class Replicas:
    """The series of all pairs of clusters. Any thread may take comparisons, and any may show them."""

    def __init__(self) -> None:
        self._pairs: Mapping[tuple[str, str], ReplicaSeries] = {}
        self._lines: dict[tuple[str, str], _PairLines] = {}
        self._lock = threading.Lock()
        """Held while these change; pairs are compared, and rendered, beside each other."""

    def take(self, comparison: Comparison) -> None:
        """Show a comparison until the next one of its pair. A pair that is taken out meanwhile is not shown."""
        pair = comparison.source, comparison.target
        with self._lock:
            lines = self._lines.setdefault(pair, _PairLines(*pair))
        series = ReplicaSeries(comparison, lines)
        with self._lock:
            if self._lines.get(pair) is lines:
                self._pairs = {**self._pairs, pair: series}

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

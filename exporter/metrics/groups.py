"""Series of consumer groups: rendered where a sweep finds a change, and time lags that grow when served."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from exporter.domain import Group, GroupSweep, TopicPartition
from exporter.metrics.blocks import Block, blocks_of
from exporter.metrics.group_catalogue import GROUP_METRICS
from exporter.metrics.lines import Ages, column_of, escape
from exporter.metrics.samples import NOTHING, Samples

_READERS, _WITHOUT_MEMBERS = "kafka_topic_consumergroups", "kafka_topic_consumergroups_without_members"
_GROWING = ("kafka_consumergroup_lag_seconds", "kafka_consumergroup_lag_seconds_max")


class _Lag(NamedTuple):
    """A time lag in seconds at the sweep, and the time since when it grows; None: it does not grow."""

    seconds: float
    since: float | None


class GroupSeries:
    """The series of the consumer groups of one cluster, as of its last sweep.

    One thread updates, any thread renders: samples are replaced as a whole.
    """

    def __init__(self, cluster: str, *, partitions: bool = True) -> None:
        """With ``partitions`` False only sums are exposed."""
        self._cluster = f'{{kafka_cluster="{escape(cluster)}"'
        self._partitions = partitions
        self._groups: dict[str, _GroupLines] = {}
        self._shown = NOTHING

    def update(self, sweep: GroupSweep, topics: Collection[str]) -> None:
        """Take a sweep; the series of deleted groups end. ``topics`` are all watched topics."""
        groups = {}
        for name, group in sweep.groups.items():
            before = self._groups.get(name)
            if before is None or not before.shows(group):
                start = f'{self._cluster},consumergroup="{escape(name)}"'
                groups[name] = _GroupLines(start, group, {} if before is None else before.labels, self._partitions)
            else:
                groups[name] = before
        watched = sorted(topics)
        counted = {_READERS: sweep.readers(watched), _WITHOUT_MEMBERS: sweep.without_members(watched)}
        fixed = {}
        for metric in GROUP_METRICS:
            if metric.name in counted:
                start = f"{metric.name}{self._cluster}"
                counts = counted[metric.name].items()
                texts = [f'{start},topic="{escape(topic)}"}} {count}\n' for topic, count in counts]
            else:
                texts = [each.text(metric.name) for each in groups.values()]
            fixed[metric.name] = blocks_of(filter(None, texts), self._shown.fixed.get(metric.name, ()))
        self._groups = groups
        growing = {name: [lag for each in groups.values() for lag in each.growing[name]] for name in _GROWING}
        self._shown = Samples(fixed, {name: _ages(name, lags) for name, lags in growing.items()})

    def withdraw(self) -> None:
        """Remove every series: the values are too old."""
        self._shown = NOTHING

    def blocks(self, name: str, now: float) -> list[Block]:
        """Return the samples of one metric, without its header."""
        return self._shown.blocks(name, now)


class _GroupLines:
    """The lines of one group by metric, kept as long as sweeps find the group unchanged."""

    def __init__(self, start: str, group: Group, known: Mapping[TopicPartition, str], partitions: bool) -> None:
        """``start`` begins the labels; ``known`` are labels of its partitions from before."""
        self._group = group
        self._start = start
        self._lines: dict[str, list[str]] = defaultdict(list)
        self._texts: dict[str, str] = {}
        self.growing: dict[str, list[tuple[str, _Lag]]] = {name: [] for name in _GROWING}
        """Labels and time lags of what grows until the next sweep, by metric."""
        self.labels = {key: known.get(key) or self._labels_of(key) for key in group.partitions} if partitions else {}
        if group.members is not None:
            self._add("kafka_consumergroup_members", start, group.members)
        if group.state is not None:
            self._add("kafka_consumergroup_state", f'{start},state="{group.state}"', 1)
        if partitions:
            self._add_partitions(group)
        self._add_time_lags(group, partitions)
        for topic, lost in _lost(group).items():
            self._add("kafka_consumergroup_lost_records_sum", f'{start},topic="{escape(topic)}"', lost)
        for topic, offset, lag in _sums(group):
            of_topic = f'{start},topic="{escape(topic)}"'
            self._add("kafka_consumergroup_current_offset_sum", of_topic, offset)
            if lag is not None:
                self._add("kafka_consumergroup_lag_sum", of_topic, lag)
        self._texts = {name: "".join(lines) for name, lines in self._lines.items()}
        self._lines.clear()

    def shows(self, group: Group) -> bool:
        """Return whether these lines are also those of ``group``."""
        same_time = group.read_at == self._group.read_at or not any(self.growing.values())
        return group is self._group or (same_time and group == self._group)

    def text(self, name: str) -> str:
        """Return the lines of one metric."""
        return self._texts.get(name, "")

    def _labels_of(self, key: TopicPartition) -> str:
        return f'{self._start},topic="{escape(key.topic)}",partition="{key.partition}"'

    def _add(self, name: str, labels: str, value: int | str) -> None:
        self._lines[name].append(f"{name}{labels}}} {value}\n")

    def _add_partitions(self, group: Group) -> None:
        for key, position in group.partitions.items():
            mine = self.labels[key]
            self._add("kafka_consumergroup_current_offset", mine, position.committed)
            if position.lag is not None:
                self._add("kafka_consumergroup_lag", mine, position.lag)
            if position.lost:
                self._add("kafka_consumergroup_lost_records", mine, position.lost)

    def _add_time_lags(self, group: Group, partitions: bool) -> None:
        largest: dict[str, _Lag] = {}
        bounds: dict[str, float] = {}
        for key, position in group.partitions.items():
            if position.time_lag is None:
                continue
            seconds = position.time_lag.seconds
            lag = _Lag(seconds, group.read_at - seconds if position.time_lag.stalled else None)
            largest[key.topic] = _larger(largest.get(key.topic, lag), lag)
            bound = position.time_lag.error_bound
            bounds[key.topic] = max(bounds.get(key.topic, 0.0), bound)
            if partitions:
                mine = self.labels[key]
                self._add_time_lag("kafka_consumergroup_lag_seconds", mine, lag)
                self._add("kafka_consumergroup_lag_seconds_error_bound", mine, f"{bound:.3f}")
        for topic, lag in largest.items():
            of_topic = f'{self._start},topic="{escape(topic)}"'
            self._add_time_lag("kafka_consumergroup_lag_seconds_max", of_topic, lag)
            self._add("kafka_consumergroup_lag_seconds_max_error_bound", of_topic, f"{bounds[topic]:.3f}")

    def _add_time_lag(self, name: str, labels: str, lag: _Lag) -> None:
        if lag.since is None:
            self._add(name, labels, f"{lag.seconds:.3f}")
        else:
            self.growing[name].append((labels, lag))


def _ages(name: str, lags: Sequence[tuple[str, _Lag]]) -> Ages:
    since = np.array([lag.since for _, lag in lags], dtype=np.float64)
    return Ages(
        name, column_of([labels for labels, _ in lags]), since, at_least=np.array([lag.seconds for _, lag in lags])
    )


def _larger(one: _Lag, other: _Lag) -> _Lag:
    """Return a lag that is never smaller than either."""
    since = min((lag.since for lag in (one, other) if lag.since is not None), default=None)
    return _Lag(max(one.seconds, other.seconds), since)


def _lost(group: Group) -> Mapping[str, int]:
    """Return the lost records of each topic; a single one of a partition may be a transaction marker."""
    lost: Counter[str] = Counter()
    for key, position in group.partitions.items():
        if position.lost is not None and position.lost > 1:
            lost[key.topic] += position.lost
    return lost


def _sums(group: Group) -> Iterator[tuple[str, int, int | None]]:
    """Yield the sums of committed offsets and lag of each topic; an unknown lag makes its sum unknown."""
    offsets: Counter[str] = Counter()
    lags: dict[str, int | None] = {}
    for key, position in group.partitions.items():
        offsets[key.topic] += position.committed
        before = lags.get(key.topic, 0)
        lags[key.topic] = None if before is None or position.lag is None else before + position.lag
    for topic, offset in offsets.items():
        yield topic, offset, lags[topic]

"""Series of consumer groups, rendered once per sweep; only the time lag of those that stand still when served."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import NamedTuple

from exporter.domain import Group, GroupSweep, TopicPartition
from exporter.metrics.group_catalogue import GROUP_METRICS
from exporter.metrics.series import escape

_GROWING = ("kafka_consumergroup_lag_seconds", "kafka_consumergroup_lag_seconds_max")


class _Lag(NamedTuple):
    """A time lag in seconds as of the sweep, and the moment from which on it grows; None: it does not."""

    seconds: float
    since: float | None

    def at(self, now: float) -> float:
        return self.seconds if self.since is None else max(self.seconds, now - self.since)


class GroupSeries:
    """The series of the consumer groups of one cluster, as of its last sweep.

    One thread updates, any thread renders: what is shown is swapped as a whole.
    """

    def __init__(self, cluster: str, *, partitions: bool = True) -> None:
        """``partitions`` False leaves sums alone."""
        self._cluster = f'kafka_cluster="{escape(cluster)}"'
        self._partitions = partitions
        self._labels: dict[tuple[str, TopicPartition], str] = {}
        self._shown: tuple[dict[str, str], dict[str, list[tuple[str, _Lag]]]] = ({}, {})

    def update(self, sweep: GroupSweep, topics: Collection[str]) -> None:
        """Take a sweep; groups that are gone leave with it. ``topics`` are all that are watched."""
        lines: dict[str, list[str]] = {metric.name: [] for metric in GROUP_METRICS}
        labels: dict[tuple[str, TopicPartition], str] = {}
        growing: dict[str, list[tuple[str, _Lag]]] = {name: [] for name in _GROWING}
        for name, group in sweep.groups.items():
            mine = f'{self._cluster},consumergroup="{escape(name)}"'
            if group.members is not None:
                lines["kafka_consumergroup_members"].append(f"{{{mine}}} {group.members}")
            if group.state is not None:
                lines["kafka_consumergroup_state"].append(f'{{{mine},state="{group.state}"}} 1')
            if self._partitions:
                for key in group.partitions:
                    known = self._labels.get((name, key))
                    labels[name, key] = known or f'{{{mine},topic="{escape(key.topic)}",partition="{key.partition}"}}'
                self._add_partitions(lines, labels, name, group)
            self._add_time_lags(lines, growing, labels, name, group)
            for topic, offset, lag in _sums(group):
                of_topic = f'{{{mine},topic="{escape(topic)}"}}'
                lines["kafka_consumergroup_current_offset_sum"].append(f"{of_topic} {offset}")
                if lag is not None:
                    lines["kafka_consumergroup_lag_sum"].append(f"{of_topic} {lag}")
        lines["kafka_topic_consumergroups"] = [
            f'{{{self._cluster},topic="{escape(topic)}"}} {count}'
            for topic, count in sweep.readers(sorted(topics)).items()
        ]
        self._labels = labels
        fixed = {name: "".join(f"{name}{sample}\n" for sample in samples) for name, samples in lines.items()}
        self._shown = fixed, growing

    def withdraw(self) -> None:
        """Take every series away: what was known is too old to be shown as present."""
        self._shown = ({}, {})

    def render(self, name: str, now: float) -> str:
        """Return the samples of one metric, without its header."""
        fixed, growing = self._shown
        grown = "".join(f"{series} {lag.at(now):.3f}\n" for series, lag in growing.get(name, ()))
        return fixed.get(name, "") + grown

    def _add_partitions(
        self, lines: dict[str, list[str]], labels: dict[tuple[str, TopicPartition], str], name: str, group: Group
    ) -> None:
        for key, position in group.partitions.items():
            mine = labels[name, key]
            lines["kafka_consumergroup_current_offset"].append(f"{mine} {position.committed}")
            if position.lag is not None:
                lines["kafka_consumergroup_lag"].append(f"{mine} {position.lag}")
            if position.lost:
                lines["kafka_consumergroup_lost_records"].append(f"{mine} {position.lost}")

    def _add_time_lags(
        self,
        lines: dict[str, list[str]],
        growing: dict[str, list[tuple[str, _Lag]]],
        labels: dict[tuple[str, TopicPartition], str],
        name: str,
        group: Group,
    ) -> None:
        def add(metric: str, mine: str, lag: _Lag) -> None:
            if lag.since is None:
                lines[metric].append(f"{mine} {lag.seconds:.3f}")
            else:
                growing[metric].append((f"{metric}{mine}", lag))

        largest: dict[str, _Lag] = {}
        for key, position in group.partitions.items():
            if position.time_lag is None:
                continue
            seconds = position.time_lag.seconds
            lag = _Lag(seconds, group.read_at - seconds if position.time_lag.standing else None)
            largest[key.topic] = _larger(largest.get(key.topic, lag), lag)
            if self._partitions:
                mine = labels[name, key]
                add("kafka_consumergroup_lag_seconds", mine, lag)
                bound = position.time_lag.error_bound
                lines["kafka_consumergroup_lag_seconds_error_bound"].append(f"{mine} {bound:.3f}")
        for topic, lag in largest.items():
            mine = f'{{{self._cluster},consumergroup="{escape(name)}",topic="{escape(topic)}"}}'
            add("kafka_consumergroup_lag_seconds_max", mine, lag)


def _larger(one: _Lag, other: _Lag) -> _Lag:
    """Return a lag that is at every moment as large as the larger of two."""
    since = min((lag.since for lag in (one, other) if lag.since is not None), default=None)
    return _Lag(max(one.seconds, other.seconds), since)


def _sums(group: Group) -> Iterator[tuple[str, int, int | None]]:
    """Yield committed offsets and lag of each topic, added up; a lag that is not known leaves its sum unknown."""
    offsets: Counter[str] = Counter()
    lags: dict[str, int | None] = {}
    for key, position in group.partitions.items():
        offsets[key.topic] += position.committed
        before = lags.get(key.topic, 0)
        lags[key.topic] = None if before is None or position.lag is None else before + position.lag
    for topic, offset in offsets.items():
        yield topic, offset, lags[topic]

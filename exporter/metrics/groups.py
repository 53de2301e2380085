"""Series of consumer groups: rendered where a sweep finds a change, and time lags that grow when served."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Floats, Rows
from exporter.domain.groups.positions import GROUP_STATES, NO_ROWS, GroupRows, Positions
from exporter.domain.groups.readers import who_reads
from exporter.domain.groups.sweep import ROLE_CODES, GroupRole, GroupSweep, roles_of
from exporter.domain.polls.answers import ANSWERED
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.readings import TopicPartition
from exporter.metrics.blocks import Block
from exporter.metrics.lines import Ages, Lines, Texts, escape
from exporter.metrics.samples import NOTHING, Column, Samples, known_of

_READERS = {
    "kafka_topic_consumergroups": GroupRole.ASSIGNED,
    "kafka_topic_consumergroups_committed_only": GroupRole.COMMITTED,
    "kafka_topic_consumergroups_without_members": GroupRole.GONE,
}
_MEMBERS, _STATE = "kafka_consumergroup_members", "kafka_consumergroup_state"
_OTHERS = "kafka_othergroup_state"
_STATE_TAILS = [f',state="{state}"}} 1\n' for state in GROUP_STATES]
_LAG_SECONDS, _LARGEST = "kafka_consumergroup_lag_seconds", "kafka_consumergroup_lag_seconds_max"


_ONE_TOPIC = Layout(("",), (1,), np.zeros(1, dtype=np.int32))


class GroupSeries:
    """The series of the consumer groups of one cluster, as of its last sweep.

    One thread updates, any thread renders: samples are replaced as a whole.
    """

    def __init__(self, cluster: str, *, partitions: bool = True) -> None:
        """With ``partitions`` False only sums are exposed."""
        self._cluster = f'{{kafka_cluster="{escape(cluster)}"'
        self._of_partitions = _Rendered(
            lambda name, key: f'{self._of_topic(name, key.topic)},partition="{key.partition}"'
        )
        self._of_topics = _Rendered(lambda name, key: self._of_topic(name, key.topic))
        self._whole_groups = _Rendered(
            lambda name, _: f'{self._cluster},consumergroup="{escape(name)}"', {_STATE: _STATE_TAILS.__getitem__}
        )
        self._assigned = _Rendered(lambda name, key: self._of_topic(name, key.topic))
        self._read_topics = _Rendered(lambda _, key: f'{self._cluster},topic="{escape(key.topic)}"')
        self._partitions = partitions
        self._others = Block(b"")
        self._shown = NOTHING

    def update(self, sweep: GroupSweep, topics: Collection[str]) -> None:
        """Take a sweep; the series of deleted groups end. ``topics`` are all watched topics."""
        positions = sweep.positions
        fixed: dict[str, tuple[Block, ...]] = {}
        ages: dict[str, Ages] = {}
        if self._partitions:
            shown = self._of_partitions.update(
                positions.rows, _columns(positions), {_LAG_SECONDS: _time_lags(positions)}
            )
            fixed |= shown.fixed
            ages |= shown.ages
        rows, starts = positions.rows.by_topic()
        shown = self._of_topics.update(rows, _sums(positions, starts), {_LARGEST: _largest(positions, starts)})
        fixed |= shown.fixed
        ages |= shown.ages
        fixed |= self._whole_groups.update(*_groups(positions)).fixed
        others = "".join(self._of_others(sweep)).encode()
        if others != self._others.text:
            self._others = Block(others)
        fixed[_OTHERS] = (self._others,) if others else ()
        fixed |= self._assigned.update(*_assigned(positions)).fixed
        fixed |= self._read_topics.update(*_readers(sweep, topics)).fixed
        self._shown = Samples(fixed, ages)

    def withdraw(self) -> None:
        """Remove every series: the values are too old."""
        self._shown = NOTHING

    def blocks(self, name: str, now: float) -> list[Block]:
        """Return the samples of one metric, without its header."""
        return self._shown.blocks(name, now)

    def _of_others(self, sweep: GroupSweep) -> Iterator[str]:
        for name, other in sorted((sweep.others or {}).items()):
            kind = f'type="{escape(other.type or "unknown")}",state="{escape(other.state or "unknown")}"'
            yield f'{_OTHERS}{self._cluster},group="{escape(name)}",{kind}}} 1\n'

    def _of_topic(self, group: str, topic: str) -> str:
        return f'{self._cluster},consumergroup="{escape(group)}",topic="{escape(topic)}"'


class _TimeLags(NamedTuple):
    """Time lags in seconds at the sweep, and since when those that grow do; NaN where they do not, or are unknown."""

    seconds: Floats
    since: Floats


_NOTHING_GROWS: Mapping[str, _TimeLags] = MappingProxyType({})


class _Rendered:
    """The series of some rows: lines stay until their value changes, and ages grow."""

    def __init__(
        self, labels_of: Callable[[str, TopicPartition], str], tails: Mapping[str, Callable[[Any], str]] | None = None
    ) -> None:
        """``labels_of`` returns the labels of a group and a partition, without the closing brace.

        ``tails`` return what follows the labels of a metric, where that is not the value.
        """
        self._labels_of = labels_of
        self._tails = tails or {}
        self._rows = NO_ROWS
        self._labels: Texts = np.empty(0, dtype=object)
        self._lines: dict[str, Lines] = {}
        self._ages: dict[str, Ages] = {}

    def update(
        self, rows: GroupRows, columns: Mapping[str, Column], growing: Mapping[str, _TimeLags] = _NOTHING_GROWS
    ) -> Samples:
        """Return the samples of rows, by metric."""
        columns = {**columns, **{name: _still(lags) for name, lags in growing.items()}}
        for name, (values, _) in columns.items():
            if name not in self._lines:
                tail = self._tails.get(name, _seconds if values.dtype.kind == "f" else None)
                self._lines[name] = Lines(name, tail)
                self._lines[name].move(len(self._rows), _NONE, _NONE)
        moves = self._follow(rows)
        fixed = {name: self._lines[name].show(self._labels, *column) for name, column in columns.items()}
        before = self._ages
        self._ages = {
            name: Ages(name, self._labels, lags.since, before.get(name), moves, at_least=lags.seconds)
            for name, lags in growing.items()
        }
        return Samples(fixed, dict(self._ages))

    def _follow(self, rows: GroupRows) -> tuple[Rows, Rows] | None:
        if rows.same_as(self._rows):
            return None
        here, there = rows.moves_from(self._rows)
        labels = np.empty(len(rows), dtype=object)
        labels[here] = self._labels[there]
        for row in np.setdiff1d(np.arange(len(rows)), here, assume_unique=True).tolist():
            labels[row] = self._labels_of(rows.names[rows.group[row]], rows.key(row))
        for lines in self._lines.values():
            lines.move(len(rows), here, there)
        self._rows, self._labels = rows, labels
        return here, there


_NONE = np.zeros(0, dtype=np.intp)


def _seconds(value: float) -> str:
    return f"}} {value:.3f}\n"


def _still(lags: _TimeLags) -> Column:
    """Return the time lags that do not grow."""
    return lags.seconds, ~np.isnan(lags.seconds) & np.isnan(lags.since)


def _groups(positions: Positions) -> tuple[GroupRows, dict[str, Column]]:
    """Return a row for each group, and its columns."""
    names = positions.rows.names
    count = len(names)
    rows = GroupRows(names, _ONE_TOPIC, np.arange(count, dtype=np.intp), np.zeros(count, dtype=np.intp))
    return rows, {_MEMBERS: _from_0(positions.members), _STATE: _from_0(positions.state)}


def _assigned(positions: Positions) -> tuple[GroupRows, dict[str, Column]]:
    """Return a row for each group and topic, and whether a member has a partition of it assigned."""
    rows, role = roles_of(positions)
    assigned = (role == ROLE_CODES[GroupRole.ASSIGNED]).astype(np.int64)
    return rows, {"kafka_consumergroup_assigned": (assigned, role != ROLE_CODES[GroupRole.UNKNOWN])}


def _readers(sweep: GroupSweep, topics: Collection[str]) -> tuple[GroupRows, dict[str, Column]]:
    """Return a row for each watched topic, and how many groups have which role there."""
    names = sorted(topics)
    count = len(names)
    layout = Layout(names, [1] * count, np.zeros(count, dtype=np.int32))
    rows = GroupRows(("",), layout, np.zeros(count, dtype=np.intp), np.arange(count, dtype=np.intp))
    found = who_reads(sweep, names)
    return rows, {metric: (found.count(role), found.known) for metric, role in _READERS.items()}


def _from_0(values: NDArray[Any]) -> Column:
    """Return a column, known where it is not negative."""
    return values.astype(np.int64), values >= 0


def _columns(positions: Positions) -> dict[str, Column]:
    """Return the columns of partitions."""
    known = positions.reason == ANSWERED
    return {
        "kafka_consumergroup_current_offset": (positions.committed, np.ones(len(positions), dtype=np.bool_)),
        "kafka_consumergroup_lag": (positions.lag, known),
        "kafka_consumergroup_lost_records": (positions.lost, known & positions.lost_known & (positions.lost > 0)),
        "kafka_consumergroup_lag_seconds_error_bound": known_of(positions.error_bound),
    }


def _time_lags(positions: Positions) -> _TimeLags:
    since = positions.read_at[positions.rows.group] - positions.seconds
    return _TimeLags(positions.seconds, np.where(positions.stalled, since, np.nan))


def _sums(positions: Positions, starts: Rows) -> dict[str, Column]:
    """Return the columns of topics, whose rows begin at ``starts``.

    An unknown lag makes its sum unknown. A single lost record of a partition does not count: it may be a transaction
    marker.
    """
    known, every = positions.reason == ANSWERED, np.ones(len(starts), dtype=np.bool_)
    lost = np.where(known & positions.lost_known & (positions.lost > 1), positions.lost, 0)
    lost_sum, past_end = _reduced(np.add, lost, starts), _reduced(np.add, positions.past_end, starts)
    return {
        "kafka_consumergroup_past_end_records_sum": (past_end, past_end > 0),
        "kafka_consumergroup_lost_records_sum": (lost_sum, lost_sum > 0),
        "kafka_consumergroup_current_offset_sum": (_reduced(np.add, positions.committed, starts), every),
        "kafka_consumergroup_lag_sum": (
            _reduced(np.add, positions.lag, starts),
            _reduced(np.logical_and, known, starts),
        ),
        "kafka_consumergroup_lag_seconds_max_error_bound": known_of(
            _reduced(np.fmax, np.where(positions.trailing, np.nan, positions.error_bound), starts)
        ),
    }


def _largest(positions: Positions, starts: Rows) -> _TimeLags:
    """Return time lags that are never smaller than that of any partition of the topic, apart from trailing offsets."""
    lags = _TimeLags(*(np.where(positions.trailing, np.nan, one) for one in _time_lags(positions)))
    return _TimeLags(_reduced(np.fmax, lags.seconds, starts), _reduced(np.fmin, lags.since, starts))


def _reduced(together: np.ufunc, column: NDArray[Any], starts: Rows) -> NDArray[Any]:
    """Return one value for the rows from each of ``starts`` to the next."""
    reduced: NDArray[Any] = together.reduceat(column, starts) if len(starts) else column
    return reduced

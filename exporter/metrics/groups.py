"""Series of consumer groups: rendered where a sweep finds a change, and time lags that grow when served."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Rows
from exporter.domain.groups.positions import GROUP_STATES, GroupRows, Positions
from exporter.domain.groups.readers import find_readers
from exporter.domain.groups.sweep import ROLE_CODES, GroupRole, GroupSweep, roles_of
from exporter.domain.polls.readings import ANSWERED
from exporter.metrics.lines import AgeColumn, Column, RowSeries, Samples, escape, mask_nan

_READERS = {
    "kafka_topic_consumergroups": GroupRole.ASSIGNED,
    "kafka_topic_consumergroups_without_members": GroupRole.GONE,
}
_MEMBERS, _STATE = "kafka_consumergroup_members", "kafka_consumergroup_state"
_STATE_TAILS = [f',state="{state}"}} 1\n' for state in GROUP_STATES]
_LAG_SECONDS, _LARGEST = "kafka_consumergroup_lag_seconds", "kafka_consumergroup_lag_seconds_max"
_IN_SECONDS = (_LAG_SECONDS, _LARGEST, f"{_LARGEST}_error_bound")


class GroupSeries:
    """The series of the consumer groups of one cluster, as of its last sweep.

    One thread updates, any thread renders what is ``shown``: it is replaced as a whole.
    """

    def __init__(
        self, cluster: str, *, partitions: bool = True, owner_of: Callable[[str], str | None] = lambda _: None
    ) -> None:
        """With ``partitions`` False only sums are exposed. ``owner_of`` is what the configuration sets for a topic."""
        self._owner_of = owner_of
        self._cluster = f'{{kafka_cluster="{escape(cluster)}"'
        tails: Mapping[str, Callable[[float], str]] = dict.fromkeys(_IN_SECONDS, lambda value: f"}} {value:.3f}\n")
        self._of_partitions = RowSeries(self._labels_of_partitions, tails) if partitions else None
        self._of_topics = RowSeries(self._labels_of_topics, tails)
        self._whole_groups = RowSeries(self._labels_of_groups, {_STATE: _STATE_TAILS.__getitem__})
        self._assigned = RowSeries(self._labels_of_topics)
        self._read_topics = RowSeries(self._labels_of_read_topics)
        self.shown: Samples = {}
        self.without_readers: Collection[str] = ()
        """Topics that no group reads or has read, as was last proved."""

    def update(self, sweep: GroupSweep, topics: Collection[str]) -> None:
        """Take a sweep; the series of deleted groups end. ``topics`` are all watched topics."""
        positions = sweep.positions
        rows, starts = positions.rows.group_by_topic()
        lags, largest = _time_lags(positions), _largest(positions, starts)
        shown = dict(
            self._of_topics.update(rows, _sums(positions, starts) | {_LARGEST: _still(largest)}, {_LARGEST: largest})
        )
        if self._of_partitions is not None:
            columns = _columns(positions) | {_LAG_SECONDS: _still(lags)}
            shown |= self._of_partitions.update(positions.rows, columns, {_LAG_SECONDS: lags})
        groups = {_MEMBERS: _from_0(positions.members), _STATE: _from_0(positions.state)}
        shown |= self._whole_groups.update(positions.rows.names, groups)
        roles, role = roles_of(positions)
        assigned = (role == ROLE_CODES[GroupRole.ASSIGNED]).astype(np.int64), role != ROLE_CODES[GroupRole.UNKNOWN]
        shown |= self._assigned.update(roles, {"kafka_consumergroup_assigned": assigned})
        names = tuple(sorted(topics))
        found = find_readers(sweep, names)
        counts = {metric: (found.count(role), found.known) for metric, role in _READERS.items()}
        shown |= self._read_topics.update(names, counts)
        unread = ~np.any([values for values, _ in counts.values()], axis=0)
        proved = zip(names, found.known.tolist(), unread.tolist(), strict=True)
        before = self.without_readers
        self.without_readers = {name for name, known, none in proved if (none if known else name in before)}
        self.shown = shown

    def withdraw(self) -> None:
        """Remove every series: the values are too old."""
        self.shown = {}

    def _labels_of_groups(self, names: Sequence[str]) -> list[str]:
        return [f'{self._cluster},consumergroup="{escape(name)}"' for name in names]

    def _labels_of_topics(self, rows: GroupRows) -> list[str]:
        return self._labels_of(rows, [""] * len(rows.group))

    def _labels_of_partitions(self, rows: GroupRows) -> list[str]:
        numbers = rows.layout.partition[rows.partition].tolist()
        return self._labels_of(rows, [f',partition="{number}"' for number in numbers])

    def _labels_of(self, rows: GroupRows, partitions: Sequence[str]) -> list[str]:
        groups, topics = self._labels_of_groups(rows.names), [escape(topic) for topic in rows.layout.topics]
        owners = [f',owner="{escape(owner)}"' if (owner := self._owner_of(one)) else "" for one in rows.layout.topics]
        places = zip(rows.group.tolist(), rows.layout.topic[rows.partition].tolist(), partitions, strict=True)
        return [f'{groups[group]},topic="{topics[topic]}"{number}{owners[topic]}' for group, topic, number in places]

    def _labels_of_read_topics(self, names: Sequence[str]) -> list[str]:
        return [f'{self._cluster},topic="{escape(name)}"' for name in names]


def _still(lags: AgeColumn) -> Column:
    return lags.at_least, ~np.isnan(lags.at_least) & np.isnan(lags.since)


def _from_0(values: NDArray[Any]) -> Column:
    """Return a column, known where it is not negative."""
    return values.astype(np.int64), values >= 0


def _columns(positions: Positions) -> dict[str, Column]:
    known = positions.reason == ANSWERED
    return {
        "kafka_consumergroup_current_offset": (positions.committed, np.ones(len(positions), dtype=np.bool_)),
        "kafka_consumergroup_lag": (positions.lag, known),
        "kafka_consumergroup_lost_records": (positions.lost, known & positions.lost_known & (positions.lost > 0)),
    }


def _time_lags(positions: Positions) -> AgeColumn:
    """Return time lags as of the sweep, and since when those that grow do; NaN where they do not, or are unknown."""
    since = positions.read_at[positions.rows.group] - positions.seconds
    return AgeColumn(np.where(positions.stalled, since, np.nan), positions.seconds)


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
        "kafka_consumergroup_lag_seconds_max_error_bound": mask_nan(
            _reduced(np.fmax, np.where(positions.trailing, np.nan, positions.error_bound), starts)
        ),
    }


def _largest(positions: Positions, starts: Rows) -> AgeColumn:
    since, seconds = (np.where(positions.trailing, np.nan, one) for one in _time_lags(positions))
    return AgeColumn(_reduced(np.fmin, since, starts), _reduced(np.fmax, seconds, starts))


def _reduced(together: np.ufunc, column: NDArray[Any], starts: Rows) -> NDArray[Any]:
    reduced: NDArray[Any] = together.reduceat(column, starts) if len(starts) else column
    return reduced

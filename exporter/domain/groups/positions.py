"""The positions of all consumer groups of a cluster: one row for each committed offset, one column for each fact."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Codes, Flags, Floats, Offsets, Rows, runs
from exporter.domain.groups.consumer_groups import Group, GroupPartition, NoTimeLag, TimeLag
from exporter.domain.polls.answers import ANSWERED, REASONS, reason_code, reason_of_code
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.readings import Reason, TopicPartition

OUTCOMES: tuple[Reason | NoTimeLag, ...] = (*REASONS, *NoTimeLag)
"""Why there is no time lag, by code: 0 is none of them, and reasons have the same codes as elsewhere."""

_OUTCOME_CODES = {outcome: code for code, outcome in enumerate(OUTCOMES, start=1)}


def outcome_code(outcome: Reason | NoTimeLag | None) -> int:
    """Return the code of why there is no time lag; ANSWERED for None."""
    return ANSWERED if outcome is None else _OUTCOME_CODES[outcome]


def outcomes(codes: Codes) -> Counter[str]:
    """Count reasons or outcomes by name; ``ok`` where there is none."""
    counts = np.bincount(codes, minlength=1).tolist()
    return Counter({"ok" if not code else OUTCOMES[code - 1]: count for code, count in enumerate(counts) if count})


@dataclass(frozen=True, slots=True, eq=False)
class GroupRows:
    """Which group and which partition each of n rows is about: sorted by both, each pair once.

    Rows stay the same as long as no group commits in another partition; ``moves_from`` then carries columns over.
    """

    names: tuple[str, ...]
    """The groups, sorted; some may have no row."""
    layout: Layout
    group: Rows
    """[n]: indices into ``names``."""
    partition: Rows
    """[n]: rows of ``layout``."""

    def __len__(self) -> int:
        return len(self.group)

    def same_as(self, other: GroupRows) -> bool:
        """Return whether each row is about the same group and partition."""
        return self is other or (
            self.names == other.names
            and np.array_equal(self.group, other.group)
            and np.array_equal(self.partition, other.partition)
            and self.layout == other.layout
        )

    @property
    def first(self) -> Rows:
        """[groups + 1]: the rows of group i are ``first[i]`` up to ``first[i + 1]``."""
        return np.searchsorted(self.group, np.arange(len(self.names) + 1)).astype(np.intp)

    def partitions_in(self, layout: Layout) -> Rows:
        """Return the row of each row's partition in another layout, -1 where it is not there."""
        if layout is self.layout:
            return self.partition
        return layout.find(self.layout.topics, self.layout.topic[self.partition], self.layout.partition[self.partition])

    def moves_from(self, before: GroupRows) -> tuple[Rows, Rows]:
        """Return the rows that are also in ``before``: their indices here, and their indices in ``before``."""
        if self.same_as(before):
            every = np.arange(len(self), dtype=np.intp)
            return every, every
        if not len(self) or not len(before):
            return np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.intp)
        numbers = {name: number for number, name in enumerate(before.names)}
        group = np.array([numbers.get(name, -1) for name in self.names], dtype=np.intp)[self.group]
        partition = self.partitions_in(before.layout)
        here = np.flatnonzero((group >= 0) & (partition >= 0))
        wanted, known = _keys(group[here], partition[here]), _keys(before.group, before.partition)
        at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        shared = known[at] == wanted
        return here[shared], at[shared].astype(np.intp)

    def by_topic(self) -> tuple[GroupRows, Rows]:
        """Return a row for each group and topic, and where the rows of each begin here; its partitions are topics."""
        layout = self.layout
        topic = layout.topic[self.partition]
        starts = runs(self.group, topic)
        count = len(layout.topics)
        topics = Layout(layout.topics, [1] * count, np.zeros(count, dtype=np.int32))
        return GroupRows(self.names, topics, self.group[starts], topic[starts]), starts

    def key(self, row: int) -> TopicPartition:
        """Return the partition of a row."""
        return self.layout.key(int(self.partition[row]))


def _keys(group: Rows, partition: Rows) -> NDArray[np.int64]:
    keys: NDArray[np.int64] = (group.astype(np.int64) << 40) | partition
    return keys


NO_ROWS = GroupRows((), Layout.of({}), np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.intp))


@dataclass(frozen=True, slots=True, eq=False)
class Positions:
    """The committed offsets of all groups, each a column [n] by ``rows``; no column is ever written to."""

    rows: GroupRows
    read_at: Floats
    """[groups]: when a group's offsets were compared with the ends of the logs, Unix seconds."""
    missed: NDArray[np.int32]
    """[groups]: number of sweeps since the group was last read. Its rows are from that sweep."""
    committed: Offsets
    reason: Codes
    """Why the end of the log is unknown, as a reason code; ANSWERED where it is known."""
    lag: Offsets
    """Offsets up to the end of the log, where that is known."""
    lost: Offsets
    """The part of ``lag`` that lies before the log start, where that is known."""
    lost_known: Flags
    seconds: Floats
    """The time lag; NaN where unknown."""
    error_bound: Floats
    stalled: Flags
    """Whether the group has committed nothing since the sweep before, though there was something to read."""
    no_time_lag: Codes
    """Why there is no time lag, as a code of OUTCOMES; ANSWERED where there is one, or none is measured."""

    @classmethod
    def read(
        cls, rows: GroupRows, at: float, committed: Offsets, reason: Codes, lag: Offsets, lost: Offsets, known: Flags
    ) -> Positions:
        """Return positions as read at a moment, without time lags; ``known`` flags where ``lost`` is known."""
        groups, count = len(rows.names), len(rows)
        return cls(
            rows,
            np.full(groups, at),
            np.zeros(groups, dtype=np.int32),
            committed,
            reason,
            lag,
            lost,
            known,
            np.full(count, np.nan),
            np.full(count, np.nan),
            np.zeros(count, dtype=np.bool_),
            np.zeros(count, dtype=np.int8),
        )

    @classmethod
    def of(cls, groups: Mapping[str, Group]) -> Positions:
        """Return the positions of groups; those of one table, where their partitions are views of it."""
        views = [group.partitions for group in groups.values()]
        if views and isinstance(views[0], PartitionsOf) and views[0].table.rows.names == tuple(groups):
            table = views[0].table
            if all(
                isinstance(one, PartitionsOf) and one.table is table and one.number == at
                for at, one in enumerate(views)
            ):
                return table
        names = tuple(sorted(groups))
        partitions: dict[str, set[int]] = {}
        for group in groups.values():
            for key in group.partitions:
                partitions.setdefault(key.topic, set()).add(key.partition)
        layout = Layout.of(partitions)
        found = [
            (number, row, groups[name].partitions[key])
            for number, name in enumerate(names)
            for row, key in sorted((layout.row(key) or 0, key) for key in groups[name].partitions)
        ]
        places, lags = [place for _, _, place in found], [place.time_lag for _, _, place in found]
        column = partial(np.array, dtype=np.int64)
        return cls(
            GroupRows(
                names,
                layout,
                np.array([number for number, _, _ in found], dtype=np.intp),
                np.array([row for _, row, _ in found], dtype=np.intp),
            ),
            np.array([groups[name].read_at for name in names], dtype=np.float64),
            np.zeros(len(names), dtype=np.int32),
            column([place.committed for place in places]),
            np.array([_lag_unknown(place) for place in places], dtype=np.int8),
            column([place.lag or 0 for place in places]),
            column([place.lost or 0 for place in places]),
            np.array([place.lost is not None for place in places], dtype=np.bool_),
            np.array([np.nan if lag is None else lag.seconds for lag in lags], dtype=np.float64),
            np.array([np.nan if lag is None else lag.error_bound for lag in lags], dtype=np.float64),
            np.array([lag is not None and lag.stalled for lag in lags], dtype=np.bool_),
            np.array([outcome_code(place.no_time_lag) for place in places], dtype=np.int8),
        )

    @classmethod
    def joined(cls, tables: Sequence[Positions], layout: Layout) -> Positions:
        """Return the positions of different groups as one table by ``layout``, without partitions that it lacks."""
        names = tuple(sorted(name for table in tables for name in table.rows.names))
        numbers = {name: number for number, name in enumerate(names)}
        group, partition, columns = [_NONE], [_NONE], [_no_positions()]
        read_at, missed = np.zeros(len(names)), np.zeros(len(names), dtype=np.int32)
        for table in tables:
            given = np.array([numbers[name] for name in table.rows.names], dtype=np.intp)
            read_at[given], missed[given] = table.read_at, table.missed
            there = table.rows.partitions_in(layout)
            present = np.flatnonzero(there >= 0)
            group.append(given[table.rows.group[present]])
            partition.append(there[present])
            columns.append({name: getattr(table, name)[present] for name in _COLUMNS})
        all_groups, all_partitions = np.concatenate(group), np.concatenate(partition)
        order = np.argsort(_keys(all_groups, all_partitions))
        rows = GroupRows(names, layout, all_groups[order], all_partitions[order])
        joined = {name: np.concatenate([each[name] for each in columns])[order] for name in _COLUMNS}
        return cls(rows, read_at, missed, **joined)

    def missed_again(self, names: Iterable[str]) -> Positions:
        """Return the positions of some of the groups, which one more sweep could not read."""
        wanted = set(names)
        chosen = np.array([name in wanted for name in self.rows.names], dtype=np.bool_)
        chosen_rows = np.flatnonzero(chosen[self.rows.group]) if len(chosen) else _NONE
        numbers = np.cumsum(chosen) - 1
        rows = GroupRows(
            tuple(name for name in self.rows.names if name in wanted),
            self.rows.layout,
            numbers[self.rows.group[chosen_rows]],
            self.rows.partition[chosen_rows],
        )
        columns = {name: getattr(self, name)[chosen_rows] for name in _COLUMNS}
        return Positions(rows, self.read_at[chosen], self.missed[chosen] + np.int32(1), **columns)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def fresh(self) -> Flags:
        """Which rows are of groups that the last sweep has read."""
        fresh: Flags = self.missed[self.rows.group] == 0
        return fresh

    @property
    def start(self) -> Offsets:
        """The first offset that each group has not read and that is not lost, where it is ``unread``."""
        return self.committed + np.where(self.lost_known, self.lost, 0)

    @property
    def unread(self) -> Flags:
        """Where there is something left to read."""
        unread: Flags = (self.reason == ANSWERED) & (self.committed + self.lag > self.start)
        return unread

    def changed(self, **columns: Any) -> Positions:
        """Return the table with other columns."""
        return replace(self, **columns)

    def position(self, row: int) -> GroupPartition:
        """Return one row as an object."""
        known, seconds = self.reason[row] == ANSWERED, float(self.seconds[row])
        no_time_lag = int(self.no_time_lag[row])
        return GroupPartition(
            int(self.committed[row]),
            int(self.lag[row]) if known else None,
            int(self.lost[row]) if known and self.lost_known[row] else None,
            reason_of_code(int(self.reason[row])),
            None if np.isnan(seconds) else TimeLag(seconds, float(self.error_bound[row]), bool(self.stalled[row])),
            None if no_time_lag == ANSWERED else OUTCOMES[no_time_lag - 1],
        )

    def by_group(self) -> Sequence[PartitionsOf]:
        """Return the rows of each group, as objects for people and tests."""
        first = self.rows.first.tolist()
        return [PartitionsOf(self, number, slice(*first[number : number + 2])) for number in range(len(first) - 1)]


class PartitionsOf(Mapping[TopicPartition, GroupPartition]):
    """The rows of one group as objects, created on access."""

    __slots__ = ("_rows", "number", "table")

    def __init__(self, table: Positions, number: int, rows: slice) -> None:
        self.table, self.number, self._rows = table, number, rows

    def __getitem__(self, key: TopicPartition) -> GroupPartition:
        rows = self.table.rows
        partition = rows.layout.row(key)
        if partition is not None:
            at = self._rows.start + int(np.searchsorted(rows.partition[self._rows], partition))
            if at < self._rows.stop and rows.partition[at] == partition:
                return self.table.position(at)
        raise KeyError(key)

    def __iter__(self) -> Iterator[TopicPartition]:
        return map(self.table.rows.key, range(self._rows.start, self._rows.stop))

    def __len__(self) -> int:
        return int(self._rows.stop - self._rows.start)

    def __repr__(self) -> str:
        return repr(dict(self))


def _lag_unknown(place: GroupPartition) -> int:
    return reason_code(place.reason or (Reason.MISSING_ANSWER if place.lag is None else None))


def _no_positions() -> dict[str, Any]:
    none = Positions.of({})
    return {name: getattr(none, name) for name in _COLUMNS}


_COLUMNS = tuple(column.name for column in fields(Positions))[3:]
_NONE = np.zeros(0, dtype=np.intp)

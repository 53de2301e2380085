"""The consumer groups of a cluster as columns: a row for each group, and one for each of their committed offsets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Codes, Flags, Floats, Offsets, Rows, blank_columns, runs
from exporter.domain.groups.consumer_groups import Description, GroupState, NoTimeLag
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.readings import ANSWERED, REASONS, Reason, reason_code

GROUP_STATES = tuple(GroupState)
"""The states of groups, by code."""

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

    def __eq__(self, other: object) -> bool:
        """Return whether each row is about the same group and partition."""
        return self is other or (
            isinstance(other, GroupRows)
            and self.names == other.names
            and np.array_equal(self.group, other.group)
            and np.array_equal(self.partition, other.partition)
            and self.layout == other.layout
        )

    __hash__ = None  # type: ignore[assignment]

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
        if self == before:
            every = np.arange(len(self), dtype=np.intp)
            return every, every
        if not len(self) or not len(before):
            return np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.intp)
        numbers = {name: number for number, name in enumerate(before.names)}
        group = np.array([numbers.get(name, -1) for name in self.names], dtype=np.intp)[self.group]
        partition = self.partitions_in(before.layout)
        here = np.flatnonzero((group >= 0) & (partition >= 0))
        wanted, known = keys_of(group[here], partition[here]), keys_of(before.group, before.partition)
        at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        shared = known[at] == wanted
        return here[shared], at[shared].astype(np.intp)

    def group_by_topic(self) -> tuple[GroupRows, Rows]:
        """Return a row for each group and topic, and where the rows of each begin here; its partitions are topics."""
        layout = self.layout
        topic = layout.topic[self.partition]
        starts = runs(self.group, topic)
        count = len(layout.topics)
        topics = Layout(layout.topics, [1] * count, np.zeros(count, dtype=np.int32))
        return GroupRows(self.names, topics, self.group[starts], topic[starts]), starts


def keys_of(group: Rows, partition: Rows) -> NDArray[np.int64]:
    """Return a number for each pair, in their order."""
    keys: NDArray[np.int64] = (group.astype(np.int64) << 40) | partition
    return keys


NO_ROWS = GroupRows((), Layout.build({}), np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.intp))


@dataclass(frozen=True, slots=True, eq=False)
class Positions:
    """All groups, each a row of the columns [groups], and their committed offsets, each a row of the columns [n].

    No column is ever written to.
    """

    rows: GroupRows
    read_at: Floats
    """[groups]: when a group's offsets were compared with the ends of the logs, Unix seconds."""
    missed: NDArray[np.int32]
    """[groups]: number of sweeps since the group was last read. Its rows are from that sweep."""
    state: Codes
    """[groups]: the index of its state in GROUP_STATES, -1 where that is unknown."""
    members: NDArray[np.int32]
    """[groups]: number of members, -1 where that is unknown."""
    undescribed: Codes
    """[groups]: why state and members are unknown, as a reason code; ANSWERED where they are known."""
    assigned: NDArray[np.object_]
    """[groups]: a frozenset of the topics that its members have assigned, as far as known."""
    settled: Flags
    """[groups]: whether ``assigned`` is all; otherwise the group rebalances, or could not be described."""
    committed: Offsets
    reason: Codes
    """Why the lag is unknown, as a code of OUTCOMES: PAST_END, or an error at the end of the log; else ANSWERED."""
    lag: Offsets
    """Offsets up to the end of the log, where that is known."""
    past_end: Offsets
    """How far the committed offset lies past the end of the log; 0 where it does not, or where that is unknown."""
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
    trailing: Flags
    """Whether what is left may be transaction markers alone (see ``time_lag.are_trailing``)."""

    @classmethod
    def read(
        cls,
        rows: GroupRows,
        at: float,
        described: Mapping[str, Description | Reason],
        before: Mapping[str, frozenset[str]],
        **columns: Any,
    ) -> Positions:
        """Return groups as read at a moment, without time lags.

        ``described`` has all of them. Where that leaves open what a group has assigned, its assignment ``before``
        counts as well. ``columns`` are those from ``committed`` to ``lost_known``, which an empty table lacks.
        """
        given = [described[name] for name in rows.names]
        known = [None if isinstance(one, Reason) else one for one in given]
        settled = [one is not None and one.assigned is not None for one in known]
        assigned = np.empty(len(given), dtype=np.object_)
        assigned[:] = [
            before.get(name, frozenset()) if one is None or one.assigned is None else one.assigned
            for name, one in zip(rows.names, known, strict=True)
        ]
        states = [-1 if one is None or one.state is None else GROUP_STATES.index(one.state) for one in known]
        undescribed = [reason_code(one if isinstance(one, Reason) else None) for one in given]
        of_groups = {
            "read_at": np.full(len(given), at),
            "missed": np.zeros(len(given), dtype=np.int32),
            "state": np.array(states, dtype=np.int8),
            "members": np.array([-1 if one is None else one.members for one in known], dtype=np.int32),
            "undescribed": np.array(undescribed, dtype=np.int8),
            "assigned": assigned,
            "settled": np.array(settled, dtype=np.bool_),
        }
        return cls(**blank_columns(cls, len(rows)) | of_groups | columns | {"rows": rows})

    @classmethod
    def concatenate(cls, tables: Sequence[Positions], layout: Layout) -> Positions:
        """Return the positions of different groups as one table by ``layout``, without partitions that it lacks."""
        tables = [NO_POSITIONS, *tables]
        names = [name for table in tables for name in table.rows.names]
        by_name = sorted(range(len(names)), key=names.__getitem__)
        number = np.empty(len(names), dtype=np.intp)
        number[by_name] = np.arange(len(names))
        offsets = np.cumsum([0, *(len(table.rows.names) for table in tables)])
        there = [table.rows.partitions_in(layout) for table in tables]
        group = np.concatenate([number[table.rows.group + at] for table, at in zip(tables, offsets, strict=False)])
        partition = np.concatenate(there)
        order = np.argsort(keys_of(group, partition), kind="stable")
        order = order[partition[order] >= 0]
        rows = GroupRows(tuple(names[at] for at in by_name), layout, group[order], partition[order])
        of_groups = {name: np.concatenate([getattr(one, name) for one in tables])[by_name] for name in _OF_GROUPS}
        of_rows = {name: np.concatenate([getattr(one, name) for one in tables])[order] for name in _OF_ROWS}
        return cls(rows, **of_groups, **of_rows)

    def carry_missed(self, names: Iterable[str]) -> Positions:
        """Return the positions of some of the groups, which one more sweep could not read."""
        wanted = set(names)
        chosen = np.array([name in wanted for name in self.rows.names], dtype=np.bool_)
        at = np.flatnonzero(chosen[self.rows.group]) if len(chosen) else self.rows.group
        numbers = np.cumsum(chosen) - 1
        names = tuple(name for name in self.rows.names if name in wanted)
        rows = GroupRows(names, self.rows.layout, numbers[self.rows.group[at]], self.rows.partition[at])
        of_groups = {name: getattr(self, name)[chosen] for name in _OF_GROUPS}
        of_groups["missed"] = of_groups["missed"] + np.int32(1)
        return Positions(rows, **of_groups, **{name: getattr(self, name)[at] for name in _OF_ROWS})

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


_COLUMNS = tuple(column.name for column in fields(Positions))[1:]
_OF_GROUPS = _COLUMNS[: _COLUMNS.index("committed")]
_OF_ROWS = _COLUMNS[_COLUMNS.index("committed") :]

NO_POSITIONS = Positions.read(NO_ROWS, 0.0, {}, {})

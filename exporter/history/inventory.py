"""Partitions and their offsets, as rows of the spool: written on change, daily, and when they are deleted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from exporter.domain.arrays import Codes, ColumnSet, Flags, Floats, Offsets, Rows
from exporter.domain.history.rows import Inventory, Source
from exporter.domain.polls.layout import NO_LEADER, Layout
from exporter.domain.polls.metadata import Metadata, TopicConfig, TopicInfo
from exporter.domain.polls.readings import REASONS, State
from exporter.domain.polls.table import STATE_CODES, STATES, Snapshot, Table
from exporter.history.tables import Column, look_up_names, make_nullable, spool_table

AGAIN_SECONDS = 86_400.0
"""Unchanged rows are written again after this time."""

_PASSING = {State.PENDING, State.FUTURE, State.CONTRADICTORY, State.PRESERVED, State.UNREADABLE}
_LASTING = np.array([STATE_CODES[State.OBSERVED if state in _PASSING else state] for state in STATES], dtype=np.int8)
"""The state that is compared: short-lived states do not count as a change."""


_NO_CONFIG = TopicConfig(None, None, None, remote_storage=False)


@dataclass(frozen=True, slots=True, eq=False)
class _LastRows(ColumnSet):
    at: Floats
    """When; NaN where there is none, and other columns are then invalid."""
    read: Flags
    """Whether the offsets are known."""
    leader: NDArray[np.int32]
    earliest: Offsets
    latest: Offsets
    newest: Floats
    state: Codes
    reason: Codes


class InventoryRows:
    """Remembers the last row of each partition of one cluster, and returns the rows to write."""

    def __init__(self, cluster: str, exporter: str) -> None:
        self._cluster, self._exporter = cluster, exporter
        self._metadata: Metadata | None = None
        self._layout = Layout((), (), np.zeros(0, dtype=np.int32))
        self._last_rows = _LastRows.blank(0)
        self._facts: dict[str, TopicInfo] = {}
        """By topic."""

    def take_due(self, snapshot: Snapshot) -> pa.Table:
        """Return the changed rows at a good poll, and remember them as written.

        Partitions are in order, deleted ones at the end.
        """
        table, at = snapshot.table, snapshot.taken_at
        gone = list[pa.Table]()
        if snapshot.metadata is not self._metadata or table.layout is not self._layout:
            gone.append(self._lay_out(snapshot))
        last = self._last_rows
        age = at - last.at
        new = (
            ~((age >= 0) & (age < AGAIN_SECONDS))
            | (_LASTING[last.state] != _LASTING[table.state_now])
            | (table.read & ~last.read)
        )
        due = np.flatnonzero(new)
        self._note(due, table, at)
        return pa.concat_tables([self._rows(due, at, deleted=False), *gone])

    def _note(self, rows: Rows, table: Table, at: float) -> None:
        """Remember these rows of a snapshot as of ``at``."""
        last, read = self._last_rows, table.read[rows]
        last.at[rows] = at
        last.read[rows] = read
        last.leader[rows] = np.where(read, table.led_by[rows], table.leader[rows])
        last.earliest[rows], last.latest[rows] = table.earliest[rows], table.latest[rows]
        last.newest[rows] = np.where(read, table.newest[rows], np.nan)
        last.state[rows], last.reason[rows] = table.state_now[rows], table.reason_now[rows]

    def _lay_out(self, snapshot: Snapshot) -> pa.Table:
        """Take the partitions and facts of a snapshot, and return rows of deleted partitions."""
        layout, topics = snapshot.table.layout, snapshot.metadata.topics
        here, there = layout.moves_from(self._layout)
        absent = np.ones(len(self._layout), dtype=np.bool_)
        absent[there] = False
        gone = self._rows(np.flatnonzero(absent), snapshot.taken_at, deleted=True)
        before, self._last_rows = self._last_rows, _LastRows.blank(len(layout), leader=NO_LEADER)
        self._last_rows.put(here, before[there])
        facts = {name: replace(topics[name], reason=None) for name in layout.topics}
        changed = np.array([facts[name] != self._facts.get(name) for name in layout.topics], dtype=np.bool_)
        # Rows that were never written are due.
        self._last_rows.at[changed[layout.topic]] = np.nan
        self._metadata, self._layout, self._facts = snapshot.metadata, layout, facts
        return gone

    def _rows(self, rows: Rows, at: float, *, deleted: bool) -> pa.Table:
        last, unread = self._last_rows, ~self._last_rows.read[rows]
        used, which = np.unique(self._layout.topic[rows], return_inverse=True)
        facts = [self._facts[self._layout.topics[number]] for number in used.tolist()]
        columns: dict[str, Column] = {
            "cluster": self._cluster,
            "topic": look_up_names(self._layout.topics, self._layout.topic[rows]),
            "topic_id": look_up_names([one.topic_id for one in facts], which),
            "partition": self._layout.partition[rows],
            "exporter": self._exporter,
            "source": Source.POLL.value,
            "observed_at": at,
            "leader": make_nullable(last.leader[rows], last.leader[rows] == NO_LEADER),
            "earliest_offset": make_nullable(last.earliest[rows], unread),
            "latest_offset": make_nullable(last.latest[rows], unread),
            "max_timestamp": last.newest[rows],
            "state": look_up_names(STATES, last.state[rows]),
            "reason": look_up_names(REASONS, last.reason[rows].astype(np.intp) - 1),
            "owner": look_up_names([one.owner for one in facts], which),
            "deleted": deleted,
            **config_columns([one.config for one in facts], which),
        }
        return spool_table(Inventory, len(rows), columns)


def config_columns(configs: Sequence[TopicConfig | None], topic: Rows) -> dict[str, Column]:
    """Return the settings of topics, None where unknown, for rows [n] of which ``topic`` has the number."""
    known = [config or _NO_CONFIG for config in configs]
    tiered, unknown = np.array([[one.remote_storage, one is _NO_CONFIG] for one in known], np.bool_).reshape(-1, 2).T
    return {
        "timestamp_type": look_up_names([one.timestamp_type for one in known], topic),
        "cleanup_policy": look_up_names([one.cleanup_policy for one in known], topic),
        "retention_seconds": np.array([one.retention_seconds for one in known], dtype=np.float64)[topic],
        "remote_storage": make_nullable(tiered[topic], unknown[topic]),
    }

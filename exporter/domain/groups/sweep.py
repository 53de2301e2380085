"""The result of one sweep over the consumer groups of a cluster, and how each group stands to each topic."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

import numpy as np

from exporter.domain.arrays import Codes, Rows
from exporter.domain.groups.positions import NO_POSITIONS, GroupRows, Positions, keys_of
from exporter.domain.polls.readings import Reason


class GroupRole(StrEnum):
    """How a group stands to a topic. Kafka keeps commits for ``offsets.retention.minutes``, whoever left the topic."""

    ASSIGNED = "assigned"
    """A member has a partition of the topic assigned: the group reads it."""
    UNKNOWN = "unknown"
    """It committed in the topic; what its members have assigned is unknown, as in a rebalance."""
    GONE = "gone"
    """It committed in the topic and has no member: a job between two runs, or a group that is over."""
    COMMITTED = "committed"
    """It committed in the topic and has members, of which none has the topic assigned: it left the topic."""


ROLES = tuple(GroupRole)
ROLE_CODES = {role: code for code, role in enumerate(ROLES)}


def roles_of(positions: Positions) -> tuple[GroupRows, Codes]:
    """Return a row for each group and watched topic that it has assigned or committed in, and its role, [n]."""
    committed, _ = positions.rows.group_by_topic()
    numbers = {name: number for number, name in enumerate(committed.layout.topics)}
    held = [
        (group, numbers[topic])
        for group, topics in enumerate(positions.assigned.tolist())
        for topic in topics
        if topic in numbers
    ]
    group, topic = np.array(held, dtype=np.intp).reshape(-1, 2).T
    keys, assigned = keys_of(committed.group, committed.partition), keys_of(group, topic)
    both, place = np.unique(np.concatenate([assigned, keys]), return_index=True)
    group = np.concatenate([group, committed.group])[place]
    topic = np.concatenate([topic, committed.partition])[place]
    rules = [np.isin(both, assigned), ~positions.settled[group], positions.members[group] == 0]
    found = [ROLE_CODES[role] for role in (GroupRole.ASSIGNED, GroupRole.UNKNOWN, GroupRole.GONE)]
    role = np.select(rules, found, ROLE_CODES[GroupRole.COMMITTED]).astype(np.int8)
    return GroupRows(committed.names, committed.layout, group, topic), role


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupSweep:
    """What one sweep found. Groups that it could not read have their last known values. Without slots, for a cache."""

    cluster: str
    taken_at: float = 0.0
    """When it ended, Unix seconds."""
    duration_seconds: float = 0.0
    positions: Positions = NO_POSITIONS
    others: frozenset[str] | None = frozenset()
    """Groups that are no consumer groups: which topics they read is unknown. None: there may be some."""
    failures: Mapping[Reason, int] = field(default_factory=dict)
    """Groups that could not be read in this sweep, by reason."""
    time_lags: Mapping[str, int] = field(default_factory=dict)
    """Committed offsets by outcome: ``ok``, or the reason why there is no time lag; empty where none is measured."""
    lookups: Mapping[str, int] = field(default_factory=dict)
    """Partition look-ups, by spec."""
    unlisted: Mapping[Reason, int] = field(default_factory=dict)
    """Brokers that did not list their groups, and partitions of __consumer_offsets without a leader, by reason.

    Groups may be missing.
    """
    all_visible: bool | None = None
    """Whether the right to DESCRIBE covers every group; otherwise some may be hidden."""
    narrowed: bool = False
    """Whether patterns excluded existing groups, which may read topics that no other group reads."""
    described_topics: frozenset[str] | None = None
    """Topics that could be described as the sweep began and ended, None for all: brokers leave out the others."""
    read: int = 0
    """Groups read in this sweep."""
    problem: str = ""
    """Why no group could be read at all; for a log line."""
    reason: Reason | None = None
    """The same as a Reason."""

    @cached_property
    def roles(self) -> tuple[Rows, Rows, Codes]:
        """How its groups stand to each watched topic, as m pairs by topic: those that read it first.

        The pairs of topic i are those from ``first[i]`` up to ``first[i + 1]``. Returns ``first`` [topics + 1], and the
        group and role of each pair [m].
        """
        rows, role = roles_of(self.positions)
        order = np.lexsort((rows.group, role, rows.partition))
        first = np.searchsorted(rows.partition[order], np.arange(len(rows.layout.topics) + 1)).astype(np.intp)
        return first, rows.group[order], role[order]

    @property
    def complete(self) -> bool:
        """Whether every consumer group is known, and was read."""
        return self.reason is None and not self.unlisted and not self.failures

    @property
    def blank(self) -> bool:
        """Whether no group could be read at all, and none is known from sweeps before."""
        return self.reason is not None and not self.positions.rows.names

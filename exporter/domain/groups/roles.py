"""How each consumer group stands to each topic: it reads the topic, left it, or only committed in it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from exporter.domain.arrays import Codes, Rows
from exporter.domain.groups.positions import GroupRows, Positions, keys_of


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
    committed, _ = positions.rows.by_topic()
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


@dataclass(frozen=True, slots=True, eq=False)
class RolesByTopic:
    """The same as m pairs by topic: those that read it first."""

    first: Rows
    """[topics + 1]: the pairs of topic i are those from ``first[i]`` up to ``first[i + 1]``."""
    group: Rows
    role: Codes

    @classmethod
    def of(cls, positions: Positions) -> RolesByTopic:
        """Return the groups of each topic of the layout of ``positions``."""
        rows, role = roles_of(positions)
        order = np.lexsort((rows.group, role, rows.partition))
        first = np.searchsorted(rows.partition[order], np.arange(len(rows.layout.topics) + 1)).astype(np.intp)
        return cls(first, rows.group[order], role[order])

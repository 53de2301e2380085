"""The groups of a cluster as records: the answer of the API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from exporter.domain.groups.positions import GROUP_STATES
from exporter.domain.groups.sweep import GroupSweep, roles_of
from exporter.domain.polls.readings import reason_of_code


def groups_of(sweep: GroupSweep) -> Iterator[dict[str, Any]]:
    """Yield each group by name, as values for JSON: consumer groups, then those of other types."""
    positions = sweep.positions
    rows, _ = roles_of(positions)
    first, topics = rows.first.tolist(), rows.layout.topics
    for number, name in enumerate(rows.names):
        state, members = int(positions.state[number]), int(positions.members[number])
        assigned = positions.assigned[number]
        watched = {topics[topic] for topic in rows.partition[first[number] : first[number + 1]].tolist()}
        yield {
            "group": name,
            "type": "consumer",
            "state": None if state < 0 else str(GROUP_STATES[state]),
            "members": None if members < 0 else members,
            "reason": reason_of_code(int(positions.undescribed[number])),
            "topics": sorted(watched | assigned),
            "assigned": sorted(assigned) if positions.settled[number] else None,
        }
    for name in sorted(sweep.others or ()):
        yield {
            "group": name,
            "type": None,
            "state": None,
            "members": None,
            "reason": None,
            "topics": [],
            "assigned": None,
        }

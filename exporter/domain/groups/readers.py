"""Who reads a topic: the groups that have it assigned, those that only committed in it, and what is unknown of them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Codes, Flags, Rows, ranges, replace_nan
from exporter.domain.groups.positions import GROUP_STATES, Positions
from exporter.domain.groups.sweep import ROLE_CODES, ROLES, GroupRole, GroupSweep, roles_of
from exporter.domain.polls.readings import ANSWERED, reason_of_code


class Readership(NamedTuple):
    """How many groups read a topic, left it, and committed in it without having a member now."""

    assigned: int
    committed: int = 0
    gone: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class TopicReaders:
    """The groups of n topics, as m pairs sorted by topic: those that read it first."""

    topics: Sequence[str]
    known: Flags
    """[n]: whether every group that may read the topic is here, with its role; otherwise its readers are unknown."""
    names: Sequence[str]
    """The groups, to which ``group`` [m] are indices."""
    group: Rows
    topic: Rows
    """[m]: indices into ``topics``, ascending."""
    role: Codes
    """[m]: indices into ROLES."""

    def count(self, role: GroupRole) -> NDArray[np.int64]:
        """Return how many groups have this role in each topic, [n]; all of them only where ``known``."""
        counted = np.bincount(self.topic[self.role == ROLE_CODES[role]], minlength=len(self.topics))
        return counted.astype(np.int64)

    def readership(self) -> list[Readership | None]:
        """Return the counts of each topic, None where its readers are unknown."""
        counts = zip(*(self.count(GroupRole[name.upper()]).tolist() for name in Readership._fields), strict=True)
        return [Readership(*of) if known else None for of, known in zip(counts, self.known.tolist(), strict=True)]

    def list_groups(self, row: int) -> list[tuple[str, GroupRole]]:
        """Return the groups of one topic, and the role of each."""
        low, high = np.searchsorted(self.topic, [row, row + 1])
        pairs = zip(self.group[low:high].tolist(), self.role[low:high].tolist(), strict=True)
        return [(self.names[group], ROLES[role]) for group, role in pairs]


def find_readers(sweep: GroupSweep, topics: Sequence[str]) -> TopicReaders:
    """Return the groups that read each of the watched ``topics``, which are different, or committed in it.

    Its readers are unknown where a group could not be read or may be hidden, or the assignment of one that committed in
    it is unknown. That nobody reads it is unknown as well where patterns leave out groups, where there may be groups of
    types that do not say what they read, and where the topic could not be described.
    """
    layout, (first, group, role) = sweep.positions.rows.layout, sweep.roles
    numbers = np.array([-1 if (number := layout.number_of(name)) is None else number for name in topics], dtype=np.intp)
    there = np.flatnonzero(numbers >= 0)
    start = first[numbers[there]]
    count = first[numbers[there] + 1] - start
    at = ranges(start, count)
    topic = np.repeat(there, count)
    every, names = np.zeros(len(topics), dtype=np.bool_), sweep.positions.rows.names
    found = TopicReaders(topics, every, names, group[at], topic, role[at])
    if not sweep.complete or not sweep.all_visible:
        return found
    described = sweep.described_topics
    proved = np.array([described is None or name in described for name in topics], dtype=np.bool_)
    proved &= not sweep.narrowed and sweep.others is not None and not sweep.others
    known = (found.count(GroupRole.UNKNOWN) == 0) & (proved | (found.count(GroupRole.ASSIGNED) > 0))
    return replace(found, known=known)


def explain_unknown(sweep: GroupSweep, topic: str) -> str | None:
    """Return why more groups may read a topic, for people; None where all that read it are known."""
    if not sweep.complete:
        reasons = Counter(sweep.failures) + Counter(sweep.unlisted)
        why = sweep.problem or ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items()))
        return f"unknown{'' if sweep.blank else ' for some consumer groups'}: {why}"
    if not sweep.all_visible:
        return "perhaps hidden consumer groups: grant DESCRIBE on groups to see all"
    readers = find_readers(sweep, [topic])
    if readers.known[0]:
        return None
    if sweep.others is None:
        return "perhaps share or streams groups, which could not be listed"
    if sweep.others:
        return "perhaps share or streams groups, which do not say what they read"
    if sweep.narrowed and not len(readers.group):
        return "no consumer group that `groups.include` and `groups.exclude` select"
    return None


def groups_in(sweep: GroupSweep, topic: str, partition: int | None = None) -> list[dict[str, Any]]:
    """Return where groups stand in a topic or in one partition of it, by name, as values for JSON; None is unknown.

    ``committed`` is the number of partitions in which a group has committed an offset, ``past_end`` the sum of the
    offsets by which its commits lie past the ends of the logs, ``lag_seconds`` the largest known time lag.
    """
    positions = sweep.positions
    rows = positions.rows
    roles = dict(find_readers(sweep, [topic]).list_groups(0))
    found, wanted = [], rows.layout.number_of(topic)
    asked = np.flatnonzero(rows.layout.topic[rows.partition] == (-1 if wanted is None else wanted))
    if partition is not None:
        asked = asked[rows.layout.partition[rows.partition[asked]] == partition]
    for name, role in sorted(roles.items()):
        number = rows.names.index(name)
        mine = asked[rows.group[asked] == number]
        if partition is not None and not len(mine) and role in (GroupRole.GONE, GroupRole.COMMITTED):
            continue
        lag_known = len(mine) > 0 and bool((positions.reason[mine] == ANSWERED).all())
        seconds = np.fmax.reduce(positions.seconds[mine], initial=np.nan)
        found.append(
            {
                "group": name,
                "role": role,
                **_describe_group(positions, number),
                "committed": len(mine),
                "lag": int(positions.lag[mine].sum()) if lag_known else None,
                "past_end": int(positions.past_end[mine].sum()),
                "lag_seconds": replace_nan(float(seconds)),
            }
        )
    return found


def _describe_group(positions: Positions, number: int) -> dict[str, Any]:
    """Return state and members of a group, and the reason why they are unknown."""
    state, members = int(positions.state[number]), int(positions.members[number])
    return {
        "state": None if state < 0 else str(GROUP_STATES[state]),
        "members": None if members < 0 else members,
        "reason": reason_of_code(int(positions.undescribed[number])),
    }


def groups_of(sweep: GroupSweep) -> Iterator[dict[str, Any]]:
    """Yield each group by name, as values for JSON: consumer groups, then those of other types."""
    positions = sweep.positions
    rows, _ = roles_of(positions)
    first, topics = rows.first.tolist(), rows.layout.topics
    for number, name in enumerate(rows.names):
        assigned = positions.assigned[number]
        watched = {topics[topic] for topic in rows.partition[first[number] : first[number + 1]].tolist()}
        yield {
            "group": name,
            "type": "consumer",
            **_describe_group(positions, number),
            "topics": sorted(watched | assigned),
            "assigned": sorted(assigned) if positions.settled[number] else None,
        }
    for name in sorted(sweep.others or ()):
        yield {"group": name, "topics": []} | dict.fromkeys(("type", "state", "members", "reason", "assigned"))

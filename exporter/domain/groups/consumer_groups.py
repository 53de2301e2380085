"""Consumer groups as their coordinators describe them: names, states, members and committed offsets."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Offsets, Rows
from exporter.domain.polls.readings import Reason


class GroupState(StrEnum):
    """The state of a group at its coordinator (KIP-222, KIP-848)."""

    STABLE = "stable"
    EMPTY = "empty"
    """Without a member; also a client that commits without ever being a member."""
    PREPARING_REBALANCE = "preparing-rebalance"
    COMPLETING_REBALANCE = "completing-rebalance"
    REBALANCING = "rebalancing"
    """A KIP-848 group that assigns or reconciles: librdkafka (2.16) does not distinguish these."""


class NoTimeLag(StrEnum):
    """Why there is no time lag of a committed offset, besides errors of brokers (``Reason``)."""

    FUTURE = "future-timestamp"
    """A timestamp in the future hides all later records."""
    NO_TIMESTAMP = "no-timestamp"
    """No record has one (message format before 0.10)."""
    UNFINISHED = "unfinished"
    """The sweep ended before the search; the next one continues it."""
    PAST_END = "past-end"
    """The committed offset lies past the end of the log: the group skips all records up to it."""


@dataclass(frozen=True, slots=True)
class GroupList:
    """The consumer groups that brokers coordinate, without those of Kafka Connect's workers, and the other groups."""

    names: frozenset[str]
    unlisted: Mapping[Reason, int]
    """Brokers that gave no list, and partitions of groups that nobody leads, by reason: their groups are missing."""
    all_visible: bool | None = True
    """Whether the client may DESCRIBE any group: brokers silently leave out those that it may not."""
    others: frozenset[str] | None = frozenset()
    """Share groups (KIP-932) and streams groups (KIP-1071); None where it is unknown whether there are any."""


@dataclass(frozen=True, slots=True)
class Description:
    """A coordinator's description of one group; ``state`` is None where the client does not know its name."""

    state: GroupState | None
    members: int
    assigned: frozenset[str] | None
    """Topics with a partition assigned to a member; None where that is unknown, as while a classic group rebalances."""


@dataclass(frozen=True, slots=True, eq=False)
class GroupOffsets:
    """The committed offsets of some groups, each a column [n], group by group."""

    names: tuple[str, ...]
    """The groups that were read; some may have committed nothing."""
    first: Rows
    """[groups + 1]: the offsets of group i are those from ``first[i]`` up to ``first[i + 1]``."""
    topics: tuple[str, ...]
    topic: NDArray[np.int32]
    """[n]: indices into ``topics``."""
    partition: NDArray[np.int32]
    offset: Offsets
    failed: Mapping[str, Reason]
    """The groups that could not be read."""

    @classmethod
    def build(cls, answers: Mapping[str, Iterable[tuple[str, int, int]] | Reason]) -> Self:
        """Return the commits of each group: (topic, partition, offset) of each, or the reason of a failure."""
        failed = {name: answer for name, answer in answers.items() if isinstance(answer, Reason)}
        read = {name: list(answer) for name, answer in answers.items() if not isinstance(answer, Reason)}
        commits = [commit for answer in read.values() for commit in answer]
        topics: dict[str, int] = {}
        topic = [topics.setdefault(name, len(topics)) for name, _, _ in commits]
        return cls(
            tuple(read),
            np.cumsum([0, *map(len, read.values())], dtype=np.intp),
            tuple(topics),
            np.array(topic, dtype=np.int32),
            np.array([partition for _, partition, _ in commits], dtype=np.int32),
            np.array([offset for _, _, offset in commits], dtype=np.int64),
            failed,
        )

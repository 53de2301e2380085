"""Consumer groups as sweeps see them: committed offsets, and how many records are not read yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Offsets, Rows
from exporter.domain.polls.readings import Reason, TopicPartition


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


@dataclass(frozen=True, slots=True)
class TimeLag:
    """How long the first record that a group has not read yet has been in the log.

    ``seconds`` is the lag when the group was read, with an error of at most ``error_bound`` seconds. ``stalled``:
    there was something to read at the previous sweep too, and the group has committed nothing since, so the lag grows
    with time.
    """

    seconds: float
    error_bound: float
    stalled: bool = False


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """The position of one group in one partition.

    ``lag`` counts offsets from the committed one to the end of the log, as Kafka's own tool does. This includes records
    of open transactions, markers, and records that compaction removed. ``lost`` of them lie before the log start: they
    were deleted before the group read them. Both are None where ``reason`` is set. ``no_time_lag`` is why there is no
    ``time_lag``, where time lags are measured.
    """

    committed: int
    lag: int | None = None
    lost: int | None = None
    reason: Reason | None = None
    time_lag: TimeLag | None = None
    no_time_lag: NoTimeLag | Reason | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """One consumer group. ``members`` and ``state`` are None where they are unknown.

    ``partitions`` has watched partitions with a committed offset. ``topics`` has the names of their topics, and of
    topics that are assigned to a member. ``reason`` is why this group could not be read.
    """

    state: GroupState | None = None
    members: int | None = None
    partitions: Mapping[TopicPartition, GroupPartition] = field(default_factory=dict)
    topics: frozenset[str] = frozenset()
    reason: Reason | None = None
    read_at: float = field(default=0.0, compare=False)
    """When its committed offsets were compared with the ends of the logs, Unix seconds."""


def groups_of(groups: Mapping[str, Group], topic: str, partition: int | None = None) -> dict[str, Group]:
    """Return the groups that may read a topic or one partition of it, and those that committed an offset in it.

    Which partitions a member reads is not known: a group with members may read each of the topic's.
    """
    return {
        name: group
        for name, group in groups.items()
        if topic in group.topics
        and (partition is None or group.members != 0 or TopicPartition(topic, partition) in group.partitions)
    }


@dataclass(frozen=True)
class GroupSweep:
    """The result of one sweep over the consumer groups of one cluster. It has no slots, so that it can cache counts."""

    cluster: str
    taken_at: float
    """When it ended, Unix seconds."""
    duration_seconds: float
    groups: Mapping[str, Group]
    """By name. A group that could not be read has its reason, or its last known state."""
    failures: Mapping[Reason, int] = field(default_factory=dict)
    """Groups that could not be read in this sweep, by reason."""
    partitions: Mapping[str, int] = field(default_factory=dict)
    """Committed partitions of this sweep by outcome: ``ok``, or the reason why their lag is unknown."""
    time_lags: Mapping[str, int] = field(default_factory=dict)
    """Committed offsets by outcome: ``ok``, or the reason why there is no time lag; empty where none is measured."""
    requests: Mapping[str, int] = field(default_factory=dict)
    """Requests for groups, by kind."""
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

    @property
    def complete(self) -> bool:
        """Whether every group is known, and was read."""
        return self.reason is None and not self.unlisted and not self.failures

    @property
    def known_groups(self) -> Mapping[str, Group] | None:
        """The groups; None where none could be read at all, and none is known from sweeps before."""
        return self.groups if self.groups or self.reason is None else None

    def readers(self, topics: Iterable[str]) -> Mapping[str, int]:
        """Count the groups that have committed an offset in each of these topics, or have it assigned to a member.

        Nothing is counted if a group could not be read, or may be hidden. A topic with 0 is left out if patterns leave
        out groups, or if it could not be described: a count of 0 must prove that nobody reads a topic.
        """
        if not self.complete or not self.all_visible:
            return {}
        counts = self._groups_of
        return {topic: counts[topic] for topic in topics if counts[topic] or self._proves_none(topic)}

    def _proves_none(self, topic: str) -> bool:
        return not self.narrowed and (self.described_topics is None or topic in self.described_topics)

    def reader_names(self, topics: Iterable[str]) -> Mapping[str, Sequence[str]]:
        """Return the names of the groups that ``readers`` counts, sorted."""
        names: dict[str, list[str]] = {topic: [] for topic in self.readers(topics)}
        for name in sorted(self.groups):
            for topic in names.keys() & self.groups[name].topics:
                names[topic].append(name)
        return names

    def without_members(self, topics: Iterable[str]) -> Mapping[str, int]:
        """Count the ``readers`` that have no member now: they may have committed once, and never again."""
        return {topic: self._memberless_of[topic] for topic in self.readers(topics)}

    @cached_property
    def _groups_of(self) -> Counter[str]:
        return Counter(topic for group in self.groups.values() for topic in group.topics)

    @cached_property
    def _memberless_of(self) -> Counter[str]:
        return Counter(topic for group in self.groups.values() if group.members == 0 for topic in group.topics)


@dataclass(frozen=True, slots=True)
class GroupList:
    """The consumer groups that brokers coordinate, without the groups of Kafka Connect and share groups."""

    names: frozenset[str]
    unlisted: Mapping[Reason, int]
    """Brokers that gave no list, and partitions of groups that nobody leads, by reason: their groups are missing."""
    all_visible: bool | None = True
    """Whether the client may DESCRIBE any group: brokers silently leave out those that it may not."""


@dataclass(frozen=True, slots=True)
class Description:
    """A coordinator's description of one group; ``state`` is None where the client does not know its name."""

    state: GroupState | None
    members: int
    assigned: frozenset[str]
    """Topics with a partition assigned to a member."""


@dataclass(frozen=True, slots=True, eq=False)
class Committed:
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
    def of(cls, answers: Mapping[str, Iterable[tuple[str, int, int]] | Reason]) -> Committed:
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

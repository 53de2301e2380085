"""What sweeps learn of consumer groups: committed offsets, and how many records are still to come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from exporter.domain.readings import Reason, TopicPartition


class GroupState(StrEnum):
    """What a group's coordinator says of it (KIP-222, KIP-848)."""

    STABLE = "stable"
    EMPTY = "empty"
    """Without a member; also what commits without ever having had one."""
    PREPARING_REBALANCE = "preparing-rebalance"
    COMPLETING_REBALANCE = "completing-rebalance"
    REBALANCING = "rebalancing"
    """A KIP-848 group that assigns or reconciles: librdkafka (2.16) does not tell which."""


class Untold(StrEnum):
    """Why there is no time lag of a committed offset, beyond what brokers say (``Reason``)."""

    FUTURE = "future-timestamp"
    """A timestamp from the future hides what was written after it."""
    NO_TIMESTAMP = "no-timestamp"
    """No record carries one (message format before 0.10)."""
    UNFINISHED = "unfinished"
    """The sweep ended before the search did; the next one goes on from there."""


@dataclass(frozen=True, slots=True)
class TimeLag:
    """How long the first record that a group has yet to read has been there (``exporter.domain.time_lag``).

    ``seconds`` is the lag when the group was read, true to within ``error_bound`` (seconds too). ``standing``: there
    was something to read at the sweep before as well, and the group has committed nothing since: it grows with time.
    """

    seconds: float
    error_bound: float
    standing: bool = False


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """Where one group stands in one partition.

    ``lag`` counts offsets from the committed one to the end of the log, as Kafka's own tool does: what an open
    transaction wrote, markers and what compaction removed included. ``lost`` of them lie before the log start:
    deleted before the group read them. Both are None where ``reason`` says why. ``untold`` says why there is no
    ``time_lag``, where time lags are measured.
    """

    committed: int
    lag: int | None = None
    lost: int | None = None
    reason: Reason | None = None
    time_lag: TimeLag | None = None
    untold: Untold | Reason | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """One consumer group. ``members`` and ``state`` are None where they could not be learnt.

    ``partitions`` has those with a committed offset, of topics that are watched; ``topics`` has the names of these
    topics, and of those assigned to a member. ``reason`` says why this group could not be read.
    """

    state: GroupState | None = None
    members: int | None = None
    partitions: Mapping[TopicPartition, GroupPartition] = field(default_factory=dict)
    topics: frozenset[str] = frozenset()
    reason: Reason | None = None
    read_at: float = field(default=0.0, compare=False)
    """When its committed offsets were set against the ends of the logs, Unix seconds."""


@dataclass(frozen=True, slots=True)
class GroupSweep:
    """What one sweep over the consumer groups of one cluster learnt."""

    cluster: str
    taken_at: float
    """When it was over, Unix seconds."""
    duration_seconds: float
    groups: Mapping[str, Group]
    """By name. A group that could not be read stands here with its reason, or as it was seen before."""
    failures: Mapping[Reason, int] = field(default_factory=dict)
    """Groups that could not be read in this sweep, by reason."""
    partitions: Mapping[str, int] = field(default_factory=dict)
    """Committed partitions of this sweep, by outcome: ``ok``, or the reason why their lag is not known."""
    time_lags: Mapping[str, int] = field(default_factory=dict)
    """Committed offsets by outcome: ``ok``, or the reason why there is no time lag; empty where none is measured."""
    requests: Mapping[str, int] = field(default_factory=dict)
    """Requests for groups, by kind."""
    lookups: Mapping[str, int] = field(default_factory=dict)
    """Partition look-ups, by spec."""
    unlisted: Mapping[Reason, int] = field(default_factory=dict)
    """Brokers that could not say which groups they coordinate, and partitions of groups that nobody leads, by reason:
    groups may be missing."""
    all_visible: bool | None = None
    """Whether the right to DESCRIBE covers every group: where not there may be more than are told of."""
    narrowed: bool = False
    """Whether patterns left out groups that there are: what nobody of the rest reads may be read by these."""
    read: int = 0
    """Groups read well in this sweep."""
    problem: str = ""
    """Why no group could be asked for at all; fit for a log line."""
    reason: Reason | None = None
    """The same as a reason."""

    @property
    def complete(self) -> bool:
        """Whether every group is known, and was read."""
        return self.reason is None and not self.unlisted and not self.failures

    def readers(self, topics: Iterable[str]) -> Mapping[str, int]:
        """Count the groups that have committed an offset in each of these topics, or have it assigned to a member.

        Nothing is counted where a group could not be read, or may be hidden, and 0 is left out where patterns leave
        out groups: that nobody reads a topic is proved.
        """
        if not self.complete or not self.all_visible:
            return {}
        counts = Counter(topic for group in self.groups.values() for topic in group.topics)
        return {topic: counts[topic] for topic in topics if counts[topic] or not self.narrowed}


@dataclass(frozen=True, slots=True)
class Listing:
    """The consumer groups that brokers coordinate. Those of Kafka Connect and share groups are none."""

    names: frozenset[str]
    unlisted: Mapping[Reason, int]
    """Brokers that gave no list, and partitions of groups that nobody leads, by reason: their groups are missing."""
    all_visible: bool | None = True
    """Whether the client may DESCRIBE any group: brokers leave those out that it may not, without a word."""


@dataclass(frozen=True, slots=True)
class Description:
    """What a coordinator says of one group; ``state`` is None where the client does not know its word for it."""

    state: GroupState | None
    members: int
    assigned: frozenset[str]
    """Topics of which a member has a partition."""


Committed = Mapping[TopicPartition, int]
"""The committed offset of each partition that has one."""

"""A cluster's metadata: brokers, topics, partitions and their leaders."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from typing import Self

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Codes, Flags, Offsets, Rows, ranges
from exporter.domain.polls.layout import NO_LEADER, Layout
from exporter.domain.polls.readings import Reason, reason_code


@dataclass(frozen=True, slots=True, eq=False)
class Membership:
    """Leader, replicas and the number of in-sync replicas of n partitions, as columns by ``layout``."""

    layout: Layout
    leader: NDArray[np.int32]
    """NO_LEADER where there is none."""
    first_replica: Rows
    """[n + 1]: broker ids of row i are those from ``first_replica[i]`` up to ``first_replica[i + 1]``."""
    replicas: NDArray[np.int32]
    in_sync: NDArray[np.int32]

    @classmethod
    def make_bare(cls, layout: Layout, leader: NDArray[np.int32]) -> Self:
        """Return partitions with their leaders alone, for look-ups."""
        first, nobody = np.zeros(len(layout) + 1, dtype=np.intp), np.zeros(0, dtype=np.int32)
        return cls(layout, leader, first, nobody, np.zeros(len(layout), dtype=np.int32))

    def part(self, rows: Rows) -> Self:
        """Return some rows, which are in order and each given once, with their leaders alone."""
        return self.make_bare(self.layout.part(rows), self.leader[rows])

    def restore_topics_of(self, before: Self, names: Collection[str]) -> Self:
        """Return the same, with the partitions of some topics taken from ``before``, without a leader.

        Raises KeyError where one of ``names`` is not a topic of both.
        """
        here, there = self.layout, before.layout
        remain, restored = np.ones(len(here), dtype=np.bool_), np.zeros(len(there), dtype=np.bool_)
        for name in names:
            remain[here.rows_of(name)], restored[there.rows_of(name)] = False, True
        layout, wanted = here.join(np.flatnonzero(remain), there, np.flatnonzero(restored))
        leaderless = np.full(len(there), NO_LEADER, dtype=np.int32)
        return type(self)(
            layout,
            np.concatenate([self.leader, leaderless])[wanted],
            *_lists_of(wanted, (self.first_replica, self.replicas), (before.first_replica, before.replicas)),
            np.concatenate([self.in_sync, before.in_sync])[wanted],
        )

    def matches(self, other: Self) -> bool:
        """Return whether every partition, leader and replica is the same."""
        return self.layout == other.layout and all(
            np.array_equal(getattr(self, name), getattr(other, name))
            for name in ("leader", "first_replica", "replicas", "in_sync")
        )


def flatten_lists(lists: Sequence[Sequence[int]]) -> tuple[Rows, NDArray[np.int32]]:
    """Return n lists of broker ids as (first [n + 1], all ids)."""
    first = np.concatenate([[0], np.cumsum([len(each) for each in lists])]).astype(np.intp)
    return first, np.fromiter((number for each in lists for number in each), dtype=np.int32, count=int(first[-1]))


def _lists_of(
    rows: Rows, one: tuple[Rows, NDArray[np.int32]], other: tuple[Rows, NDArray[np.int32]]
) -> tuple[Rows, NDArray[np.int32]]:
    """Return some lists of broker ids (see ``flatten_lists``) of ``one`` and, by rows after those, of the ``other``."""
    start = np.concatenate([one[0][:-1], other[0][:-1] + len(one[1])])[rows]
    count = np.concatenate([np.diff(one[0]), np.diff(other[0])])[rows]
    first = np.concatenate([[0], np.cumsum(count)]).astype(np.intp)
    return first, np.concatenate([one[1], other[1]])[ranges(start, count)]


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The settings of a topic that affect its offsets and timestamps. Times are ``math.inf`` where unlimited."""

    timestamp_type: str | None
    cleanup_policy: str | None
    retention_seconds: float | None
    remote_storage: bool


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic in the cluster's metadata. ``config`` is None where it could not be read.

    With a ``reason`` the topic could not be described; its partitions are the last known ones. ``owner`` comes from the
    configuration, because Kafka has none.
    """

    topic_id: str | None
    config: TopicConfig | None = None
    reason: Reason | None = None
    owner: str | None = None


NO_PARTITIONS = Membership.make_bare(Layout.build({}), np.zeros(0, dtype=np.int32))
"""The partitions of no topic."""


@dataclass(frozen=True)
class Metadata:
    """A cluster's metadata: broker id -> ``host:port``, topic name -> topic.

    ``unmatched`` lists the include patterns that match no allowed topic. ``unidentified`` has topics whose id is
    unknown, ``unconfigured`` those whose settings could not be read. ``cluster_id`` is that of KIP-78, None where it
    has none.
    """

    brokers: Mapping[int, str]
    topics: Mapping[str, TopicInfo]
    unmatched: tuple[str, ...] = ()
    unidentified: Mapping[str, Reason] = field(default_factory=dict)
    unconfigured: Mapping[str, Reason] = field(default_factory=dict)
    cluster_id: str | None = None
    membership: Membership = NO_PARTITIONS
    """The partitions of all topics."""

    @cached_property
    def topic_numbers(self) -> Offsets:
        """By topic of the layout, the number of its id (see ``number_ids``)."""
        return number_ids([self.topics[name].topic_id for name in self.membership.layout.topics])

    @cached_property
    def reason_of_topics(self) -> Codes:
        """By topic of the layout, the code of why it could not be described; ANSWERED where it could."""
        codes = [reason_code(self.topics[name].reason) for name in self.membership.layout.topics]
        return np.array(codes, dtype=np.int8)

    @cached_property
    def invisible(self) -> Mapping[str, Reason]:
        """Topics that could not be described, and of which no partition is known."""
        layout = self.membership.layout
        empty = [name for name, count in zip(layout.topics, np.diff(layout.first), strict=True) if not count]
        return {name: reason for name in empty if (reason := self.topics[name].reason) is not None}

    @cached_property
    def tiered(self) -> Flags:
        """By topic of the layout, whether it has remote storage."""
        return np.array([config is not None and config.remote_storage for config in self._configs], dtype=np.bool_)

    @cached_property
    def uncompacted(self) -> Flags:
        """By topic of the layout, whether it is known to lose its oldest records alone."""
        return np.array([policy == "delete" for policy in self._policies], dtype=np.bool_)

    @cached_property
    def compacted(self) -> Flags:
        """By topic of the layout, whether it is known to lose older records of a key."""
        return np.array(["compact" in policy for policy in self._policies], dtype=np.bool_)

    @property
    def _configs(self) -> list[TopicConfig | None]:
        return [self.topics[name].config for name in self.membership.layout.topics]

    @property
    def _policies(self) -> list[str]:
        return ["" if config is None else config.cleanup_policy or "" for config in self._configs]

    def part(self, rows: Rows) -> Self:
        """Return it with some partitions alone, which are in order and each given once, and with their leaders."""
        return replace(self, membership=self.membership.part(rows))

    @cached_property
    def incomplete(self) -> bool:
        """Whether topics could not be described, which the next metadata may include."""
        refused = (topic.reason for topic in self.topics.values())
        return bool(self.unidentified) or any(reason not in (None, Reason.UNAUTHORIZED) for reason in refused)


def number_ids(ids: Sequence[str | None]) -> Offsets:
    """Return the number that stands for each topic id in columns, always the same; 0 where the id is unknown."""
    digests = [None if each is None else blake2b(each.encode(), digest_size=8).digest() for each in ids]
    numbers = [0 if each is None else int.from_bytes(each, "big", signed=True) for each in digests]
    return np.array(numbers, dtype=np.int64)


def restore_known(metadata: Metadata, before: Metadata | None) -> Metadata:
    """Return metadata in which a topic that could not be described keeps the partitions that it had ``before``.

    They have no leader then. Without them one failed answer would end their silences and series like a deletion. A
    topic whose settings were not read this time keeps those that it had.
    """
    if before is None:
        return metadata
    known = {name: was for name in metadata.topics if (was := before.topics.get(name)) is not None}
    refused = {name for name, reason in metadata.unconfigured.items() if reason is Reason.UNAUTHORIZED}
    restored = {
        name: replace(now, config=was.config)
        for name, was in known.items()
        if (now := metadata.topics[name]).config is None and now.topic_id == was.topic_id and name not in refused
    }
    missed = [name for name in known if metadata.topics[name].reason is not None]
    membership = metadata.membership
    if missed:
        membership = membership.restore_topics_of(before.membership, missed)
        restored |= {name: replace(known[name], reason=metadata.topics[name].reason) for name in missed}
    return replace(metadata, topics={**metadata.topics, **restored}, membership=membership)


def is_unchanged(before: Metadata, now: Metadata) -> bool:
    """Return whether the metadata of a cluster is the same as before."""
    return replace(before, membership=NO_PARTITIONS) == replace(
        now, membership=NO_PARTITIONS
    ) and before.membership.matches(now.membership)

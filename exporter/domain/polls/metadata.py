"""A cluster's metadata: brokers, topics, partitions and their leaders."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Codes, Flags, Rows, ranges
from exporter.domain.polls.layout import NO_LEADER, Layout
from exporter.domain.polls.readings import Reason, reason_code


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """A partition in the cluster's metadata. ``leader`` is None while there is no usable leader."""

    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


class Membership:
    """Leader, replicas and in-sync replicas of n partitions, as columns by ``layout``.

    Broker ids of row i are ``replicas[first_replica[i]:first_replica[i + 1]]``, and likewise for ``in_sync``.
    """

    __slots__ = ("first_in_sync", "first_replica", "in_sync", "layout", "leader", "replicas")

    def __init__(
        self,
        layout: Layout,
        leader: NDArray[np.int32],
        replicas: tuple[Rows, NDArray[np.int32]],
        in_sync: tuple[Rows, NDArray[np.int32]],
    ) -> None:
        """``leader`` [n] is NO_LEADER where there is none; the others are (first [n + 1], broker ids)."""
        self.layout = layout
        self.leader = leader
        self.first_replica, self.replicas = replicas
        self.first_in_sync, self.in_sync = in_sync

    @classmethod
    def of(cls, topics: Mapping[str, Mapping[int, PartitionInfo]]) -> Membership:
        """Return the partitions of each topic as columns."""
        layout = Layout.of(topics)
        infos = [topics[key.topic][key.partition] for key in layout]
        leaders = [NO_LEADER if info.leader is None else info.leader for info in infos]
        return cls(
            layout,
            np.array(leaders, dtype=np.int32),
            flatten_lists([info.replicas for info in infos]),
            flatten_lists([info.in_sync for info in infos]),
        )

    @classmethod
    def led(cls, layout: Layout, leader: NDArray[np.int32]) -> Membership:
        """Return partitions with their leaders alone, for look-ups."""
        nobody = np.zeros(len(layout) + 1, dtype=np.intp), np.zeros(0, dtype=np.int32)
        return cls(layout, leader, nobody, nobody)

    def part(self, rows: Rows) -> Membership:
        """Return some rows, which are in order and each given once, with their leaders alone."""
        return Membership.led(self.layout.part(rows), self.leader[rows])

    def restore_topics_of(self, before: Membership, names: Collection[str]) -> Membership:
        """Return the same, with the partitions of some topics taken from ``before``, without a leader.

        Raises KeyError where one of ``names`` is not a topic of both.
        """
        here, there = self.layout, before.layout
        remain, restored = np.ones(len(here), dtype=np.bool_), np.zeros(len(there), dtype=np.bool_)
        for name in names:
            remain[here.rows_of(name)], restored[there.rows_of(name)] = False, True
        layout, wanted = here.joined(np.flatnonzero(remain), there, np.flatnonzero(restored))
        leaderless = np.full(len(there), NO_LEADER, dtype=np.int32)
        return Membership(
            layout,
            np.concatenate([self.leader, leaderless])[wanted],
            _lists_of(wanted, (self.first_replica, self.replicas), (before.first_replica, before.replicas)),
            _lists_of(wanted, (self.first_in_sync, self.in_sync), (before.first_in_sync, before.in_sync)),
        )

    def same_as(self, other: Membership) -> bool:
        """Return whether every partition, leader and replica is the same."""
        return self.layout == other.layout and all(
            np.array_equal(getattr(self, name), getattr(other, name))
            for name in ("leader", "first_replica", "replicas", "first_in_sync", "in_sync")
        )

    def info(self, row: int) -> PartitionInfo:
        """Return one row as an object."""
        leader = int(self.leader[row])
        return PartitionInfo(
            None if leader == NO_LEADER else leader,
            tuple(self.replicas[self.first_replica[row] : self.first_replica[row + 1]].tolist()),
            tuple(self.in_sync[self.first_in_sync[row] : self.first_in_sync[row + 1]].tolist()),
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


class PartitionsOf(Mapping[int, PartitionInfo]):
    """The partitions of one topic: partition number -> its row in a Membership, as an object."""

    __slots__ = ("_membership", "_rows", "_topic")

    def __init__(self, membership: Membership, topic: str) -> None:
        """Raises KeyError where the topic is not in the layout of ``membership``."""
        self._membership, self._topic, self._rows = membership, topic, membership.layout.rows_of(topic)

    def __getitem__(self, number: int) -> PartitionInfo:
        at = self._rows.start + int(np.searchsorted(self._numbers(), number))
        if at >= self._rows.stop or self._membership.layout.partition[at] != number:
            raise KeyError(number)
        return self._membership.info(at)

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers().tolist())

    def __len__(self) -> int:
        return int(self._rows.stop - self._rows.start)

    def _numbers(self) -> NDArray[np.int32]:
        return self._membership.layout.partition[self._rows]


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The settings of a topic that affect its offsets and timestamps.

    Times are ``math.inf`` where unlimited. The bounds on timestamps of producers, before and after the broker's clock
    (KIP-32, KIP-937), are None with LogAppendTime, where the broker sets timestamps.
    """

    timestamp_type: str | None
    cleanup_policy: str | None
    retention_seconds: float | None
    remote_storage: bool
    timestamp_before_max_seconds: float | None = None
    timestamp_after_max_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic in the cluster's metadata. ``config`` is None where it could not be read.

    With a ``reason`` the topic could not be described; its partitions are the last known ones. ``owner`` comes from the
    configuration, because Kafka has none.
    """

    topic_id: str | None
    partitions: Mapping[int, PartitionInfo]
    config: TopicConfig | None = None
    reason: Reason | None = None
    owner: str | None = None


def are_uncompacted(infos: Iterable[TopicInfo]) -> Flags:
    """Return which topics are known to lose their oldest records alone."""
    return np.array(
        [info.config is not None and info.config.cleanup_policy == "delete" for info in infos], dtype=np.bool_
    )


@dataclass(frozen=True)
class Metadata:
    """A cluster's metadata: broker id -> ``host:port``, topic name -> topic.

    ``unmatched`` lists the include patterns that match no allowed topic; those that match internal topics, which the
    configuration excludes, are also in ``only_internal``. ``unidentified`` has topics whose id is unknown,
    ``unconfigured`` those whose settings could not be read. ``cluster_id`` is that of KIP-78, None where it has none.
    """

    brokers: Mapping[int, str]
    topics: Mapping[str, TopicInfo]
    unmatched: tuple[str, ...] = ()
    unidentified: Mapping[str, Reason] = field(default_factory=dict)
    only_internal: tuple[str, ...] = ()
    unconfigured: Mapping[str, Reason] = field(default_factory=dict)
    cluster_id: str | None = None
    given: Membership | None = None
    """The partitions of ``topics`` as columns, where the reader already has them."""

    @cached_property
    def membership(self) -> Membership:
        """The partitions of all topics, as columns."""
        if self.given is not None:
            return self.given
        return Membership.of({name: topic.partitions for name, topic in self.topics.items()})

    @cached_property
    def reason_of_topics(self) -> Codes:
        """By topic of the layout, the code of why it could not be described; ANSWERED where it could."""
        codes = [reason_code(self.topics[name].reason) for name in self.membership.layout.topics]
        return np.array(codes, dtype=np.int8)

    @cached_property
    def tiered(self) -> Flags:
        """By topic of the layout, whether it has remote storage."""
        configs = (self.topics[name].config for name in self.membership.layout.topics)
        return np.array([config is not None and config.remote_storage for config in configs], dtype=np.bool_)

    @cached_property
    def incomplete(self) -> bool:
        """Whether topics could not be described, which the next metadata may include."""
        refused = (topic.reason for topic in self.topics.values())
        return bool(self.unidentified) or any(reason not in (None, Reason.UNAUTHORIZED) for reason in refused)


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
    for name in missed:
        partitions = PartitionsOf(membership, name)
        restored[name] = replace(known[name], partitions=partitions, reason=metadata.topics[name].reason)
    return replace(metadata, topics={**metadata.topics, **restored}, given=membership)


def is_unchanged(before: Metadata, now: Metadata) -> bool:
    """Return whether the metadata of a cluster is the same as before."""
    return (
        _without_topics(before) == _without_topics(now)
        and before.topics.keys() == now.topics.keys()
        and all(
            _without_partitions(before.topics[name]) == _without_partitions(topic) for name, topic in now.topics.items()
        )
        and before.membership.same_as(now.membership)
    )


def _without_topics(metadata: Metadata) -> Metadata:
    return replace(metadata, topics={}, given=None)


def _without_partitions(topic: TopicInfo) -> TopicInfo:
    return replace(topic, partitions={})

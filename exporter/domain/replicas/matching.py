"""Which topics and partitions of two clusters belong together, and why some cannot be compared: pure rules."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Flags, Rows
from exporter.domain.formatting import list_some
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.metadata import Metadata, TopicInfo
from exporter.domain.replicas.comparison import TopicMatches

_INTERNAL = re.compile(r"__.*|mm2-.*internal|.*checkpoints[._-]internal|heartbeats")
"""Internal topics of Kafka and of MirrorMaker, which are not replicas."""


@dataclass(frozen=True, slots=True)
class ReplicaNames:
    """The name of the replica of a topic: ``pattern`` matches whole names, ``replacement`` is a template of re."""

    pattern: re.Pattern[str]
    replacement: str
    include: Sequence[re.Pattern[str]]
    exclude: Sequence[re.Pattern[str]] = ()

    @classmethod
    def compile(cls, pattern: str, replacement: str, include: Iterable[str], exclude: Iterable[str]) -> Self:
        """Compile it. Raises re.error."""
        return cls(re.compile(pattern), replacement, [*map(re.compile, include)], [*map(re.compile, exclude)])

    def replica_of(self, topic: str) -> str | None:
        """Return the name of the replica of a source topic; None for one that is not replicated."""
        if _INTERNAL.fullmatch(topic) or any(one.fullmatch(topic) for one in self.exclude):
            return None
        if not any(one.fullmatch(topic) for one in self.include):
            return None
        found = self.pattern.fullmatch(topic)
        return None if found is None else found.expand(self.replacement)

    def match(self, source: Collection[str], target: Collection[str]) -> TopicMatches:
        """Match the topics of two clusters."""
        claims: dict[str, list[str]] = {}
        for topic in sorted(source):
            if (name := self.replica_of(topic)) is not None:
                claims.setdefault(name, []).append(topic)
        there = {name: topics for name, topics in claims.items() if name in target}
        contested = {name: topics for name, topics in there.items() if len(topics) > 1}
        return TopicMatches(
            {topics[0]: name for name, topics in there.items() if name not in contested},
            [topic for name, topics in claims.items() if name not in target for topic in topics],
            contested,
            next(iter(claims), ""),
        )


@dataclass(frozen=True, slots=True, eq=False)
class PartitionPairs:
    """The partitions of all replicas, and their rows in the tables of both clusters.

    MirrorMaker copies to the same partition number, so partitions with the same number belong together.
    """

    of: tuple[Metadata, Metadata]
    """What it was made of: the metadata of source and target."""
    matching: TopicMatches
    layout: Layout
    """By source topic."""
    source_rows: Rows
    """-1 where the source has no such partition."""
    target_rows: Rows
    """-1 where the replica has no such partition."""
    stamped: Flags
    """[n]: whether the replica's brokers set its timestamps."""

    @classmethod
    def match(cls, naming: ReplicaNames, source: Metadata, target: Metadata) -> Self:
        """Pair the partitions of two clusters."""
        matching = naming.match(source.topics, target.topics)
        targets = dict(sorted(matching.replicas.items()))
        number_of = {topic: number for number, topic in enumerate(targets)}
        source_rows, theirs = _numbered(source.membership.layout, number_of)
        number_of = {name: number_of[topic] for topic, name in targets.items()}
        target_rows, copies = _numbered(target.membership.layout, number_of)
        every = np.union1d(theirs, copies)
        topic = every >> 32
        stamped = np.array([_is_stamped(target.topics[name]) for name in targets.values()], dtype=np.bool_)
        paired = cls(
            (source, target),
            matching,
            Layout(targets, np.bincount(topic, minlength=len(targets)), (every & 0xFFFF_FFFF).astype(np.int32)),
            np.full(len(every), -1, dtype=np.intp),
            np.full(len(every), -1, dtype=np.intp),
            stamped[topic],
        )
        paired.source_rows[np.searchsorted(every, theirs)] = source_rows
        paired.target_rows[np.searchsorted(every, copies)] = target_rows
        return paired

    def moves_from(self, before: Self) -> tuple[Rows, Rows]:
        """Return the rows here and in ``before`` of partitions whose topics were not created again."""
        here, there = self.layout.moves_from(before.layout)
        ids = dict(before._ids())
        same = np.array([ids.get(topic) == both for topic, both in self._ids()], dtype=np.bool_)
        keep = same[self.layout.topic[here]]
        return here[keep], there[keep]

    def _ids(self) -> Iterator[tuple[str, tuple[str | None, ...]]]:
        source, target = self.of
        for topic, name in self.matching.replicas.items():
            yield topic, (name, source.topics[topic].topic_id, target.topics[name].topic_id)


def _is_stamped(topic: TopicInfo) -> bool:
    return topic.config is not None and topic.config.timestamp_type == "LogAppendTime"


def _numbers_of(metadata: Metadata, topic: str) -> NDArray[np.int32]:
    layout = metadata.membership.layout
    return layout.partition[layout.rows_of(topic)]


def _numbered(layout: Layout, number_of: Mapping[str, int]) -> tuple[Rows, NDArray[np.int64]]:
    """Return the rows of these topics, and the number of each row's topic with its partition, as one key."""
    numbers = np.array([number_of.get(name, -1) for name in layout.topics], dtype=np.int64)[layout.topic]
    rows = np.flatnonzero(numbers >= 0)
    return rows, (numbers[rows] << 32) | layout.partition[rows]


def find_faults(source: str, target: str, pairing: PartitionPairs) -> list[str]:
    """Return why topics of a pair of clusters, or partitions of them, cannot be compared, and what to do about it."""
    found, matching, (mine, theirs) = [], pairing.matching, pairing.of
    if not matching.replicas and not matching.contested:
        wanted = len(matching.without_replica)
        found.append(
            f"replicas: no topic of {source} has its replica in {target}: "
            + (f"{wanted} are expected with names such as {matching.example!r}" if wanted else "none is included")
            + "; next step: check policy, alias, include and exclude against the topic names, and topics.include of "
            "both clusters"
        )
    if matching.contested:
        named = [f"{copy} <- {', '.join(topics)}" for copy, topics in matching.contested.items()]
        found.append(
            f"replicas: in {target} more than one topic maps to {list_some(named)}; next step: narrow include, exclude "
            "or pattern until one topic is left for each"
        )
    numbers = {
        (topic, copy): (_numbers_of(mine, topic), _numbers_of(theirs, copy))
        for topic, copy in matching.replicas.items()
    }
    uneven = [
        f"{topic} ({len(one)}) -> {copy} ({len(other)})"
        for (topic, copy), (one, other) in numbers.items()
        if not np.array_equal(one, other)
    ]
    if uneven:
        found.append(
            f"replicas with more or fewer partitions than their source, compared where they match: {list_some(uneven)}"
            "; next step: give both topics the same number of partitions: MirrorMaker copies to the same partition"
        )
    stamped = [copy for copy in matching.replicas.values() if _is_stamped(theirs.topics[copy])]
    if stamped:
        found.append(
            f"replicas whose brokers set the timestamps, so that lag is unknown: {list_some(stamped)}; next step: "
            "message.timestamp.type=CreateTime on the replica"
        )
    return found

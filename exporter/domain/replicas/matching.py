"""Which topics and partitions of two clusters belong together, and why some cannot be compared: pure rules."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Codes, Rows
from exporter.domain.formatting import some
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.metadata import TopicInfo
from exporter.domain.replicas.comparison import NOT_COMPARED_CODES, Fault, Matching, NotCompared

_INTERNAL = re.compile(r"__.*|mm2-.*internal|.*checkpoints[._-]internal|heartbeats")
"""Internal topics of Kafka and of MirrorMaker, which are not replicas."""


@dataclass(frozen=True, slots=True)
class Naming:
    """The name of the replica of a topic: ``pattern`` matches whole names, ``replacement`` is a template of re."""

    pattern: re.Pattern[str]
    replacement: str
    include: Sequence[re.Pattern[str]]
    exclude: Sequence[re.Pattern[str]] = ()

    @classmethod
    def of(cls, pattern: str, replacement: str, include: Iterable[str], exclude: Iterable[str]) -> Naming:
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

    def match(self, source: Collection[str], target: Collection[str]) -> Matching:
        """Match the topics of two clusters."""
        claims: dict[str, list[str]] = {}
        for topic in sorted(source):
            if (name := self.replica_of(topic)) is not None:
                claims.setdefault(name, []).append(topic)
        there = {name: topics for name, topics in claims.items() if name in target}
        contested = {name: topics for name, topics in there.items() if len(topics) > 1}
        return Matching(
            {topics[0]: name for name, topics in there.items() if name not in contested},
            [topic for name, topics in claims.items() if name not in target for topic in topics],
            contested,
            next(iter(claims), ""),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Pairing:
    """The partitions of all replicas, and their rows in the tables of both clusters.

    MirrorMaker copies to the same partition number, so partitions with the same number belong together.
    """

    layout: Layout
    """By source topic."""
    targets: tuple[str, ...]
    """The replica of each topic of the layout."""
    source_rows: Rows
    """-1 where the source has no such partition."""
    target_rows: Rows
    """-1 where the replica has no such partition, or more than one source."""
    reason: Codes
    """Why a partition cannot be compared, as a code; COMPARED where it can."""

    @classmethod
    def of(cls, matching: Matching, source: Layout, target: Layout) -> Pairing:
        """Pair the partitions of two clusters."""
        contested = {topic: name for name, topics in matching.contested.items() for topic in topics}
        targets = dict(sorted({**matching.replicas, **contested}.items()))
        number_of = {topic: number for number, topic in enumerate(targets)}
        source_rows, theirs = _numbered(source, number_of)
        target_rows, copies = _numbered(target, {name: number_of[topic] for topic, name in matching.replicas.items()})
        every = np.union1d(theirs, copies)
        topic = every >> 32
        layout = Layout(targets, np.bincount(topic, minlength=len(targets)), (every & 0xFFFF_FFFF).astype(np.int32))
        paired = cls(
            layout,
            tuple(targets.values()),
            np.full(len(every), -1, dtype=np.intp),
            np.full(len(every), -1, dtype=np.intp),
            np.zeros(len(every), dtype=np.int8),
        )
        paired.source_rows[np.searchsorted(every, theirs)] = source_rows
        paired.target_rows[np.searchsorted(every, copies)] = target_rows
        paired.reason[paired.source_rows < 0] = NOT_COMPARED_CODES[NotCompared.NO_PARTITION_IN_SOURCE]
        paired.reason[paired.target_rows < 0] = NOT_COMPARED_CODES[NotCompared.NO_PARTITION_IN_REPLICA]
        twice = np.array([name in contested for name in targets], dtype=np.bool_)
        paired.reason[twice[layout.topic]] = NOT_COMPARED_CODES[NotCompared.TWO_SOURCES]
        return paired


def _numbered(layout: Layout, number_of: Mapping[str, int]) -> tuple[Rows, NDArray[np.int64]]:
    """Return the rows of these topics, and the number of each row's topic with its partition, as one key."""
    numbers = np.array([number_of.get(name, -1) for name in layout.topics], dtype=np.int64)[layout.topic]
    rows = np.flatnonzero(numbers >= 0)
    return rows, (numbers[rows] << 32) | layout.partition[rows]


def faults(
    source: str, target: str, matching: Matching, mine: Mapping[str, TopicInfo], theirs: Mapping[str, TopicInfo]
) -> list[Fault]:
    """Return why topics of a pair of clusters, or partitions of them, cannot be compared.

    ``mine`` are the polled topics of the source, ``theirs`` those of the target.
    """
    found = []
    if not matching.replicas and not matching.contested:
        wanted = len(matching.without_replica)
        what = f"replicas: no topic of {source} has its replica in {target}"
        what += f": {wanted} are expected with names such as {matching.example!r}" if wanted else ": none is included"
        fix = "check policy, alias, include and exclude against the topic names, and topics.include of both clusters"
        found.append(Fault(what, fix))
    if matching.contested:
        named = [f"{copy} <- {', '.join(topics)}" for copy, topics in matching.contested.items()]
        what = f"replicas: in {target} more than one topic maps to {some(named)}"
        found.append(Fault(what, "narrow include, exclude or pattern until one topic is left for each"))
    uneven = [
        f"{topic} ({len(mine[topic].partitions)}) -> {copy} ({len(theirs[copy].partitions)})"
        for topic, copy in matching.replicas.items()
        if mine[topic].partitions.keys() != theirs[copy].partitions.keys()
    ]
    if uneven:
        what = f"replicas with more or fewer partitions than their source, compared where they match: {some(uneven)}"
        found.append(
            Fault(what, "give both topics the same number of partitions: MirrorMaker copies to the same partition")
        )
    stamped = [
        copy
        for copy in matching.replicas.values()
        if (config := theirs[copy].config) is not None and config.timestamp_type == "LogAppendTime"
    ]
    if stamped:
        what = f"replicas whose brokers set the timestamps, so that lag is unknown: {some(stamped)}"
        found.append(Fault(what, "message.timestamp.type=CreateTime on the replica", matters=False))
    return found

"""Relations of the topics of one cluster, kept for Spark: readers, sources of replicas, sizes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from exporter.domain import (
    Comparison,
    NotCompared,
    Relation,
    ReplicaState,
    Source,
    TopicInfo,
)
from exporter.domain.inspections import NO_INSPECTIONS, Counts, Inspections, OfTopics
from exporter.domain.replicas import NOT_COMPARED_CODES, REPLICA_STATES

AGAIN_SECONDS = 86_400.0
"""Unchanged rows are written again after this time."""

NAMED_READERS = 20
"""Consumer groups of a topic whose names are kept; all are counted."""


class Copy(NamedTuple):
    """The source of a replica, and its state (``ReplicaState``); None where unknown."""

    cluster: str
    topic: str
    state: str | None


_BEST_FIRST = (
    ReplicaState.SOURCE_DEAD_TOO,
    ReplicaState.IN_STEP,
    ReplicaState.UNKNOWN,
    ReplicaState.BEHIND,
    ReplicaState.STOPPED,
)
_BADNESS = np.array([_BEST_FIRST.index(state) for state in REPLICA_STATES], dtype=np.int8)


def copies_of(comparison: Comparison) -> dict[str, Copy]:
    """Return the topics of the target that are replicas, each with the worst state of its partitions.

    A topic that several sources are mapped to has no known source.
    """
    table = comparison.table
    known = table.reason != NOT_COMPARED_CODES[NotCompared.TWO_SOURCES]
    worst = np.full(len(table.targets), -1, dtype=np.int8)
    np.maximum.at(worst, table.layout.topic[known], _BADNESS[table.state[known]])
    return {
        target: Copy(comparison.source, topic, None if _BEST_FIRST[bad] is ReplicaState.UNKNOWN else _BEST_FIRST[bad])
        for topic, target, bad in zip(table.layout.topics, table.targets, worst.tolist(), strict=True)
        if bad >= 0
    }


class _Facts(NamedTuple):
    consumer_groups: int | None
    replica_of_cluster: str | None
    replica_of_topic: str | None
    replica_state: str | None
    disk_bytes: int | None
    producers: int | None
    readers: str | None
    groups_without_members: int | None


_NO_NEWS = ("disk_bytes", "producers", "groups_without_members")
"""Values that change all the time: a change alone writes no row."""


@dataclass(slots=True)
class Relations:
    """What is known of the topics of one cluster, and which of it was written already.

    A value that becomes unknown is written with the daily row only. A sweep that fails now and then therefore costs no
    row, and what Spark reads is at most a day old.
    """

    cluster: str
    exporter: str
    readers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Names of consumer groups by topic; a missing topic is unknown."""
    without_members: Mapping[str, int] = field(default_factory=dict)
    """How many of them have no member."""
    copies: dict[str, Mapping[str, Copy]] = field(default_factory=dict)
    """By source cluster: the topics of this cluster that are replicas."""
    inspected: Inspections = field(default_factory=lambda: NO_INSPECTIONS)
    """Producers and sizes of partitions at the last good poll."""
    _written: dict[tuple[str, str | None], tuple[_Facts, float]] = field(default_factory=dict)

    def due(self, topics: Mapping[str, TopicInfo], at: float) -> list[Relation]:
        """Return the rows that changed at ``at`` (Unix seconds), and remember them as written."""
        rows, written = [], {}
        sizes = self._inspected(lambda known: known.disk_bytes)
        producers = self._inspected(lambda known: known.producers)
        copies = {name: copy for known in reversed(self.copies.values()) for name, copy in known.items()}
        for name, info in topics.items():
            key = (name, info.topic_id)
            facts = self._facts(name, copies.get(name), sizes.get(name), producers.get(name))
            before = self._written.get(key)
            if _is_due(facts, before, at):
                rows.append(Relation(self.cluster, name, info.topic_id, self.exporter, Source.POLL, at, *facts))
                before = (facts, at)
            if before is not None:
                written[key] = before
        self._written = written
        return rows

    def _inspected(self, counts: Callable[[OfTopics], Counts]) -> dict[str, int]:
        """Return what is known of topics, by name."""
        topics, (values, known) = self.inspected.layout.topics, counts(self.inspected.of_topics)
        rows = np.flatnonzero(known)
        return {topics[row]: value for row, value in zip(rows.tolist(), values[rows].tolist(), strict=True)}

    def _facts(self, topic: str, copy: Copy | None, disk_bytes: int | None, producers: int | None) -> _Facts:
        cluster, source, state = (None, None, None) if copy is None else copy
        readers = self.readers.get(topic)
        return _Facts(
            None if readers is None else len(readers),
            cluster,
            source,
            state,
            disk_bytes,
            producers,
            None if readers is None else json.dumps(list(readers[:NAMED_READERS])),
            self.without_members.get(topic),
        )


def _is_due(facts: _Facts, before: tuple[_Facts, float] | None, at: float) -> bool:
    if before is None:
        return any(value is not None for value in facts)
    written, when = before
    if not 0 <= at - when < AGAIN_SECONDS:
        return True
    changed = [name for name, value, old in zip(_Facts._fields, facts, written, strict=True) if value != old]
    return any(
        getattr(facts, name) is not None and (name not in _NO_NEWS or getattr(written, name) is None)
        for name in changed
    )

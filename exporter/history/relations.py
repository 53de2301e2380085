"""Relations of the topics of one cluster, kept for Spark: readers, sources of replicas, sizes."""

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from exporter.domain.groups.readers import TopicReaders
from exporter.domain.groups.sweep import GroupRole
from exporter.domain.history.rows import Relation, Source
from exporter.domain.polls.inspections import NO_INSPECTIONS
from exporter.domain.polls.metadata import TopicInfo
from exporter.domain.replicas.comparison import REPLICA_STATES, Comparison, ReplicaState
from exporter.history.inventory import AGAIN_SECONDS
from exporter.history.tables import table_of

NAMED_READERS = 20
"""Consumer groups of a topic whose names are kept; all are counted."""

BEST_FIRST = (
    ReplicaState.SOURCE_DEAD_TOO,
    ReplicaState.IN_STEP,
    ReplicaState.UNKNOWN,
    ReplicaState.BEHIND,
    ReplicaState.STOPPED,
)
_BADNESS = np.array([BEST_FIRST.index(state) for state in REPLICA_STATES], dtype=np.int8)

_FACTS = [column.name for column in fields(Relation)[6:]]
_NO_NEWS = ("disk_bytes", "groups_without_members")
"""Facts that change all the time: a change alone writes no row."""

Copies: TypeAlias = Mapping[str, tuple[str, ReplicaState]]
"""Topics that are replicas -> their source, and the worst state of their partitions."""


def copies_of(comparison: Comparison) -> Copies:
    """Return the topics of the target that are replicas."""
    layout = comparison.layout
    worst = np.full(len(layout.topics), -1, dtype=np.int8)
    np.maximum.at(worst, layout.topic, _BADNESS[comparison.lag.state])
    every = zip(comparison.targets, layout.topics, worst.tolist(), strict=True)
    return {target: (topic, BEST_FIRST[state]) for target, topic, state in every if state >= 0}


class Relations:
    """What is known of the topics of one cluster, and which of it was written already.

    A value that becomes unknown is written with the daily row only. A sweep that fails now and then therefore costs no
    row, and what Spark reads is at most a day old.
    """

    def __init__(self, cluster: str, exporter: str) -> None:
        self._cluster, self._exporter = cluster, exporter
        self.readers: TopicReaders | None = None
        """The consumer groups of each topic, as of the last sweep."""
        self.copies: dict[str, Copies] = {}
        """By source cluster: the topics of this cluster that are replicas. Of several sources the first one counts."""
        self.inspected = NO_INSPECTIONS
        """Sizes of partitions at the last good poll."""
        self._written: dict[tuple[str, str | None], Relation] = {}
        """The last row of each topic, by name and id."""

    def take_due(self, topics: Mapping[str, TopicInfo], at: float) -> pa.Table | None:
        """Return the rows that changed at ``at`` (Unix seconds), and remember them as written; None where none did."""
        now = {(row.topic, row.topic_id): row for row in self._rows(topics, at)}
        written = {life: row for life, row in self._written.items() if life in now}
        due = {life: row for life, row in now.items() if _is_due(row, written.get(life))}
        self._written = written | due
        return table_of(list(due.values())) if due else None

    def _rows(self, topics: Mapping[str, TopicInfo], at: float) -> list[Relation]:
        readers, sizes, copies = self._readers(), self._sizes(), dict[str, tuple[str, str, ReplicaState]]()
        for cluster, known in self.copies.items():
            for target, (topic, state) in known.items():
                copies.setdefault(target, (cluster, topic, state))
        rows = []
        for name, info in topics.items():
            cluster_of, topic_of, state_of = copies.get(name, (None, None, ReplicaState.UNKNOWN))
            count, gone, left, names = readers.get(name, (None, None, None, None))
            rows.append(
                Relation(
                    cluster=self._cluster,
                    topic=name,
                    topic_id=info.topic_id,
                    exporter=self._exporter,
                    source=Source.POLL.value,
                    observed_at=at,
                    consumer_groups=count,
                    replica_of_cluster=cluster_of,
                    replica_of_topic=topic_of,
                    replica_state=None if state_of is ReplicaState.UNKNOWN else state_of.value,
                    disk_bytes=sizes.get(name),
                    readers=names,
                    groups_without_members=gone,
                    groups_committed_only=left,
                )
            )
        return rows

    def _readers(self) -> dict[str, tuple[int, int, int, str]]:
        """Return how many groups there are of each topic, without members, and left by them; and the names of some."""
        found = self.readers
        if found is None:
            return {}
        every = np.bincount(found.topic, minlength=len(found.topics))
        counts = np.stack([every, found.count(GroupRole.GONE), found.count(GroupRole.COMMITTED)])
        return {
            found.topics[row]: (*counts[:, row].tolist(), json.dumps([group for group, _ in named]))
            for row in np.flatnonzero(found.known).tolist()
            for named in [found.list_groups(row)[:NAMED_READERS]]
        }

    def _sizes(self) -> dict[str, int]:
        names, sizes = self.inspected.layout.topics, self.inspected.disk_bytes_of_topics
        return {names[row]: int(sizes.value[row]) for row in np.flatnonzero(sizes.known).tolist()}


def _is_due(now: Relation, before: Relation | None) -> bool:
    known = {name: value for name in _FACTS if (value := getattr(now, name)) is not None}
    if before is None:
        return bool(known)
    if not 0 <= now.observed_at - before.observed_at < AGAIN_SECONDS:
        return True
    last = {name: getattr(before, name) for name in known}
    return any(last[name] is None or (last[name] != known[name] and name not in _NO_NEWS) for name in known)

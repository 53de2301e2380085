"""Relations of the topics of one cluster, kept for Spark: readers, sources of replicas, sizes."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Codes, Counts, Flags, Floats, Rows
from exporter.domain.groups.readers import TopicReaders
from exporter.domain.groups.sweep import GroupRole
from exporter.domain.history.rows import Relation, Source
from exporter.domain.polls.inspections import NO_INSPECTIONS
from exporter.domain.polls.metadata import TopicInfo
from exporter.domain.replicas.comparison import (
    REPLICA_STATES,
    Comparison,
    ReplicaState,
)
from exporter.history.columns import Column, Columns, Masked, Named
from exporter.history.numbering import Numbering

_T = TypeVar("_T", bound=Hashable)

AGAIN_SECONDS = 86_400.0
"""Unchanged rows are written again after this time."""

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
_UNKNOWN = BEST_FIRST.index(ReplicaState.UNKNOWN)


class Copies(NamedTuple):
    """The replicas of the topics of one cluster, each a column [n]."""

    cluster: str
    """The source."""
    topics: Sequence[str]
    """Their names there."""
    targets: Sequence[str]
    """The topics that are replicas."""
    state: Codes
    """The worst state of their partitions, an index into BEST_FIRST."""


def copies_of(comparison: Comparison) -> Copies:
    """Return the topics of the target that are replicas."""
    table = comparison.table
    worst = np.full(len(table.targets), -1, dtype=np.int8)
    np.maximum.at(worst, table.layout.topic, _BADNESS[table.state])
    rows = np.flatnonzero(worst >= 0)
    topics, targets = table.layout.topics, table.targets
    return Copies(
        comparison.source,
        [topics[row] for row in rows.tolist()],
        [targets[row] for row in rows.tolist()],
        worst[rows],
    )


_FACTS = (
    "consumer_groups",
    "replica_of_cluster",
    "replica_of_topic",
    "replica_state",
    "disk_bytes",
    "readers",
    "groups_without_members",
    "groups_committed_only",
)
_PLACES = {name: place for place, name in enumerate(_FACTS)}
_COUNTED = {
    "consumer_groups": None,
    "groups_without_members": GroupRole.GONE,
    "groups_committed_only": GroupRole.COMMITTED,
}
"""Numbers of groups: all that have it assigned or committed in it, and those of one role."""
_IS_NEWS = np.array([[name not in ("disk_bytes", "groups_without_members")] for name in _FACTS])
"""False where values change all the time: a change alone writes no row."""


@dataclass(slots=True, eq=False)
class _Facts:
    """The facts of n topics, in the order of ``_FACTS``: whole numbers, and numbers of texts."""

    value: NDArray[np.int64]
    """[facts, n]."""
    known: Flags
    """[facts, n]; elsewhere ``value`` is invalid."""

    @classmethod
    def nothing(cls, count: int) -> _Facts:
        """Return n topics without any known fact."""
        return cls(np.zeros((len(_FACTS), count), dtype=np.int64), np.zeros((len(_FACTS), count), dtype=np.bool_))

    def put(self, name: str, value: NDArray[np.int64], known: Flags) -> None:
        """Set one fact of all topics."""
        self.value[_PLACES[name]], self.known[_PLACES[name]] = value, known

    def copy_from(self, other: _Facts, there: Rows, here: Rows) -> None:
        """Take the facts of the topics ``there``, of ``other``, for those ``here``."""
        self.value[:, here], self.known[:, here] = other.value[:, there], other.known[:, there]


def _are_due(now: _Facts, written: _Facts, written_at: Floats, at: float) -> Flags:
    """Return which of n topics need a row at ``at``; ``written_at`` is when they had one, NaN where never."""
    age = at - written_at
    news = now.known & (~written.known | ((now.value != written.value) & _IS_NEWS))
    return np.where(
        np.isnan(written_at), now.known.any(axis=0), ~((age >= 0) & (age < AGAIN_SECONDS)) | news.any(axis=0)
    )


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
        """By source cluster: the topics of this cluster that are replicas."""
        self.inspected = NO_INSPECTIONS
        """Sizes of partitions at the last good poll."""
        self._topics: Mapping[str, TopicInfo] = {}
        self._names: Sequence[str] = ()
        self._ids: Sequence[str | None] = ()
        self._numbers: Mapping[str, int] = {}
        """The number of each topic, by name: its place in the columns."""
        self._now = self._written = _Facts.nothing(0)
        self._written_at: Floats = np.zeros(0)
        """When the last row of each topic was written; NaN where none was."""
        self._clusters: Numbering[str] = Numbering()
        self._sources: Numbering[str] = Numbering()
        self._reader_lists: Numbering[tuple[str, ...]] = Numbering()
        self._used: dict[str, tuple[object, ...]] = {}
        """What the columns of each kind were made from."""

    def due(self, topics: Mapping[str, TopicInfo], at: float) -> Columns | None:
        """Return the rows that changed at ``at`` (Unix seconds), and remember them as written; None where none did."""
        if topics is not self._topics:
            self._number(topics)
        if self._is_new("readers", self.readers):
            self._take_readers()
        if self._is_new("copies", *self.copies.values()):
            self._take_copies()
        if self._is_new("inspected", self.inspected):
            self._take_inspected()
        rows = np.flatnonzero(_are_due(self._now, self._written, self._written_at, at))
        if not len(rows):
            return None
        columns = self._rows(rows, at)
        self._written.copy_from(self._now, rows, rows)
        self._written_at[rows] = at
        return columns

    def _is_new(self, kind: str, *now: object) -> bool:
        before = self._used.get(kind)
        self._used[kind] = now
        return before is None or len(before) != len(now) or any(a is not b for a, b in zip(before, now, strict=True))

    def _number(self, topics: Mapping[str, TopicInfo]) -> None:
        """Number these topics. One that was created again was never written."""
        before = {life: number for number, life in enumerate(zip(self._names, self._ids, strict=True))}
        self._topics, self._names, self._ids = topics, list(topics), [info.topic_id for info in topics.values()]
        self._numbers = {name: number for number, name in enumerate(self._names)}
        lives = zip(self._names, self._ids, strict=True)
        there = np.array([before.get(life, -1) for life in lives], dtype=np.intp)
        here = np.flatnonzero(there >= 0)
        written, written_at = _Facts.nothing(len(topics)), np.full(len(topics), np.nan)
        written.copy_from(self._written, there[here], here)
        written_at[here] = self._written_at[there[here]]
        self._written, self._written_at = written, written_at
        self._now = _Facts.nothing(len(topics))
        self._used.clear()

    def _numbers_of(self, names: Sequence[str]) -> tuple[Rows, Rows]:
        """Return the indices of ``names`` that are topics, and the numbers of these."""
        numbers = np.array([self._numbers.get(name, -1) for name in names], dtype=np.intp)
        there = np.flatnonzero(numbers >= 0)
        return there, numbers[there]

    def _take_readers(self) -> None:
        count = len(self._names)
        lists: list[tuple[str, ...] | None] = [None] * count
        counts = {name: Counts.unknown(count) for name in _COUNTED}
        if (readers := self.readers) is not None:
            there, numbers = self._numbers_of(readers.topics)
            there, numbers = there[readers.known[there]], numbers[readers.known[there]]
            every = np.bincount(readers.topic, minlength=len(readers.topics))
            for name, role in _COUNTED.items():
                counts[name].value[numbers] = (every if role is None else readers.count(role))[there]
                counts[name].known[numbers] = True
            for place, number in zip(there.tolist(), numbers.tolist(), strict=True):
                lists[number] = tuple(group for group, _ in readers.named(place)[:NAMED_READERS])
        for name, found in counts.items():
            self._now.put(name, *found)
        self._put_texts("readers", self._reader_lists, lists)

    def _take_copies(self) -> None:
        count = len(self._names)
        clusters: list[str | None] = [None] * count
        sources: list[str | None] = [None] * count
        state = np.full(count, _UNKNOWN, dtype=np.int64)
        # Of several sources the first one counts.
        for known in reversed(self.copies.values()):
            there, numbers = self._numbers_of(known.targets)
            state[numbers] = known.state[there]
            for place, number in zip(there.tolist(), numbers.tolist(), strict=True):
                clusters[number], sources[number] = known.cluster, known.topics[place]
        self._put_texts("replica_of_cluster", self._clusters, clusters)
        self._put_texts("replica_of_topic", self._sources, sources)
        self._now.put("replica_state", state, state != _UNKNOWN)

    def _take_inspected(self) -> None:
        there, numbers = self._numbers_of(self.inspected.layout.topics)
        sizes = self.inspected.of_topics.disk_bytes
        value, known = Counts.unknown(len(self._names))
        value[numbers], known[numbers] = sizes.value[there], sizes.known[there]
        self._now.put("disk_bytes", value, known)

    def _put_texts(self, name: str, numbers: Numbering[_T], values: Sequence[_T | None]) -> None:
        written = self._written.value[_PLACES[name]][self._written.known[_PLACES[name]]]
        found = numbers.of(values, written.tolist())
        self._now.put(name, found, found >= 0)

    def _rows(self, rows: Rows, at: float) -> Columns:
        """Return rows of these topics."""
        every = np.arange(len(rows))
        columns: dict[str, Column] = {
            "cluster": self._cluster,
            "topic": Named([self._names[row] for row in rows.tolist()], every),
            "topic_id": Named([self._ids[row] for row in rows.tolist()], every),
            "exporter": self._exporter,
            "source": Source.POLL.value,
            "observed_at": at,
            "replica_of_cluster": self._texts("replica_of_cluster", rows, self._clusters.__getitem__),
            "replica_of_topic": self._texts("replica_of_topic", rows, self._sources.__getitem__),
            "replica_state": self._texts("replica_state", rows, BEST_FIRST.__getitem__),
            "readers": self._texts("readers", rows, lambda number: json.dumps(self._reader_lists[number])),
        }
        for name in (*_COUNTED, "disk_bytes"):
            place = _PLACES[name]
            columns[name] = Masked(self._now.value[place, rows], ~self._now.known[place, rows])
        return Columns(Relation, len(rows), columns)

    def _texts(self, name: str, rows: Rows, text: Callable[[int], str]) -> Named:
        place = _PLACES[name]
        known = self._now.known[place, rows]
        used, which = np.unique(self._now.value[place, rows[known]], return_inverse=True)
        number = np.full(len(rows), -1, dtype=np.int64)
        number[known] = which
        return Named([text(one) for one in used.tolist()], number)

"""Published expectations in columns. A row becomes an object only when somebody looks at it."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Codes, Flags, Floats, Offsets, Rows, or_none
from exporter.domain.learning.drops import OngoingDrop
from exporter.domain.learning.rest_days import Rest
from exporter.domain.learning.schedule import Schedule
from exporter.domain.learning.weekly_sums import Profiles
from exporter.domain.verdicts import Expectation

Key = tuple[str, str, int | None]
"""(cluster, topic, partition); partition None is the topic as a whole."""

Numbers = NDArray[np.int32]
"""Indices into ``Shared``; -1: none."""

WHOLE_TOPIC = -1
"""The partition number that stands for the topic as a whole."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A schedule without its deadlines, and the number of the profile that holds them; -1: it keeps its own."""

    schedule: Schedule
    profile: int

    def whole(self, profiles: Profiles) -> Schedule:
        """Return the schedule with its deadlines."""
        if self.profile < 0:
            return self.schedule
        return replace(self.schedule, deadlines=profiles.rates[self.profile].tolist())


@dataclass(frozen=True, slots=True, eq=False)
class Shared:
    """Values that rows refer to by number. Each is kept once, however many rows have it."""

    clusters: Sequence[str]
    topics: Sequence[str]
    """Sorted, as the clusters are."""
    topic_ids: Sequence[str]
    verdicts: Sequence[str]
    rules: Sequence[str]
    replications: Sequence[str]
    incidents: Sequence[str]
    evidence: Sequence[str]
    profiles: Profiles
    odd_profiles: Mapping[int, Sequence[float]]
    """Profiles that do not have 168 rates, by the number of their row."""
    schedules: Sequence[Planned]
    rests: Sequence[Sequence[Rest]]
    falling: Sequence[OngoingDrop]


@dataclass(frozen=True, slots=True, eq=False)
class ExpectationTable(Mapping[Key, Expectation]):
    """n expectations, a column [n] each, in the order of cluster, topic (itself first) and partition.

    As a mapping it makes the object of a row on access. In columns of numbers NaN means unknown.
    """

    shared: Shared
    number: Numbers
    """The number of the row in the order of reading, which is also the number of its evidence."""
    cluster: Numbers
    topic: Numbers
    partition: Numbers
    """The number of the partition, or WHOLE_TOPIC; smaller for an impossible number."""
    topic_id: Numbers
    verdict: Numbers
    rule: Numbers
    as_of: Floats
    end_offset: Offsets
    """Invalid where ``ended`` is False."""
    ended: Flags
    last_advance: Floats
    slot_seconds: Floats
    max_silence_seconds: Floats
    suspect_silence_seconds: Floats
    suspect_score: Floats
    dead_score: Floats
    profile: Numbers
    clock_step: Floats
    log_mean: Floats
    log_spread: Floats
    pause_slots: Floats
    polled_from: Floats
    schedule: Numbers
    rests: Numbers
    falling: Numbers
    history_start: Floats
    observed_seconds: Floats
    largest_silence_seconds: Floats
    largest_silence_end: Floats
    largest_missed: Floats
    weeks: Floats
    active_slots: Floats
    replication: Numbers
    incident: Numbers
    fault: Codes
    """Indices into FAULTS."""

    def __len__(self) -> int:
        return len(self.number)

    def __iter__(self) -> Iterator[Key]:
        return map(self.key, range(len(self)))

    def __getitem__(self, key: Key) -> Expectation:
        cluster, topic, partition = key
        mine = self._of_cluster(cluster)
        row = self.find(topic, partition, mine)
        if row < 0:
            raise KeyError(key)
        return self.row(row)

    def key(self, row: int) -> Key:
        """Return the cluster, the topic and the partition of a row."""
        shared, partition = self.shared, int(self.partition[row])
        number = None if partition == WHOLE_TOPIC else partition if partition >= 0 else partition + 1
        return shared.clusters[self.cluster[row]], shared.topics[self.topic[row]], number

    def row(self, row: int) -> Expectation:
        """Return a row as an object."""
        shared = self.shared
        cluster, topic, partition = self.key(row)
        number, topic_id, profile = int(self.number[row]), int(self.topic_id[row]), int(self.profile[row])
        schedule, rests, falling = int(self.schedule[row]), int(self.rests[row]), int(self.falling[row])
        return Expectation(
            cluster=cluster,
            topic=topic,
            topic_id=None if topic_id < 0 else shared.topic_ids[topic_id],
            partition=partition,
            as_of=float(self.as_of[row]),
            end_offset=int(self.end_offset[row]) if self.ended[row] else None,
            last_advance=or_none(self.last_advance[row]),
            verdict=shared.verdicts[self.verdict[row]],
            evidence=shared.evidence[number],
            rule=shared.rules[self.rule[row]],
            slot_seconds=float(self.slot_seconds[row]),
            max_silence_seconds=or_none(self.max_silence_seconds[row]),
            suspect_silence_seconds=or_none(self.suspect_silence_seconds[row]),
            suspect_score=or_none(self.suspect_score[row]),
            dead_score=or_none(self.dead_score[row]),
            profile=shared.odd_profiles.get(number) if profile < 0 else shared.profiles.rates[profile],
            clock_step=or_none(self.clock_step[row]),
            log_mean=or_none(self.log_mean[row]),
            log_spread=or_none(self.log_spread[row]),
            pause_slots=or_none(self.pause_slots[row]),
            polled_from=or_none(self.polled_from[row]),
            schedule=None if schedule < 0 else shared.schedules[schedule].whole(shared.profiles),
            rests=None if rests < 0 else tuple(shared.rests[rests]),
            falling=None if falling < 0 else shared.falling[falling],
            history_start=or_none(self.history_start[row]),
            observed_seconds=or_none(self.observed_seconds[row]),
            largest_silence_seconds=or_none(self.largest_silence_seconds[row]),
            largest_silence_end=or_none(self.largest_silence_end[row]),
            largest_missed=or_none(self.largest_missed[row]),
            weeks=_count(self.weeks[row]),
            active_slots=_count(self.active_slots[row]),
            replication=None if (replication := int(self.replication[row])) < 0 else shared.replications[replication],
            incident=None if (incident := int(self.incident[row])) < 0 else shared.incidents[incident],
        )

    def find(self, topic: str, partition: int | None, within: slice = slice(None)) -> int:
        """Return the row of a stream among the rows of its cluster, -1 where there is none."""
        code = bisect_left(self.shared.topics, topic)
        if code == len(self.shared.topics) or self.shared.topics[code] != topic:
            return -1
        topics = self.topic[within]
        begin, end = np.searchsorted(topics, code, "left"), np.searchsorted(topics, code, "right")
        wanted = WHOLE_TOPIC if partition is None else partition
        row = int(begin + np.searchsorted(self.partition[within][begin:end], wanted))
        return row + (within.start or 0) if row < end and self.partition[within][row] == wanted else -1

    def of_cluster(self, name: str) -> ExpectationTable:
        """Return the rows of a cluster; nothing is copied."""
        mine = self._of_cluster(name)
        return ExpectationTable(
            self.shared, *(getattr(self, column.name)[mine] for column in fields(self) if column.name != "shared")
        )

    def of_verdicts(self, names: Sequence[str]) -> Rows:
        """Return the rows that were published with one of these verdicts."""
        chosen = np.array([name in names for name in self.shared.verdicts], np.bool_)
        return np.flatnonzero(chosen[self.verdict])

    def rows_of(
        self, topics: Sequence[str], topic_ids: Sequence[str | None], topic: Rows, partition: NDArray[np.int32]
    ) -> Rows:
        """Return the row of each stream, -1 where there is none or it belongs to an earlier topic of that name.

        A stream is the ``partition`` of the ``topic``, an index into ``topics``, to which ``topic_ids`` belong.
        """
        if not len(self):
            return np.full(len(topic), -1, np.intp)
        codes = {name: code for code, name in enumerate(self.shared.topics)}
        ids = {name: code for code, name in enumerate(self.shared.topic_ids)}
        code = np.array([codes.get(name, -1) for name in topics], np.int64)[topic]
        topic_id = np.array([-1 if one is None else ids.get(one, -2) for one in topic_ids], np.int32)[topic]
        keys = (self.topic.astype(np.int64) << 32) + self.partition
        wanted = (code << 32) + partition
        row = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        known = self.topic_id[row]
        same = (keys[row] == wanted) & (code >= 0) & ((topic_id == -1) | (known == -1) | (known == topic_id))
        return np.where(same, row, -1)

    def _of_cluster(self, name: str) -> slice:
        code = bisect_left(self.shared.clusters, name)
        if code == len(self.shared.clusters) or self.shared.clusters[code] != name:
            return slice(0, 0)
        begin, end = (int(np.searchsorted(self.cluster, code, side)) for side in ("left", "right"))
        return slice(begin, end)


def _count(value: float) -> int | None:
    return None if math.isnan(value) else int(value)

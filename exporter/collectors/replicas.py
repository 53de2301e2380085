"""Compares a pair of clusters, one of them mirrored to the other (MirrorMaker and similar), independently of polls.

It uses the polls of both clusters. Only look-ups by time are sent, to the source, and only for partitions where either
side moved. No poll waits for a comparison, and pairs do not wait for each other.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace

from exporter.domain import (
    Answer,
    Comparison,
    Matching,
    NotCompared,
    PollFailure,
    Reading,
    Reason,
    Replica,
    ReplicaReading,
    ReplicaState,
    Snapshot,
    TopicInfo,
    TopicPartition,
)
from exporter.domain.ports import ByTime, Clock, SourceError
from exporter.domain.replication import (
    Missing,
    Naming,
    Standstill,
    faults,
    judge,
    missing,
    times_to_ask,
    without_asking,
)

log = logging.getLogger(__name__)

CONNECTED_SECONDS = 600.0
"""How long a connection is used: a new one reads secrets that have changed."""

_PARTITIONS_AT_ONCE = 1_000
_SNAPSHOTS_KEPT = 4


@dataclass(frozen=True, slots=True)
class _Side:
    """The relevant topics in the poll of one side."""

    taken_at: float
    topics: Mapping[str, TopicInfo]
    readings: Mapping[TopicPartition, Reading]
    """Of all topics: a view of the table, which makes a reading when one is asked for."""


@dataclass(slots=True)
class _Known:
    """The results for one partition of a replica."""

    topic_ids: tuple[str | None, str | None]
    standstill: Standstill
    newest: float | None = None
    """The newest timestamp that the replica ever had: after a deletion the present one may be older."""
    seen: tuple[object, ...] = ()
    """Both readings and the settings when ``found`` was computed."""
    found: Missing | NotCompared = NotCompared.LOOKUP_FAILED


class ReplicaWatch:
    """Compares one target cluster with its source.

    A sink of the polls of both, from any threads. Of the source it uses the last poll that began before the target's:
    what is called missing then existed when the target was read.
    """

    def __init__(
        self,
        source: str,
        target: str,
        naming: Naming,
        clock: Clock,
        *,
        times: Callable[[], AbstractContextManager[ByTime]],
        behind_after: float,
        stopped_after: float,
        trailing_markers: int = 1,
    ) -> None:
        """``times`` connects the client for look-ups in the source. Durations are in seconds.

        It raises ValueError where the configuration became invalid (a secret file is gone).
        """
        self.source = source
        self.target = target
        self._naming = naming
        self._clock = clock
        self._times = times
        self._behind_after = behind_after
        self._stopped_after = stopped_after
        self._markers = trailing_markers
        self._lock = threading.Lock()
        self._sources: list[_Side] = []
        self._target: _Side | None = None
        self._next: tuple[_Side, _Side] | None = None
        self._known: dict[Replica, _Known] = {}
        self._connection: tuple[float, ExitStack, ByTime] | None = None
        self.mapped: Collection[str] = ()
        """The topics of the target that topics of the source are mapped to, whether they exist or not."""
        self.rivals: Sequence[ReplicaWatch] = ()
        """The other pairs with this target."""

    def accept(self, snapshot: Snapshot) -> None:
        """Take a good poll of either cluster; ignore others."""
        if snapshot.cluster == self.source:
            self._accept_source(snapshot)
        elif snapshot.cluster == self.target:
            self._accept_target(snapshot)

    def missed(self, failure: PollFailure) -> None:
        """Ignore a failed poll."""

    def _accept_source(self, snapshot: Snapshot) -> None:
        names = {topic: name for topic in snapshot.metadata.topics if (name := self._naming.replica_of(topic))}
        side = _side(snapshot, names.keys())
        with self._lock:
            if self.mapped != (mapped := frozenset(names.values())):
                self.mapped, self._target = mapped, None  # it lacks topics that are relevant now
            if self._target is not None and side.taken_at <= self._target.taken_at:
                self._next, self._sources = (side, self._target), []
            self._sources.append(side)
            if len(self._sources) > _SNAPSHOTS_KEPT:
                del self._sources[1]  # a rarely polled target needs the first one

    def _accept_target(self, snapshot: Snapshot) -> None:
        with self._lock:
            side = _side(snapshot, self.mapped)
            before = [one for one in self._sources if one.taken_at <= side.taken_at]
            self._target = side
            if before:
                self._next = (before[-1], side)
                self._sources = self._sources[len(before) - 1 :]

    def compare(self, stop: Callable[[], bool] = lambda: False) -> Comparison | None:
        """Compare the polls since the last call; None where there are none, or after ``stop``.

        Raises SourceError where times cannot be looked up.
        """
        with self._lock:
            sides, self._next = self._next, None
        if sides is None:
            return None
        source, target = sides
        taken = {name for rival in self.rivals for name in rival.mapped}
        matching = self._naming.match(source.topics, target.topics, taken)
        readings: dict[Replica, ReplicaReading] = {}
        known: dict[Replica, _Known] = {}
        wanted: dict[Replica, tuple[float, ...]] = {}
        for replica, reason in _partitions(matching, source, target):
            if reason is not None:
                readings[replica] = ReplicaReading(ReplicaState.UNKNOWN, reason=reason)
                continue
            known[replica], times = self._look(replica, source, target)
            if times:
                wanted[replica] = times
        asked, failures, waiting = 0, Counter[Reason](), list(wanted)
        for at in range(0, len(waiting), _PARTITIONS_AT_ONCE):
            if stop():
                return None
            some = {replica: wanted[replica] for replica in waiting[at : at + _PARTITIONS_AT_ONCE]}
            answers = self._ask(some, source)
            for replica, told in answers.items():
                asked += len(told)
                failures.update(answer.reason for answer in told if answer.reason is not None)
                known[replica].found = self._found(replica, known[replica], told, source)
        for replica, one in known.items():
            readings[replica] = self._judge(replica, one, source, target)
        self._known = known
        found = faults(self.source, self.target, matching, source.topics, target.topics)
        return Comparison(self.source, self.target, target.taken_at, matching, readings, found, asked, failures)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection[1].close()
            self._connection = None

    def _look(self, replica: Replica, source: _Side, target: _Side) -> tuple[_Known, tuple[float, ...]]:
        """Return the results with both new readings, and the times to look up."""
        mine, copy = _readings(replica, source, target)
        ids = source.topics[replica.source_topic].topic_id, target.topics[replica.target_topic].topic_id
        before = self._known.get(replica)
        if before is None or before.topic_ids != ids:
            still = Standstill(-1 if copy.latest is None else copy.latest, target.taken_at, markers=self._markers)
            before = _Known(ids, still)
        if mine.latest is not None and copy.latest is not None:
            before.standstill.look(mine.latest, source.taken_at, copy.latest, target.taken_at)
        kind = _timestamp_type(replica, target)
        seen = (mine.state, mine.earliest, mine.latest, mine.newest, copy.state, copy.latest, copy.newest, kind)
        if before.seen == seen and before.found is not NotCompared.LOOKUP_FAILED:
            return before, ()
        before.seen = seen
        without = without_asking(mine, copy, kind)
        before.found = without or NotCompared.LOOKUP_FAILED
        if without is None and copy.newest is not None:
            before.newest = max(copy.newest, copy.newest if before.newest is None else before.newest)
        return before, times_to_ask(mine, replace(copy, newest=before.newest), kind)

    def _found(self, replica: Replica, known: _Known, told: Sequence[Answer], source: _Side) -> Missing | NotCompared:
        mine = source.readings[TopicPartition(replica.source_topic, replica.partition)]
        config = source.topics[replica.source_topic].config
        compacted = config is None or "compact" in (config.cleanup_policy or "")
        return missing(mine, known.newest, told, compacted=compacted, markers=self._markers)

    def _judge(self, replica: Replica, known: _Known, source: _Side, target: _Side) -> ReplicaReading:
        mine, copy = _readings(replica, source, target)
        lasts = 0.0
        if mine.latest is not None and copy.latest is not None:
            lacks = known.found.at_least if isinstance(known.found, Missing) else 0
            lasts = known.standstill.lasts(mine.latest, lacks, self._clock.monotonic())
        stopped = lasts >= self._stopped_after
        return judge(known.found, mine.state, target.taken_at, stopped=stopped, behind_after=self._behind_after)

    def _ask(self, wanted: Mapping[Replica, tuple[float, ...]], source: _Side) -> dict[Replica, list[Answer]]:
        leaders: dict[TopicPartition, int] = {}
        for replica in wanted:
            key = TopicPartition(replica.source_topic, replica.partition)
            if (leader := source.readings[key].leader) is not None:
                leaders[key] = leader
        questions = {
            replica: [(TopicPartition(replica.source_topic, replica.partition), time) for time in times]
            for replica, times in wanted.items()
        }
        asked = [one for asked in questions.values() for one in asked if one[0] in leaders]
        answers = self._connected().by_time(asked, leaders) if asked else {}
        unled = Answer(reason=Reason.NO_LEADER)
        return {replica: [answers.get(one, unled) for one in asked] for replica, asked in questions.items()}

    def _connected(self) -> ByTime:
        now, before = self._clock.monotonic(), self._connection
        if before is None or now - before[0] > CONNECTED_SECONDS:
            self.close()
            try:
                connection = self._times()
            except ValueError as error:
                raise SourceError(Reason.AUTHENTICATION_FAILED, str(error)) from None
            stack = ExitStack()
            source = stack.enter_context(connection)
            self._connection = now, stack, source
            return source
        return before[2]


def _side(snapshot: Snapshot, topics: Collection[str]) -> _Side:
    infos = {name: info for name, info in snapshot.metadata.topics.items() if name in topics}
    return _Side(snapshot.taken_at, infos, snapshot.readings)


def _partitions(matching: Matching, source: _Side, target: _Side) -> Iterator[tuple[Replica, NotCompared | None]]:
    """Return the partitions of all replicas, and why some cannot be compared.

    MirrorMaker copies to the same partition number, so partitions with the same number belong together.
    """
    for mine, copy in matching.replicas.items():
        theirs = source.topics[mine].partitions.keys(), target.topics[copy].partitions.keys()
        for number in sorted(theirs[0] | theirs[1]):
            reason = None
            if number not in theirs[1]:
                reason = NotCompared.NO_PARTITION_IN_REPLICA
            elif number not in theirs[0]:
                reason = NotCompared.NO_PARTITION_IN_SOURCE
            yield Replica(mine, copy, number), reason
    for copy, several in matching.contested.items():
        for mine in several:
            for number in sorted(source.topics[mine].partitions):
                yield Replica(mine, copy, number), NotCompared.TWO_SOURCES


def _readings(replica: Replica, source: _Side, target: _Side) -> tuple[Reading, Reading]:
    mine = source.readings[TopicPartition(replica.source_topic, replica.partition)]
    return mine, target.readings[TopicPartition(replica.target_topic, replica.partition)]


def _timestamp_type(replica: Replica, target: _Side) -> str | None:
    config = target.topics[replica.target_topic].config
    return None if config is None else config.timestamp_type

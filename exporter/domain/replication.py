"""Compares sources with replicas: which topics belong together, and which records are missing. Pure rules, no clock.

Offsets differ between two clusters, and timestamps are preserved (the need behind KIP-391). Let f(t) be the first
offset of the source whose timestamp is t or later (KIP-79), and X the newest timestamp in the replica. Records at f(X +
1 ms) or later are certainly missing; records at or before f(X) are not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from exporter.domain import (
    Answer,
    Comparison,
    Fault,
    Matching,
    NotCompared,
    Reading,
    Replica,
    ReplicaReading,
    ReplicaState,
    State,
    TopicInfo,
    TopicPartition,
    Verdict,
)
from exporter.domain.formatting import some

MILLISECOND = 0.001

_INTERNAL = re.compile(r"__.*|mm2-.*internal|.*checkpoints[._-]internal|heartbeats")
"""Internal topics of Kafka and of MirrorMaker, which are not replicas."""

_HAS_NEWEST = (State.OBSERVED, State.FUTURE, State.PRESERVED)


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

    def match(self, source: Collection[str], target: Collection[str], taken: Collection[str] = ()) -> Matching:
        """Match the topics of two clusters; ``taken`` are target names that other pairs use."""
        claims: dict[str, list[str]] = {}
        for topic in sorted(source):
            if (name := self.replica_of(topic)) is not None:
                claims.setdefault(name, []).append(topic)
        there = {name: topics for name, topics in claims.items() if name in target}
        contested = {name: topics for name, topics in there.items() if len(topics) > 1 or name in taken}
        return Matching(
            {topics[0]: name for name, topics in there.items() if name not in contested},
            [topic for name, topics in claims.items() if name not in target for topic in topics],
            contested,
            next(iter(claims), ""),
        )


class Missing(NamedTuple):
    """How many records of the source the replica lacks, and the time of the oldest one that it certainly lacks."""

    at_least: int
    at_most: int
    oldest: float | None = None


def times_to_ask(source: Reading, replica: Reading, timestamp_type: str | None) -> tuple[float, ...]:
    """Return the times (Unix seconds) to look up in the source, in order; none where a look-up would not help.

    ``timestamp_type`` is the replica's, None where it is unknown.
    """
    if isinstance(without_asking(source, replica, timestamp_type), Missing | NotCompared):
        return ()
    if replica.newest is None:
        return (0.0,)
    if source.newest is not None and source.state in _HAS_NEWEST and replica.newest >= source.newest:
        return (replica.newest,)
    return (replica.newest, replica.newest + MILLISECOND)


def without_asking(source: Reading, replica: Reading, timestamp_type: str | None) -> Missing | NotCompared | None:
    """Return what follows from two readings alone; None where a look-up in the source is needed."""
    if source.latest is None or source.earliest is None:
        return NotCompared.SOURCE_UNREADABLE
    if replica.latest is None:
        return NotCompared.REPLICA_UNREADABLE
    if source.latest == source.earliest:
        return Missing(0, 0)
    if replica.state is State.NEVER_WRITTEN:
        return None
    if timestamp_type == "LogAppendTime":
        return NotCompared.LOG_APPEND_TIME
    why = {State.EMPTY: NotCompared.REPLICA_EMPTY, State.FUTURE: NotCompared.FUTURE_TIMESTAMP}
    return why.get(replica.state, NotCompared.NO_TIMESTAMP if replica.newest is None else None)


def missing(
    source: Reading, newest: float | None, answers: Sequence[Answer], *, compacted: bool, markers: int = 1
) -> Missing | NotCompared:
    """Return which records of ``source`` the replica lacks, given the answers for ``times_to_ask``.

    ``newest`` is the replica's newest timestamp, None where it never had a record. ``compacted``: the source may have
    removed the original of the replica's newest record. Offsets are counted, including transaction markers; so many
    ``markers`` at the end do not count as missing, because markers are never copied.
    """
    if any(answer.reason is not None for answer in answers):
        return NotCompared.LOOKUP_FAILED
    assert source.latest is not None
    assert source.earliest is not None
    end, first = source.latest, answers[0]
    if newest is None:
        return _certain(first, end, end - source.earliest, markers)
    if first.offset is None or first.timestamp is None:
        return NotCompared.NEWER_THAN_SOURCE
    there = abs(first.timestamp - newest) < MILLISECOND / 2
    if not there and first.offset > source.earliest and not compacted:
        return NotCompared.NOT_IN_SOURCE
    at_most = max(0, end - first.offset - there)
    return _certain(answers[1], end, at_most, markers) if len(answers) > 1 else Missing(0, at_most)


def _certain(after: Answer, end: int, at_most: int, markers: int) -> Missing:
    """Return what is missing where ``after`` is the first record that certainly is."""
    at_least = 0 if after.offset is None else max(0, end - after.offset)
    if at_least <= markers:
        return Missing(0, max(at_most, at_least))
    return Missing(at_least, max(at_most, at_least), after.timestamp)


@dataclass(slots=True)
class Standstill:
    """Measures for one partition how long its replica has not moved while there is something to copy.

    It uses offsets alone, which cannot be wrong. Times are Unix seconds of polls; only ``now`` is of the monotonic
    clock.
    """

    replica_end: int
    seen_at: float
    """When the replica was first seen with this end offset."""
    source_end: int | None = None
    """The end offset of the source when it was first read after that."""
    waiting_since: float | None = None
    markers: int = 1
    """So many offsets at the end of the source may be transaction markers, which are not copied."""

    def look(self, source_end: int, source_at: float, replica_end: int, replica_at: float) -> None:
        """Take the ends of both logs; start over where the replica moved or the source was truncated."""
        if replica_end != self.replica_end or (self.source_end is not None and source_end < self.source_end):
            self.replica_end, self.seen_at = replica_end, replica_at
            self.source_end = self.waiting_since = None
        if self.source_end is None and source_at >= self.seen_at:
            self.source_end = source_end

    def lasts(self, source_end: int, missing: int, now: float) -> float:
        """Return for how many seconds the replica has not moved with something to copy; 0 where there is nothing."""
        went_on = self.source_end is not None and source_end - self.source_end > self.markers
        if self.waiting_since is None and (went_on or missing):
            self.waiting_since = now
        return 0.0 if self.waiting_since is None else now - self.waiting_since


def judge(
    found: Missing | NotCompared, source: State, at: float, *, stopped: bool, behind_after: float
) -> ReplicaReading:
    """Return the reading of a replica: what is missing at ``at`` (Unix seconds), and its state.

    Where records of the source are dated well before they were written (``preserved``), or in the future, the age of a
    missing record is not the time for which it is missing. The lag in seconds is then unknown.
    """
    if isinstance(found, NotCompared):
        return ReplicaReading(ReplicaState.STOPPED if stopped else ReplicaState.UNKNOWN, reason=found)
    lag: float | None = 0.0
    if found.oldest is not None:
        lag = None if source is State.PRESERVED or found.oldest > at else at - found.oldest
    if stopped:
        state = ReplicaState.STOPPED
    else:
        state = ReplicaState.BEHIND if lag is None or lag > behind_after else ReplicaState.IN_STEP
    return ReplicaReading(state, lag, found.at_least, found.at_most)


def with_verdicts(compared: Comparison, verdict_of: Callable[[TopicPartition], Verdict | None]) -> Comparison:
    """Return a comparison that marks replicas in step whose source is dead."""

    def told(replica: Replica, reading: ReplicaReading) -> ReplicaReading:
        verdict = verdict_of(TopicPartition(replica.source_topic, replica.partition))
        dead = reading.state is ReplicaState.IN_STEP and verdict in (Verdict.DEAD, Verdict.RETIRED)
        return replace(reading, state=ReplicaState.SOURCE_DEAD_TOO) if dead else reading

    readings = {replica: told(replica, reading) for replica, reading in compared.readings.items()}
    return replace(compared, readings=readings)


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
        mend = "check policy, alias, include and exclude against the topic names, and topics.include of both clusters"
        found.append(Fault(what, mend))
    if matching.contested:
        named = [f"{copy} <- {', '.join(topics)}" for copy, topics in matching.contested.items()]
        what = f"replicas: in {target} more than one topic, or pair, maps to {some(named)}"
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

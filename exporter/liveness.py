"""The rules of liveness: pure functions of what polls and history say, no clock, no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from exporter.model import (
    RETIRED_AFTER_SECONDS,
    Activity,
    Answer,
    Expectation,
    Reading,
    Reason,
    Snapshot,
    State,
    TopicPartition,
    Verdict,
)


def classify(
    earliest: int,
    latest: int,
    newest: Answer | None,
    *,
    tiered: bool,
    unsupported: bool,
    latest_allowed: float,
) -> tuple[State, Reason | None]:
    """Return what offsets and the MAX_TIMESTAMP answer say of a partition.

    ``newest`` is None where the partition was not asked. ``latest_allowed`` is the largest timestamp
    (Unix seconds) that does not count as future.
    """
    if latest == earliest:
        return (State.NEVER_WRITTEN if latest == 0 else State.EMPTY), None
    if unsupported:
        return State.UNSUPPORTED, None
    if newest is None or latest < earliest:
        return State.PENDING, None
    if newest.reason is not None:
        return State.UNREADABLE, newest.reason
    if newest.offset is None:
        return (State.IDLE_IN_TIER if tiered else State.PENDING), None
    if newest.timestamp is None:
        return State.NO_TIMESTAMP, None
    return (State.FUTURE if newest.timestamp > latest_allowed else State.OBSERVED), None


@dataclass(frozen=True, slots=True)
class Sighting:
    """A good pair of offsets of one partition at one poll, with what identifies its log."""

    topic_id: str | None
    leader: int
    leader_epoch: int | None
    earliest: int
    latest: int


@dataclass(slots=True)
class _Memory:
    sighting: Sighting
    activity: Activity
    newest: Answer | None
    answered_at: Sighting | None
    """Where the partition stood when ``newest`` was answered."""


class Tracker:
    """Remembers, for one cluster, what earlier polls saw: tells who moved and when it last advanced."""

    def __init__(self) -> None:
        self._memory: dict[TopicPartition, _Memory] = {}

    def needs_max_timestamp(self, partition: TopicPartition, seen: Sighting) -> bool:
        """Tell whether the partition moved since its last good MAX_TIMESTAMP answer."""
        memory = self._memory.get(partition)
        return memory is None or memory.answered_at != seen

    def known_newest(self, partition: TopicPartition) -> Answer | None:
        """Return the last good MAX_TIMESTAMP answer, as long as it still belongs to this log."""
        memory = self._memory.get(partition)
        return None if memory is None else memory.newest

    def observe(self, partition: TopicPartition, seen: Sighting, newest: Answer | None, at: float) -> Activity:
        """Take a good poll of one partition at time ``at``; return what is now known of its advances.

        ``newest`` is a good MAX_TIMESTAMP answer to keep until the partition moves, or None.

        An advance is a larger end offset than at the previous good poll. A smaller one, or a new topic
        id, means that offsets start over: no advance can be counted across it.
        """
        memory = self._memory.get(partition)
        if memory is None:
            activity = Activity(last_good_poll=at, silent_since=at)
        elif _other_topic(memory.sighting, seen):
            activity = Activity(
                last_good_poll=at,
                previous_poll=memory.activity.last_good_poll,
                last_advance=at if seen.latest > 0 else None,
                silent_since=at,
                advanced_by=seen.latest,
                restarted=True,
            )
        else:
            activity = _advance(memory.activity, seen.latest - memory.sighting.latest, at)
        activity = replace(activity, end_offset=seen.latest)
        answered_at: Sighting | None = seen
        if newest is None:
            kept = memory if not activity.restarted else None
            newest, answered_at = (kept.newest, kept.answered_at) if kept else (None, None)
        self._memory[partition] = _Memory(seen, activity, newest, answered_at)
        return activity

    def unread(self, partition: TopicPartition) -> Activity:
        """Return what is known of a partition that this poll could not read."""
        memory = self._memory.get(partition)
        return Activity() if memory is None else replace(memory.activity, advanced_by=0, restarted=False)

    def keep_only(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget every partition that is not listed: it was deleted."""
        kept = set(partitions)
        self._memory = {key: value for key, value in self._memory.items() if key in kept}


def _other_topic(before: Sighting, seen: Sighting) -> bool:
    known = before.topic_id is not None and seen.topic_id is not None
    return known and before.topic_id != seen.topic_id


def _advance(activity: Activity, records: int, at: float) -> Activity:
    moved = replace(
        activity, last_good_poll=at, previous_poll=activity.last_good_poll, advanced_by=max(0, records), restarted=False
    )
    if records > 0:
        return replace(moved, last_advance=at, silent_since=at)
    if records < 0:
        return replace(moved, silent_since=at, restarted=True)
    return moved


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict as of now. What is not known or not promised is None."""

    verdict: Verdict
    last_advance: float | None = None
    expected_by: float | None = None
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Silence:
    """A silence: ``since`` (the last advance where ``known``), proved up to ``until``; Unix seconds."""

    since: float
    until: float
    known: bool
    advanced: bool = True
    """False where all that is known proves that the partition never advanced: ``since`` is only the first poll."""


def silence_of(reading: Reading, expectation: Expectation | None) -> Silence | None:
    """Return the silence that polls and published history prove for one partition.

    Where this process has seen no advance itself, an unchanged end offset carries the published last
    advance over; a larger one means that it advanced unseen, at the latest at the first poll. A log that
    never held a record, or stands where published history knows no advance of it, never advanced.
    Returns None for a partition that was never read.
    """
    activity = reading.activity
    if activity.last_good_poll is None or activity.silent_since is None:
        return None
    if activity.last_advance is not None:
        known = activity.silent_since == activity.last_advance
        return Silence(activity.silent_since, activity.last_good_poll, known)
    end, published_end, published_advance = activity.end_offset, None, None
    if expectation is not None:
        published_end, published_advance = expectation.end_offset, expectation.last_advance
    unmoved = end is not None and end == published_end
    if unmoved and published_advance is not None and published_advance <= activity.silent_since:
        return Silence(published_advance, activity.last_good_poll, known=True)
    never = published_advance is None and (unmoved or end == 0)
    return Silence(activity.silent_since, activity.last_good_poll, known=False, advanced=not never)


def judge(silence: Silence | None, expectation: Expectation | None, now: float) -> Judgement:
    """Judge a silence by what history promised.

    Only a proved silence can be ``suspect`` or ``dead``. One that would be, could it be read, is
    ``held``: unknown is never dead. Without a promise the verdict is ``learning``.
    """
    last_advance = silence.since if silence is not None and silence.known else None
    if expectation is None or silence is None:
        return Judgement(Verdict.LEARNING, last_advance)
    if expectation.verdict == Verdict.MUTED:
        return Judgement(Verdict.MUTED, last_advance)
    limit, suspect = expectation.max_silence_seconds, expectation.suspect_silence_seconds
    if limit is None or suspect is None:
        return Judgement(Verdict.LEARNING, last_advance)
    expected_by = None if last_advance is None else last_advance + limit
    proved = silence.until - silence.since
    score = None if expectation.dead_score is None else expectation.dead_score * proved / limit
    if proved > limit:
        verdict = Verdict.RETIRED if proved >= RETIRED_AFTER_SECONDS else Verdict.DEAD
    elif proved > suspect:
        verdict = Verdict.SUSPECT
    elif now - silence.since > suspect and now - silence.until > expectation.slot_seconds:
        verdict = Verdict.HELD
    elif proved > expectation.slot_seconds:
        verdict = Verdict.QUIET
    else:
        verdict = Verdict.LIVE
    return Judgement(verdict, last_advance, expected_by, score)


def union(silences: Iterable[Silence | None]) -> Silence | None:
    """Return the silence of a topic as the union of its partitions.

    It starts with the latest advance of any partition, one that never advanced left out, and is proved
    only up to the moment to which every partition could be read. Returns None where one was never read
    and none is known to live.
    """
    known = []
    unread = False
    for silence in silences:
        if silence is None:
            unread = True
        else:
            known.append(silence)
    if not known:
        return None
    moving = [silence for silence in known if silence.advanced] or known
    last = max(moving, key=lambda silence: (silence.since, silence.known))
    until = last.since if unread else max(last.since, min(silence.until for silence in known))
    return replace(last, until=until)


@dataclass(frozen=True, slots=True)
class TopicRollUp:
    """One topic at one poll; timestamps are Unix seconds, None where no partition knows one."""

    partitions: int
    newest: float | None
    judgement: Judgement
    states: Mapping[State, int]
    verdicts: Mapping[Verdict, int]


@dataclass(frozen=True, slots=True)
class Assessment:
    """What is known of one cluster as of one poll: a judgement each, and the topics rolled up."""

    judgements: Mapping[TopicPartition, Judgement]
    topics: Mapping[str, TopicRollUp]


def assess(snapshot: Snapshot, expectations: Mapping[tuple[str, int | None], Expectation], now: float) -> Assessment:
    """Judge every partition and topic of a snapshot.

    ``expectations`` are those of the snapshot's cluster by (topic, partition), partition None for the
    topic as a whole. One that belongs to an earlier topic of the same name is not used.
    """
    judgements: dict[TopicPartition, Judgement] = {}
    silences: dict[str, list[Silence | None]] = {name: [] for name in snapshot.metadata.topics}
    readings: dict[str, list[tuple[Reading, Judgement]]] = {name: [] for name in snapshot.metadata.topics}
    for key, reading in snapshot.readings.items():
        topic_id = snapshot.metadata.topics[key.topic].topic_id
        expectation = _fitting(expectations.get((key.topic, key.partition)), topic_id)
        silence = silence_of(reading, expectation)
        judgement = judge(silence, expectation, now)
        judgements[key] = judgement
        silences[key.topic].append(silence)
        readings[key.topic].append((reading, judgement))
    topics = {}
    for name, info in snapshot.metadata.topics.items():
        expectation = _fitting(expectations.get((name, None)), info.topic_id)
        held_together = union(silences[name])
        topics[name] = TopicRollUp(
            partitions=len(info.partitions),
            newest=_newest(reading for reading, _ in readings[name]),
            judgement=judge(held_together, expectation, now),
            states=Counter(reading.state for reading, _ in readings[name]),
            verdicts=Counter(judgement.verdict for _, judgement in readings[name]),
        )
    return Assessment(judgements, topics)


def _newest(readings: Iterable[Reading]) -> float | None:
    """Return the largest timestamp; one in the future counts only where there is no other."""
    known = [(reading.state is not State.FUTURE, reading.newest) for reading in readings if reading.newest is not None]
    return max(known)[1] if known else None


def _fitting(expectation: Expectation | None, topic_id: str | None) -> Expectation | None:
    if expectation is None or topic_id is None or expectation.topic_id is None:
        return expectation
    return expectation if expectation.topic_id == topic_id else None

"""What polls say of a partition: its state, and when it last advanced. Pure functions, no clock, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from exporter.domain import Activity, Answer, Reading, Reason, State, TopicPartition

PRESERVED_PAST_SECONDS = 300.0
"""A newest record dated so much before it can have been written kept the time of somewhere else. Producers hold
records back for up to ``delivery.timeout.ms`` (2 minutes), and their clocks differ from ours."""


def classify(
    earliest: int,
    latest: int,
    newest: Answer | None,
    *,
    tiered: bool,
    unsupported: bool,
    latest_allowed: float,
    advanced_after: float | None = None,
) -> tuple[State, Reason | None]:
    """Return what offsets and the MAX_TIMESTAMP answer say of a partition.

    ``newest`` is None where there is no such answer, or none to rest on. ``latest_allowed`` is the largest timestamp
    (Unix seconds) that does not count as future, ``advanced_after`` a moment after which records were
    written. Records in a format before 0.10 have no timestamps: a broker says so, or refuses (error 43).
    """
    if latest == earliest:
        return (State.NEVER_WRITTEN if latest == 0 else State.EMPTY), None
    if unsupported:
        return State.UNSUPPORTED, None
    if newest is None or latest < earliest:
        return State.PENDING, None
    if newest.reason is not None:
        old = newest.reason is Reason.UNSUPPORTED_FORMAT
        return (State.NO_TIMESTAMP, None) if old else (State.UNREADABLE, newest.reason)
    if newest.offset is None:
        return (State.IDLE_IN_TIER if tiered else State.PENDING), None
    return _dated(newest.timestamp, latest_allowed, advanced_after), None


def _dated(newest: float | None, latest_allowed: float, advanced_after: float | None) -> State:
    if newest is None:
        return State.NO_TIMESTAMP
    if newest > latest_allowed:
        return State.FUTURE
    preserved = advanced_after is not None and newest < advanced_after - PRESERVED_PAST_SECONDS
    return State.PRESERVED if preserved else State.OBSERVED


class TierFacts(NamedTuple):
    """What is known of one partition with remote storage beyond what a poll asks (KIP-405, KIP-1005).

    ``newest`` (Unix seconds) is the largest timestamp in both tiers, as long as the end offset has not moved.
    """

    earliest_local: int | None = None
    latest_tiered: int | None = None
    newest: float | None = None


def with_tier(reading: Reading, tier: TierFacts, *, latest_allowed: float) -> Reading:
    """Return the reading of a partition with remote storage, given what is known of its tiers.

    Where the local log begins at the end offset every record is in the remote tier. A newest timestamp past
    ``latest_allowed`` (Unix seconds) lies in the future.
    """
    state, newest = reading.state, reading.newest
    if state in _DATED:
        newest = newest if tier.newest is None else tier.newest
        if state is State.PENDING and tier.newest is not None:
            state = _dated(tier.newest, latest_allowed, reading.activity.advanced_after)
        if tier.earliest_local is not None and tier.earliest_local == reading.latest:
            state = State.IDLE_IN_TIER
        if newest is not None and newest > latest_allowed and state is not State.PENDING:
            state = State.FUTURE
    return replace(
        reading, state=state, newest=newest, earliest_local=tier.earliest_local, latest_tiered=tier.latest_tiered
    )


_DATED = (State.OBSERVED, State.FUTURE, State.PRESERVED, State.IDLE_IN_TIER, State.PENDING)


@dataclass(frozen=True, slots=True)
class Sighting:
    """A good pair of offsets of one partition at one poll, with what identifies its log."""

    topic_id: str | None
    leader: int
    leader_epoch: int | None
    earliest: int
    latest: int


class Standing(NamedTuple):
    """Where a partition's end offset stood when an earlier life of the exporter last looked, and since when."""

    topic_id: str | None
    end_offset: int
    since: float
    """Unix seconds; when the partition reached it is not known."""


@dataclass(slots=True)
class _Memory:
    sighting: Sighting
    activity: Activity
    newest: Answer | None
    answered_at: Sighting | None
    """Where the partition stood when ``newest`` was answered."""


class Tracker:
    """Remembers, for one cluster, what earlier polls saw: tells who moved and when it last advanced."""

    def __init__(self, standing: Mapping[TopicPartition, Standing] | None = None) -> None:
        """``standing`` is what is known from before: an end offset that is still the same proves the silence since."""
        self._memory: dict[TopicPartition, _Memory] = {}
        self._standing = {} if standing is None else standing

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
            since = self._stands_since(partition, seen, at)
            activity = Activity(last_good_poll=at, silent_since=since, end_offset=seen.latest, polls_good=1)
        elif _other_topic(memory.sighting, seen):
            activity = Activity(
                last_good_poll=at,
                previous_poll=memory.activity.last_good_poll,
                last_advance=at if seen.latest > 0 else None,
                silent_since=at,
                advanced_by=seen.latest,
                restarted=True,
                end_offset=seen.latest,
                polls_good=1,
                advanced_after=memory.activity.last_good_poll,
            )
        else:
            activity = _advance(memory.activity, seen.latest - memory.sighting.latest, seen.latest, at)
        answered_at: Sighting | None = seen
        if newest is None:
            kept = memory if not activity.restarted else None
            newest, answered_at = (kept.newest, kept.answered_at) if kept else (None, None)
        self._memory[partition] = _Memory(seen, activity, newest, answered_at)
        return activity

    def _stands_since(self, partition: TopicPartition, seen: Sighting, at: float) -> float:
        """Since when it is known that the end offset of a partition stands, which is first polled at ``at``."""
        stood = self._standing.get(partition)
        if stood is None or stood.end_offset != seen.latest or stood.topic_id != seen.topic_id:
            return at
        return min(stood.since, at)

    def unread(self, partition: TopicPartition) -> Activity:
        """Return what is known of a partition that this poll could not read."""
        memory = self._memory.get(partition)
        if memory is None:
            return Activity()
        memory.activity = _missed(memory.activity)
        return memory.activity

    def nothing_read(self) -> None:
        """Take note of a poll that gave nothing for the whole cluster."""
        for memory in self._memory.values():
            memory.activity = _missed(memory.activity)

    def clock_set(self, seconds: float) -> None:
        """Move all that is remembered to a wall clock that was set by ``seconds``: silences keep their length."""
        for memory in self._memory.values():
            memory.activity = _moved(memory.activity, seconds)

    def keep_only(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget every partition that is not listed: it was deleted."""
        kept = set(partitions)
        self._memory = {key: value for key, value in self._memory.items() if key in kept}


def _other_topic(before: Sighting, seen: Sighting) -> bool:
    known = before.topic_id is not None and seen.topic_id is not None
    return known and before.topic_id != seen.topic_id


def _advance(activity: Activity, records: int, end_offset: int, at: float) -> Activity:
    if records == 0:
        return replace(
            activity,
            last_good_poll=at,
            previous_poll=activity.last_good_poll,
            advanced_by=0,
            restarted=False,
            end_offset=end_offset,
            polls_good=activity.polls_good + 1,
        )
    return Activity(
        last_good_poll=at,
        previous_poll=activity.last_good_poll,
        last_advance=at if records > 0 else activity.last_advance,
        silent_since=at,
        advanced_by=max(0, records),
        restarted=records < 0,
        end_offset=end_offset,
        polls_good=1,
        advanced_after=activity.last_good_poll if records > 0 else activity.advanced_after,
    )


def _moved(activity: Activity, seconds: float) -> Activity:
    def by(moment: float | None) -> float | None:
        return None if moment is None else moment + seconds

    return replace(
        activity,
        last_good_poll=by(activity.last_good_poll),
        previous_poll=by(activity.previous_poll),
        last_advance=by(activity.last_advance),
        silent_since=by(activity.silent_since),
        advanced_after=by(activity.advanced_after),
    )


def _missed(activity: Activity) -> Activity:
    return replace(activity, advanced_by=0, restarted=False, polls_missed=activity.polls_missed + 1)

"""Looks up offsets by time for many partitions (KIP-79, KIP-734, KIP-1005), with the reason where there is none.

An ``Answer`` without an offset has several meanings; they are distinguished here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

import numpy as np

from exporter.domain.polls.activity import state_of
from exporter.domain.polls.answers import Answers
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.metadata import Membership, Metadata, TopicInfo, are_uncompacted
from exporter.domain.polls.readings import END_OF_TIME, Answer, Reason, State, TopicPartition
from exporter.domain.ports import Extents
from exporter.kafka.newest_timestamps import OffsetsAndTimes, look_up_newest


class Spec(StrEnum):
    """The named positions in a log, spelled as in Kafka's own tools."""

    LATEST = "latest"
    """One past the newest record."""
    EARLIEST = "earliest"
    """The first record in any tier."""
    MAX_TIMESTAMP = "max-timestamp"
    """The first record with the largest timestamp (KIP-734, brokers 3.0 and newer)."""
    EARLIEST_LOCAL = "earliest-local"
    """The first record on the broker's own disk (KIP-405, brokers 3.5 and newer)."""
    LATEST_TIERED = "latest-tiered"
    """The last record in the remote tier (KIP-1005, brokers 3.9 and newer)."""


TIERED = frozenset({Spec.EARLIEST_LOCAL, Spec.LATEST_TIERED})
"""librdkafka (2.16.1) refuses these: another client looks them up."""

Time = Spec | float
"""What to look up: a named position, or the first record at or after a time (Unix seconds)."""


class Gap(StrEnum):
    """Why a good answer has no offset or no timestamp, besides ``State`` and ``Reason``."""

    NO_RECORD_SINCE = "no-record-since"
    """The partition has records, but none at or after the time."""
    NOTHING_TIERED = "nothing-tiered"
    NOT_ASKED = "not-asked"
    """No client for tiers is installed."""


@dataclass(frozen=True, slots=True)
class OffsetRow:
    """One partition at one time. Unknown values are None; ``timestamp`` is in Unix seconds.

    ``reason`` is set where there is no offset, where a record has no timestamp, and where the timestamp lies in the
    future. LATEST and EARLIEST are positions, not records: they never have a timestamp. ``partition`` is None for a
    topic that could not be described.
    """

    topic: str
    partition: int | None
    time: Time
    offset: int | None = None
    timestamp: float | None = None
    reason: State | Reason | Gap | None = None


class TierSource(Protocol):
    """A cluster that returns the bounds of its local and its remote tier (KIP-405, KIP-1005)."""

    def tier(self, spec: str, membership: Membership) -> Answers:
        """EARLIEST_LOCAL or LATEST_TIERED of partitions, which have leaders."""


def list_offsets(
    source: OffsetsAndTimes,
    metadata: Metadata,
    times: Sequence[Time],
    *,
    future_after: float,
    tier: TierSource | None = None,
) -> list[OffsetRow]:
    """Return a row for each partition of ``metadata`` and each of ``times``, by topic, partition and time.

    Timestamps past ``future_after`` (Unix seconds) are marked. ``times`` must not repeat; those in ``TIERED`` are
    looked up only with ``tier``. A failure of one partition is in its rows.
    """
    leaders = {
        TopicPartition(name, number): info.leader
        for name, topic in sorted(metadata.topics.items())
        for number, info in topic.partitions.items()
        if info.leader is not None
    }
    asking = _Lookups(source, tier, metadata, leaders, future_after)
    columns = {time: asking.column(time) for time in times}
    rows = []
    for name, topic in sorted(metadata.topics.items()):
        if topic.reason is not None and not topic.partitions:
            rows += [OffsetRow(name, None, time, reason=topic.reason) for time in times]
        for number in sorted(topic.partitions):
            key = TopicPartition(name, number)
            rows += [columns[time].get(key, _unasked(key, time, topic)) for time in times]
    return rows


def _unasked(key: TopicPartition, time: Time, topic: TopicInfo) -> OffsetRow:
    return OffsetRow(*key, time, reason=topic.reason or Reason.NO_LEADER)


class _Lookups:
    """The look-ups of one run. The ends of logs are looked up once, and only where needed."""

    def __init__(
        self,
        source: OffsetsAndTimes,
        tier: TierSource | None,
        metadata: Metadata,
        leaders: Mapping[TopicPartition, int],
        future_after: float,
    ) -> None:
        self._source = source
        self._tier = tier
        self._metadata = metadata
        self._leaders = leaders
        partitions: dict[str, list[int]] = {}
        for key in leaders:
            partitions.setdefault(key.topic, []).append(key.partition)
        layout = Layout.of(partitions)
        self._membership = Membership.led(layout, np.array([leaders[key] for key in layout], dtype=np.int32))
        self._future_after = future_after
        self._earliest: dict[TopicPartition, Answer] = {}
        self._latest: dict[TopicPartition, Answer] = {}
        self._newest: dict[TopicPartition, Answer] = {}

    def column(self, time: Time) -> dict[TopicPartition, OffsetRow]:
        """Return the row of every partition with a leader."""
        if time is Spec.MAX_TIMESTAMP:
            return self._newest_records()
        if time in TIERED and self._tier is None:
            return {key: OffsetRow(*key, time, reason=Gap.NOT_ASKED) for key in self._leaders}
        if isinstance(time, Spec):
            return {key: self._place(key, time, answer) for key, answer in self._places(time).items()}
        answers = self._by_time(dict.fromkeys(self._leaders, time))
        unfound = {key for key, answer in answers.items() if answer.offset is None and answer.reason is None}
        self._look_up_newest(unfound)
        return {key: self._since(key, time, answer) for key, answer in answers.items()}

    def _places(self, spec: Spec) -> Mapping[TopicPartition, Answer]:
        if self._tier is not None and spec in TIERED:
            return _by_key(self._membership.layout, self._tier.tier(spec, self._membership))
        if spec is Spec.LATEST:
            self._complete(self._latest, self._source.ends, self._leaders)
            return self._latest
        self._complete(self._earliest, self._source.starts, self._leaders)
        return self._earliest

    def _place(self, key: TopicPartition, spec: Spec, answer: Answer) -> OffsetRow:
        reason: Reason | Gap | None = answer.reason
        if reason is None and answer.offset is None:
            reason = Gap.NOTHING_TIERED if spec is Spec.LATEST_TIERED else Reason.MISSING_ANSWER
        return OffsetRow(*key, spec, answer.offset, reason=reason)

    def _since(self, key: TopicPartition, time: float, answer: Answer) -> OffsetRow:
        row = OffsetRow(*key, time, answer.offset, answer.timestamp, answer.reason)
        if answer.reason is not None:
            return row
        if answer.offset is not None:
            return self._dated(row)
        state, reason = self._state(key, unsupported=False)
        if state in (State.OBSERVED, State.FUTURE):
            # Where a later record exists, the broker looked into a segment that hides it.
            hidden = (self._newest[key].timestamp or 0.0) >= time
            return replace(row, reason=Reason.HIDDEN if hidden else Gap.NO_RECORD_SINCE)
        return replace(row, reason=reason or (Reason.HIDDEN if state is State.PENDING else state))

    def _dated(self, row: OffsetRow) -> OffsetRow:
        if row.timestamp is None:
            return replace(row, reason=State.NO_TIMESTAMP)
        return replace(row, reason=State.FUTURE) if row.timestamp > self._future_after else row

    def _newest_records(self) -> dict[TopicPartition, OffsetRow]:
        self._look_up_newest(self._leaders.keys())
        supported = self._source.max_timestamp_supported()
        rows = {}
        wanted = {}
        for key, leader in self._leaders.items():
            state, reason = self._state(key, unsupported=supported.get(leader) is False)
            rows[key] = OffsetRow(*key, Spec.MAX_TIMESTAMP, reason=reason or state)
            newest = self._newest.get(key, Answer())
            if state in (State.OBSERVED, State.FUTURE) and newest.timestamp is not None:
                rows[key] = self._dated(
                    replace(rows[key], reason=None, offset=newest.offset, timestamp=newest.timestamp)
                )
                # Later timestamps became this one, so that a look-up of it may find another record.
                if newest.timestamp < END_OF_TIME:
                    wanted[key] = newest.timestamp
        # Brokers 3.0 to 3.7 return a wrong offset (KAFKA-16310): without a look-up that confirms it, it is unknown.
        for key, found in self._by_time(wanted).items():
            if found.offset is not None:
                rows[key] = self._dated(OffsetRow(*key, Spec.MAX_TIMESTAMP, found.offset, found.timestamp))
            else:
                rows[key] = replace(rows[key], offset=None, reason=found.reason or Reason.HIDDEN)
        return rows

    def _look_up_newest(self, keys: AbstractSet[TopicPartition]) -> None:
        """Look up the ends and the newest records of these partitions, except known ones."""
        self._span(keys)
        held = [
            key
            for key in self._membership.layout
            if key in keys
            and key not in self._newest
            and (first := self._earliest[key]).offset is not None
            and (last := self._latest[key]).offset is not None
            and last.offset > first.offset
        ]
        earliest, latest = (
            np.array([known[key].offset for key in held], dtype=np.int64) for known in (self._earliest, self._latest)
        )
        extents = Extents(earliest, latest, np.full(len(held), -1, dtype=np.int32), np.full(len(held), -1))
        part = self._membership.part(self._membership.layout.rows(held))
        tiered = np.array([self._tiered(key.topic) for key in held], dtype=np.bool_)
        uncompacted = are_uncompacted(self._metadata.topics[key.topic] for key in held)
        answers = look_up_newest(
            self._source, part, extents, tiered=tiered, uncompacted=uncompacted, now=self._future_after
        )
        self._newest.update(_by_key(held, answers))

    def _state(self, key: TopicPartition, *, unsupported: bool) -> tuple[State, Reason | None]:
        first, last = self._earliest[key], self._latest[key]
        if first.offset is None or last.offset is None:
            return State.UNREADABLE, first.reason or last.reason or Reason.MISSING_ANSWER
        return state_of(
            first.offset,
            last.offset,
            self._newest.get(key),
            tiered=self._tiered(key.topic),
            unsupported=unsupported,
            latest_allowed=self._future_after,
        )

    def _tiered(self, topic: str) -> bool:
        config = self._metadata.topics[topic].config
        return config is not None and config.remote_storage

    def _by_time(self, wanted: Mapping[TopicPartition, float]) -> dict[TopicPartition, Answer]:
        """Return the first record at or after the time of each partition (Unix seconds)."""
        milliseconds = np.array([round(time * 1000) for time in wanted.values()], dtype=np.int64)
        rows = self._membership.layout.rows(wanted)
        return _by_key(wanted, self._source.by_time(self._membership, rows, milliseconds))

    def _span(self, keys: Iterable[TopicPartition]) -> None:
        """Look up the ends of these logs; EARLIEST first, because retention may happen in between."""
        keys = list(keys)
        self._complete(self._earliest, self._source.starts, keys)
        self._complete(self._latest, self._source.ends, keys)

    def _complete(
        self,
        known: dict[TopicPartition, Answer],
        look_up: Callable[[Membership], Answers],
        keys: Iterable[TopicPartition],
    ) -> None:
        """Look up these partitions, except ``known`` ones."""
        part = self._membership.part(np.sort(self._membership.layout.rows(key for key in keys if key not in known)))
        known.update(_by_key(part.layout, look_up(part)))


def _by_key(keys: Iterable[TopicPartition], answers: Answers) -> dict[TopicPartition, Answer]:
    return {key: answer for at, key in enumerate(keys) if (answer := answers.answer(at)) is not None}

"""Looks up offsets by time for many partitions (KIP-79, KIP-734, KIP-1005), with the reason where there is none.

An ``Answer`` without an offset has several meanings; they are distinguished here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np

from exporter.domain.arrays import Codes, Flags, Floats, Rows
from exporter.domain.history.streams import Strings as Objects
from exporter.domain.history.streams import objects
from exporter.domain.polls.activity import Circumstances, states_of
from exporter.domain.polls.layout import NO_LEADER
from exporter.domain.polls.metadata import Metadata
from exporter.domain.polls.readings import (
    ANSWERED,
    END_OF_TIME,
    NO_ANSWER,
    REASONS,
    Answers,
    Reason,
    State,
    reason_code,
)
from exporter.domain.polls.table import STATE_CODES, STATES, UNREADABLE
from exporter.domain.ports import Extents, OffsetSource
from exporter.kafka.newest_timestamps import look_up_newest


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


def list_offsets(
    source: OffsetSource,
    metadata: Metadata,
    times: Sequence[Time],
    *,
    future_after: float,
    tier: Any = None,
) -> list[OffsetRow]:
    """Return a row for each partition of ``metadata`` and each of ``times``, by topic, partition and time.

    Timestamps past ``future_after`` (Unix seconds) are marked. ``times`` must not repeat; those in ``TIERED`` are
    looked up only with ``tier``, a ``TierClient``. A failure of one partition is in its rows.
    """
    layout, leader = metadata.membership.layout, metadata.membership.leader
    led = np.flatnonzero(leader != NO_LEADER)
    asking = _Lookups(source, tier, metadata, led, future_after)
    columns = {time: asking.column(time) for time in times}
    places = dict(zip(led.tolist(), range(len(led)), strict=True))
    rows = []
    for name in layout.topics:
        reason, part = metadata.topics[name].reason, layout.rows_of(name)
        if reason is not None and part.start == part.stop:
            rows += [OffsetRow(name, None, time, reason=reason) for time in times]
        for row in range(part.start, part.stop):
            place, number = places.get(row), int(layout.partition[row])
            for time, (offset, timestamp, why) in columns.items():
                found = (None, None, reason or Reason.NO_LEADER)
                if place is not None:
                    found = offset[place], timestamp[place], why[place]
                rows.append(OffsetRow(name, number, time, *found))
    return rows


class _Column(NamedTuple):
    """Offset, timestamp and reason of n partitions at one time, each a column [n] of objects; None where unknown."""

    offset: Objects
    timestamp: Objects
    reason: Objects

    @classmethod
    def select(cls, answers: Answers) -> _Column:
        """Return answers without what is special to a time."""
        offset, timestamp = answers.offset.astype(object), answers.timestamp.astype(object)
        offset[~answers.found], timestamp[np.isnan(answers.timestamp)] = None, None
        return cls(offset, timestamp, _REASONS[answers.reason])


class _Lookups:
    """The look-ups of one run, of partitions with leaders. The ends of logs are looked up once, where needed."""

    def __init__(self, source: OffsetSource, tier: Any, metadata: Metadata, rows: Rows, future_after: float) -> None:
        layout = metadata.membership.layout
        self._source, self._tier, self._future_after = source, tier, future_after
        self._membership = metadata.membership.part(rows)
        self._every: Rows = np.arange(len(rows))
        self._tiered = metadata.tiered[layout.topic][rows]
        self._uncompacted = metadata.uncompacted[layout.topic][rows]
        self._earliest, self._latest, self._newest = (Answers.none(len(rows)) for _ in range(3))

    def column(self, time: Time) -> _Column:
        """Return what was found of every partition."""
        if time is Spec.MAX_TIMESTAMP:
            return self._newest_records()
        if isinstance(time, Spec):
            return self._positions(time)
        answers = self._by_time(self._every, np.full(len(self._every), time))
        column = self._records(answers)
        unfound = np.flatnonzero(~answers.found & (answers.reason == ANSWERED))
        self._look_up_newest(unfound)
        state, reason = self._states(unfound, np.zeros(len(unfound), dtype=np.bool_))
        why = np.where(reason > ANSWERED, _REASONS[reason], _STATES[state])
        dated, later = np.isin(state, _DATED), np.nan_to_num(self._newest.timestamp[unfound]) >= time
        why[dated] = Gap.NO_RECORD_SINCE
        # Where a later record exists, the broker looked into a segment that hides it.
        why[(dated & later) | (state == STATE_CODES[State.PENDING])] = Reason.HIDDEN
        column.reason[unfound] = why
        return column

    def _positions(self, spec: Spec) -> _Column:
        if spec in TIERED and self._tier is None:
            column = _Column.select(Answers.none(len(self._every)))
            column.reason[:] = Gap.NOT_ASKED
            return column
        if spec in TIERED:
            answers = self._tier.tier(spec, self._membership)
        else:
            self._look_up_ends(self._every, latest=spec is Spec.LATEST)
            answers = self._latest if spec is Spec.LATEST else self._earliest
        column = _Column.select(answers)
        column.timestamp[:] = None
        nothing = Gap.NOTHING_TIERED if spec is Spec.LATEST_TIERED else Reason.MISSING_ANSWER
        column.reason[(answers.reason == ANSWERED) & ~answers.found] = nothing
        return column

    def _records(self, answers: Answers) -> _Column:
        """Return records, with the reason where they have no timestamp or one in the future."""
        column = _Column.select(answers)
        column.reason[answers.found & np.isnan(answers.timestamp)] = State.NO_TIMESTAMP
        column.reason[answers.found & (answers.timestamp > self._future_after)] = State.FUTURE
        return column

    def _newest_records(self) -> _Column:
        self._look_up_newest(self._every)
        supported = self._source.max_timestamp_supported()
        unable = [broker for broker, known in supported.items() if not known]
        state, reason = self._states(self._every, np.isin(self._membership.leader, unable))
        newest = self._newest[self._every]
        newest.found[:] &= np.isin(state, _DATED) & ~np.isnan(newest.timestamp)
        newest.timestamp[~newest.found] = np.nan
        column = self._records(newest)
        column.reason[~newest.found] = np.where(reason > ANSWERED, _REASONS[reason], _STATES[state])[~newest.found]
        # Brokers 3.0 to 3.7 return a wrong offset (KAFKA-16310): without a look-up that confirms it, it is unknown.
        # Later timestamps became END_OF_TIME, so that a look-up of it may find another record.
        rows = np.flatnonzero(newest.found & (newest.timestamp < END_OF_TIME))
        confirmed = self._by_time(rows, newest.timestamp[rows])
        for whole, part in zip(column, self._records(confirmed), strict=True):
            whole[rows[confirmed.found]] = part[confirmed.found]
        lost, failed = ~confirmed.found, confirmed.reason > ANSWERED
        column.offset[rows[lost]], column.reason[rows[lost]] = None, Reason.HIDDEN
        column.reason[rows[failed]] = _REASONS[confirmed.reason[failed]]
        return column

    def _look_up_newest(self, rows: Rows) -> None:
        """Look up the ends and the newest records of these partitions, except known ones."""
        # EARLIEST first, because retention may happen in between.
        self._look_up_ends(rows, latest=False)
        self._look_up_ends(rows, latest=True)
        first, last = self._earliest[rows], self._latest[rows]
        held = first.found & last.found & (last.offset > first.offset) & (self._newest.reason[rows] == NO_ANSWER)
        some, unknown = rows[held], np.full(int(held.sum()), -1)
        extents = Extents(first.offset[held], last.offset[held], unknown)
        found = look_up_newest(
            self._source,
            self._membership.part(some),
            extents,
            tiered=self._tiered[some],
            uncompacted=self._uncompacted[some],
            now=self._future_after,
        )
        self._newest.put(some, found)

    def _look_up_ends(self, rows: Rows, *, latest: bool) -> None:
        known, look_up = (self._latest, self._source.ends) if latest else (self._earliest, self._source.starts)
        left = rows[known.reason[rows] == NO_ANSWER]
        known.put(left, look_up(self._membership.part(left)))

    def _states(self, rows: Rows, unsupported: Flags) -> tuple[Codes, Codes]:
        """Return the state of these partitions, and why they are unreadable."""
        first, last = self._earliest[rows], self._latest[rows]
        given = Circumstances(self._tiered[rows], unsupported, self._future_after)
        states, reasons = states_of(first.offset, last.offset, self._newest[rows], given)
        unread = ~first.found | ~last.found
        why = np.maximum(np.where(first.reason > ANSWERED, first.reason, last.reason), ANSWERED)
        missing = reason_code(Reason.MISSING_ANSWER)
        why = np.where(unread, np.where(why > ANSWERED, why, missing), reasons)
        return np.where(unread, UNREADABLE, states).astype(np.int8), why.astype(np.int8)

    def _by_time(self, rows: Rows, times: Floats) -> Answers:
        """Return the first record at or after the time of each partition (Unix seconds)."""
        return self._source.look_up_times(self._membership, rows, np.round(times * 1000).astype(np.int64))


_STATES = objects(STATES)
_REASONS = objects([None, *REASONS, Reason.MISSING_ANSWER])
"""By reason code: the last one is that of NO_ANSWER."""
_DATED = [STATE_CODES[State.OBSERVED], STATE_CODES[State.FUTURE]]

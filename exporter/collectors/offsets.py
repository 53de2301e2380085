"""Looks up offsets by time for many partitions (KIP-79, KIP-734, KIP-1005), with the reason where there is none.

An ``Answer`` without an offset has several meanings; they are distinguished here.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np

from exporter.domain.arrays import Codes, Flags, Floats, replace_nan
from exporter.domain.history.streams import Strings, objects
from exporter.domain.polls.activity import Circumstances, states_of
from exporter.domain.polls.layout import NO_LEADER
from exporter.domain.polls.metadata import Metadata
from exporter.domain.polls.readings import (
    ANSWERED,
    END_OF_TIME,
    FUTURE_SLACK_SECONDS,
    NO_ANSWER,
    REASONS,
    Answers,
    Reason,
    State,
)
from exporter.domain.polls.table import STATE_CODES, STATES, UNREADABLE
from exporter.domain.ports import Clock, OffsetSource
from exporter.kafka.newest_timestamps import read_logs


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


class OffsetRow(NamedTuple):
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
    source: OffsetSource, metadata: Metadata, times: Sequence[Time], clock: Clock, *, tier: Any = None
) -> list[OffsetRow]:
    """Return a row for each partition of ``metadata`` and each of ``times``, by topic, partition and time.

    ``times`` must not repeat; those in ``TIERED`` are looked up only with ``tier``, a ``TierClient``. A failure of one
    partition is in its rows.
    """
    layout, leader = metadata.membership.layout, metadata.membership.leader
    lookups = _Lookups(source, metadata, clock)
    found = {time: lookups.find(time, tier) for time in times}
    rows = []
    for name in layout.topics:
        refused, part = metadata.topics[name].reason, layout.rows_of(name)
        if refused is not None and part.start == part.stop:
            rows += [OffsetRow(name, None, time, reason=refused) for time in times]
        for row in range(part.start, part.stop):
            for time, (answers, reason) in found.items():
                offset = int(answers.offset[row]) if answers.found[row] else None
                why = refused or Reason.NO_LEADER if leader[row] == NO_LEADER else reason[row]
                rows.append(
                    OffsetRow(name, int(layout.partition[row]), time, offset, replace_nan(answers.timestamp[row]), why)
                )
    return rows


class _Lookups:
    """The look-ups of one run. Results are answers, and the reasons beside them as a column of objects."""

    def __init__(self, source: OffsetSource, metadata: Metadata, clock: Clock) -> None:
        self._source, self._metadata, self._clock = source, metadata, clock
        self._leader = metadata.membership.leader
        self._led = np.flatnonzero(self._leader != NO_LEADER)
        self._future_after = clock.now() + FUTURE_SLACK_SECONDS

    def find(self, time: Time, tier: Any) -> tuple[Answers, Strings]:
        """Look up one time of every partition."""
        if time in TIERED and tier is None:
            return Answers.none(len(self._leader)), objects([Gap.NOT_ASKED] * len(self._leader))
        if time is Spec.MAX_TIMESTAMP:
            answers, reason = self._find_newest()
        elif isinstance(time, Spec):
            answers, reason = self._find_position(time, tier)
        else:
            answers, reason = self._find_since(time)
        reason[answers.found & (answers.timestamp > self._future_after)] = State.FUTURE
        return answers, reason

    def _find_position(self, spec: Spec, tier: Any) -> tuple[Answers, Strings]:
        answers, membership = Answers.none(len(self._leader)), self._metadata.membership.part(self._led)
        if spec in TIERED:
            answers.put(self._led, tier.tier(spec, membership))
        else:
            look_up = self._source.ends if spec is Spec.LATEST else self._source.starts
            answers.put(self._led, look_up(membership))
        answers.timestamp[:] = np.nan
        reason = _REASONS[answers.reason]
        nothing = Gap.NOTHING_TIERED if spec is Spec.LATEST_TIERED else Reason.MISSING_ANSWER
        reason[(answers.reason == ANSWERED) & ~answers.found] = nothing
        return answers, reason

    def _find_since(self, time: float) -> tuple[Answers, Strings]:
        # The newest records first: one that is written meanwhile is found.
        newest, state, why = self._read_logs(by_spec=False)
        answers = self._by_time(self._leader != NO_LEADER, np.full(len(self._leader), time))
        none = (answers.reason == ANSWERED) & ~answers.found
        dated, later = np.isin(state, _DATED), np.nan_to_num(newest.timestamp) >= time
        reason = np.where(none, why, _REASONS[answers.reason])
        reason[none & dated] = Gap.NO_RECORD_SINCE
        # Where a later record exists, the broker looked into a segment that hides it.
        reason[none & ((dated & later) | (state == STATE_CODES[State.PENDING]))] = Reason.HIDDEN
        reason[answers.found & np.isnan(answers.timestamp)] = State.NO_TIMESTAMP
        return answers, reason

    def _find_newest(self) -> tuple[Answers, Strings]:
        newest, state, reason = self._read_logs(by_spec=True)
        newest.found[:] &= np.isin(state, _DATED) & ~np.isnan(newest.timestamp)
        newest.timestamp[~newest.found] = np.nan
        reason[newest.found] = None
        # Brokers 3.0 to 3.7 return a wrong offset (KAFKA-16310): without a look-up that confirms it, it is unknown.
        # Later timestamps became END_OF_TIME, so that a look-up of it may find another record.
        asked = newest.found & (newest.timestamp < END_OF_TIME)
        confirmed = self._by_time(asked, newest.timestamp)
        lost = asked & ~confirmed.found
        reason[lost] = _REASONS[confirmed.reason[lost]]
        reason[lost & (confirmed.reason <= ANSWERED)] = Reason.HIDDEN
        newest.offset[asked], newest.found[asked] = confirmed.offset[asked], confirmed.found[asked]
        newest.timestamp[confirmed.found] = confirmed.timestamp[confirmed.found]
        return newest, reason

    def _read_logs(self, *, by_spec: bool) -> tuple[Answers, Codes, Strings]:
        """Return the newest records, the states, and why there is no newest record."""
        _, first, last, newest = read_logs(self._source, self._metadata, self._led, self._clock)
        tiered = self._metadata.tiered[self._metadata.membership.layout.topic]
        unable = [broker for broker, known in self._source.max_timestamp_supported().items() if by_spec and not known]
        given = Circumstances(tiered, np.isin(self._leader, unable), self._future_after)
        states, reasons = states_of(first.offset, last.offset, newest, given)
        unread = ~first.found | ~last.found
        failed = np.where(first.found, last.reason, first.reason)
        failed[failed <= ANSWERED] = NO_ANSWER
        why = np.where(reasons > ANSWERED, _REASONS[reasons], _STATES[states])
        why[unread] = _REASONS[failed[unread]]
        return newest, np.where(unread, UNREADABLE, states), why

    def _by_time(self, wanted: Flags, times: Floats) -> Answers:
        """Return the first record at or after the time of each wanted partition (Unix seconds)."""
        answers, rows = Answers.none(len(wanted)), np.flatnonzero(wanted)
        milliseconds = np.round(times[rows] * 1000).astype(np.int64)
        answers.put(rows, self._source.look_up_times(self._metadata.membership, rows, milliseconds))
        return answers


_STATES = objects(STATES)
_REASONS = objects([None, *REASONS, Reason.MISSING_ANSWER])
"""By reason code: the last one is that of NO_ANSWER."""
_DATED = [STATE_CODES[State.OBSERVED], STATE_CODES[State.FUTURE]]

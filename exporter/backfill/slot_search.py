"""Finds the slots in which partitions were written to, with offsets-for-times (KIP-79) and binary search.

f(t), the first offset whose timestamp is at or after t, grows with t. Where f is equal at two slot boundaries nothing
was written in between, so quiet stretches cost nothing. The answer for a boundary also carries the timestamp of the
record it found, which answers every boundary up to that record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from exporter.domain import Reason
from exporter.domain.arrays import Codes, Flags, Floats, Offsets, Rows
from exporter.domain.column_set import ColumnSet
from exporter.domain.history.backfill_plan import UNKNOWN, Stretches
from exporter.domain.polls.answers import ANSWERED, Answers, reason_code
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.metadata import Membership
from exporter.domain.ports import LOOKUPS_AT_ONCE, ByTime


class TimeLookups:
    """Looks up offsets by time, of partitions by their rows. ``tick`` is called after every batch of look-ups."""

    def __init__(
        self, source: ByTime, layout: Layout, leader: NDArray[np.int32], tick: Callable[[], None] = lambda: None
    ) -> None:
        self._source, self._tick = source, tick
        self._membership = Membership.led(layout, leader)

    def ask(self, rows: Rows, seconds: Floats) -> Answers:
        """Return the first record at or after each time, of rows that have leaders."""
        found = Answers.none(len(rows))
        milliseconds = np.round(seconds * 1000).astype(np.int64)
        for at in range(0, len(rows), LOOKUPS_AT_ONCE):
            some = slice(at, at + LOOKUPS_AT_ONCE)
            answers = self._source.by_time(self._membership, rows[some], milliseconds[some])
            found.put(np.arange(at, at + len(answers)), answers)
            self._tick()
        return found


@dataclass(frozen=True, slots=True, eq=False)
class ActiveSlots(ColumnSet):
    """Slots in which records were written. The first and the last slot of a stretch may be shorter."""

    stretch: Rows
    start: Floats
    end: Floats
    start_offset: Offsets
    end_offset: Offsets
    first: Floats
    """Time of the first record. NaN: the records were written at unknown times in this slot."""


@dataclass(frozen=True, slots=True, eq=False)
class _Segments(ColumnSet):
    """Boundaries ``low`` < ``high``, in slots since 1970, with the answer at ``low`` and f(``high``)."""

    stretch: Rows
    low: NDArray[np.int64]
    offset: Offsets
    time: Floats
    high: NDArray[np.int64]
    high_offset: Offsets


@dataclass(frozen=True, slots=True)
class SlotSearch:
    """Finds active slots of ``slot`` seconds."""

    lookups: TimeLookups
    slot: int
    slack: float

    def active(self, stretches: Stretches) -> tuple[ActiveSlots, Codes]:
        """Return the active slots by stretch and time, and by stretch the reason code of a failure, if any.

        Look-ups of all partitions go out together, in about log2(slots) rounds. The slot that holds the end of a
        stretch extends to its ``end_offset``. The result is exact where timestamps never decrease from record to
        record. A late record counts in the slot of the records around it.
        """
        failed = np.full(len(stretches), ANSWERED, dtype=np.int8)
        segments, unknown, hidden_until = self._begin(stretches, failed)
        found = [unknown]
        while len(segments):
            slots, segments, middle = self._halve(stretches, segments)
            found.append(slots)
            answers = self.lookups.ask(stretches.row[segments.stretch], (middle * self.slot).astype(np.float64))
            usable = _usable(answers, segments.stretch, failed)
            segments = _split(segments[usable], middle[usable], answers[usable])
            segments = segments[failed[segments.stretch] == ANSWERED]
        slots = ActiveSlots.joined(found)
        slots = slots[failed[slots.stretch] == ANSWERED]
        slots = slots[np.lexsort((slots.start_offset, slots.end, slots.start, slots.stretch))]
        first = np.flatnonzero(np.diff(slots.stretch, prepend=-1))
        hidden = first[slots.start[first] <= hidden_until[slots.stretch[first]]]
        slots.start[hidden], slots.first[hidden] = stretches.start[slots.stretch[hidden]], np.nan
        return slots, failed

    def _begin(self, stretches: Stretches, failed: Codes) -> tuple[_Segments, ActiveSlots, Floats]:
        """Look up the start of each stretch. Return segments with records, known slots, and the end of hidden time.

        A record that an earlier stretch covers may be dated after that start. It is then the answer to every look-up up
        to its time, and hides all other records.
        """
        answers = self.lookups.ask(stretches.row, stretches.start)
        every = np.arange(len(stretches))
        usable = _usable(answers, every, failed)
        continued = stretches.start_offset != UNKNOWN
        low = np.floor(stretches.start / self.slot).astype(np.int64)
        high = np.ceil(stretches.end / self.slot).astype(np.int64)
        begin = np.where(continued, stretches.start_offset, 0)
        whole = _Segments(
            every, low, begin, np.where(answers.found, answers.timestamp, 0.0), high, stretches.end_offset
        )
        # All records written since are dated earlier.
        late = continued & (~answers.found | (answers.offset >= stretches.end_offset))
        known = usable & late
        anew = usable & ~continued
        segments = _Segments.joined([_split(whole[anew], low[anew], answers[anew]), whole[usable & continued & ~late]])
        ahead = answers.timestamp > stretches.start + self.slack
        hides = usable & continued & ~late & (answers.offset < stretches.start_offset) & ahead
        unknown = ActiveSlots(
            every, stretches.start, stretches.end, begin, stretches.end_offset, np.full(len(stretches), np.nan)
        )
        return segments, unknown[known], np.where(hides, answers.timestamp, -np.inf)

    def _halve(self, stretches: Stretches, segments: _Segments) -> tuple[ActiveSlots, _Segments, NDArray[np.int64]]:
        """Return segments of one slot; the others, cut at their first slot with a record; and where to split these."""
        slot = np.minimum(np.floor(segments.time / self.slot), segments.high - 1).astype(np.int64)
        slot = np.maximum(segments.low, slot)
        single = slot == segments.high - 1
        one, at = segments[single], slot[single]
        start = np.maximum(at * self.slot, stretches.start[one.stretch])
        end = np.minimum((at + 1) * self.slot, stretches.end[one.stretch])
        first = np.minimum(np.maximum(one.time, start), end)
        slots = ActiveSlots(one.stretch, start, end, one.offset, one.high_offset, first)
        rest = replace(segments, low=slot)[~single]
        return slots, rest, (rest.low + rest.high + 1) // 2


def _usable(answers: Answers, stretch: Rows, failed: Codes) -> Flags:
    """Return which answers can be used, and write into ``failed`` why others cannot."""
    undated = answers.found & np.isnan(answers.timestamp)
    reason = np.where(undated, reason_code(Reason.UNSUPPORTED_FORMAT), answers.reason)
    bad = reason != ANSWERED
    failed[stretch[bad]] = reason[bad]
    usable: Flags = ~bad
    return usable


def _split(segments: _Segments, middle: NDArray[np.int64], answers: Answers) -> _Segments:
    """Split segments at ``middle``, given the answers there. Return the parts that hold records."""
    # Retention may remove records between two rounds: offsets are kept within what was seen before.
    found = np.where(answers.found, np.minimum(answers.offset, segments.high_offset), segments.high_offset)
    offset = np.maximum(found, segments.offset)
    before = replace(segments, high=middle, high_offset=offset)
    after = replace(segments, low=middle, offset=offset, time=answers.timestamp)
    with_before = (middle > segments.low) & (segments.offset < offset)
    with_after = (offset < segments.high_offset) & answers.found
    return _Segments.joined([before[with_before], after[with_after]])

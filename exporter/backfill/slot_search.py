"""Finds the slots in which partitions were written to, with offsets-for-times (KIP-79) and binary search.

f(t), the first offset whose timestamp is at or after t, grows with t. Where f is equal at two slot boundaries nothing
was written in between, so quiet stretches cost nothing. The answer for a boundary also carries the timestamp of the
record it found, which answers every boundary up to that record. A search ends at the newest record.

A boundary before the newest record without an answer proves nothing (see ``ports.ByTime``). The search then goes on
from both sides to the nearest boundaries with one. What lies between these is hidden: records at unknown times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Codes, ColumnSet, Flags, Floats, Offsets, Rows
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.metadata import Membership
from exporter.domain.polls.readings import ANSWERED, Answers, Reason, reason_code
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
class Stretches(ColumnSet):
    """The history to search of some partitions: the records from [``start``, ``end``), in Unix seconds."""

    row: Rows
    """The partition, as a row of a batch."""
    start: Floats
    end: Floats
    start_offset: Offsets
    """The first record that the windows may cover."""
    end_offset: Offsets
    """One past the last one."""


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


PLAIN, TO_HIDDEN, FROM_HIDDEN = range(3)
"""Kinds of segments: with f at both ends, or without it at the high or the low one."""


@dataclass(frozen=True, slots=True, eq=False)
class _Segments(ColumnSet):
    """Boundaries ``low`` < ``high``, in slots since 1970, with the answer at ``low`` and f(``high``)."""

    stretch: Rows
    low: NDArray[np.int64]
    offset: Offsets
    time: Floats
    """Unknown FROM_HIDDEN, as ``offset``."""
    high: NDArray[np.int64]
    high_offset: Offsets
    """Only an upper bound of it TO_HIDDEN."""
    kind: NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class SlotSearch:
    """Finds active slots of ``slot`` seconds."""

    lookups: TimeLookups
    slot: int

    def active(self, stretches: Stretches, newest: Floats, end_hidden: Flags) -> tuple[ActiveSlots, Codes]:
        """Return the active slots by stretch and time, and by stretch the reason code of a failure, if any.

        ``newest`` is each partition's newest timestamp. Where ``end_hidden``, it is unknown which records lie before
        the end of the stretch. Look-ups of all partitions go out together, in about
        log2(slots) rounds. The slot that holds the end of a stretch extends to its ``end_offset``. The result is exact
        where timestamps never decrease from record to record. A late record counts in the slot of the records around
        it.
        """
        failed = np.full(len(stretches), ANSWERED, dtype=np.int8)
        # Also past the end of the stretch, where a record is newer than that.
        last = np.floor(newest / self.slot).astype(np.int64)
        top = np.minimum(last + 1, np.ceil(stretches.end / self.slot).astype(np.int64))
        segments = self._begin(stretches, newest, top, end_hidden, failed)
        every = np.arange(len(stretches))
        gaps = _gaps(every, stretches.end, stretches.end_offset)
        found, hidden = [gaps[:0]], [gaps[end_hidden]]
        while len(segments):
            slots, gaps, segments = self._closed(stretches, segments, newest, top)
            found.append(slots)
            hidden.append(gaps)
            middle = (segments.low + segments.high + 1) // 2
            answers = self.lookups.ask(stretches.row[segments.stretch], (middle * self.slot).astype(np.float64))
            usable = _usable(answers, segments.stretch, failed)
            segments = _split(segments[usable], middle[usable], answers[usable])
            segments = segments[failed[segments.stretch] == ANSWERED]
        slots = _with_hidden(ActiveSlots.joined(found), ActiveSlots.joined(hidden), stretches)
        return slots[failed[slots.stretch] == ANSWERED], failed

    def _begin(
        self, stretches: Stretches, newest: Floats, top: NDArray[np.int64], end_hidden: Flags, failed: Codes
    ) -> _Segments:
        """Look up the start of each stretch, and return those with records as segments."""
        every, since = np.arange(len(stretches)), newest >= stretches.start
        wanted = np.flatnonzero(since)
        answers = Answers.none(len(stretches))
        answers.put(wanted, self.lookups.ask(stretches.row[wanted], stretches.start[wanted]))
        usable = ~since
        usable[wanted] = _usable(answers[wanted], wanted, failed)
        low = np.floor(stretches.start / self.slot).astype(np.int64)
        whole = _Segments(
            every,
            low,
            stretches.start_offset,
            np.where(answers.found, answers.timestamp, 0.0),
            np.maximum(top, low + 1),
            stretches.end_offset,
            np.where(end_hidden, TO_HIDDEN, PLAIN).astype(np.int8),
        )
        unfound = usable & since & ~answers.found
        offset = np.maximum(answers.offset, stretches.start_offset)
        hidden = replace(whole, kind=np.full(len(whole), FROM_HIDDEN, dtype=np.int8))
        return _Segments.joined(
            [
                replace(whole, offset=offset)[usable & answers.found & (offset < stretches.end_offset)],
                hidden[unfound & ~end_hidden],
            ]
        )

    def _closed(
        self, stretches: Stretches, segments: _Segments, newest: Floats, top: NDArray[np.int64]
    ) -> tuple[ActiveSlots, ActiveSlots, _Segments]:
        """Return slots of segments of one slot or record, hidden ones too, and the rest, cut at their first record."""
        from_hidden = segments.kind == FROM_HIDDEN
        slot = np.minimum(np.floor(segments.time / self.slot), segments.high - 1).astype(np.int64)
        slot = np.where(from_hidden, segments.low, np.maximum(segments.low, slot))
        # Of a segment with one record, all is known: the answer at its begin has found that.
        alone = (segments.kind == PLAIN) & (segments.high_offset == segments.offset + 1)
        single = (slot == segments.high - 1) | alone
        rest = replace(segments, low=slot)[~single]
        one, at, to_hidden = segments[single], slot[single], (segments.kind == TO_HIDDEN)[single]
        from_hidden = from_hidden[single]
        # The newest record lies in its slot, whatever the broker answers at the begin of that.
        is_newest = from_hidden & (one.high == top[one.stretch]) & (newest[one.stretch] < stretches.end[one.stretch])
        offset = np.where(is_newest, one.high_offset - 1, one.offset)
        end_offset = np.where(to_hidden, one.offset + 1, one.high_offset)
        start = np.maximum(at * self.slot, stretches.start[one.stretch])
        end = np.minimum((at + 1) * self.slot, stretches.end[one.stretch])
        first = np.minimum(np.maximum(np.where(is_newest, newest[one.stretch], one.time), start), end)
        slots = ActiveSlots(one.stretch, start, end, offset, end_offset, first)
        upto = np.where(is_newest, one.high_offset - 1, one.high_offset)
        gaps = _gaps(one.stretch, np.where(is_newest, start, end), upto)
        return slots[~from_hidden | is_newest], gaps[from_hidden], rest


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
    found, kind = answers.found, segments.kind
    # Retention may remove records between two rounds: offsets are kept within what was seen before.
    offset = np.maximum(np.minimum(answers.offset, segments.high_offset), segments.offset)
    offset = np.where(found, offset, segments.high_offset)
    to_hidden = np.where(found & (kind == TO_HIDDEN), PLAIN, np.where(found, kind, TO_HIDDEN)).astype(np.int8)
    from_hidden = np.where(found & (kind == FROM_HIDDEN), PLAIN, np.where(found, kind, FROM_HIDDEN)).astype(np.int8)
    before = replace(segments, high=middle, high_offset=offset, kind=to_hidden)
    after = replace(
        segments,
        low=middle,
        offset=np.where(found, offset, segments.offset),
        time=np.where(found, answers.timestamp, segments.time),
        kind=from_hidden,
    )
    # A hidden span is left out on its far side, which the other part has.
    with_before = np.where(found, (segments.offset < offset) | (kind == FROM_HIDDEN), kind != FROM_HIDDEN)
    with_after = np.where(found, (offset < segments.high_offset) | (kind == TO_HIDDEN), kind != TO_HIDDEN)
    return _Segments.joined([before[with_before], after[with_after]])


def _gaps(stretch: Rows, end: Floats, end_offset: Offsets) -> ActiveSlots:
    """Return hidden slots of which only the ends are known yet; see ``_with_hidden``."""
    return ActiveSlots(stretch, end, end, end_offset, end_offset, np.full(len(stretch), np.nan))


def _with_hidden(slots: ActiveSlots, gaps: ActiveSlots, stretches: Stretches) -> ActiveSlots:
    """Return all slots in order, with the hidden ones begun where the slot before them ends.

    Records between two slots belong to the hidden one between these,
    or to one of them where they meet.
    """
    hidden = np.arange(len(slots) + len(gaps)) >= len(slots)
    slots = ActiveSlots.joined([slots, gaps])
    order = np.lexsort((slots.start_offset, slots.end, slots.start, slots.stretch))
    slots, hidden = slots[order], hidden[order]
    for row in np.flatnonzero(hidden).tolist():
        stretch = slots.stretch[row]
        follows = row > 0 and slots.stretch[row - 1] == stretch
        slots.start[row] = slots.end[row - 1] if follows else stretches.start[stretch]
        slots.start_offset[row] = slots.end_offset[row - 1] if follows else stretches.start_offset[stretch]
        if slots.start[row] < slots.end[row]:
            continue
        slots.end[row] = slots.start[row]
        if follows:
            slots.end_offset[row - 1] = max(slots.end_offset[row - 1 : row + 1])
        elif row + 1 < len(slots) and slots.stretch[row + 1] == stretch:
            slots.start_offset[row + 1] = slots.end_offset[row] = slots.start_offset[row]
    return slots[~hidden | ((slots.start < slots.end) & (slots.start_offset < slots.end_offset))]

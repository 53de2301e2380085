"""Finds the slots in which partitions were written to, with offsets-for-times (KIP-79), and makes windows of them.

f(t) is the first record at or after t. It lies in the next slot with records, so the search asks for f at the end of
each slot that it found: one look-up for each active slot, none for quiet ones. It ends at the newest record.

A boundary before the newest record without an answer proves nothing (``ports.TimeIndex``). From there up to the next
boundary with one, records were written at unknown times. A record dated after the history hides all that follow it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from exporter.domain.arrays import Codes, ColumnSet, Flags, Floats, Offsets, Rows
from exporter.domain.polls.metadata import Membership
from exporter.domain.polls.readings import ANSWERED, END_OF_TIME, FUTURE_SLACK_SECONDS, Answers, Reason, reason_code
from exporter.domain.ports import LOOKUPS_AT_ONCE, TimeIndex


class TimeLookups:
    """Looks up offsets by time, of partitions by their rows. ``tick`` is called after every batch of look-ups."""

    def __init__(self, source: TimeIndex, membership: Membership, tick: Callable[[], None] = lambda: None) -> None:
        self._source, self._membership, self._tick = source, membership, tick

    def ask(self, rows: Rows, seconds: Floats) -> Answers:
        """Return the first record at or after each time, of rows that have leaders."""
        found = Answers.make_blank(len(rows))
        milliseconds = np.round(seconds * 1000).astype(np.int64)
        for at in range(0, len(rows), LOOKUPS_AT_ONCE):
            some = slice(at, at + LOOKUPS_AT_ONCE)
            answers = self._source.look_up_times(self._membership, rows[some], milliseconds[some])
            found.put(np.arange(at, at + len(answers)), answers)
            self._tick()
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Stretches(ColumnSet):
    """The history to search of some partitions: the records from [``start``, ``end``), in Unix seconds."""

    row: Rows
    """The row of the partition."""
    start: Floats
    """The begin of a slot."""
    end: Floats
    start_offset: Offsets
    """The first record that the windows may cover."""
    end_offset: Offsets
    """One past the last one."""
    newest: Floats
    """The timestamp of the partition's newest record, NaN where it is unknown."""
    at_end: Flags
    """Whether the newest record lies before ``end_offset``."""


@dataclass(frozen=True, slots=True, eq=False)
class Windows(ColumnSet):
    """Windows of partitions, one for each slot with records; the first and the last may be shorter. NaN: unknown."""

    row: Rows
    """The row of the partition."""
    start: Floats
    end: Floats
    start_offset: Offsets
    end_offset: Offsets
    first_advance: Floats
    """Exact; NaN where the records were written at unknown times."""
    last_advance: Floats
    """As ``first_advance``, but in the slot of the newest record, of which it is the time."""
    resolution: Floats
    future: Flags
    """Whether a record that is dated after the history hides when the others were written."""
    reason: Codes
    """The reason code of unknown history. With a reason only ``start`` and ``end`` have a meaning."""


@dataclass(frozen=True, slots=True, eq=False)
class _Slots(ColumnSet):
    stretch: Rows
    start: Floats
    end: Floats
    start_offset: Offsets
    first: Floats
    future: Flags


def search_windows(lookups: TimeLookups, stretches: Stretches, slot: int) -> tuple[Windows, Codes]:
    """Return windows in order of stretch and time, and by stretch the reason code of a failure, if any.

    ``slot`` is in seconds. Look-ups of all partitions go out together. The slot that holds the end of a stretch extends
    to its ``end_offset``. The result is exact where timestamps never decrease from record to record. A late record
    counts in the slot of the records around it.
    """
    search = _Search(lookups, stretches, slot)
    search.run()
    return search.windows(), search.failed


class _Search:
    def __init__(self, lookups: TimeLookups, stretches: Stretches, slot: int) -> None:
        self._lookups, self._stretches, self._slot = lookups, stretches, slot
        count = len(stretches)
        self.failed: Codes = np.full(count, ANSWERED, dtype=np.int8)
        # A newest record that is not known may be later than all that is found.
        self._newest = np.nan_to_num(stretches.newest, nan=END_OF_TIME)
        self._future = stretches.end + FUTURE_SLACK_SECONDS
        """From when on a record is dated after the history."""
        self._boundary = stretches.start.copy()
        """What to ask for next."""
        self._passed = stretches.start_offset.copy()
        """The records before it are in slots."""
        self._hidden_from = np.full(count, np.nan)
        """The first boundary without an answer since the last one with one."""
        self._unanswered = np.full(count, np.nan)
        """The last boundary without an answer."""
        self._answered = np.full(count, np.nan)
        """A later boundary with one. Between the two the first one with an answer is searched."""
        self._last_asked = np.zeros(count, dtype=np.bool_)
        self._begin, self._offset = self._boundary.copy(), self._passed.copy()
        """Begin and first record of the last slot."""
        self._found = [_Slots.blank(0)]

    def run(self) -> None:
        """Ask until all slots are found."""
        going = np.arange(len(self._stretches))
        while len(going := self._continue(going)):
            answers = self._lookups.ask(self._stretches.row[going], self._boundary[going])
            undated = answers.found & np.isnan(answers.timestamp)
            self.failed[going] = np.where(undated, reason_code(Reason.UNSUPPORTED_FORMAT), answers.reason)
            good = self.failed[going] == ANSWERED
            going, answers = going[good], answers[good]
            self._pass_hidden(going[~answers.found])
            found, at = answers.found, self._boundary[going]
            far = found & (at < self._stretches.end[going]) & (at - self._unanswered[going] > self._slot)
            self._answered[going[far]] = at[far]
            self._boundary[going[far]] = self._middle(going[far])
            found &= ~far
            self._take(going[found], answers.offset[found], answers.timestamp[found])

    def _pass_hidden(self, at: Rows) -> None:
        """Choose what to ask for where the last boundary has no answer: twice as far ahead each time."""
        boundary, end = self._boundary[at], self._stretches.end[at]
        begun = np.isnan(self._hidden_from[at]) & (boundary < end)
        self._hidden_from[at[begun]] = boundary[begun]
        self._unanswered[at] = boundary
        last = self._slot_of(self._newest[at], end)
        further = np.minimum(2 * boundary - self._hidden_from[at] + self._slot, last)
        ahead = np.where(boundary < last, further, boundary + self._slot)
        self._boundary[at] = np.where(self._answered[at] > boundary, self._middle(at), ahead)

    def _middle(self, at: Rows) -> Floats:
        low, high = self._unanswered[at], self._answered[at]
        return np.asarray(low + np.maximum(np.floor((high - low) / 2 / self._slot), 1) * self._slot)

    def _continue(self, going: Rows) -> Rows:
        """Return which stretches need another look-up, and finish the others."""
        newest, future = self._newest[going], self._future[going]
        left = self._passed[going] < self._stretches.end_offset[going]
        over = left & ((self._boundary[going] >= self._stretches.end[going]) | (self._boundary[going] > newest))
        # The last question: whether a record that is dated after the history shares the last slot.
        last = over & ~self._last_asked[going] & (newest >= future)
        self._boundary[going[last]], self._last_asked[going[last]] = future[last], True
        self._end_hidden(going[over & ~last])
        return going[left & (~over | last)]

    def _take(self, at: Rows, offset: Offsets, time: Floats) -> None:
        """Take the first records at or after the boundaries of these stretches."""
        self._hide(at, self._boundary[at])
        boundary, end, end_offset = self._boundary[at], self._stretches.end[at], self._stretches.end_offset[at]
        # Retention may remove records between two rounds.
        offset = np.maximum(offset, self._passed[at])
        inside = offset < end_offset
        future = inside & (time >= self._future[at])
        # The order of records in a shared slot is not known: all of it is hidden.
        shared = future & (boundary >= end)
        slot = np.maximum(self._slot_of(np.minimum(time, end), end), self._stretches.start[at])
        begin = np.where(shared, self._begin[at], np.where(future, boundary, slot))
        offset = np.where(shared, self._offset[at], offset)
        until = np.where(future, end, np.minimum(begin + self._slot, end))
        first = np.where(future, np.nan, np.clip(time, begin, until))
        self._found.append(_Slots(at, begin, until, offset, first, future)[inside])
        done = ~inside | future | (offset + 1 == end_offset)
        self._passed[at] = np.where(done, end_offset, offset + 1)
        self._begin[at], self._offset[at], self._boundary[at] = begin, offset, begin + self._slot

    def _slot_of(self, time: Floats, end: Floats) -> Floats:
        """Return the begin of the slot of each time; one at or after ``end`` lies in the last slot before it."""
        last = np.ceil(end / self._slot) - 1
        return np.asarray(np.minimum(np.floor(time / self._slot), last) * self._slot)

    def _hide(self, at: Rows, until: Floats) -> None:
        """End what is hidden of these stretches, if anything is."""
        hidden = ~np.isnan(self._hidden_from[at])
        at, until = at[hidden], np.minimum(until[hidden], self._stretches.end[at[hidden]])
        self._begin[at], self._offset[at], self._hidden_from[at] = self._hidden_from[at], self._passed[at], np.nan
        self._unanswered[at], self._answered[at] = np.nan, np.nan
        unknown, no = np.full(len(at), np.nan), np.zeros(len(at), dtype=np.bool_)
        self._found.append(_Slots(at, self._begin[at], until, self._offset[at], unknown, no))

    def _end_hidden(self, at: Rows) -> None:
        """Finish stretches. Where one ends in hidden records, the newest is known where it lies before the end."""
        at = at[~np.isnan(self._hidden_from[at])]
        newest, end = self._newest[at], self._stretches.end[at]
        slot, known = self._slot_of(newest, end), newest < end
        self._hide(at, np.where(known, slot, end))
        alone = slot > self._begin[at]
        offset = np.where(alone, self._stretches.end_offset[at] - 1, self._offset[at])
        until, no = np.minimum(slot + self._slot, end), np.zeros(len(at), dtype=np.bool_)
        self._found.append(_Slots(at, slot, until, offset, newest, no)[known])

    def windows(self) -> Windows:
        """Return the windows of stretches that did not fail."""
        slots = _Slots.concatenate(self._found)
        slots = slots[self.failed[slots.stretch] == ANSWERED]
        slots = slots[np.lexsort((slots.future, slots.start_offset, slots.end, slots.start, slots.stretch))]
        mine = self._stretches[slots.stretch]
        follows = slots.stretch[1:] == slots.stretch[:-1]
        end_offset = mine.end_offset.copy()
        end_offset[:-1][follows] = slots.start_offset[1:][follows]
        is_last = np.ones(len(slots), dtype=np.bool_)
        is_last[:-1] = ~follows
        limit = np.where(slots.end < mine.end, slots.end, slots.end + FUTURE_SLACK_SECONDS)
        with_newest = is_last & mine.at_end & (slots.first <= mine.newest) & (mine.newest < limit)
        found = Windows(
            row=mine.row,
            start=slots.start,
            end=slots.end,
            start_offset=slots.start_offset,
            end_offset=end_offset,
            first_advance=slots.first,
            last_advance=np.where(with_newest, np.minimum(mine.newest, slots.end), slots.first),
            resolution=np.where(np.isnan(slots.first), slots.end - slots.start, float(self._slot)),
            future=slots.future,
            reason=np.zeros(len(slots), dtype=np.int8),
        )
        return found[slots.start_offset < end_offset]

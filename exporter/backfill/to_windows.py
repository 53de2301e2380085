"""Turns stretches of history into windows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from exporter.backfill.cutoff import Cutoffs, Request
from exporter.backfill.slot_search import ActiveSlots, SlotSearch, Stretches, TimeLookups
from exporter.domain.arrays import Codes, ColumnSet, Flags, Floats, Offsets, Rows
from exporter.domain.polls.readings import ANSWERED, END_OF_TIME, FUTURE_SLACK_SECONDS, Answers
from exporter.domain.ports import ByTime

_NOTHING_HIDDEN = -1


@dataclass(frozen=True, slots=True, eq=False)
class Windows(ColumnSet):
    """Windows of the partitions of a batch. Unknown times are NaN."""

    row: Rows
    """The row of the batch."""
    start: Floats
    end: Floats
    start_offset: Offsets
    end_offset: Offsets
    first_advance: Floats
    last_advance: Floats
    resolution: Floats
    max_timestamp: Floats
    future: Flags
    reason: Codes
    """The reason code of unknown history. With a reason only ``start`` and ``end`` have a meaning."""

    @classmethod
    def failures(cls, rows: Rows, start: Floats, end: Floats, reason: Codes) -> Windows:
        """Return a window for each of these rows, with the reason why its history is unknown."""
        numbers, unknown = np.zeros(len(rows), dtype=np.int64), np.full(len(rows), np.nan)
        no = np.zeros(len(rows), dtype=np.bool_)
        return cls(rows, start, end, numbers, numbers, unknown, unknown, unknown, unknown, no, reason.astype(np.int8))


@dataclass(frozen=True, slots=True)
class WindowBuilder:
    """Searches one stretch of each partition for active slots, and builds their windows. ``tick``: see TimeLookups."""

    source: ByTime
    request: Request
    tick: Callable[[], None]

    def build(self, cutoffs: Cutoffs, failed: Codes) -> Windows:
        """Return the windows of all partitions, in order of partition and time.

        ``failed`` is by row of the batch. It gets the reasons of further partitions that failed: they have no windows.
        """
        batch = cutoffs.batch
        lookups = TimeLookups(self.source, batch.layout, batch.leader, self.tick)
        rows = np.flatnonzero((failed == ANSWERED) & cutoffs.searched)
        stretches = Stretches(
            rows, cutoffs.start[rows], cutoffs.end[rows], cutoffs.earliest[rows], cutoffs.end_offset[rows]
        )
        windows = self._search(lookups, cutoffs, stretches, failed)
        windows = windows[failed[windows.row] == ANSWERED]
        return windows[np.lexsort((windows.start, windows.row))]

    def failures(self, cutoffs: Cutoffs, rows: Rows, reason: Codes) -> Windows:
        """Return the windows of ``rows`` that hold the reasons why their history is unknown."""
        # Not rounded to slots: a later run that succeeds must not write a window with the same key.
        end = cutoffs.end[rows]
        return Windows.failures(rows, np.maximum(0.0, end - self.request.horizon), end, reason)

    def _search(self, lookups: TimeLookups, cutoffs: Cutoffs, stretches: Stretches, failed: Codes) -> Windows:
        # A newest record that is not known may be later than all that is found.
        newest = np.nan_to_num(cutoffs.newest, nan=END_OF_TIME)
        answers, after_newest = self._after(lookups, stretches, newest[stretches.row])
        failed[stretches.row] = answers.reason
        good = answers.reason == ANSWERED
        stretches, answers, after_newest = stretches[good], answers[good], after_newest[good]
        # End each stretch at the first record that is dated after it.
        cut = answers.found & (answers.offset < stretches.end_offset)
        end_offset = np.where(cut, np.maximum(answers.offset, stretches.start_offset), stretches.end_offset)
        hidden_from = np.where(cut, end_offset, _NOTHING_HIDDEN)
        places = np.flatnonzero(end_offset > stretches.start_offset)
        search, rows = SlotSearch(lookups, self.request.slot), stretches.row[places]
        slots, unread = search.active(
            replace(stretches, end_offset=end_offset)[places],
            newest[rows],
            (~answers.found & ~after_newest)[places],
        )
        failed[rows] = unread
        hidden_from[failed[stretches.row] != ANSWERED] = _NOTHING_HIDDEN
        return self._windows(cutoffs, stretches, replace(slots, stretch=places[slots.stretch]), hidden_from)

    def _after(self, lookups: TimeLookups, stretches: Stretches, newest: Floats) -> tuple[Answers, Flags]:
        """Look up the first record that is dated after each stretch; return also where there is none for certain.

        It is from the future, and the answer at every boundary after the time of its write: it hides all later slots.
        """
        end = stretches.end + FUTURE_SLACK_SECONDS
        answers, wanted = Answers.none(len(stretches)), np.flatnonzero(newest >= end)
        answers.reason[:] = ANSWERED
        answers.put(wanted, lookups.ask(stretches.row[wanted], end[wanted]))
        return answers, newest < end

    def _windows(
        self, cutoffs: Cutoffs, stretches: Stretches, slots: ActiveSlots, hidden_from: NDArray[np.int64]
    ) -> Windows:
        counts = np.bincount(slots.stretch, minlength=len(stretches))
        some, last = np.flatnonzero(counts), (np.cumsum(counts) - 1)[counts > 0]
        hidden_at = stretches.start.copy()
        hidden_at[some] = slots.end[last]
        hidden = hidden_from != _NOTHING_HIDDEN
        # Normal and future records share the last slot: their order is not known.
        shared = (hidden & (hidden_at >= stretches.end))[some]
        hidden_at[some[shared]] = slots.start[last[shared]]
        hidden_from[some[shared]] = slots.start_offset[last[shared]]
        newest = np.full(len(slots), np.nan)
        newest[last] = np.where(hidden[some], np.nan, self._newest(cutoffs, stretches[some], slots[last]))
        found = self._of_slots(stretches, slots, newest)
        keep = np.ones(len(slots), dtype=np.bool_)
        keep[last[shared]] = False
        rest = np.flatnonzero(hidden)
        return Windows.joined([found[keep], self._of_hidden(stretches[rest], hidden_from[rest], hidden_at[rest])])

    def _of_slots(self, stretches: Stretches, slots: ActiveSlots, newest: Floats) -> Windows:
        no = np.zeros(len(slots), dtype=np.bool_)
        return Windows(
            row=stretches.row[slots.stretch],
            start=slots.start,
            end=slots.end,
            start_offset=slots.start_offset,
            end_offset=slots.end_offset,
            first_advance=slots.first,
            last_advance=np.where(np.isnan(newest), slots.first, np.minimum(newest, slots.end)),
            resolution=np.where(np.isnan(slots.first), slots.end - slots.start, float(self.request.slot)),
            max_timestamp=newest,
            future=no,
            reason=no.astype(np.int8),
        )

    def _of_hidden(self, stretches: Stretches, start_offset: Offsets, start: Floats) -> Windows:
        """Return the windows of slots that a record from the future hides."""
        unknown = np.full(len(stretches), np.nan)
        return Windows(
            row=stretches.row,
            start=start,
            end=stretches.end,
            start_offset=start_offset,
            end_offset=stretches.end_offset,
            first_advance=unknown,
            last_advance=unknown,
            resolution=stretches.end - start,
            max_timestamp=unknown,
            future=np.ones(len(stretches), dtype=np.bool_),
            reason=np.zeros(len(stretches), dtype=np.int8),
        )

    def _newest(self, cutoffs: Cutoffs, stretches: Stretches, slots: ActiveSlots) -> Floats:
        """Return the time of the newest record where it lies in the last slot of its stretch, NaN elsewhere."""
        end, newest = cutoffs.end[stretches.row], cutoffs.newest[stretches.row]
        limit = np.where(slots.end < end, slots.end, slots.end + FUTURE_SLACK_SECONDS)
        at_end = cutoffs.at_end[stretches.row] & (stretches.end == end)
        there = at_end & (slots.first <= newest) & (newest < limit)
        return np.where(there, newest, np.nan)

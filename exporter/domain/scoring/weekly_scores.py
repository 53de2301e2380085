"""Hours of activity and baselines -> how unusual each stream's silences were, week by week.

What calibration learns from: each silence is scored as it was judged at the time, by the baseline of the week in which
it began.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from exporter.domain.arrays import ColumnSet, Floats, Rows, runs
from exporter.domain.learning.baselines import Baselines
from exporter.domain.learning.hours import Hours, Integers
from exporter.domain.learning.slots import (
    BY_FIVE,
    BY_HOUR,
    LONGEST_INSIDE,
    Slot,
    cut_into_slots,
    silences_between,
    week_of,
)
from exporter.domain.learning.traffic_clock import HOUR
from exporter.domain.verdicts import HELD_FROM, RETIRED_AFTER_SECONDS


@dataclass(frozen=True, slots=True, eq=False)
class Maxima(ColumnSet):
    """The largest score of each stream's silences, by the weeks in which they began and ended, each a column [n].

    There is a row for each week in which a stream with a traffic clock advanced.
    """

    stream: Rows
    week: Integers
    """The week in which the silence began."""
    week_ended: Integers
    score: Floats
    """NaN where the stream was never silent in its week."""
    overdue: Floats
    """When it was longer than usual."""
    silent_from: Floats
    silent_until: Floats
    """Unix seconds; NaN, as ``overdue``, but where the silence was so unusual that an incident could hold it."""


def maxima(hours: Hours, baselines: Baselines, weeks: Sequence[int]) -> Maxima:
    """Return the maxima of the silences that ended in these weeks.

    ``baselines`` are those of the weeks in which the silences began. A silence of 28 days or more is left out: its
    alarm is right, whatever follows.
    """
    made = [_in_slots(hours, baselines, slot, weeks) for slot in (BY_HOUR, BY_FIVE)]
    return Maxima.concatenate(made)


def _in_slots(hours: Hours, baselines: Baselines, slot: Slot, weeks: Sequence[int]) -> Maxima:
    mine = baselines[baselines.clocked & (baselines.slot_seconds == slot.seconds)]
    clocks = mine.clocks()
    row_of = _Places(mine)
    hours = cut_into_slots(hours, slot)
    active = hours[hours.active]
    ended = week_of(np.asarray(active.hour * HOUR))
    in_weeks = np.isin(ended, weeks)
    active, ended = active[in_weeks], ended[in_weeks]
    found = _ended(hours, active, ended, slot)
    clock = row_of(found.stream, found.began)
    found = found[np.isin(found.ended, weeks) & (clock >= 0)]
    clock = row_of(found.stream, found.began)
    start = clocks.start(clock, found.start)
    missed = clocks.ticks(clock, start, found.end)
    worst = _worst(found, missed)
    found, clock, missed, start = found[worst], clock[worst], missed[worst], start[worst]
    score = clocks.score(clock, missed)
    unusual = score > HELD_FROM
    overdue = np.where(unusual, clocks.moment(clock, start, clocks.usual(clock)), np.nan)
    own = set(zip(found.stream.tolist(), found.began.tolist(), found.ended.tolist(), strict=True))
    at = runs(active.stream, ended)
    at = at[row_of(active.stream[at], ended[at]) >= 0]
    weeks_of = zip(active.stream[at].tolist(), ended[at].tolist(), strict=True)
    calm = at[np.array([(stream, week, week) not in own for stream, week in weeks_of], np.bool_)]
    nothing = np.full(len(calm), np.nan)
    return Maxima(
        np.concatenate([found.stream, active.stream[calm]]),
        np.concatenate([found.began, ended[calm]]),
        np.concatenate([found.ended, ended[calm]]),
        np.concatenate([score, nothing]),
        np.concatenate([overdue, nothing]),
        np.concatenate([np.where(unusual, found.start, np.nan), nothing]),
        np.concatenate([np.where(unusual, found.end, np.nan), nothing]),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Ended(ColumnSet):
    stream: Rows
    began: Integers
    ended: Integers
    start: Floats
    end: Floats


def _ended(hours: Hours, active: Hours, week: Integers, slot: Slot) -> _Ended:
    found = silences_between(hours, slot)
    found = found[(found.slots > 0) & (found.end - found.since < RETIRED_AFTER_SECONDS)]
    across = _Ended(found.stream, week_of(found.since), week_of(found.end), found.start, found.end)
    if slot == BY_HOUR:
        return across
    longest = LONGEST_INSIDE[active.fives]
    some = longest > 0
    start = np.asarray(active.hour[some] * HOUR, np.float64)
    end = start + (longest[some] + 1) * slot.seconds
    inside = _Ended(active.stream[some], week[some], week[some], start, end)
    return _Ended.concatenate([across, inside])


def _worst(found: _Ended, missed: Floats) -> Rows:
    order = np.lexsort((found.start, missed, found.ended, found.began, found.stream))
    if not len(order):
        return order
    at = runs(found.stream[order], found.began[order], found.ended[order])
    return np.asarray(order[np.append(at[1:], len(order)) - 1])


class _Places:
    def __init__(self, baselines: Baselines) -> None:
        self._first = int(baselines.week.min(initial=0))
        self._weeks = int(baselines.week.max(initial=0)) - self._first + 1
        key = baselines.stream.astype(np.int64) * self._weeks + (baselines.week.astype(np.int64) - self._first)
        self._order = np.argsort(key)
        self._keys = key[self._order]

    def __call__(self, stream: Rows, week: Integers) -> Rows:
        """Return the row of each, -1 where there is none."""
        if not len(self._keys):
            return np.full(len(stream), -1, np.intp)
        within = (week >= self._first) & (week < self._first + self._weeks)
        key = stream.astype(np.int64) * self._weeks + (week - self._first)
        at = np.minimum(np.searchsorted(self._keys, key), len(self._keys) - 1)
        return np.where(within & (self._keys[at] == key), self._order[at], -1).astype(np.intp)

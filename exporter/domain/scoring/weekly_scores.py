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
    PastSilences,
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
    hours = cut_into_slots(hours, slot)
    active = hours[hours.active]
    ended = week_of(np.asarray(active.hour * HOUR))
    in_weeks = np.isin(ended, weeks)
    active, ended = active[in_weeks], ended[in_weeks]
    found = _ended(hours, active, slot)
    found = found[np.isin(week_of(found.end), weeks)]
    clock = mine.find_rows(found.stream, week_of(found.since))
    found, clock = found[clock >= 0], clock[clock >= 0]
    start = clocks.start(clock, found.start)
    missed = clocks.ticks(clock, start, found.end)
    worst = _worst(found, missed)
    found, clock, missed, start = found[worst], clock[worst], missed[worst], start[worst]
    began, over = week_of(found.since), week_of(found.end)
    score = clocks.score(clock, missed)
    unusual = score > HELD_FROM
    overdue = np.where(unusual, clocks.moment(clock, start, clocks.usual(clock)), np.nan)
    own = set(zip(found.stream.tolist(), began.tolist(), over.tolist(), strict=True))
    at = runs(active.stream, ended)
    at = at[mine.find_rows(active.stream[at], ended[at]) >= 0]
    weeks_of = zip(active.stream[at].tolist(), ended[at].tolist(), strict=True)
    calm = at[np.array([(stream, week, week) not in own for stream, week in weeks_of], np.bool_)]
    begin, end = np.where(unusual, found.start, np.nan), np.where(unusual, found.end, np.nan)
    never_silent = Maxima.blank(len(calm), stream=active.stream[calm], week=ended[calm], week_ended=ended[calm])
    return Maxima.concatenate([Maxima(found.stream, began, over, score, overdue, begin, end), never_silent])


def _ended(hours: Hours, active: Hours, slot: Slot) -> PastSilences:
    """Return the silences between hours, and where slots are finer those inside of ``active`` ones too."""
    found = silences_between(hours, slot)
    found = found[(found.slots > 0) & (found.end - found.since < RETIRED_AFTER_SECONDS)]
    if slot == BY_HOUR:
        return found
    longest = LONGEST_INSIDE[active.fives]
    some = longest > 0
    start = np.asarray(active.hour[some] * HOUR, np.float64)
    end = start + (longest[some] + 1) * slot.seconds
    return PastSilences.concatenate([found, PastSilences(active.stream[some], start, end, start, longest[some])])


def _worst(found: PastSilences, missed: Floats) -> Rows:
    """Return the row of the silence that missed most, by stream and the weeks in which it began and ended."""
    began, ended = week_of(found.since), week_of(found.end)
    order = np.lexsort((found.start, missed, ended, began, found.stream))
    if not len(order):
        return order
    at = runs(found.stream[order], began[order], ended[order])
    return np.asarray(order[np.append(at[1:], len(order)) - 1])

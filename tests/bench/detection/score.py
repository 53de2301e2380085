"""The product's score in numpy: the reference that the bench judges by and that Spark is held against.

Many streams and one judged week at a time. A week is 168 hours from Monday 00:00 UTC; times are hours from
such a Monday, so hour % 168 is the hour of the week. All of it is a function of what ended before the week.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.bench.detection.fleet import HOURS_A_WEEK, Floats, Ints

_OF_DAY = np.arange(HOURS_A_WEEK) % 24 + 24 * (np.arange(HOURS_A_WEEK) >= 5 * 24)
_IN_GROUP = np.zeros((HOURS_A_WEEK, 48))
_IN_GROUP[np.arange(HOURS_A_WEEK), _OF_DAY] = 1.0


@dataclass(frozen=True, slots=True)
class Formula:
    """The constants. ``strength`` is the prior's weight in the profile, in hours observed."""

    slot_hours: float = 1.0
    strength: float = 0.25
    yardstick_weeks: int = 8
    prior_spread: float = 0.45
    prior_weight: float = 4.0
    clip: float = 3.0
    weekly: float = 0.7
    """The share of the weekly maxima in the score; the daily ones have the rest."""
    step_unseen: float = 2.0
    """U + step, in steps, of the longest silence where no slot stayed silent."""
    slots_needed: int = 10
    weeks_needed: int = 2
    period_gaps: int = 4
    period_weeks: int = 12
    period_regularity: float = 1.5
    period_dead: float = 1.75


HOURLY = Formula()
FIVE_MINUTES = Formula(slot_hours=1 / 12, strength=1.0)


@dataclass(frozen=True, slots=True)
class History:
    """What is known of streams: active slots and closed silences, in order of stream and time.

    ``active`` and ``observed`` are [streams, weeks, 168]: active slots and observed hours. Of each silence:
    the stream, the start of the last active slot before it and of the first one after it, and the first
    advance in that one, in hours.
    """

    active: Floats
    observed: Floats
    stream: Ints
    before: Floats
    after: Floats
    end: Floats


@dataclass(frozen=True, slots=True)
class Promises:
    """Parameters of one week for every stream; NaN where there are none.

    ``profile`` [streams, 168] is in active slots an hour. A stream has a promise by its clock (``clock``),
    by the period rule (``max_silence`` in hours, not NaN) or none.
    """

    profile: Floats
    step: Floats
    mean: Floats
    spread: Floats
    clock: NDArray[np.bool_]
    max_silence: Floats
    week_maxima: Floats
    """[streams, weeks of the yardstick], as they were before clipping."""
    day_maxima: Floats


def profile(active: Floats, observed: Floats, formula: Formula) -> Floats:
    """Return the traffic profile of counts summed over weeks, for arrays [..., 168]."""
    share = formula.strength
    smooth = (np.roll(active, 1, -1) + 2 * active + np.roll(active, -1, -1)) / 4
    exposed = (np.roll(observed, 1, -1) + 2 * observed + np.roll(observed, -1, -1)) / 4
    flat = active.sum(-1, keepdims=True) / np.maximum(observed.sum(-1, keepdims=True), 1.0)
    flat = np.maximum(flat, 1e-4)
    prior = ((active @ _IN_GROUP + share) / (observed @ _IN_GROUP + share / flat))[..., _OF_DAY]
    return np.asarray((smooth + share) / (exposed + share / prior))


def cumulative(rates: Floats) -> Floats:
    """Return the clock [..., 169] at each full hour of the week for profiles [..., 168]."""
    return np.concatenate([np.zeros((*rates.shape[:-1], 1)), np.cumsum(rates, -1)], -1)


def elapsed(clock: Floats, row: Ints, start: Floats, end: Floats) -> Floats:
    """Return how far the clocks ``clock[row]`` advance between two moments; 0 where the end is not later."""
    return np.maximum(_reading(clock, row, end) - _reading(clock, row, start), 0.0)


def _reading(clock: Floats, row: Ints, at: Floats) -> Floats:
    week, within = np.divmod(at, HOURS_A_WEEK)
    hour = np.minimum(within.astype(np.int64), HOURS_A_WEEK - 1)
    low = clock[row, hour]
    return np.asarray(week * clock[row, -1] + low + (within - hour) * (clock[row, hour + 1] - low))


def reached(clock: Floats, row: Ints, start: Floats, amount: Floats) -> Floats:
    """Return the moments at which clocks have advanced by ``amount`` since ``start``."""
    target = _reading(clock, row, start) + amount
    week, rest = np.divmod(target, clock[row, -1])
    low, high = np.zeros(len(row), np.int64), np.full(len(row), HOURS_A_WEEK)
    while (high - low > 1).any():
        middle = (low + high) // 2
        below = clock[row, middle] <= rest
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    part = (rest - clock[row, low]) / (clock[row, low + 1] - clock[row, low])
    return np.asarray(week * HOURS_A_WEEK + low + part)


def promises(history: History, week: int, formula: Formula = HOURLY) -> Promises:
    """Return the parameters by which silences that start in ``week`` are judged."""
    first = max(0, week - formula.yardstick_weeks)
    active, observed = history.active[:, first:week], history.observed[:, first:week]
    streams, weeks = active.shape[:2]
    summed, exposure = active.sum(1), observed.sum(1)
    rates = profile(summed, exposure, formula)
    step = rates.mean(-1) * formula.slot_hours
    others = profile(summed[:, None] - active, exposure[:, None] - observed, formula)
    scores, stream, after = _scores(history, others, first, week, formula)
    # Where no slot stayed silent, what came within two neighbouring ones was less than one slot apart.
    least = np.log(formula.step_unseen * step)[:, None]
    by_week = np.where(active.sum(-1) > 0, least, np.nan)
    days = active.reshape(streams, weeks * 7, 24).sum(-1)
    by_day = np.where(days > 0, least, np.nan)
    week_maxima = _maxima(by_week, stream, (after // HOURS_A_WEEK).astype(np.int64) - first, scores)
    day_maxima = _maxima(by_day, stream, (after // 24).astype(np.int64) - first * 7, scores)
    mean_w, spread_w, count = summary(week_maxima, formula)
    mean_d, spread_d, _ = summary(day_maxima, formula)
    spread = 1 / (formula.weekly / spread_w + (1 - formula.weekly) / spread_d)
    mean = spread * (formula.weekly * mean_w / spread_w + (1 - formula.weekly) * mean_d / spread_d)
    enough = (count >= formula.weeks_needed) & (active.sum((1, 2)) >= formula.slots_needed)
    sparse = active.sum((1, 2)) < formula.slots_needed
    longest = np.where(sparse, periods(history, week, formula), np.nan)
    return Promises(rates, step, mean, spread, enough, longest, week_maxima, day_maxima)


def _scores(history: History, others: Floats, first: int, week: int, formula: Formula) -> tuple[Floats, Ints, Floats]:
    """Score the silences that ended in the yardstick by the profile that leaves out the week of their start."""
    within = (history.after >= first * HOURS_A_WEEK) & (history.after < week * HOURS_A_WEEK)
    stream, before, after = history.stream[within], history.before[within], history.after[within]
    end = history.end[within]
    own = np.clip((before // HOURS_A_WEEK).astype(np.int64), first, week - 1) - first
    row = stream * (week - first) + own
    clock = cumulative(others).reshape(-1, HOURS_A_WEEK + 1)
    step = others.mean(-1).reshape(-1)[row] * formula.slot_hours
    return np.log(elapsed(clock, row, before + formula.slot_hours, end) + step), stream, after


def _maxima(least: Floats, stream: Ints, place: Ints, scores: Floats) -> Floats:
    """The largest score of each stream and place; ``least`` where no silence ended, NaN where no record came."""
    largest = np.full(least.shape, -np.inf)
    np.maximum.at(largest, (stream, place), scores)
    return np.where(np.isfinite(largest), largest, least)


def summary(values: Floats, formula: Formula) -> tuple[Floats, Floats, Ints]:
    """Return mean, spread for the next value and count along the last axis, of values clipped in their order.

    From the third known value on each is clipped at the mean and ``clip`` spreads of those before it.
    """
    count = np.zeros(values.shape[:-1])
    mean, squares = np.zeros_like(count), np.zeros_like(count)
    for place in range(values.shape[-1]):
        value = values[..., place]
        known = ~np.isnan(value)
        limit = mean + formula.clip * _spread(squares, count, formula)
        value = np.where(known & (count >= 2), np.minimum(value, limit), value)
        count = count + known
        change = np.where(known, value - mean, 0.0)
        mean = mean + change / np.maximum(count, 1)
        squares = squares + change * np.where(known, value - mean, 0.0)
    return mean, _spread(squares, count, formula), count.astype(np.int64)


def _spread(squares: Floats, count: Floats, formula: Formula) -> Floats:
    count = np.maximum(count, 1)
    prior = formula.prior_weight * formula.prior_spread**2
    return np.asarray(np.sqrt((prior + squares) / (formula.prior_weight + count - 1) * (1 + 1 / count)))


def periods(history: History, week: int, formula: Formula = HOURLY) -> Floats:
    """Return the longest silence in hours that the period rule allows; NaN where it does not apply."""
    longest = np.full(len(history.active), np.nan)
    first = max(0, week - formula.period_weeks)
    within = (history.after >= first * HOURS_A_WEEK) & (history.after < week * HOURS_A_WEEK)
    stream, length = history.stream[within], (history.end - history.before)[within]
    for one in np.unique(stream):
        gaps = length[stream == one]
        if len(gaps) >= formula.period_gaps and gaps.max() <= formula.period_regularity * np.median(gaps):
            longest[one] = formula.period_dead * gaps.max()
    return longest


def history_of(
    times: Sequence[Floats], vague: Sequence[NDArray[np.bool_]], weeks: int, slot_hours: float = 1.0
) -> History:
    """Return the history of streams given the moments of their advances, in order and in hours.

    Of a ``vague`` advance only is known that it came by then: a silence that ends or starts there is no
    evidence, and the time since the advance before is not observed.
    """
    active = np.zeros((len(times), weeks * HOURS_A_WEEK))
    observed = np.zeros_like(active)
    columns: list[list[Floats]] = [[np.zeros(0)] for _ in range(4)]
    for place, (own, unsure) in enumerate(zip(times, vague, strict=True)):
        if not len(own):
            continue
        slots, first = np.unique(np.floor(own / slot_hours) * slot_hours, return_index=True)
        moments, unsure_slot = own[first], np.isin(slots, np.floor(own[unsure] / slot_hours) * slot_hours)
        np.add.at(active[place], slots[~unsure_slot].astype(np.int64), 1.0)
        observed[place, int(slots[0]) :] = 1.0
        late = unsure_slot[1:]
        for start, end in zip(slots[:-1][late], slots[1:][late], strict=True):
            observed[place, int(start) + 1 : int(end) + 1] = 0.0
        silent = (np.diff(slots) > 1.5 * slot_hours) & ~late & ~unsure_slot[:-1]
        found = np.full(silent.sum(), place), slots[:-1][silent], slots[1:][silent], moments[1:][silent]
        for column, part in zip(columns, found, strict=True):
            column.append(part)
    stream, before, after, end = (np.concatenate(column) for column in columns)
    shape = (len(times), weeks, HOURS_A_WEEK)
    return History(active.reshape(shape), observed.reshape(shape), stream.astype(np.int64), before, after, end)

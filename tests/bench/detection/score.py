"""The product's score, written a second time: the bench judges by it, and tests hold the exporter's core against it.

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
    slots_needed: int = 10
    weeks_needed: int = 2
    period_gaps: int = 4
    period_weeks: int = 12
    period_regularity: float = 1.5
    period_dead: float = 1.75
    random_below: float = 42.0
    """Active slots a week up to which records at random are judged by their law."""
    together: float = 3.0
    """Where days vary so many times as much as chance allows, the profile is flat and the spread this."""
    together_spread: float = 0.5


HOURLY = Formula()
FIVE_MINUTES = Formula(slot_hours=1 / 12, strength=1.0, random_below=0.0, together=np.inf)


@dataclass(frozen=True, slots=True)
class History:
    """What is known of streams: active slots, and what passed between each and the one before it.

    ``active`` and ``observed`` are [streams, weeks, 168]: active slots and observed hours. The others have an
    entry for each active slot that ended a silence of known length, be it none: its stream, the end of the
    active slot before (``start``) and the first advance after it (``end``), in hours from the first week;
    ``since`` is the last advance known before it, ``silent`` says that a whole slot passed without one.
    """

    active: Floats
    observed: Floats
    stream: Ints
    start: Floats
    end: Floats
    since: Floats
    silent: NDArray[np.bool_]

    def between(self, first: int, week: int) -> History:
        """The silences that ended in the weeks from ``first`` to before ``week``."""
        within = (self.end >= first * HOURS_A_WEEK) & (self.end < week * HOURS_A_WEEK)
        columns = (self.stream, self.start, self.end, self.since, self.silent)
        return History(self.active, self.observed, *(column[within] for column in columns))


@dataclass(frozen=True, slots=True)
class ExpectationSet:
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


def promises(history: History, week: int, formula: Formula = HOURLY) -> ExpectationSet:
    """Return the parameters by which silences that start in ``week`` are judged."""
    first = max(0, week - formula.yardstick_weeks)
    active, observed = history.active[:, first:week], history.observed[:, first:week]
    weeks = week - first
    summed, exposure = active.sum(1), observed.sum(1)
    rates = profile(summed, exposure, formula)
    others = profile(summed[:, None] - active, exposure[:, None] - observed, formula)
    together = _differing_days(active, observed, rates) >= formula.together
    for some in np.flatnonzero(together):
        rates[some] = summed[some].sum() / exposure[some].sum()
        for left_out in range(weeks):
            rest = [one for one in range(weeks) if one != left_out]
            hours = max(observed[some, rest].sum(), 1.0)
            others[some, left_out] = max(active[some, rest].sum() / hours, 1e-4)
    past = history.between(first, week)
    scores = _scores(past, others, first, formula)
    by_day = _maxima(len(active), weeks * 7, past.stream, (past.end // 24).astype(np.int64) - first * 7, scores)
    by_week = _maxima(len(active), weeks, past.stream, (past.end // HOURS_A_WEEK).astype(np.int64) - first, scores)
    mean_w, spread_w, count = summary(by_week, formula)
    mean_d, spread_d, _ = summary(by_day, formula)
    spread = 1 / (formula.weekly / spread_w + (1 - formula.weekly) / spread_d)
    mean = spread * (formula.weekly * mean_w / spread_w + (1 - formula.weekly) * mean_d / spread_d)
    mean[together] = mean_w[together]
    spread[together] = formula.together_spread * np.sqrt(1 + 1 / np.maximum(count[together], 1))
    sparse = active.sum((1, 2)) < formula.slots_needed
    longest = np.where(sparse, periods(history, week, formula), np.nan)
    step = rates.mean(-1) * formula.slot_hours
    if formula.random_below:
        law = _at_random(past, others, first, summed, exposure, formula)
        law[0][together] = law[1][together] = np.nan
        mean, spread = (np.where(np.isnan(own), was, own) for own, was in zip(law, (mean, spread), strict=True))
    return ExpectationSet(
        rates, step, mean, spread, (count >= formula.weeks_needed) & ~sparse, longest, by_week, by_day
    )


def _scores(past: History, others: Floats, first: int, formula: Formula) -> Floats:
    """Score silences by the profile that leaves out the week of their start.

    Where no slot stayed silent, advances in two neighbouring ones may have been almost a slot apart across
    their edge: that counts as one slot.
    """
    weeks = others.shape[1]
    row = past.stream * weeks + np.clip((past.start // HOURS_A_WEEK).astype(np.int64) - first, 0, weeks - 1)
    step = others.mean(-1).reshape(-1)[row] * formula.slot_hours
    missed = elapsed(cumulative(others).reshape(-1, HOURS_A_WEEK + 1), row, past.start, past.end)
    return np.asarray(np.log(np.where(past.silent, missed, step) + step))


def _at_random(
    past: History, others: Floats, first: int, summed: Floats, exposure: Floats, formula: Formula
) -> tuple[Floats, Floats]:
    """Mean and spread of streams with few records that come at random, NaN of all others."""
    weeks, count = others.shape[1], summed.sum(1)
    a_week = count / np.maximum(exposure.sum(1) / HOURS_A_WEEK, 1.0)
    row = past.stream * weeks + np.clip((past.start // HOURS_A_WEEK).astype(np.int64) - first, 0, weeks - 1)
    missed = elapsed(cumulative(others).reshape(-1, HOURS_A_WEEK + 1), row, past.start, past.end)
    mean, spread = np.full(len(count), np.nan), np.full(len(count), np.nan)
    steps = profile(summed, exposure, formula).mean(-1)
    for stream in np.flatnonzero((a_week <= formula.random_below) & (count > 0)):
        mine = np.where(past.silent, missed, 0.0)[past.stream == stream] + steps[stream]
        if not len(mine) or not 0.75 <= (mine**2).mean() / (2 * mine.mean() ** 2) <= 1.25:
            continue
        nats = np.array([4.0, 8.0]) + np.log(max(a_week[stream], 1.0))
        at = np.log(count[stream] * np.expm1(nats / count[stream]) + steps[stream])
        spread[stream] = (at[1] - at[0]) / 2
        mean[stream] = at[0] - 2 * spread[stream]
    return mean, spread


def _differing_days(active: Floats, observed: Floats, rates: Floats) -> Floats:
    """How much the active hours of whole days vary over what chance allows, in the median; 0 of under 14 days."""
    found = np.zeros(len(active))
    for stream, profile_of in enumerate(np.clip(rates, 0, 1).reshape(-1, 7, 24)):
        varied: list[float] = []
        for day, chance in enumerate(profile_of):
            hours = slice(24 * day, 24 * day + 24)
            whole = observed[stream, :, hours].all(-1)
            number = int(whole.sum())
            if number > 1:
                count = active[stream, whole, hours].sum(-1)
                least = max((chance * (1 - chance)).sum(), 1e-4) * (1 - 1 / number)
                varied += ((count - count.mean()) ** 2 / least).tolist()
        if len(varied) >= 14:
            found[stream] = np.median(varied) / 0.455
    return found


def _maxima(streams: int, places: int, stream: Ints, place: Ints, scores: Floats) -> Floats:
    """The largest score of each stream and place; NaN where there is none."""
    largest = np.full((streams, places), -np.inf)
    np.maximum.at(largest, (stream, place), scores)
    return np.where(np.isfinite(largest), largest, np.nan)


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
    past = history.between(max(0, week - formula.period_weeks), week)
    stream, length = past.stream[past.silent], (past.end - past.since)[past.silent]
    since = past.since[past.silent]
    slow = np.bincount(stream, minlength=len(longest)) >= formula.period_gaps
    slow &= history.active[:, max(0, week - formula.yardstick_weeks) : week].sum((1, 2)) < formula.slots_needed
    for one in np.flatnonzero(slow):
        gaps = length[stream == one]
        whole = since[stream == one].min() < (week - formula.weeks_needed + 1) * HOURS_A_WEEK
        if whole and gaps.max() <= formula.period_regularity * np.median(gaps):
            longest[one] = formula.period_dead * gaps.max()
    return longest


@dataclass(frozen=True, slots=True)
class Slots:
    """The slots of one stream in which something is known to have happened, in order.

    ``starts`` are hours from the first week, of multiples of the slot; ``first`` and ``last`` the advances
    known in each, NaN where none is. When the records of a ``vague`` slot were written is not known.
    """

    starts: Floats
    first: Floats
    last: Floats
    vague: NDArray[np.bool_]


def history_of(streams: Sequence[Slots], weeks: int, slot_hours: float = 1.0) -> History:
    """Return the history of streams; exposure starts at each one's first active slot.

    A silence is evidence where the slots at both its ends are active and the later one is not vague. What
    passed before a vague slot is not observed.
    """
    active = np.zeros((len(streams), weeks * HOURS_A_WEEK))
    observed = np.zeros_like(active)
    columns: list[list[NDArray[np.float64]]] = [[np.zeros(0)] for _ in range(5)]
    for place, own in enumerate(streams):
        known = ~np.isnan(own.first)
        if not known.any():
            continue
        np.add.at(active[place], own.starts[known].astype(np.int64), 1.0)
        observed[place, int(own.starts[known][0]) :] = 1.0
        sure = known[1:] & known[:-1] & ~own.vague[1:]
        for before, at in zip(own.starts[:-1][~sure], own.starts[1:][~sure], strict=True):
            observed[place, int(before) + 1 : int(at)] = 0.0
        for at in own.starts[~known]:
            observed[place, int(at)] = 0.0
        start, after = own.starts[:-1][sure] + slot_hours, own.starts[1:][sure]
        silent = after - start > slot_hours / 2
        found = np.full(sure.sum(), place), start, own.first[1:][sure], own.last[:-1][sure], silent
        for column, part in zip(columns, found, strict=True):
            column.append(part.astype(np.float64))
    stream, start, end, since, silent = (np.concatenate(column) for column in columns)
    shape = (len(streams), weeks, HOURS_A_WEEK)
    return History(
        active.reshape(shape), observed.reshape(shape), stream.astype(np.int64), start, end, since, silent > 0
    )

"""Hours of activity -> what each stream's silences are measured by, week by week.

The baseline of a week is made of the eight weeks before it and of nothing else, so it is computed once and never
changes; a silence is measured by that of the week in which it began, and so never enters its own. Past silences are
scored in the stream's own traffic clock, each by the profile of the other weeks (leave one out: a profile that knows
the silence itself would promise too much).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Flags, Floats, Rows
from exporter.domain.at_random import at_random, dispersion, law
from exporter.domain.hours import SECOND, Hours, Integers, runs
from exporter.domain.pauses import PAUSE_WEEKS, SPELL_DEAD, SPELL_SUSPECT, pauses, spells
from exporter.domain.schedule import planned, schedules
from exporter.domain.traffic_clock import FIRST_MONDAY, HOUR, HOURS, WEEK, Clocks, Span

WEEKS = 8
"""So many weeks make a baseline."""

PERIOD_WEEKS = 12
"""So many weeks are looked at for a stream that is too slow for a profile."""

ACTIVE_SLOTS_NEEDED = 10
WEEKS_NEEDED = 2
"""With less evidence than these two a stream is judged by its period, if it has one, or not at all."""

PERIODS_NEEDED = 4
PERIOD_REGULARITY, PERIOD_SUSPECT, PERIOD_DEAD = 1.5, 1.5, 1.75
"""A slow stream has a period where its longest silence is at most 1.5 times the median; past so many times the
longest it is suspect and dead."""

WHOLE_WEEKS_NEEDED, SEVERAL = 2, 2.0
"""With so much history in slots of five minutes a stream is judged by these, if its active hours have several active
ones on average: batches and rare records gain nothing by them (measured)."""

STREAMS_AT_ONCE = 64
"""So many streams are computed as one array [streams, weeks, 168]: with more the processor waits for memory."""

_SPREAD, _SPREAD_WEIGHT = 0.45, 4.0
"""A silence's log varies by about so much from week to week (measured on generated streams and real departures); the
prior counts as so many weeks."""

_CLIP = 3.0
_WEEKLY_SHARE = 0.7
_LEAST_RATE = 1e-4
_FIRST_MONDAY_HOUR = round(FIRST_MONDAY / HOUR)
_WEEK_DAYS = 7

_OF_DAY = np.arange(HOURS) % 24 + 24 * (np.arange(HOURS) >= 5 * 24)
_IN_GROUP = np.zeros((HOURS, 48))
_IN_GROUP[np.arange(HOURS), _OF_DAY] = 1.0
_BITS = (np.arange(4096)[:, None] >> np.arange(12)) & 1
ACTIVE_FIVES = _BITS.sum(1).astype(np.int64)
"""By the bits of an hour's slots of five minutes: how many are active."""


def _longest_inside() -> Integers:
    longest = np.zeros(4096, np.int64)
    last = np.full(4096, -1)
    for place in range(12):
        active = _BITS[:, place] == 1
        gap = np.where(active & (last >= 0), place - last - 1, 0)
        longest = np.maximum(longest, gap)
        last = np.where(active, place, last)
    return longest


LONGEST_INSIDE = _longest_inside()
"""By the same bits: the most silent slots between two active ones."""


@dataclass(frozen=True, slots=True)
class Slot:
    """The length of time in which a stream counts as active or not, and how strongly its rates are drawn."""

    seconds: float
    prior: float

    @property
    def hours(self) -> float:
        """Its length in hours."""
        return self.seconds / HOUR


BY_HOUR = Slot(HOUR, 0.25)
BY_FIVE = Slot(300.0, 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class Baselines:
    """What silences that begin in a week are measured by: a column [n] each; NaN where nothing is."""

    stream: Rows
    week: Integers
    """The number of the week, counted from the first Monday."""
    slot_seconds: Floats
    profile: NDArray[np.float64]
    """[n, 168], active slots an hour from Monday 00:00 UTC."""
    step: Floats
    """The mean active slots in a slot."""
    mean: Floats
    spread: Floats
    """Of the logarithm of what silences missed; NaN where the evidence is too thin for the traffic clock."""
    suspect_silence: Floats
    max_silence: Floats
    """Seconds, where the stream is slow and regular."""
    active_slots: Integers
    weeks: Integers
    history_start: Floats
    """Unix seconds."""
    observed: Floats
    """Seconds from then to the begin of the week of which it is known when something was written in them."""
    largest_silence: Floats
    """Seconds from the last advance to the next one; an upper bound where advances are told by the slot."""
    largest_silence_end: Floats
    largest_missed: Floats
    weekly_scores: NDArray[np.float64]
    """[n, 8]: the largest score of each week, before it is clipped."""
    pause: Floats
    """Missed slots (with a schedule nats): up to here a silence is a pause that the stream's own past holds."""
    schedule: NDArray[np.object_]
    """When its runs are due (``exporter.domain.schedule.Schedule``), None where it has no schedule."""

    def __len__(self) -> int:
        return len(self.stream)

    def __getitem__(self, rows: Rows | Flags | slice) -> Baselines:
        return Baselines(*(getattr(self, column.name)[rows] for column in fields(self)))

    @classmethod
    def joined(cls, parts: Sequence[Baselines]) -> Baselines:
        """Return several one after another; there is at least one."""
        return cls(*(np.concatenate([getattr(part, column.name) for part in parts]) for column in fields(cls)))

    @property
    def clocked(self) -> Flags:
        """Whether silences are judged by the traffic clock, or by a schedule."""
        return ~np.isnan(self.mean) | self.scheduled

    @property
    def scheduled(self) -> Flags:
        """Whether they are judged by a schedule."""
        return planned(self.schedule)

    def clocks(self, rests: Sequence[Sequence[Span]] = ()) -> Clocks:
        """Return what measures the silences of each row; profiles in single precision, as they are published.

        ``rests`` are those of each row.
        """
        profiles = self.profile.astype(np.float32).reshape(-1, HOURS)
        return Clocks(profiles, self.step, self.mean, self.spread, self.pause, self.schedule, rests)


@dataclass(frozen=True, slots=True, eq=False)
class Silences:
    """The silences between active hours that are evidence, be they none, each a column [n]; Unix seconds."""

    stream: Rows
    start: Floats
    """The end of the slot of the last advance before."""
    end: Floats
    """The first advance after."""
    since: Floats
    """The last advance before."""
    slots: Integers
    """Whole slots without an advance, 0 where the two slots are neighbours."""

    def __getitem__(self, rows: Rows | Flags) -> Silences:
        return Silences(*(getattr(self, column.name)[rows] for column in fields(self)))


def week_of(moments: Floats) -> Integers:
    """Return the number of the week of Unix seconds, counted from the first Monday."""
    return np.floor((moments - FIRST_MONDAY) / WEEK).astype(np.int64)


def taught(active: Iterable[int]) -> set[int]:
    """Return the weeks that have baselines, given those in which any stream was active."""
    return {week + after for week in active for after in range(1, WEEKS + 1)}


def in_slots(hours: Hours, slot: Slot) -> Hours:
    """Return the hours as they are told in these slots: those told by the hour alone are unknown in finer ones."""
    if slot == BY_HOUR:
        return hours
    told = hours.fives != 0
    return Hours(
        hours.stream,
        hours.hour,
        np.where(told, hours.first, -1),
        np.where(told, hours.last, -1),
        hours.unknown | (hours.active & ~told),
        hours.fives,
    )


def silences_between(hours: Hours, slot: Slot) -> Silences:
    """Return the silences between neighbouring hours in order, where both their ends are known."""
    if len(hours) < 2:
        nothing = np.zeros(0)
        return Silences(nothing.astype(np.intp), nothing, nothing, nothing, nothing.astype(np.int64))
    active = hours.active
    known = (hours.stream[1:] == hours.stream[:-1]) & active[1:] & active[:-1] & ~hours.unknown[1:]
    at = np.flatnonzero(known)
    micros = round(slot.seconds) * SECOND
    last, first = hours.last[at], hours.first[at + 1]
    begun = last // micros + 1
    return Silences(
        hours.stream[at],
        np.asarray(begun * slot.seconds, np.float64),
        np.asarray(first / SECOND, np.float64),
        np.asarray(last / SECOND, np.float64),
        np.maximum(first // micros - begun, 0),
    )


def profile(active: Floats, observed: Floats, prior: float) -> Floats:
    """Return the rates of the 168 hours from active slots and observed hours summed over weeks, [..., 168].

    Each hour is smoothed with its neighbours and drawn by ``prior`` slots towards the same hour of working days or
    weekends, and that towards the rate of the whole week.
    """
    flat = active.sum(-1, keepdims=True) / np.maximum(observed.sum(-1, keepdims=True), 1.0)
    of_day = (active @ _IN_GROUP + prior) / (observed @ _IN_GROUP + prior / np.maximum(flat, _LEAST_RATE))
    rates = _smoothed(active)
    rates += prior
    exposed = _smoothed(observed)
    exposed += (prior / of_day)[..., _OF_DAY]
    rates /= exposed
    return rates


def _smoothed(counts: Floats) -> Floats:
    smooth = 2.0 * counts
    smooth[..., 1:] += counts[..., :-1]
    smooth[..., 0] += counts[..., -1]
    smooth[..., :-1] += counts[..., 1:]
    smooth[..., -1] += counts[..., 0]
    smooth *= 0.25
    return np.asarray(smooth)


def summary(values: Floats) -> tuple[Floats, Floats, Integers]:
    """Return mean, spread for the next value and count along the last axis; NaN is no value.

    From the third on each is clipped at three spreads over the mean of those before it: so a repaired outage of days
    does not blind the weeks after it.
    """
    count = np.zeros(values.shape[:-1])
    mean, squares = np.zeros_like(count), np.zeros_like(count)
    for value in np.ascontiguousarray(np.moveaxis(values, -1, 0)):
        known = ~np.isnan(value)
        limit = np.where(count >= 2, mean + _CLIP * _spread(squares, count), np.inf)
        kept = np.where(known, np.minimum(value, limit), mean)
        count = count + known
        change = kept - mean
        mean = mean + change / np.maximum(count, 1.0)
        squares = squares + change * (kept - mean)
    return mean, _spread(squares, count), count.astype(np.int64)


def _spread(squares: Floats, count: Floats) -> Floats:
    """The spread to expect of the next score, given those seen."""
    seen = np.maximum(count, 1.0)
    prior = _SPREAD_WEIGHT * _SPREAD**2
    return np.asarray(np.sqrt((prior + squares) / (_SPREAD_WEIGHT + seen - 1.0) * (1.0 + 1.0 / seen)))


def baselines(hours: Hours, weeks: Sequence[int]) -> Iterator[Baselines]:
    """Yield the baselines of these weeks, some streams at a time, each in the slots by which it is judged.

    A stream without activity in the eight weeks before a week has none for it.
    """
    for some in _some_streams(hours):
        found = list(of_slot(some, weeks, BY_HOUR))
        told = _told_finely(some)
        if found and len(told):
            found = [finer(Baselines.joined(found), list(of_slot(told, weeks, BY_FIVE)))]
        yield from found


def _told_finely(hours: Hours) -> Hours:
    """The hours of those streams of which any hour is told in slots of five minutes."""
    streams = np.unique(hours.stream[hours.fives != 0])
    return hours[np.isin(hours.stream, streams)]


def _some_streams(hours: Hours) -> Iterator[Hours]:
    starts = runs(hours.stream)
    cuts = np.append(starts[::STREAMS_AT_ONCE], len(hours))
    for first, last in pairwise(cuts.tolist()):
        yield hours[slice(first, last)]


def finer(by_hour: Baselines, by_five: Sequence[Baselines]) -> Baselines:
    """Put the baselines in slots of five minutes in the place of those in hours where they are ripe."""
    if not by_five:
        return by_hour
    fives = Baselines.joined(by_five)
    fives = fives[fives.clocked]
    place = {key: row for row, key in enumerate(zip(by_hour.stream.tolist(), by_hour.week.tolist(), strict=True))}
    keys = zip(fives.stream.tolist(), fives.week.tolist(), strict=True)
    hourly = np.array([place[key] for key in keys], np.intp)  # active in slots of five minutes is active in hours
    began = np.floor((fives.history_start - FIRST_MONDAY) / 86_400.0)
    ripe = fives.week * _WEEK_DAYS - began >= _WEEK_DAYS * WHOLE_WEEKS_NEEDED
    several = fives.step / BY_FIVE.hours >= SEVERAL * by_hour.step[hourly]
    chosen = ~np.isnan(by_hour.mean[hourly]) & ~by_hour.scheduled[hourly] & ripe & several
    kept = np.ones(len(by_hour), np.bool_)
    kept[hourly[chosen]] = False
    return Baselines.joined([by_hour[kept], fives[chosen]])


def of_slot(hours: Hours, weeks: Sequence[int], slot: Slot) -> Iterator[Baselines]:
    """Yield the baselines of each week of a few streams, in slots of one length."""
    if len(hours):
        past = _Past(in_slots(hours, slot), weeks, slot)
        for week in sorted(weeks):
            made = past.baselines(week)
            if made is not None:
                yield made


class _Past:
    """The weeks before some weeks of a few streams, as arrays [streams, weeks, 168]."""

    def __init__(self, hours: Hours, weeks: Sequence[int], slot: Slot) -> None:
        self._slot = slot
        self._begin = min(weeks) - PAUSE_WEEKS
        self._streams, stream = np.unique(hours.stream, return_inverse=True)
        number = hours.hour - _FIRST_MONDAY_HOUR - self._begin * HOURS
        width = (max(weeks) - self._begin) * HOURS
        inside = (number >= 0) & (number < width)
        hours = Hours(stream.ravel().astype(np.intp), *(getattr(hours, one.name) for one in fields(hours)[1:]))[inside]
        number = number[inside]
        count = len(self._streams)
        active, at = hours.active, hours.stream * width + number
        slots = np.zeros(count * width)
        slots[at[active]] = 1 if slot == BY_HOUR else ACTIVE_FIVES[hours.fives[active]]
        self._active = slots.reshape(count, -1, HOURS)
        self._inside: Integers | None = None
        if slot != BY_HOUR:
            longest = np.zeros(count * width, np.int64)
            longest[at[active]] = LONGEST_INSIDE[hours.fives[active]]
            self._inside = longest.reshape(count, -1, HOURS)
        self._watched = _watched(hours, number, count, width).reshape(count, -1, HOURS)
        self._number = np.arange(width).reshape(-1, HOURS)
        self._advanced = hours[active]
        # The first active hour of each week.
        self._first = np.where(
            self._active.any(-1), np.argmax(self._active > 0, axis=-1) + self._number[:, 0], np.iinfo(np.int64).max
        )
        found = silences_between(hours, slot)
        ended = week_of(found.end)
        real = found.slots > 0
        self._found, self._ended = found, ended
        self._real, self._real_ended = found[real], ended[real]
        nothing = found[~real]
        day = np.floor(nothing.end / 86_400.0).astype(np.int64)
        # Those of one day miss the same: the first of them stands for all.
        first = runs(nothing.stream, day) if len(day) else np.zeros(0, np.intp)
        self._none, self._none_ended = nothing[first], ended[~real][first]

    def baselines(self, week: int) -> Baselines | None:
        """Return what is to be learned of the streams for one week, None where there is nothing."""
        begin = week - WEEKS
        left, right = begin - self._begin, week - self._begin
        active = self._active[:, left:right]
        first = self._first[:, week - PERIOD_WEEKS - self._begin : right].min(1)
        total = active.sum((1, 2))
        rows = np.flatnonzero(total > 0)
        if not len(rows):
            return None
        watched = self._watched[:, left:right] & (self._number[left:right] >= first[:, None, None])
        scored = _Scored(self, rows, week, active[rows], watched[rows].astype(np.float64))
        by_week = np.fmax.reduce(scored.by_day, -1)
        mean_w, spread_w, count = summary(by_week)
        mean_d, spread_d, _ = summary(scored.by_day.reshape(len(rows), -1))
        inverse = _WEEKLY_SHARE / spread_w + (1.0 - _WEEKLY_SHARE) / spread_d
        mean = (_WEEKLY_SHARE * mean_w / spread_w + (1.0 - _WEEKLY_SHARE) * mean_d / spread_d) / inverse
        spread = 1.0 / inverse
        total = total[rows]
        if self._slot == BY_HOUR:
            step = scored.rates.mean(-1)
            a_week = total / np.maximum(watched[rows].sum((1, 2)) / HOURS, 1.0)
            by_chance = at_random(scored.dispersion, a_week)
            own = law(total, a_week, step)
            mean, spread = np.where(by_chance, own[0], mean), np.where(by_chance, own[1], spread)
        learned = (count >= WEEKS_NEEDED) & (total >= ACTIVE_SLOTS_NEEDED)
        longest = self._periods(week, total < ACTIVE_SLOTS_NEEDED, rows)
        schedule = self._schedules(week, watched, rows)
        pause, spell = self._pauses(week, rows, scored.rates, schedule, first[rows], total < ACTIVE_SLOTS_NEEDED)
        slow = ~np.isnan(longest)
        hours = self._begin * HOURS + np.maximum(first[rows], left * HOURS)
        known = count > 0
        return Baselines(
            self._streams[rows].astype(np.intp),
            np.full(len(rows), week),
            np.full(len(rows), self._slot.seconds),
            scored.rates,
            scored.rates.mean(-1) * self._slot.hours,
            np.where(learned, mean, np.nan),
            np.where(learned, spread, np.nan),
            np.where(slow, PERIOD_SUSPECT * longest, SPELL_SUSPECT * spell),
            np.where(slow, PERIOD_DEAD * longest, SPELL_DEAD * spell),
            total.astype(np.int64),
            count,
            FIRST_MONDAY + hours * HOUR,
            watched[rows].sum((1, 2)) * HOUR,
            np.where(known, scored.largest, np.nan),
            np.where(scored.largest > 0, scored.largest_end, np.nan),
            scored.missed,
            by_week,
            pause,
            schedule,
        )

    def _schedules(self, week: int, watched: Flags, rows: Rows) -> NDArray[np.object_]:
        """Return the schedules of streams, learned from the eight weeks before; None where there is none."""
        if self._slot != BY_HOUR:
            return np.full(len(rows), None, object)
        hours, begin = self._advanced, FIRST_MONDAY + (week - WEEKS) * WEEK
        place = np.full(self.streams, -1, np.intp)
        place[rows] = np.arange(len(rows))
        at = hours.first / SECOND
        mine = (at >= begin) & (at < begin + WEEKS * WEEK) & (place[hours.stream] >= 0)
        return schedules(place[hours.stream[mine]], at[mine], watched[rows], begin)

    def _pauses(
        self, week: int, rows: Rows, rates: Floats, schedule: NDArray[np.object_], first: Integers, slow: Flags
    ) -> tuple[Floats, Floats]:
        """Return up to which missed slots silences are pauses, and the longest pause of streams in spells."""
        place = np.full(self.streams, -1, np.intp)
        place[rows] = np.arange(len(rows))
        past = self.real(week, PAUSE_WEEKS)
        recent = (past.end >= FIRST_MONDAY + (week - WEEKS) * WEEK) | (past.end - past.start > WEEK)
        past = past[recent & (place[past.stream] >= 0)]
        stream = place[past.stream]
        one = np.ones(len(rows))
        clocks = Clocks(rates, one, one, one, runs=schedule)
        missed = clocks.ticks(stream, clocks.start(stream, past.start), past.end)
        length = past.end - past.start
        lived = np.asarray(((week - self._begin) * HOURS - first) * HOUR, np.float64)
        return pauses(stream, missed, length, lived), spells(stream, length, slow)

    def real(self, week: int, weeks: int) -> Silences:
        """Return the silences of a slot and more that ended in so many weeks before one, none older than its past."""
        oldest = FIRST_MONDAY + (week - max(weeks, PERIOD_WEEKS)) * WEEK
        ended = (self._real_ended >= week - weeks) & (self._real_ended < week)
        return self._real[ended & (self._real.start >= oldest)]

    def all(self, week: int) -> Silences:
        """Return those that ended in its weeks, also of less than a slot."""
        oldest = FIRST_MONDAY + (week - PERIOD_WEEKS) * WEEK
        ended = (self._ended >= week - WEEKS) & (self._ended < week)
        return self._found[ended & (self._found.start >= oldest)]

    def none(self, week: int) -> Silences:
        """Return one silence of nothing for each day of its weeks that had one."""
        return self._none[(self._none_ended >= week - WEEKS) & (self._none_ended < week)]

    def inside(self, week: int) -> Integers | None:
        """Return the longest silence inside each hour of its weeks, in slots; None where hours are the slots."""
        if self._inside is None:
            return None
        return self._inside[:, week - WEEKS - self._begin : week - self._begin]

    @property
    def slot(self) -> Slot:
        """The length of its slots."""
        return self._slot

    @property
    def streams(self) -> int:
        """How many there are."""
        return len(self._streams)

    def _periods(self, week: int, slow: Flags, rows: Rows) -> Floats:
        """Return the longest silence in seconds of those slow streams that are regular, NaN of all others."""
        longest = np.full(self.streams, np.nan)
        mine = np.zeros(self.streams, np.bool_)
        mine[rows[slow]] = True
        past = self.real(week, PERIOD_WEEKS)
        past = past[mine[past.stream]]
        if len(past.stream):
            length = past.end - past.since
            order = np.lexsort((length, past.stream))
            stream, length = past.stream[order], length[order]
            at = runs(stream)
            count = np.diff(np.append(at, len(stream)))
            middle = (length[at + (count - 1) // 2] + length[at + count // 2]) / 2.0
            most = length[at + count - 1]
            # With one week it is not known yet whether weekends belong to the period.
            whole = np.minimum.reduceat(week_of(past.since[order]), at) <= week - WEEKS_NEEDED
            regular = (count >= PERIODS_NEEDED) & (most <= PERIOD_REGULARITY * middle) & whole
            longest[stream[at[regular]]] = most[regular]
        return longest[rows]


def _watched(hours: Hours, number: Integers, count: int, width: int) -> Flags:
    """Tell which hours were observed: not those between two of which one tells not when its records were written."""
    lost = np.zeros(count * width + 1, np.int64)
    active = hours.active
    same = hours.stream[1:] == hours.stream[:-1]
    unsure = np.flatnonzero(same & ~(active[1:] & active[:-1] & ~hours.unknown[1:]))
    lead = hours.stream[unsure] * width
    np.add.at(lost, lead + number[unsure] + 1, 1)
    np.add.at(lost, lead + number[unsure + 1], -1)
    silent = np.flatnonzero(~active)
    np.add.at(lost, hours.stream[silent] * width + number[silent], 1)
    np.add.at(lost, hours.stream[silent] * width + number[silent] + 1, -1)
    return np.asarray(np.cumsum(lost[:-1]) == 0)


class _Scored:
    """The silences of the eight weeks before a week, each by the profile without the week in which it began."""

    def __init__(self, past: _Past, rows: Rows, week: int, active: Floats, watched: Floats) -> None:
        slot = past.slot
        summed, exposed = active.sum(1), watched.sum(1)
        self.rates = profile(summed, exposed, slot.prior)
        others = profile(summed[:, None] - active, exposed[:, None] - watched, slot.prior)
        step = others.mean(-1) * slot.hours
        count = len(rows)
        clocks = Clocks(others.reshape(-1, HOURS), *np.ones((3, count * WEEKS)))
        place = np.full(past.streams, -1, np.intp)
        place[rows] = np.arange(count)
        begin = week - WEEKS
        by_day = np.full(count * WEEKS * _WEEK_DAYS, -np.inf)
        self.missed = np.full(count, -np.inf)
        self.largest, self.largest_end = np.zeros(count), np.full(count, -np.inf)

        def scored(found: Silences, began: Floats, missed_of: Floats | None) -> Floats:
            stream = place[found.stream]
            left_out = np.clip(week_of(began) - begin, 0, WEEKS - 1)
            clock = stream * WEEKS + left_out
            own = step.reshape(-1)[clock]
            missed = clocks.ticks(clock, found.start, found.end) if missed_of is None else missed_of
            missed = np.where(missed > 0, missed, own)
            day = np.floor((found.end - FIRST_MONDAY) / 86_400.0).astype(np.int64) - begin * _WEEK_DAYS
            np.maximum.at(by_day, stream * WEEKS * _WEEK_DAYS + day, np.log(missed + own))
            np.maximum.at(self.missed, stream, missed)
            return missed

        real = past.real(week, WEEKS)
        real = real[place[real.stream] >= 0]
        missed = scored(real, real.start, None)
        every = past.all(week)
        every = every[place[every.stream] >= 0]
        silences = np.bincount(place[every.stream], minlength=count)
        self.dispersion = dispersion(place[real.stream], missed, silences, self.rates.mean(-1) * slot.hours)
        self._note_largest(place[every.stream], every.end - every.since, every.end)
        none = past.none(week)
        none = none[place[none.stream] >= 0]
        scored(none, none.end, np.zeros(len(none.stream)))
        inside = past.inside(week)
        if inside is not None:
            self._score_inside(inside[rows], active, others, step, by_day, slot, begin)
        self.by_day = np.where(np.isfinite(by_day), by_day, np.nan).reshape(count, WEEKS, _WEEK_DAYS)
        self.missed = np.where(np.isfinite(self.missed), self.missed, np.nan)

    def _note_largest(self, stream: Rows, length: Floats, end: Floats) -> None:
        before = self.largest.copy()
        np.maximum.at(self.largest, stream, length)
        self.largest_end[self.largest > before] = -np.inf
        same = length == self.largest[stream]
        np.maximum.at(self.largest_end, stream[same], end[same])

    def _score_inside(
        self, inside: Integers, active: Floats, others: Floats, step: Floats, by_day: Floats, slot: Slot, begin: int
    ) -> None:
        """Score the longest silence inside each hour, taken for as long as it may have been."""
        stream, week, hour = np.nonzero(active > 1)
        silent = inside[stream, week, hour]
        length = (silent + 1) * slot.hours
        own = step[stream, week]
        missed = np.where(silent > 0, others[stream, week, hour] * length, own)
        missed = np.where(missed > 0, missed, own)
        day = (stream * WEEKS + week) * _WEEK_DAYS + hour // 24
        np.maximum.at(by_day, day, np.log(missed + own))
        np.maximum.at(self.missed, stream, missed)
        end = FIRST_MONDAY + ((begin + week) * HOURS + hour + length) * HOUR
        # The advances may lie at the far ends of the slots before and after.
        self._note_largest(stream, np.asarray((silent + 2) * slot.seconds, np.float64), end)

"""The baseline of one stream and week, slowly and straight from its definition: what tests hold the core against.

Times are hours from the first Monday, so that hour % 168 is the hour of the week.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

import numpy as np

from tests.unit.drawn_streams import WEEKS, Slots

WEEK = 168


@dataclass(frozen=True)
class Silence:
    """From the end of one active slot to the first advance in the next; ``since`` is the last advance before it."""

    start: float
    end: float
    since: float
    whole: bool
    """Whether a whole slot passed without an advance."""


@dataclass(frozen=True)
class Baseline:
    """What silences that begin in a week are measured by; mean and spread None: not by the traffic clock."""

    profile: list[float]
    step: float
    mean: float | None
    spread: float | None
    longest: float | None
    """The longest silence in hours that the period rule allows."""
    weekly_scores: list[float]

    def score(self, silence: Silence) -> float:
        """Return the score of a silence at its end."""
        assert self.mean is not None and self.spread is not None
        return (math.log(missed(self.profile, silence.start, silence.end) + self.step) - self.mean) / self.spread


def profile(active: Sequence[float], observed: Sequence[float], prior: float) -> list[float]:
    """Return the active slots of each hour of the week: smoothed, and drawn to the same hour of other days."""
    flat = max(sum(active) / max(sum(observed), 1.0), 1e-4)
    of_day = [
        (sum(active[day][hour::24]) + prior) / (sum(observed[day][hour::24]) + prior / flat)
        for day in (slice(0, 120), slice(120, WEEK))
        for hour in range(24)
    ]

    def smooth(counts: Sequence[float], hour: int) -> float:
        return (counts[hour - 1] + 2 * counts[hour] + counts[(hour + 1) % WEEK]) / 4

    return [
        (smooth(active, hour) + prior) / (smooth(observed, hour) + prior / of_day[hour % 24 + 24 * (hour >= 120)])
        for hour in range(WEEK)
    ]


def missed(rates: Sequence[float], start: float, end: float) -> float:
    """Return the active slots that the profile expects between two moments."""
    passed, at = 0.0, start
    while at < end:
        until = min(math.floor(at) + 1.0, end)
        passed += rates[math.floor(at) % WEEK] * (until - at)
        at = until
    return passed


def summary(values: Sequence[float | None]) -> tuple[float, float, int]:
    """Return mean, spread of the next one and count; from the third on each is at most three spreads above."""
    capped: list[float] = []
    for value in values:
        if value is not None:
            capped.append(min(value, fmean(capped) + 3 * _spread(capped)) if len(capped) >= 2 else value)
    return (fmean(capped) if capped else 0.0), _spread(capped), len(capped)


def _spread(capped: Sequence[float]) -> float:
    count = max(len(capped), 1)
    squares = sum((value - fmean(capped)) ** 2 for value in capped)
    return math.sqrt((4 * 0.45**2 + squares) / (4 + count - 1) * (1 + 1 / count))


class SlowStream:
    """One stream in slots of so many hours."""

    def __init__(self, slots: Slots, slot_hours: float) -> None:
        self.slot_hours, self.prior = slot_hours, 0.25 if slot_hours == 1.0 else 1.0
        self.active, self.observed = [0.0] * (WEEKS * WEEK), [0.0] * (WEEKS * WEEK)
        self.silences: list[Silence] = []
        self._made: dict[int, Baseline] = {}
        known = ~np.isnan(slots.first)
        columns = slots.starts, slots.first, slots.last, known, known & ~slots.vague
        rows = list(zip(*(column.tolist() for column in columns), strict=True))
        begin = int(slots.starts[known][0])
        self.observed[begin:] = [1.0] * (len(self.observed) - begin)
        for (before, _, last, is_known, _), (start, then, _, _, is_sure) in pairwise(rows):
            if is_known and is_sure:
                whole = start - before > 1.5 * slot_hours
                self.silences.append(Silence(before + slot_hours, then, last, whole))
            else:
                for hour in range(int(before) + 1, int(start)):
                    self.observed[hour] = 0.0
        for start, _, _, is_known, _ in rows:
            self.active[int(start)] += is_known
            if not is_known:
                self.observed[int(start)] = 0.0

    def baseline(self, week: int) -> Baseline:
        """Return what the eight weeks before a week teach."""
        if week not in self._made:
            self._made[week] = self._baseline(week)
        return self._made[week]

    def _baseline(self, week: int) -> Baseline:
        weeks = range(max(0, week - 8), week)
        summed, exposed = self._summed(weeks)
        rates = profile(summed, exposed, self.prior)
        others = {one: profile(*self._summed([w for w in weeks if w != one]), self.prior) for one in weeks}
        together = self.slot_hours == 1.0 and self._varied(weeks, rates) >= 3.0
        if together:
            rates = [sum(summed) / max(sum(exposed), 1.0)] * WEEK
            for one in weeks:
                counts, hours = self._summed([w for w in weeks if w != one])
                others[one] = [max(sum(counts) / max(sum(hours), 1.0), 1e-4)] * WEEK
        step = sum(rates) / WEEK * self.slot_hours
        by_day: dict[int, float] = {}
        lengths = []
        for silence in self.silences:
            if weeks[0] * WEEK <= silence.end < week * WEEK:
                by = others[min(max(int(silence.start // WEEK), weeks[0]), week - 1)]
                own = sum(by) / WEEK * self.slot_hours
                slots = missed(by, silence.start, silence.end) if silence.whole else 0.0
                day, score = int(silence.end // 24), math.log((slots if silence.whole else own) + own)
                by_day[day] = max(by_day.get(day, -math.inf), score)
                lengths.append(slots + step)
        daily = [by_day.get(day) for day in range(7 * weeks[0], 7 * week)]
        weekly = [
            max((one for one in daily[at : at + 7] if one is not None), default=None) for at in range(0, len(daily), 7)
        ]
        mean_w, spread_w, count = summary(weekly)
        mean_d, spread_d, _ = summary(daily)
        inverse = 0.7 / spread_w + 0.3 / spread_d
        found = (0.7 * mean_w / spread_w + 0.3 * mean_d / spread_d) / inverse, 1 / inverse
        if together:
            found = mean_w, 0.5 * math.sqrt(1 + 1 / max(count, 1))
        elif self.slot_hours == 1.0:
            found = self._at_random(sum(summed), sum(exposed), lengths, step) or found
        begin = max(0, week - 12) * WEEK
        first = next((hour for hour in range(begin, week * WEEK) if self.active[hour]), week * WEEK)
        whole = self._whole(max(first, weeks[0] * WEEK), week)
        clocked = min(count, whole) >= 2 and sum(summed) >= 10
        return Baseline(
            rates,
            step,
            found[0] if clocked else None,
            found[1] if clocked else None,
            self._longest(week) if sum(summed) < 10 else None,
            [one for one in weekly if one is not None],
        )

    @staticmethod
    def _whole(begin: float, week: int) -> int:
        """Return how many whole weeks there are from the day of an hour to the start of a week."""
        return (week * 7 - int(begin // 24)) // 7

    def _summed(self, weeks: Sequence[int]) -> tuple[list[float], list[float]]:
        return _by_hour(self.active, weeks), _by_hour(self.observed, weeks)

    def _varied(self, weeks: Sequence[int], rates: Sequence[float]) -> float:
        """Return how much the active hours of days vary over what chance allows; 0 of fewer than 14 days."""
        found: list[float] = []
        for day in range(7):
            hours = [[week * WEEK + day * 24 + hour for hour in range(24)] for week in weeks]
            counts = [sum(self.active[at] for at in own) for own in hours if all(self.observed[at] for at in own)]
            chances = [min(max(rates[day * 24 + hour], 0.0), 1.0) for hour in range(24)]
            least = max(sum(chance * (1 - chance) for chance in chances), 1e-4)
            if len(counts) > 1:
                found += [(one - fmean(counts)) ** 2 / (least * (1 - 1 / len(counts))) for one in counts]
        return median(found) / 0.455 if len(found) >= 14 else 0.0

    @staticmethod
    def _at_random(active: float, observed: float, lengths: Sequence[float], step: float) -> tuple[float, float] | None:
        """Return mean and spread of few records that come at random, None of others."""
        a_week = active / max(observed / WEEK, 1.0)
        if a_week > 42.0 or not lengths:
            return None
        if not 0.75 <= fmean(one**2 for one in lengths) / (2 * fmean(lengths) ** 2) <= 1.25:
            return None
        low, high = (
            math.log(active * math.expm1((2 * score + math.log(max(a_week, 1.0))) / active) + step) for score in (2, 4)
        )
        return low - (high - low), (high - low) / 2

    def _longest(self, week: int) -> float | None:
        begin = max(0, week - 12) * WEEK
        recent = [one for one in self.silences if one.whole and begin <= one.end < week * WEEK]
        gaps = [one.end - one.since for one in recent]
        if len(gaps) < 4 or max(gaps) > 1.5 * median(gaps) or self._whole(recent[0].since, week) < 2:
            return None
        return 1.75 * max(gaps)


def _by_hour(counts: Sequence[float], weeks: Sequence[int]) -> list[float]:
    summed: list[float] = np.reshape(counts, (WEEKS, WEEK))[list(weeks)].sum(0).tolist()
    return summed

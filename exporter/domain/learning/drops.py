"""Fleet-wide drops: days on which many topics of a cluster at once were silent or nearly so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count, takewhile
from typing import NamedTuple

import numpy as np

from exporter.domain.arrays import Flags, Rows
from exporter.domain.formatting import iso, moment
from exporter.domain.learning.hours import Integers

DAY = 86_400.0

REFERENCE_WEEKS, LEAST_REFERENCES = 8, 4
"""Number of weeks before a day whose median gives its usual activity, and how many of them must be known."""

LOW = 0.4
"""Share of a topic's usual active hours on a day. The topic is low if it was active in no more than this share."""

DROP_SHARE, DROP_LEAST = 0.1, 5
"""Share and number of topics. The fleet dropped on a day if more topics than both, beyond those that are low on any
such day, became low."""

MOST_DAYS = 3
"""Largest length of a rest in days. A longer drop is an outage, or many deaths."""

LONGEST_DAYS = 14
"""Number of days for which a drop is followed."""


class OngoingDrop(NamedTuple):
    """A fleet-wide drop in activity that has not ended; verdicts are held until ``until``."""

    since: float
    """The begin of its first day, Unix seconds."""
    until: float
    """No verdict is held after this, Unix seconds: no rest lasts longer."""
    low: int
    """How many topics were low on its last complete day."""
    judged: int
    """How many topics usually write on such a day."""

    @property
    def name(self) -> str:
        """A name that stays the same until the drop ends."""
        return f"drop-{iso(self.since)[:10]}"

    def __str__(self) -> str:
        return (
            f"drop of the fleet since {moment(self.since)}, {self.low} of {self.judged} topics that "
            f"usually write then were silent or nearly so, until {moment(self.until)} at most"
        )

    def describe(self, dead_from: float | None, now: float) -> str:
        """Return the drop in words, and the verdict that a silence would have without it: dead from ``dead_from``."""
        if dead_from is None:
            return str(self)
        return f"{self}; without it {'dead since' if dead_from <= now else 'suspect, dead from'} {moment(dead_from)}"


@dataclass(frozen=True, slots=True)
class Drop:
    """A day (days since 1970) on which many topics of a cluster at once were low."""

    cluster: str
    day: int
    low: int
    """Number of all low topics."""
    judged: int
    """Topics that are usually active on such a day."""
    topics: frozenset[str] = frozenset()


def runs(drops: Iterable[Drop]) -> Iterator[Sequence[Drop]]:
    """Yield the days of each drop: consecutive days of one cluster."""
    by_cluster: dict[str, dict[int, Drop]] = {}
    for one in drops:
        by_cluster.setdefault(one.cluster, {})[one.day] = one
    for days in by_cluster.values():
        for began in sorted(days):
            if began - 1 not in days:
                yield [days[day] for day in takewhile(days.__contains__, count(began))]


class Low(NamedTuple):
    """A day on which the fleet dropped: which topics were low, of those that are usually active on such a day."""

    day: int
    judged: int
    topics: Rows


FELL_WITHIN_DAYS = 7
"""Number of days before a day. A topic fell on the day if it was not low on the last of these on which it is usually
active."""


@dataclass(frozen=True, slots=True)
class _DropDay:
    judged: Flags
    """Whether it is usually active on such a day, and was active in the week before."""
    low: Flags
    still_low: Flags
    """Low topics, including those that were already silent for the whole week before."""
    by_chance: float
    """Number of topics that are low on any such day."""

    def is_drop(self, low: Flags) -> bool:
        return bool(low.sum() - self.by_chance > max(DROP_SHARE * self.judged.sum(), DROP_LEAST))


def drop_days(active: Integers, first: Integers, covered: Flags, days: Iterable[int]) -> Iterator[Low]:
    """Yield those of the ``days`` on which the fleet dropped; days count from the first of ``active``.

    ``active`` [topics, days] are active hours, ``first`` is the first known day of each topic, ``covered`` [days] or
    [topics, days] whether a day was observed. A drop begins on a day on which enough topics fell, so topics that die
    one by one are none. It lasts while enough of these, and of those that fell later, are low. It is followed for
    LONGEST_DAYS and one day more, so that a longer one can be recognized.
    """
    covered = np.broadcast_to(covered, active.shape)

    @lru_cache(None)
    def day_of(day: int) -> _DropDay | None:
        return _day(active, first, covered, day)

    @lru_cache(None)
    def fell(day: int) -> Flags:
        """Which topics are low on a day, but were not low before it."""
        now = day_of(day)
        if now is None:
            return np.zeros(len(active), np.bool_)
        open_, low_before = now.low.copy(), np.zeros(len(active), np.bool_)
        for before in map(day_of, range(day - 1, day - 1 - FELL_WITHIN_DAYS, -1)):
            if before is not None:
                low_before |= open_ & before.low
                open_ &= ~before.judged
        return np.asarray(now.low & ~low_before)

    @lru_cache(None)
    def low_in(began: int, day: int) -> Flags | None:
        """Return which topics are low on a day of the drop that began on ``began``; None if it is over by then."""
        start, now = day_of(began), day_of(day)
        if start is None or now is None or not start.is_drop(fell(began)):
            return None
        low = now.still_low & np.any([fell(one) for one in range(began, day + 1)], axis=0)
        goes_on = now.is_drop(low) and (day == began or low_in(began, day - 1) is not None)
        return low if goes_on else None

    for day in days:
        now = day_of(day)
        found = (low_in(began, day) for began in range(day - LONGEST_DAYS, day + 1))
        fallen = next((low for low in found if low is not None), None)
        if now is not None and fallen is not None:
            low = now.low | fallen
            yield Low(day, int((now.judged | low).sum()), np.flatnonzero(low))


def _day(active: Integers, first: Integers, covered: Flags, day: int) -> _DropDay | None:
    if day < 0 or not covered[:, day].any():
        return None
    weeks_before = (day - 7 * week for week in range(1, REFERENCE_WEEKS + 1))
    references = [reference for reference in weeks_before if reference >= 0 and covered[:, reference].any()]
    if len(references) < LEAST_REFERENCES:
        return None
    known = (first[:, None] <= np.array(references)) & covered[:, references]
    activity = np.where(known, active[:, references], np.nan)
    usual = np.full(len(active), np.nan)
    often = (known.sum(1) >= LEAST_REFERENCES) & covered[:, day]
    usual[often] = np.nanmedian(activity[often], axis=1)
    often &= usual >= 1.0
    still_low = often & (active[:, day] <= LOW * np.nan_to_num(usual))
    lately = (active[:, day - 7 : day] > 0).any(1)
    judged = often & lately
    with np.errstate(invalid="ignore"):
        by_chance = (activity[judged] <= LOW * usual[judged, None]).sum(1) / known[judged].sum(1)
    return _DropDay(judged, still_low & lately, still_low, float(by_chance.sum()))

"""Days on which topics rest: holidays of a calendar, and days on which the fleet was silent together.

While a stream rests its traffic clock stands still, so that it misses nothing. A death on such a day is found as much
later.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count, takewhile
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Flags, Floats, Rows
from exporter.domain.formatting import iso, moment
from exporter.domain.hours import Integers

DAY = 86_400.0

QUIET = 0.5
"""A stream rests on the days of a calendar if its quietest day of the week has at most this share of a mean day."""

REFERENCE_WEEKS, LEAST_REFERENCES = 8, 4
"""The usual activity of a day is the median of that day in the eight weeks before; four of them must be known."""

LOW = 0.4
"""A topic is low on a day if it was active in no more than this share of its usual hours."""

DROP_SHARE, DROP_LEAST = 0.1, 5
"""On a day the fleet dropped if more topics than both, above those that are low on any day, fell to be low."""

MOST_DAYS = 3
"""A drop of more days in a row is no rest: it is an outage, or many deaths."""


class Rest(NamedTuple):
    """A span in which a stream rests, Unix seconds, and why in words."""

    since: float
    until: float
    why: str
    seen: bool
    """Whether the history showed the rest; else it is from a calendar."""


class OngoingDrop(NamedTuple):
    """A fleet-wide drop in activity that has not ended; verdicts are held until ``until``."""

    since: float
    """The begin of its first day, Unix seconds."""
    until: float
    """No verdict is held from here on: a rest lasts no longer."""
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
        """Return it in words, with the verdict that a silence would have without it: dead from ``dead_from`` on."""
        if dead_from is None:
            return str(self)
        return f"{self}; without it {'dead since' if dead_from <= now else 'suspect, dead from'} {moment(dead_from)}"


@dataclass(frozen=True, slots=True)
class Calendar:
    """The holidays of topics. ``topics`` is a regular expression that matches whole names; None: every cluster."""

    topics: str
    calendar: str
    """Its name: ``DE-BY``."""
    days: Sequence[tuple[float, float, str]]
    """From, until and the name of each holiday; Unix seconds."""
    cluster: str | None = None


@dataclass(frozen=True, slots=True)
class Drop:
    """A day (days since 1970) on which many topics of a cluster at once were low."""

    cluster: str
    day: int
    topics: frozenset[str] = frozenset()
    """Those of the topics at hand that were low."""
    judged: int = 0
    """Topics that are usually active on such a day."""
    low: int | None = None
    """How many topics were low in all; None: ``topics`` has all of them."""

    @property
    def took_part(self) -> int:
        """How many topics were low in all."""
        return len(self.topics) if self.low is None else self.low


def among(drops: Iterable[Drop], low: Iterable[tuple[str, str, int]]) -> tuple[Drop, ...]:
    """Return drops with the topics at hand that took part: cluster, name and day (since 1970) of each."""
    named: dict[tuple[str, int], set[str]] = {}
    for cluster, topic, day in low:
        named.setdefault((cluster, day), set()).add(topic)
    return tuple(
        replace(one, topics=frozenset(named.get((one.cluster, one.day), ())), low=one.took_part) for one in drops
    )


class Rests:
    """The rests of every topic, by calendars and by drops."""

    def __init__(
        self,
        calendars: Sequence[Calendar] = (),
        drops: Iterable[Drop] = (),
        today: int = 0,
        worked: Iterable[tuple[str, str]] = (),
    ) -> None:
        """``drops`` are those of the days (since 1970) before ``today``.

        No calendar applies to the topics (cluster, name) that ``worked`` through its holidays.

        Raises re.error where ``topics`` of a calendar is not a regular expression.
        """
        self._calendars = [(re.compile(one.topics), one) for one in calendars]
        self._known, self._today, self._worked = tuple(drops), today, frozenset(worked)
        runs = list(_runs(self._known))
        # Until the fleet came back a drop may as well be an outage or many deaths, which nothing may hide.
        ended = [run for run in runs if len(run) <= MOST_DAYS and run[-1].day + 1 < today]
        self._drops = [one for run in ended for one in run]
        self._falling = {run[0].cluster: run for run in runs if today - len(run) == run[0].day > today - MOST_DAYS}
        self._of = lru_cache(2**17)(self._find)

    def __bool__(self) -> bool:
        return bool(self._calendars or self._drops or self._falling)

    def __reduce__(
        self,
    ) -> tuple[type[Rests], tuple[list[Calendar], tuple[Drop, ...], int, frozenset[tuple[str, str]]]]:
        return Rests, ([one for _, one in self._calendars], self._known, self._today, self._worked)

    def of_topics(self, low: Iterable[tuple[str, str, int]], worked: Iterable[tuple[str, str]]) -> Rests:
        """Return the same for some topics: ``low`` as in ``among``, and those that ``worked`` through holidays."""
        return Rests([one for _, one in self._calendars], among(self._known, low), self._today, worked)

    def calendar_of(self, cluster: str, topic: str) -> Calendar | None:
        """Return the calendar of a topic: the first that matches."""
        return next(
            (one for pattern, one in self._calendars if one.cluster in (None, cluster) and pattern.fullmatch(topic)),
            None,
        )

    def of(self, cluster: str, topic: str) -> tuple[Rest, ...]:
        """Return the rests of a topic, in order; they do not overlap."""
        return self._of(cluster, topic)

    def falling(self, cluster: str, topic: str) -> OngoingDrop | None:
        """Return the drop that has not ended and that a topic takes part in, None where there is none."""
        run = self._falling.get(cluster, ())
        if not any(topic in one.topics for one in run):
            return None
        since, last = run[0].day * DAY, run[-1]
        return OngoingDrop(since, since + MOST_DAYS * DAY, last.took_part, last.judged)

    def _find(self, cluster: str, topic: str) -> tuple[Rest, ...]:
        found = [
            Rest(one.day * DAY, (one.day + 1) * DAY, f"{one.took_part} of {one.judged} topics rested", seen=True)
            for one in self._drops
            if one.cluster == cluster and topic in one.topics
        ]
        calendar = None if (cluster, topic) in self._worked else self.calendar_of(cluster, topic)
        if calendar is not None:
            days = ((since, until, f"{name}, {calendar.calendar}") for since, until, name in calendar.days)
            found += [Rest(*day, seen=False) for day in days]
        return tuple(_apart(found))


def _runs(drops: Iterable[Drop]) -> Iterator[Sequence[Drop]]:
    """Yield the days of each drop: those of a cluster that follow each other."""
    by_cluster: dict[str, dict[int, Drop]] = {}
    for one in drops:
        by_cluster.setdefault(one.cluster, {})[one.day] = one
    for days in by_cluster.values():
        for began in sorted(days):
            if began - 1 not in days:
                yield [days[day] for day in takewhile(days.__contains__, count(began))]


def _apart(rests: Iterable[Rest]) -> Iterator[Rest]:
    """Yield rests that do not overlap; a rest that history showed takes precedence over one of a calendar."""
    end = -np.inf
    for one in sorted(rests, key=lambda one: (one.since, not one.seen)):
        if one.until > end:
            yield one._replace(since=max(one.since, end))
            end = one.until


def quiet(rates: Floats) -> Flags:
    """Tell of which streams, by their rates [n, 168], some day of the week is quiet."""
    days = rates.reshape(-1, 7, 24).sum(-1)
    return np.asarray(days.min(-1) <= QUIET * days.mean(-1))


def put_off(longest: Floats, since: Floats, rests: Sequence[Sequence[Rest]] | NDArray[np.object_]) -> Floats:
    """Return by how many seconds more each stream with a limit by the wall clock may be silent.

    ``longest`` is the longest of its usual silences in seconds, NaN without a limit; its run is due on the last day of
    one that begins at ``since`` (Unix seconds). A run that a holiday skipped comes with the next one, so much later.
    """
    due, more = since + longest, np.zeros(len(longest))
    for row in np.flatnonzero(~np.isnan(due)).tolist():
        if any(one.since <= due[row] and one.until > due[row] - DAY for one in rests[row]):
            more[row] = longest[row]
    return more


class Low(NamedTuple):
    """A day on which the fleet dropped: which of the topics that are usually active on it were low."""

    day: int
    judged: int
    topics: Rows


FELL_WITHIN_DAYS = 7
"""A topic fell on a day if it was not low on the last day before, of so many, on which it is usually active."""


@dataclass(frozen=True, slots=True)
class _Day:
    """The activity of each topic on one observed day."""

    judged: Flags
    """Whether it is usually active on such a day."""
    low: Flags
    by_chance: float
    """So many topics are low on any such day."""

    def is_drop(self, low: Flags) -> bool:
        return bool(low.sum() - self.by_chance > max(DROP_SHARE * self.judged.sum(), DROP_LEAST))


def drops(active: Integers, first: Integers, covered: Flags, days: Iterable[int]) -> Iterator[Low]:
    """Yield those of the ``days`` on which the fleet dropped; days count from the first of ``active``.

    ``active`` [topics, days] are active hours, ``first`` the day from which each topic is known, ``covered`` whether a
    day was observed. What is usual on a day follows from the days before it alone. A drop begins on a day on which
    enough topics fell. It lasts while enough of these, and of those that fell later, are low. So topics that die one by
    one are no drop, however many they are. All that are low on it take part.
    """

    @lru_cache(None)
    def day_of(day: int) -> _Day | None:
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

    def goes_on(began: int, day: int) -> bool:
        """Whether a day is one of a drop that began on another, or on this one."""
        start, now = day_of(began), day_of(day)
        if start is None or now is None or not start.is_drop(fell(began)):
            return False
        low = now.low & np.any([fell(one) for one in range(began, day + 1)], axis=0)
        return now.is_drop(low) and (day == began or goes_on(began, day - 1))

    for day in days:
        now = day_of(day)
        if now is not None and any(goes_on(began, day) for began in range(day - MOST_DAYS, day + 1)):
            yield Low(day, int(now.judged.sum()), np.flatnonzero(now.low))


def _day(active: Integers, first: Integers, covered: Flags, day: int) -> _Day | None:
    """Return the activity of a day, None where it was not observed or its usual activity is unknown."""
    if day < 0 or not covered[day]:
        return None
    references = [past for week in range(1, REFERENCE_WEEKS + 1) if (past := day - 7 * week) >= 0 and covered[past]]
    if len(references) < LEAST_REFERENCES:
        return None
    known = first[:, None] <= np.array(references)
    told = np.where(known, active[:, references], np.nan)
    judged = (known.sum(1) >= LEAST_REFERENCES) & (active[:, day - 7 : day] > 0).any(1)
    usual = np.full(len(active), np.nan)
    usual[judged] = np.nanmedian(told[judged], axis=1)
    judged &= usual >= 1.0
    low = judged & (active[:, day] <= LOW * np.nan_to_num(usual))
    with np.errstate(invalid="ignore"):
        by_chance = (told[judged] <= LOW * usual[judged, None]).sum(1) / known[judged].sum(1)
    return _Day(judged, low, float(by_chance.sum()))

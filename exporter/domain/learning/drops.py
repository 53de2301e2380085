"""Fleet-wide drops: days on which many topics of a cluster at once were silent or nearly so.

What an earlier drop was like, and how long it lasted, decides how a later one of the same topics is judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count, takewhile
from typing import NamedTuple

import numpy as np

from exporter.domain.arrays import Flags, Rows
from exporter.domain.formatting import iso, moment, plural
from exporter.domain.learning.hours import Integers

DAY = 86_400.0

REFERENCE_WEEKS, LEAST_REFERENCES = 8, 4
"""The usual activity of a day is the median of that day in the eight weeks before; four of them must be known."""

LOW = 0.4
"""A topic is low on a day if it was active in no more than this share of its usual hours."""

DROP_SHARE, DROP_LEAST = 0.1, 5
"""On a day the fleet dropped if more topics than both, above those that are low on any day, fell to be low."""

MOST_DAYS = 3
"""A drop of more days in a row is no rest: it is an outage, or many deaths. So it is where no earlier one is known."""

LONGEST_DAYS = 14
"""Topics may rest for as long as they did in an earlier drop, of so many days at most."""

ALIKE = 0.5
"""An earlier drop is like a later one if this share of the topics that are low in the later one were low in it."""


class EarlierDrop(NamedTuple):
    """The drop before a later one that it is most like."""

    since: float
    """The begin of its first day, Unix seconds."""
    until: float
    """The end of its last day: the fleet came back then."""
    topics: int
    """How many topics of the later drop were low in it as well."""

    @property
    def days(self) -> int:
        """How many days it lasted."""
        return round((self.until - self.since) / DAY)

    def __str__(self) -> str:
        first, last = iso(self.since)[:10], iso(self.until - DAY)[:10]
        when = f"on {first}" if first == last else f"from {first} to {last}, for {plural(self.days, 'day')}"
        return f"{self.topics} of them were so before, {when}, and came back"


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
    earlier: EarlierDrop | None = None
    """The drop before it that it is like, where the topic took part in that as well."""

    @property
    def name(self) -> str:
        """A name that stays the same until the drop ends."""
        return f"drop-{iso(self.since)[:10]}"

    def __str__(self) -> str:
        before = "" if self.earlier is None else f" ({self.earlier})"
        return (
            f"drop of the fleet since {moment(self.since)}, {self.low} of {self.judged} topics that "
            f"usually write then were silent or nearly so{before}, until {moment(self.until)} at most"
        )

    def describe(self, dead_from: float | None, now: float) -> str:
        """Return it in words, with the verdict that a silence would have without it: dead from ``dead_from`` on."""
        if dead_from is None:
            return str(self)
        return f"{self}; without it {'dead since' if dead_from <= now else 'suspect, dead from'} {moment(dead_from)}"


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


def runs(drops: Iterable[Drop]) -> Iterator[Sequence[Drop]]:
    """Yield the days of each drop: those of a cluster that follow each other."""
    by_cluster: dict[str, dict[int, Drop]] = {}
    for one in drops:
        by_cluster.setdefault(one.cluster, {})[one.day] = one
    for days in by_cluster.values():
        for began in sorted(days):
            if began - 1 not in days:
                yield [days[day] for day in takewhile(days.__contains__, count(began))]


def largest_day(run: Sequence[Drop]) -> Drop:
    """Return the day of a drop on which most topics were low, the first of several."""
    return max(run, key=lambda one: one.took_part)


def in_common(one: Drop, other: Drop) -> int:
    """Return how many topics were low on both days, of those at hand."""
    return len(one.topics & other.topics)


def earlier_drop(
    run: Sequence[Drop], drops: Iterable[Drop], common: Callable[[Drop, Drop], int] = in_common
) -> EarlierDrop | None:
    """Return the drop before that of ``run`` which it is most like, the latest of several; None where none is alike.

    ``common`` is called with the largest day of ``run`` and each earlier day.
    """
    day, found = largest_day(run), None
    before = (one for one in drops if one.cluster == day.cluster and one.day < run[0].day)
    for other in runs(before):
        shared = max(common(day, one) for one in other)
        enough = shared > 0 and shared >= ALIKE * day.took_part
        if enough and len(other) <= LONGEST_DAYS and (found is None or shared >= found.topics):
            found = EarlierDrop(other[0].day * DAY, (other[-1].day + 1) * DAY, shared)
    return found


def earlier_drops(drops: Sequence[Drop]) -> Mapping[tuple[str, int], EarlierDrop]:
    """Return the drop before each that it is like, by the cluster and first day of the later one.

    All of ``drops`` have their topics.
    """
    found = {(run[0].cluster, run[0].day): earlier_drop(run, drops) for run in runs(drops)}
    return {key: one for key, one in found.items() if one is not None}


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
    """Whether it is usually active on such a day, and was active in the week before."""
    low: Flags
    still_low: Flags
    """Those that are low, and those that were silent for the whole week before as well."""
    by_chance: float
    """So many topics are low on any such day."""

    def is_drop(self, low: Flags) -> bool:
        return bool(low.sum() - self.by_chance > max(DROP_SHARE * self.judged.sum(), DROP_LEAST))


def drop_days(active: Integers, first: Integers, covered: Flags, days: Iterable[int]) -> Iterator[Low]:
    """Yield those of the ``days`` on which the fleet dropped; days count from the first of ``active``.

    ``active`` [topics, days] are active hours, ``first`` the day from which each topic is known, ``covered`` whether a
    day was observed. What is usual on a day follows from the days before it alone. A drop begins on a day on which
    enough topics fell. It lasts while enough of these, and of those that fell later, are low. So topics that die one by
    one are no drop, however many they are. All that are low on it take part. A drop is followed for LONGEST_DAYS and
    one day more, so that one which lasts longer can be recognized.
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

    @lru_cache(None)
    def low_in(began: int, day: int) -> Flags | None:
        """Which topics are low on a day of a drop that began on another, or on this one; None if it is none of it."""
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


def _day(active: Integers, first: Integers, covered: Flags, day: int) -> _Day | None:
    """Return the activity of a day, None where it was not observed or its usual activity is unknown."""
    if day < 0 or not covered[day]:
        return None
    weeks_before = (day - 7 * week for week in range(1, REFERENCE_WEEKS + 1))
    references = [reference for reference in weeks_before if reference >= 0 and covered[reference]]
    if len(references) < LEAST_REFERENCES:
        return None
    known = first[:, None] <= np.array(references)
    activity = np.where(known, active[:, references], np.nan)
    usual = np.full(len(active), np.nan)
    often = known.sum(1) >= LEAST_REFERENCES
    usual[often] = np.nanmedian(activity[often], axis=1)
    often &= usual >= 1.0
    still_low = often & (active[:, day] <= LOW * np.nan_to_num(usual))
    lately = (active[:, day - 7 : day] > 0).any(1)
    judged = often & lately
    with np.errstate(invalid="ignore"):
        by_chance = (activity[judged] <= LOW * usual[judged, None]).sum(1) / known[judged].sum(1)
    return _Day(judged, still_low & lately, still_low, float(by_chance.sum()))

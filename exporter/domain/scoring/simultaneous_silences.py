"""Groups silences that began together, and not by chance.

When a silence began nobody saw: between its last advance and the moment at which it was longer than is usual for the
stream. Silences began together where so many of these intervals meet one span that chance hardly explains it (SPANS).
By chance a fleet of n topics has so many silences a week of each (ORDINARY), or as many as began around the span, if
these are more: a fleet whose topics die one by one has many, and none of them explains another.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from exporter.domain.arrays import Flags, Floats, Rows
from exporter.domain.learning.traffic_clock import HOUR, WEEK
from exporter.domain.scoring.prior import SHIPPED
from exporter.domain.verdicts import HELD_LEAST

_DAY = 86_400.0

SPANS: Mapping[float, float] = {HOUR: 1e-4, 3 * HOUR: 1e-5, _DAY: 1e-7, 2 * _DAY: 1e-12}
"""Silences began together if chance brings so many into a span of so many seconds less often than this. A holiday
spreads over days, for a record here and there goes on; it is known by how many it takes."""

ORDINARY, NOTICED = SHIPPED.rate / WEEK, 0.1 / WEEK
"""Silences of a topic a second past HELD_FROM, as the prior of the thresholds has them, and past NOTICED_FROM, as
generated fleets have them (in 95 to 114 of 1,000 topic-weeks)."""

MOST_ALONE = 0.04 / _DAY
"""More than 4 % of a fleet a day do not fall silent each for itself."""

_SHAPE = 6.0
"""Silences that have nothing to do with each other come in crowds too, as changes are made on some days: 6 is a rate
that differs from day to day by 41 %."""

FOLLOWS, FOLLOWED_SHARE = 2 * _DAY, 0.07
"""Silences that began within so many seconds after a group of more than this share of all streams belong to it: on a
holiday a record here and there goes on, which ends one silence and begins the next."""

RECENT = 1.5 * _DAY
"""A silence is new if it began in the last so many seconds: on the first day of a holiday also what wrote last on the
evening before."""

OVERDUE, OVERDUE_BY_CHANCE = 0.009, 1e-3
"""So large a part of a fleet is overdue by a new silence at any moment, as generated fleets are (0.7 to 0.9 %). The
fleet falls silent where so many are that chance brings them at fewer moments than this."""

_AROUND = (2 * _DAY, 7 * _DAY, 28 * _DAY)
"""The rate of the silences that began before or after is taken over the one of these in which it is largest."""


class Group(NamedTuple):
    """Silences that began together: all that can have begun between two moments, Unix seconds."""

    members: Rows
    begin: float
    end: float
    one_by_one: bool = False
    """They began each at a moment of its own between the two, and all are overdue at the second."""

    def takes(self, since: float, overdue: float) -> bool:
        """Return whether a silence belongs to it, by its last advance and when it was overdue."""
        if self.one_by_one:
            return self.begin <= since and overdue <= self.end
        return since <= self.end and overdue >= self.begin


def together(
    since: Floats, overdue: Floats, streams: int, share: float = 0.0, ordinary: float = ORDINARY
) -> Iterator[Group]:
    """Yield the groups of silences that began together, the least likely one by chance first.

    Each silence began between ``since`` and ``overdue``, Unix seconds; ``streams`` is how many could have fallen
    silent, ``share`` how large a part of them a group must exceed at least, and ``ordinary`` how many such silences
    begin by chance, of each stream a second. A silence is in one group at most.
    """
    left = np.arange(len(since))
    while len(left) > max(share * streams, HELD_LEAST):
        found = _least_likely(since[left], overdue[left], streams, share, ordinary)
        if found is None:
            return
        found = _with_followers(found, since[left], overdue[left], streams)
        yield found._replace(members=left[found.members])
        left = np.delete(left, found.members)


def at_once(since: Floats, overdue: Floats, crossed: Flags, streams: int, share: float, now: float) -> Group | None:
    """Return the new silences that are overdue now, if these are more than chance brings.

    They need not have begun together: on a holiday a record here and there ends a silence and begins the next. By
    chance some are overdue at any moment (OVERDUE), or as many as deaths of the days before explain: older silences
    that ``crossed``. The rest is as in ``together``.
    """
    new = since >= now - RECENT
    found = np.flatnonzero(new & (overdue <= now))
    if len(found) <= max(share * streams, HELD_LEAST):
        return None
    pace = _rate(since[~new & crossed], now, RECENT, streams, 0.0)
    chance = _more_than(np.array([float(len(found))]), np.array([OVERDUE * streams + pace * RECENT]))
    return Group(found, now - RECENT, now, one_by_one=True) if chance[0] < math.log(OVERDUE_BY_CHANCE) else None


def span_of(since: Floats, overdue: Floats) -> tuple[float, float]:
    """Return the shortest span that all these silences can have begun in: there is one silence at least."""
    latest, earliest = float(since.max()), float(overdue.min())
    return min(latest, earliest), max(latest, earliest)


def _least_likely(since: Floats, overdue: Floats, streams: int, share: float, ordinary: float) -> Group | None:
    begun, due = np.sort(since), np.sort(overdue)
    best, found = 0.0, None
    for span, limit in SPANS.items():
        met = np.searchsorted(begun, begun, "right") - np.searchsorted(due, begun - span, "left")
        end = float(begun[np.argmax(met)])
        mine = (since <= end) & (overdue >= end - span)
        if mine.sum() <= max(share * streams, HELD_LEAST):
            continue
        rate = _rate(since[~mine], end, span, streams, ordinary)
        chance = _by_chance(overdue[mine] - since[mine], rate, span)
        if chance < min(best, math.log(limit)):
            best, found = chance, Group(np.flatnonzero(mine), end - span, end)
    return found


def _with_followers(group: Group, since: Floats, overdue: Floats, streams: int) -> Group:
    """Return a large group with the silences that followed it."""
    if len(group.members) <= FOLLOWED_SHARE * streams:
        return group
    end = group.begin + FOLLOWS
    return Group(np.flatnonzero((since <= end) & (overdue >= group.begin)), group.begin, end)


def _by_chance(widths: Floats, rate: float, span: float) -> float:
    """Return a bound of the log of the chance that so many silences meet a span.

    It is the chance of those with the narrowest intervals, of whichever number is the least likely: a slow stream,
    whose interval meets every span, takes nothing from what the others prove.
    """
    count = np.arange(1.0, len(widths) + 1)
    return float(_more_than(count, rate * (span + np.cumsum(np.sort(widths)) / count)).min())


def _more_than(count: Floats, expected: Floats) -> Floats:
    """Return a bound of the log of the chance of so many where so many are expected (Chernoff's).

    Their number is Poisson, with a rate that is gamma distributed itself (_SHAPE).
    """
    more = np.maximum(count / expected, 1.0)
    return np.asarray(
        (count + _SHAPE) * np.log((more * expected + _SHAPE) / (expected + _SHAPE)) - count * np.log(more)
    )


def _rate(others: Floats, end: float, span: float, streams: int, ordinary: float) -> float:
    """Return how many silences a second begin by chance, given when the others began."""
    distance = np.maximum(np.maximum(others - end, end - span - others), 0.0)
    around = max(float((distance <= length).sum()) / length for length in _AROUND)
    return max(max(streams, 1) * ordinary, min(around, streams * MOST_ALONE))

"""Groups silences that began together, and not by chance.

A silence began between the last advance and the moment at which it was longer than usual for the stream. Silences
began together where more of these intervals overlap one span than chance explains (SPANS): the usual rate of a fleet
(ORDINARY), or the rate around the span, which is high in a fleet whose topics die one by one.
"""

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from exporter.domain.arrays import Flags, Floats, Rows
from exporter.domain.learning.traffic_clock import HOUR, WEEK
from exporter.domain.scoring.thresholds import PRIOR_RATE
from exporter.domain.verdicts import HELD_LEAST

_DAY = 86_400.0

SPANS: Mapping[float, float] = {HOUR: 1e-4, 3 * HOUR: 1e-5, _DAY: 1e-7, 2 * _DAY: 1e-12}
"""Length of a span in seconds -> probability. Silences began together if chance brings as many into such a span with
a lower probability. The silences of a holiday spread over days, because a few records are still written; there only a
large number proves an incident."""

ORDINARY, NOTICED = PRIOR_RATE / WEEK, 0.1 / WEEK
"""Usual rates of silences of one topic, per second: past HELD_FROM (from the prior of the thresholds), and past
NOTICED_FROM (measured on generated fleets: in 95 to 114 of 1,000 topic-weeks)."""

MOST_ALONE = 0.04 / _DAY
"""Largest rate of unrelated silences, per second, as a share of the fleet: 4 % a day."""

_SHAPE = 6.0
"""Shape of the gamma distribution of the rate of unrelated silences. They crowd on some days, because changes are made
on some days. A shape of 6 is a rate that varies from day to day by 41 %."""

FOLLOWS, FOLLOWED_SHARE = 2 * _DAY, 0.07
"""Window, in seconds, and share of all streams. Silences that began within this window after a group of more than this
share belong to the group: on a holiday a few records are still written, which end one silence and begin the next."""

RECENT = 1.5 * _DAY
"""Seconds. A silence is new if it began within this time before the last one that became overdue: on the first day of a
holiday this includes streams that wrote last on the evening before."""

OVERDUE, OVERDUE_BY_CHANCE = 0.009, 1e-3
"""Share of a fleet that is usually overdue by a new silence (0.7 to 0.9 % of generated fleets), and a probability."""

_AROUND = (2 * _DAY, 7 * _DAY, 28 * _DAY)
"""Distances in seconds around a span. The rate of other silences is measured over each; the largest rate counts."""


class Group(NamedTuple):
    """Silences that began together: all that can have begun between ``begin`` and ``end``, Unix seconds."""

    members: Rows
    begin: float
    end: float


def group_silences(
    since: Floats, overdue: Floats, streams: int, share: float = 0.0, ordinary: float = ORDINARY
) -> Iterator[Group]:
    """Yield the groups of silences that began together, the least likely one by chance first.

    Each silence began between ``since`` and ``overdue``, Unix seconds. A group must be larger than ``share`` of the
    ``streams`` that could have fallen silent; ``ordinary`` is the usual rate of silences of one stream, per second.
    """
    left = np.arange(len(since))
    while len(left) > max(share * streams, HELD_LEAST):
        found = _least_likely(since[left], overdue[left], streams, share, ordinary)
        if found is None:
            return
        found = _with_followers(found, since[left], overdue[left], streams)
        yield found._replace(members=left[found.members])
        left = np.delete(left, found.members)


def group_overdue(since: Floats, overdue: Floats, crossed: Flags, streams: int, share: float) -> Iterator[Group]:
    """Yield the group of silences that are overdue at once, if more of them are new than chance explains.

    On a holiday a few records are still written, each of which ends one silence and begins the next. Chance explains
    the usual share (OVERDUE), and as many more as ``crossed`` in the days before. Else as ``group_silences``.
    """
    end = overdue.max(initial=-np.inf)
    before = overdue < end - RECENT
    count = float((since >= end - RECENT).sum())
    if count > max(share * streams, HELD_LEAST):
        pace = _rate(since[before & crossed], end, RECENT, streams, 0.0)
        chance = _more_than(np.array([count]), np.array([OVERDUE * streams + pace * RECENT]))
        if chance[0] < math.log(OVERDUE_BY_CHANCE):
            yield Group(np.flatnonzero(~before), end - RECENT, end)


def span_of(since: Floats, overdue: Floats) -> tuple[float, float]:
    """Return the shortest span in which all these silences can have begun. There must be at least one silence."""
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
    if len(group.members) <= FOLLOWED_SHARE * streams:
        return group
    end = group.begin + FOLLOWS
    return Group(np.flatnonzero((since <= end) & (overdue >= group.begin)), group.begin, end)


def _by_chance(widths: Floats, rate: float, span: float) -> float:
    """Return an upper bound of the log probability that chance brings these silences into a span.

    It is the lowest bound for the k silences with the narrowest intervals, over all k. So a slow stream, whose interval
    overlaps every span, does not weaken what the others prove.
    """
    count = np.arange(1.0, len(widths) + 1)
    return float(_more_than(count, rate * (span + np.cumsum(np.sort(widths)) / count)).min())


def _more_than(count: Floats, expected: Floats) -> Floats:
    """Return Chernoff's bound of the log probability of at least ``count`` where ``expected`` are expected.

    The number has a Poisson distribution, and its rate a gamma distribution (_SHAPE).
    """
    more = np.maximum(count / expected, 1.0)
    return np.asarray(
        (count + _SHAPE) * np.log((more * expected + _SHAPE) / (expected + _SHAPE)) - count * np.log(more)
    )


def _rate(others: Floats, end: float, span: float, streams: int, ordinary: float) -> float:
    distance = np.maximum(np.maximum(others - end, end - span - others), 0.0)
    around = max(float((distance <= length).sum()) / length for length in _AROUND)
    return max(max(streams, 1) * ordinary, min(around, streams * MOST_ALONE))

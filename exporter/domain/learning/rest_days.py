"""Days on which topics rest: holidays of a calendar, and days on which the fleet was silent together.

While a stream rests its traffic clock stands still, so that it misses nothing. A death on such a day is found later by
the length of the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Flags, Floats
from exporter.domain.learning.drops import DAY, MOST_DAYS, Drop, OngoingDrop, runs

QUIET = 0.5
"""Share of a mean day. A stream rests on holidays if the activity of its quietest weekday is at most this share."""


class Rest(NamedTuple):
    """A span in which a stream rests, Unix seconds, and why in words."""

    since: float
    until: float
    why: str
    seen: bool
    """Whether the history showed the rest; else it is from a calendar."""


@dataclass(frozen=True, slots=True)
class Calendar:
    """The holidays of topics. ``topics`` is a regular expression that matches whole names; None: every cluster."""

    topics: str
    calendar: str
    """Its name: ``DE-BY``."""
    days: Sequence[tuple[float, float, str]]
    """From, until and the name of each holiday; Unix seconds."""
    cluster: str | None = None


class Rests:
    """The rests of every topic, by calendars and by drops."""

    def __init__(self, calendars: Sequence[Calendar] = (), drops: Iterable[Drop] = (), today: int = 0) -> None:
        """``drops`` are those of the days (since 1970) before ``today``.

        Raises re.error where ``topics`` of a calendar is not a regular expression.
        """
        self._calendars = [(re.compile(one.topics), one) for one in calendars]
        self._known, self._today = tuple(drops), today
        found = list(runs(self._known))
        # Before the fleet is back, a drop may also be an outage or many deaths, which nothing may hide.
        self._ended = [run for run in found if run[-1].day + 1 < today]
        self._falling = {run[0].cluster: run for run in found if today - len(run) == run[0].day}
        self._of = lru_cache(2**17)(self._find)

    def __bool__(self) -> bool:
        return bool(self._calendars or self._known)

    def __reduce__(self) -> tuple[Any, ...]:
        return Rests, ([one for _, one in self._calendars], self._known, self._today)

    def get(self, cluster: str, topic: str) -> tuple[Rest, ...]:
        """Return the rests of a topic, in order; they do not overlap."""
        return self._of(cluster, topic)

    def find_ongoing_drop(self, cluster: str, topic: str) -> OngoingDrop | None:
        """Return the drop that a topic takes part in and that has not ended, None where there is none."""
        run = self._falling.get(cluster, ())
        if len(run) >= MOST_DAYS or not any(topic in one.topics for one in run):
            return None
        return OngoingDrop(run[0].day * DAY, (run[0].day + MOST_DAYS) * DAY, run[-1].low, run[-1].judged)

    def _find(self, cluster: str, topic: str) -> tuple[Rest, ...]:
        seen = [
            Rest(one.day * DAY, (one.day + 1) * DAY, f"{one.low} of {one.judged} topics rested", seen=True)
            for run in self._ended
            if run[0].cluster == cluster and len(run) <= MOST_DAYS
            for one in run
            if topic in one.topics
        ]
        holidays: list[Rest] = []
        for pattern, one in self._calendars:
            if one.cluster in (None, cluster) and pattern.fullmatch(topic):
                days = ((since, until, f"{name}, {one.calendar}") for since, until, name in one.days)
                holidays = [Rest(*day, seen=False) for day in days]
                break  # the first calendar that matches counts
        return tuple(sorted([*seen, *_apart(holidays, seen)]))


def _apart(holidays: Iterable[Rest], seen: Sequence[Rest]) -> Iterator[Rest]:
    """Yield the parts of holidays that overlap neither each other nor the rests that history showed, in any order."""
    order, end = sorted(seen), -np.inf
    for one in sorted(holidays):
        since, end = max(one.since, end), max(one.until, end)
        for other in order:
            if since < other.until and other.since < one.until:
                if since < other.since:
                    yield one._replace(since=since, until=other.since)
                since = other.until
        if since < one.until:
            yield one._replace(since=since)


def quiet(rates: Floats) -> Flags:
    """Return which streams have a quiet day of the week, given their rates [n, 168]."""
    days = rates.reshape(-1, 7, 24).sum(-1)
    return np.asarray(days.min(-1) <= QUIET * days.mean(-1))


def is_due_on(rest: Rest, due: float) -> bool:
    """Return whether a rest falls on the last day before a moment (Unix seconds, NaN: no); a run is due that day."""
    return rest.since <= due and rest.until > due - DAY


def extra_seconds_for_rests(
    longest: Floats, since: Floats, rests: Sequence[Sequence[Rest]] | NDArray[np.object_]
) -> Floats:
    """Return the extra seconds that each stream with a limit by the wall clock may be silent.

    ``longest`` is the longest of its usual silences in seconds, NaN without a limit. ``since`` (Unix seconds) is when
    the present silence began. The next run is due at most ``longest`` later. If the stream rests on that day, the run
    is skipped, and the one after it comes ``longest`` later still.
    """
    due, more = since + longest, np.zeros(len(longest))
    for row in np.flatnonzero(~np.isnan(due)).tolist():
        if any(is_due_on(one, due[row]) for one in rests[row]):
            more[row] = longest[row]
    return more

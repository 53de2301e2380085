"""Hours of activity -> the schedules of streams that run once a day, on some days of the week, or once a week.

Each due run that did not come counts as -ln P, the chance that it has not come yet: q + (1 - q) S(t), with q the chance
that a run is skipped, and S the share of past runs that came later. Cycles begin in the last quarter of the gap before
the earliest run, so that a run that is early or late by hours still belongs to its cycle.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Flags, Floats, Rows
from exporter.domain.formatting import moment
from exporter.domain.learning.hours import Integers
from exporter.domain.learning.traffic_clock import FIRST_MONDAY, HOUR, HOURS, WEEK

DAY = 86_400.0

LEAST_GAP = 0.7
"""Minimum gap, as a share of the cycle. A stream runs once in a cycle if every cycle is inactive in such a gap."""

STRAYS = 0.03
"""Share of the cycles. An hour of the cycle that was active in no more than this share counts as inactive."""

DUE_FROM, MOST_SKIPPED = 0.5, 0.25
"""Two shares of runs. A run is due on a day of the week on which more than the first share came. If more than the
second share of due runs were skipped, there is no schedule."""

LONGEST_RUN = 12
"""Mean number of active hours in a cycle. With more than this the traffic clock judges a stream better."""

LEAST_RUNS = 5
_LEAST_CYCLES = {24: 12, HOURS: 5}
"""Minimum number of known cycles, by the hours of a cycle."""

RECENT_WEEKS = 2
"""Number of recent weeks that are enough for a daily schedule if all weeks show none: a run may have moved."""

_SKIPPED_PRIOR, _PRIOR_RUNS = 0.01, 40.0
"""Prior share of skipped runs, and the number of runs that this prior counts as."""

_LEAST_TAIL_SECONDS = 600.0

_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@dataclass(frozen=True, slots=True)
class Schedule:
    """When the runs of a stream are due, learned from history."""

    deadlines: Sequence[float]
    """What each of the 168 hours of the week from Monday 00:00 UTC adds to a silence in which no run came, in nats."""
    cycle_seconds: float
    cycle_start_seconds: float
    """When a cycle begins, in seconds after Monday 00:00 UTC."""
    runs_a_week: int
    late_nats: float
    """The nats from which on the run is more likely skipped than still to come."""
    usual_seconds: float
    latest_seconds: float
    """When runs come, in seconds after the beginning of their cycle: the median and the latest."""
    days: int
    """The days of the week on which runs come, as bits from Monday."""
    weeks: int
    """Number of weeks from which the schedule was learned."""

    def __str__(self) -> str:
        usual, latest = (self.cycle_start_seconds + one for one in (self.usual_seconds, self.latest_seconds))
        days = [name for bit, name in enumerate(_WEEKDAYS) if self.days >> bit & 1]
        if len(days) == 1:
            cadence = f"weekly run on {days[0]}"
        elif len(days) == len(_WEEKDAYS):
            cadence = "daily run"
        elif days == list(_WEEKDAYS[:5]):
            cadence = "weekday run"
        else:
            cadence = f"run on {', '.join(days)}"
        day = f"{_WEEKDAYS[int(latest // DAY) % 7]} " if latest // DAY != usual // DAY and self.runs_a_week == 1 else ""
        return f"{cadence} at {_clock(usual)} UTC (latest {day}{_clock(latest)} in {self.weeks} weeks)"

    def describe_missed_run(self, last_advance: float, now: float) -> str:
        """Return a sentence about the run that has not come by ``now`` (Unix seconds)."""
        recent = now - last_advance < WEEK - DAY
        since = _WEEKDAYS[int((last_advance - FIRST_MONDAY) // DAY) % 7] if recent else moment(last_advance)
        return f"{self} has not come since {since}"


def _clock(seconds: float) -> str:
    minutes = int(seconds // 60)
    return f"{minutes // 60 % 24:02}:{minutes % 60:02}"


def has_schedule(schedule: Iterable[object]) -> Flags:
    """Return which streams have a schedule."""
    return np.array([one is not None for one in schedule], np.bool_)


def schedules(stream: Rows, at: Floats, watched: Flags, begin: float) -> NDArray[np.object_]:
    """Return the ``Schedule`` of each stream, None where it has none.

    ``stream`` and ``at`` are the first advances (Unix seconds) of active hours in the weeks from ``begin`` on, a
    Monday; ``watched`` [streams, weeks, 168] shows which hours were observed.
    """
    found = np.full(len(watched), None, object)
    weeks = watched.shape[1]
    for bins, recent in ((24, weeks), (HOURS, weeks), (24, RECENT_WEEKS)):
        left = np.flatnonzero(~has_schedule(found))
        place = np.full(len(watched), -1, np.intp)
        place[left] = np.arange(len(left))
        hours = (at - begin) / HOUR - (weeks - recent) * HOURS
        mine = (place[stream] >= 0) & (hours >= 0)
        seen = watched[left, weeks - recent :].reshape(len(left), recent * HOURS)
        _find(place[stream[mine]], hours[mine], seen, bins, left, found)
    return found


def _find(stream: Rows, hours: Floats, watched: Flags, bins: int, number: Rows, found: NDArray[np.object_]) -> None:
    count, total = watched.shape
    cycles = total // bins - 1
    if not len(stream) or cycles < 1:
        return
    known_hours = watched.sum(1)
    start, regular = _starts(stream, hours, count, bins, STRAYS * known_hours / bins)
    regular &= known_hours >= _LEAST_CYCLES[bins] * bins
    regular &= np.bincount(stream, minlength=count) <= LONGEST_RUN * known_hours / bins
    candidates = np.flatnonzero(regular)
    if not len(candidates):
        return
    place = np.full(count, -1, np.intp)
    place[candidates] = np.arange(len(candidates))
    mine = place[stream] >= 0
    stream, hours = place[stream[mine]], hours[mine]
    start, watched, number = start[candidates], watched[candidates], number[candidates]
    came = hours - start[stream]
    cycle = np.floor(came / bins).astype(np.int64)
    inside = (cycle >= 0) & (cycle < cycles)
    lateness = np.full(len(candidates) * cycles, np.inf)
    np.minimum.at(lateness, stream[inside] * cycles + cycle[inside], (came - cycle * bins)[inside])
    lateness = lateness.reshape(-1, cycles)
    ran = np.isfinite(lateness)
    hour = start[:, None, None] + (np.arange(cycles) * bins)[:, None] + np.arange(bins)
    seen = (
        np.take_along_axis(watched, hour.reshape(len(candidates), -1), 1).reshape(len(candidates), cycles, bins).all(-1)
    )
    known = seen | ran
    of_week = np.arange(cycles) % (HOURS // bins)
    due = np.zeros((len(candidates), HOURS // bins), np.bool_)
    for day in range(HOURS // bins):
        here = of_week == day
        due[:, day] = ran[:, here].sum(1) > DUE_FROM * known[:, here].sum(1)
    owed = due[:, of_week] & known
    missed = owed & ~ran
    runs = owed & ran
    enough = (runs.sum(1) >= LEAST_RUNS) & (known.sum(1) >= _LEAST_CYCLES[bins])
    enough &= missed.sum(1) <= MOST_SKIPPED * owed.sum(1)
    for row in np.flatnonzero(enough).tolist():
        late = np.sort(lateness[row, runs[row]])
        chance = _skip_chance(missed[row, owed[row]])
        found[number[row]] = _schedule(late, chance, due[row], int(start[row]), bins, int(known[row].sum()))


def _starts(stream: Rows, hours: Floats, count: int, bins: int, strays: Floats) -> tuple[Integers, Flags]:
    """Return the hour in which the cycles of each stream begin, and whether it runs once in a cycle."""
    phase = np.floor(hours).astype(np.int64) % bins
    active = np.bincount(stream * bins + phase, minlength=count * bins).reshape(count, bins) > strays[:, None]
    twice = np.concatenate([active, active], 1)
    place = np.arange(2 * bins)
    before = np.maximum.accumulate(np.where(twice, place, -1), 1)
    gap = np.where(twice[:, bins:], place[bins:] - before[:, bins - 1 : -1] - 1, -1)
    first = gap.argmax(1)
    longest = gap[np.arange(count), first]
    return (first - (longest + 3) // 4) % bins, longest >= LEAST_GAP * bins


def _skip_chance(missed: Flags) -> float:
    """Return the chance that a run is skipped. Its square is that of two in a row: E[q^2], with q beta distributed.

    Skipping began with a run that was ``missed`` after one that came: an outage counts once.
    """
    after_run = ~np.concatenate([[False], missed[:-1]])
    a, n = int((missed & after_run).sum()) + _PRIOR_RUNS * _SKIPPED_PRIOR, int(after_run.sum()) + _PRIOR_RUNS
    return math.sqrt(a * (a + 1) / (n * (n + 1)))


def _schedule(late: Floats, chance: float, due: Flags, start: int, bins: int, known: int) -> Schedule:
    """``late`` are the hours after the beginning of their cycle at which runs came, in order."""
    usual, latest = float(np.median(late)), float(late[-1])
    over = late[late > usual] - usual
    tail = max(float(over.mean()) if len(over) else 0.0, _LEAST_TAIL_SECONDS / HOUR)
    edges = np.arange(bins + 1, dtype=np.float64)
    beyond = len(late) - np.searchsorted(late, edges, "right")
    later = (beyond + np.exp(-np.maximum(edges - latest, 0.0) / tail)) / (len(late) + 1)
    nats = -np.log(chance + (1 - chance) * later)
    deadlines = np.zeros(HOURS)
    for day in np.flatnonzero(due).tolist():
        deadlines[(start + day * bins + np.arange(bins)) % HOURS] += np.diff(nats)
    run_days = {int((start + day * bins + usual) // 24 % 7) for day in np.flatnonzero(due).tolist()}
    return Schedule(
        deadlines=deadlines.astype(np.float32).tolist(),
        cycle_seconds=bins * HOUR,
        cycle_start_seconds=start * HOUR,
        runs_a_week=int(due.sum()),
        late_nats=min(float(-np.log(chance * (2 - chance))), float(nats[-1])),
        usual_seconds=usual * HOUR,
        latest_seconds=latest * HOUR,
        days=sum(1 << day for day in run_days),
        weeks=max(1, round(known * bins / HOURS)),
    )

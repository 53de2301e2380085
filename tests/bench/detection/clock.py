"""The product's own judgement of silences: clocks, limits and few gaps, by what was known of rests at each moment."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from exporter.domain.judging.gap_law import find_limits
from exporter.domain.learning.baselines import longest_usual
from exporter.domain.learning.drops import MOST_DAYS, Drop
from exporter.domain.learning.rest_days import DAY, Rest, Rests, extra_seconds_for_rests
from exporter.domain.learning.traffic_clock import Clocks, Profiles, RestSpans
from exporter.domain.verdicts import HELD_DAYS, HELD_SECONDS
from tests.bench.detection.fleet import Floats
from tests.bench.detection.history import first_week_of
from tests.bench.detection.silences import Silences, Trial, gaps_before
from tests.bench.detection.spool import CLUSTER


def spans(later: Sequence[tuple[float, Floats]]) -> list[tuple[float, float]]:
    """Return from when until when each stands: first what is known at once, then those of ``later``."""
    return list(pairwise([-np.inf, *(moment for moment, _ in later), np.inf]))


def alarmed(start: Floats, hours: Floats, later: Sequence[tuple[float, Floats]]) -> Floats:
    """Return after how many hours each silence is dead, which nothing else holds.

    It would be after ``hours``, from each of the moments of ``later`` on by what is known then: of a drop that goes on
    the clock rests, and later may turn out not to have.
    """
    found = np.full(len(start), np.inf)
    for (since, until), by in zip(spans(later), [hours, *(each for _, each in later)], strict=True):
        dead = np.maximum(since, start + by)
        found = np.where((found == np.inf) & (dead < until), dead - start, found)
    return found


class Known(NamedTuple):
    """What was known of rests from a moment on, Unix seconds."""

    since: float
    clocks: Clocks
    """The clocks with these rests."""
    rests: Rests
    of_units: RestSpans


@dataclass(frozen=True, slots=True)
class ProductClock:
    """The product's own judgement; arrays are [units, weeks]."""

    clocks: Clocks
    row: NDArray[np.intp]
    """Which of the clocks judges; -1 where none does."""
    slot: Floats
    """Of each clock, in hours."""
    dead: Floats
    """The score past which a stream is dead, beside the threshold that is asked for."""
    limit: Floats
    """Hours of silence past which a stream is dead at the latest; NaN where there is no such limit."""
    longest: Floats
    """The longest of its usual silences in hours, where it has such a limit."""
    topics: Sequence[str]
    start: float
    """The fleet's, in Unix seconds."""
    times: Sequence[Floats]
    """The records of each unit: few gaps judge what has neither a clock nor a limit."""
    falling: Sequence[Known] = ()
    """What was known of rests from moment to moment. In a drop that goes on clocks stand still: what it alone makes
    unusual is held.
    """

    @property
    def promised(self) -> NDArray[np.bool_]:
        """Which are judged by a clock."""
        return self.row >= 0

    def hours(self, silences: Silences, threshold: float) -> Floats:
        """Return after how many hours from its last record each passes the threshold, without rests; inf for never."""
        return self._hours(self.clocks, silences, threshold, Rests())

    def later(self, silences: Silences, threshold: float) -> Sequence[tuple[float, Floats]]:
        """Return the hours by what is known of drops from each moment on (hours since the fleet's start)."""
        alone = self.hours(silences, threshold)
        start = self._seconds(silences.start)
        # A rest that ended earlier, or begins later, changes neither the clock nor when a run is due.
        over = start + 3600.0 * np.fmax(alone, self.longest[silences.unit, silences.week])
        found = []
        for known in self.falling:
            hours, met = alone.copy(), np.zeros(len(silences), bool)
            for since, until in known.of_units.spans(silences.unit):
                met |= (until > start - DAY) & (since <= over)
            hours[met] = self._hours(known.clocks, silences[met], threshold, known.rests)
            found.append(((known.since - self.start) / 3600.0, hours))
        return found

    def _hours(self, clocks: Clocks, silences: Silences, threshold: float, rests: Rests) -> Floats:
        at = silences.unit, silences.week
        row, begin = self._begin(silences)
        with np.errstate(over="ignore", invalid="ignore"):
            known = self.promised[at] & np.isfinite(clocks.compute_ticks(row, threshold + self.dead[at]))
            when = clocks.passes(row, begin, threshold + self.dead[at])
        hours = np.where(known & ~np.isnan(when), (when - self.start) / 3600.0 - silences.start, np.inf)
        longest, since = self.longest[at] * 3600.0, self._seconds(silences.start)
        slow, more = np.flatnonzero(~np.isnan(longest)), np.zeros(len(silences))
        rested = [rests.get(CLUSTER, self.topics[unit]) for unit in silences.unit[slow].tolist()]
        more[slow] = extra_seconds_for_rests(longest[slow], since[slow], rested)
        return np.fmin(hours, self._limits(silences, threshold) + more / 3600.0)

    def _limits(self, silences: Silences, threshold: float) -> Floats:
        """Return the hours by the wall clock past which silences are dead; NaN where there is no such limit."""
        at = silences.unit, silences.week
        limits = self.limit[at]
        by_gaps = np.isnan(limits) & ~self.promised[at]
        for unit in np.unique(silences.unit[by_gaps]).tolist():
            mine = np.flatnonzero(by_gaps & (silences.unit == unit))
            gaps, hours = gaps_before(self.times[unit], silences.start[mine])
            dead = threshold + self.dead[unit, silences.week[mine]]
            limits[mine] = find_limits(gaps, hours * 3600.0, dead, dead)[1] / 3600.0
        return limits

    def usual_hours(self, silences: Silences) -> Floats:
        """Return after how many hours each silence is longer than usual: inf where none is judged."""
        row, begin = self._begin(silences)
        known = self.promised[silences.unit, silences.week]
        when = self.clocks.moment(row, begin, np.where(known, self.clocks.usual(row), 0.0))
        return np.where(known & ~np.isnan(when), (when - self.start) / 3600.0 - silences.start, np.inf)

    def held_until(self, silences: Silences, crossed: Floats) -> Floats:
        """Return up to when an incident holds silences that ``crossed`` HELD_FROM, in hours since the fleet's start."""
        row = self.row[silences.unit, silences.week]
        known = np.isfinite(crossed) & (row >= 0)
        begin, days = self.start + np.where(known, crossed, 0.0) * 3600.0, HELD_DAYS * self.clocks.busiest_day(row)
        missed = (self.clocks.moment(row, begin, days) - self.start) / 3600.0
        return np.where(known, np.maximum(crossed + HELD_SECONDS / 3600.0, missed), crossed)

    def _seconds(self, hours: Floats) -> Floats:
        return np.asarray(self.start + hours * 3600.0)

    def _begin(self, silences: Silences) -> tuple[NDArray[np.intp], Floats]:
        row = self.row[silences.unit, silences.week]
        slot = self.slot[row]
        slot_end = (np.floor((self.start / 3600.0 + silences.start) / slot) + 1.0) * slot * 3600.0
        return row, self.clocks.start(row, slot_end)


def product_clock(trial: Trial, drops: Sequence[Drop]) -> ProductClock:
    """Judge a trial by the product's core, with a score of dead of 0 everywhere; ``drops`` are all of the fleet."""
    made, units = trial.history.baselines, trial.units
    shape = trial.eligible.shape
    limit, longest, row_of = np.full(shape, np.nan), np.full(shape, np.nan), np.full(shape, -1, np.intp)
    week = made.week - first_week_of(units.fleet)
    judged = np.flatnonzero(week < trial.weeks)
    limit[made.stream[judged], week[judged]] = made.max_silence[judged] / 3600.0
    usual = longest_usual(made.suspect_silence, made.max_silence) / 3600.0
    longest[made.stream[judged], week[judged]] = usual[judged]
    clocked = judged[made.clocked[judged]]
    row_of[made.stream[clocked], week[clocked]] = clocked
    # All clocks have the same profiles, which take longest to sum.
    counted = made.profile.copy()
    for row in np.flatnonzero(made.scheduled).tolist():
        counted[row] = made.schedule[row].deadlines
    sums = Profiles(counted)

    def clocks(of: Sequence[Sequence[Rest]]) -> Clocks:
        return Clocks(sums, made.step, made.mean, made.spread, made.pause, made.schedule, RestSpans(of, made.stream))

    def known(today: int) -> Known:
        rests = Rests(drops=[one for one in drops if one.day < today], today=today)
        of = [(*rests.get(CLUSTER, one), *_falling(rests, one)) for one in units.names]
        return Known(today * DAY, clocks(of), rests, RestSpans(of, np.arange(len(units))))

    # A day is known when it is over, that the fleet is back a day later, and no drop holds longer than its limit.
    changes = sorted({one.day + after for one in drops for after in (1, 2, MOST_DAYS, MOST_DAYS + 1)})
    return ProductClock(
        clocks([()] * len(units)),
        row_of,
        made.slot_seconds / 3600.0,
        np.zeros(shape),
        limit,
        longest,
        units.names,
        units.fleet.start,
        units.times,
        [known(today) for today in changes],
    )


def _falling(rests: Rests, topic: str) -> Sequence[Rest]:
    drop = rests.find_ongoing_drop(CLUSTER, topic)
    return () if drop is None else [Rest(drop.since, drop.until, "", seen=True)]

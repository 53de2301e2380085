"""What is judged: closed silences, of which an alarm would be false, and cuts, after which one is due."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import ColumnSet
from exporter.domain.verdicts import RETIRED_AFTER_SECONDS
from tests.bench.detection.fleet import HOURS_A_WEEK, Floats, Ints, Span, Units
from tests.bench.detection.history import History, history

LONGEST = RETIRED_AFTER_SECONDS / 3600
"""Hours after which a silence is no longer news: a longer one is no false alarm, a later alarm is missed."""

FIRST_WEEK = 8
"""Judging starts with a full yardstick."""

_SHORT_A_WEEK = 10


@dataclass(frozen=True, slots=True, eq=False)
class Silences(ColumnSet):
    """Silences by unit, from the last record on, in hours; those of cuts have no end."""

    unit: Ints
    start: Floats
    end: Floats

    @property
    def week(self) -> Ints:
        """The week in which each starts, by whose parameters it is judged."""
        return (self.start // HOURS_A_WEEK).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Trial:
    """One fleet, made ready to be judged.

    ``eligible`` [units, weeks]: a record came in the week, and eight weeks are known before it.
    ``closed`` are silences that a later record ended, without those put in, seen by none, longer than 28 days or in a
    known incident. ``cuts`` are what deaths at random moments leave behind.
    """

    units: Units
    history: History
    eligible: NDArray[np.bool_]
    closed: Silences
    cuts: Silences

    @property
    def weeks(self) -> int:
        """How many weeks the fleet lives."""
        return self.units.fleet.weeks


def trial(units: Units) -> Trial:
    eligible = np.zeros((len(units), units.fleet.weeks), bool)
    for place, times in enumerate(units.times):
        eligible[place, (times[times < units.fleet.weeks * HOURS_A_WEEK] // HOURS_A_WEEK).astype(np.int64)] = True
    eligible[:, :FIRST_WEEK] = False
    closed = _closed(units, eligible)
    incident = _touching(closed, [units.fleet.incidents] * len(units))
    cuts = _cuts(units, eligible, np.random.default_rng(1))
    return Trial(units, history(units), eligible, closed[~incident], cuts)


def _closed(units: Units, eligible: NDArray[np.bool_]) -> Silences:
    """The silences of eligible weeks; of those under an hour only the longest of each week matter."""
    unit, start, end = [], [], []
    for place, (times, vague) in enumerate(zip(units.times, units.vague, strict=True)):
        begins, ends = times[:-1], times[1:]
        length, week = ends - begins, (begins // HOURS_A_WEEK).astype(np.int64)
        counted = eligible[place, np.minimum(week, units.fleet.weeks - 1)] & ~vague[1:] & (length <= LONGEST)
        order = np.lexsort((-length, week))
        rank = np.empty(len(order), np.int64)
        first = np.searchsorted(week[order], week[order])
        rank[order] = np.arange(len(order)) - first
        counted &= (length > 1.0) | (rank < _SHORT_A_WEEK)
        unit.append(np.full(counted.sum(), place))
        start.append(begins[counted])
        end.append(ends[counted])
    closed = Silences(np.concatenate(unit), np.concatenate(start), np.concatenate(end))
    return closed[~_touching(closed, units.outages)]


def _touching(silences: Silences, spans: Sequence[Sequence[Span]]) -> NDArray[np.bool_]:
    touching = np.zeros(len(silences), bool)
    for place, own in enumerate(spans):
        mine = silences.unit == place if own else None
        for begin, end in own:
            touching |= mine & (silences.start < end) & (silences.end > begin)
    return touching


def _cuts(units: Units, eligible: NDArray[np.bool_], random: np.random.Generator) -> Silences:
    """One death in each eligible week of each unit, at any moment; what counts is the last record before it."""
    moments = random.random(eligible.shape)
    unit, start = [], []
    lost = [*units.fleet.incidents, *units.fleet.unseen]
    for place, times in enumerate(units.times):
        weeks = np.flatnonzero(eligible[place])
        cut = (weeks + moments[place, weeks]) * HOURS_A_WEEK
        last = np.searchsorted(times, cut) - 1
        weeks, cut, last = weeks[last >= 0], cut[last >= 0], last[last >= 0]
        fit = times[last] // HOURS_A_WEEK == weeks
        for begin, end in [*lost, *units.outages[place]]:
            fit &= ~((times[last] < end) & (cut > begin))
        unit.append(np.full(fit.sum(), place))
        start.append(times[last][fit])
    begins = np.concatenate(start)
    return Silences(np.concatenate(unit), begins, np.full(len(begins), np.inf))


def gaps_before(times: Floats, at: Floats) -> tuple[Floats, Floats]:
    """Return how many gaps between active hours are known at the last record of silences, and their sum in hours.

    ``times`` are the records of one unit, ``at`` [n] some of them. The gaps are those of the eight weeks before.
    """
    hours = np.unique(np.floor(times))
    low, high = (np.searchsorted(hours, moment, "right") for moment in (at - FIRST_WEEK * HOURS_A_WEEK, at))
    return np.asarray(high - low - 1.0), np.asarray(at - hours[low])

"""Many topics that fell silent together: what the hold of incidents keeps from alarming, and until when."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from exporter.domain.arrays import ColumnSet
from exporter.domain.judging.incidents import Silent, groups_of_silences
from exporter.domain.scoring.simultaneous_silences import Group
from exporter.domain.verdicts import HELD_FROM, HELD_LEAST, HELD_SHARE, NOTICED_FROM
from tests.bench.detection.clock import ProductClock, alarmed, spans
from tests.bench.detection.fleet import Floats
from tests.bench.detection.silences import Silences, Trial

SECONDS = 3600.0


class Hold:
    """The incidents as steps: from each of ``moments`` on those that last, up to the end of the set."""

    def __init__(self, trial: Trial, method: ProductClock) -> None:
        """Replay the whole fleet: every silence that is overdue, closed or not, false or not."""
        silences = _all(trial)
        timings = hold_times(method, silences)
        counts = np.isfinite(timings.overdue) & (timings.overdue < silences.end)
        self._trial, self._method = trial, method
        self._silences, self._timings = silences[counts], timings[counts]
        # After the set's last record all are silent, because nothing more is known.
        over = max((times[-1] for times in trial.units.times if len(times)), default=0.0)
        ends, mine = self._silences.end, self._timings
        changes = np.concatenate([[0.0], mine.overdue, mine.noticed, mine.crossed, ends, mine.runs_out])
        self.moments = np.append(np.unique(changes[changes < over]), over)
        self.incidents = cache(self._incidents)

    def alarms(self, silences: Silences, hours: Floats, later: Sequence[tuple[float, Floats]]) -> Floats:
        """Return after how many hours from its last record each is called dead, held no longer; inf for never.

        Without a hold it would be after ``hours``. From each of some moments on more is known of rests: where a hold
        ends after it, it is dead after the hours of ``later``.
        """
        timings = hold_times(self._method, silences)
        found = hours = alarmed(silences.start, hours, later)
        steps = spans(later)
        by_step = np.stack([hours, *(each for _, each in later)], axis=1)

        moments, fell, due = self.moments.tolist(), SECONDS * silences.start, SECONDS * timings.overdue
        alarming = silences.start + hours
        for row in np.flatnonzero((timings.crossed <= alarming) & (alarming < timings.runs_out)).tolist():
            dead, start, since, overdue = (float(each[row]) for each in (alarming, silences.start, fell, due))
            known = [(*step, start + by) for step, by in zip(steps, by_step[row].tolist(), strict=True)]
            place, until = max(bisect_right(moments, dead) - 1, 0), -np.inf
            if not self._held(place, since, overdue):
                continue
            while place < len(moments) and self._held(place, since, overdue):
                place += 1
                dead = moments[place] if place < len(moments) else np.inf
                # Up to ``until`` it is dead as soon as it is free.
                if dead >= until:
                    dead, until = _dead_from(known, dead)
                    place = max(place, bisect_right(moments, dead) - 1)
            found[row] = _dead_from(known, min(dead, float(timings.runs_out[row])))[0] - start
        return found

    def _held(self, place: int, since: float, overdue: float) -> bool:
        """Whether a silence belongs to an incident of a step; Unix seconds."""
        for one in self.incidents(place):  # noqa: SIM110 - half a million times, and a generator takes twice as long
            if since <= one.end and overdue >= one.begin:
                return True
        return False

    def _incidents(self, place: int) -> Sequence[Group]:
        """Return the incidents that last from a moment on, as the product's core finds them."""
        if place == len(self.moments) - 1:
            return ()
        silences, timings, moment = self._silences, self._timings, float(self.moments[place])
        lasts = (timings.overdue <= moment) & (silences.end > moment) & (moment - silences.start < 28 * 24.0)
        now = np.flatnonzero(lasts)
        promised = int(self._method.promised[:, min(int(moment // 168), self._trial.weeks - 1)].sum())
        mine, every = timings[now], np.ones(len(now), bool)
        hold_expired, unusual = mine.runs_out <= moment, mine.noticed <= moment
        holdable = (mine.crossed <= moment) & ~hold_expired
        if len(now) <= HELD_LEAST or not holdable.any():
            return ()
        silent = Silent(every, unusual, holdable, hold_expired, SECONDS * silences.start[now], SECONDS * mine.overdue)
        return list(groups_of_silences(silent, promised, HELD_SHARE))


@dataclass(frozen=True, slots=True, eq=False)
class HoldTimes(ColumnSet):
    """Of silences: when each is longer than usual, noticed, crosses, and when its hold runs out, in hours."""

    overdue: Floats
    noticed: Floats
    crossed: Floats
    runs_out: Floats


def _dead_from(known: Sequence[tuple[float, float, float]], free: float) -> tuple[float, float]:
    """Return the hour that ``alarmed`` finds for a silence, not before ``free``, and until when what it is by is known.

    ``known``: since when and until when it is dead after an hour. Arrays of one row would take thirty times as long.
    """
    for since, until, alone in known:
        if (dead := max(free, since, alone)) < until:
            return dead, until
    return np.inf, np.inf


def hold_times(method: ProductClock, silences: Silences) -> HoldTimes:
    noticed, crossed = (silences.start + method.hours(silences, score) for score in (NOTICED_FROM, HELD_FROM))
    overdue = np.minimum(silences.start + method.usual_hours(silences), noticed)
    return HoldTimes(overdue, noticed, crossed, method.held_until(silences, crossed))


def _all(trial: Trial) -> Silences:
    """Every silence of more than an hour, the last one of each unit too."""
    unit, start, end = [], [], []
    for place, times in enumerate(trial.units.times):
        ends = np.append(times[1:], np.inf)
        long = (ends - times > 1.0) & (times < trial.weeks * 168)
        unit.append(np.full(long.sum(), place))
        start.append(times[long])
        end.append(ends[long])
    return Silences(np.concatenate(unit), np.concatenate(start), np.concatenate(end))

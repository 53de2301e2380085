"""Many topics silent at once: what the hold keeps from alarming, and what it costs when one of them is dead."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.bench.detection.baselines import TrafficClock
from tests.bench.detection.fleet import Floats
from tests.bench.detection.score import cumulative, reached
from tests.bench.detection.silences import Silences, Trial

CROSSED = 2.0
"""The score past which a silence counts towards an incident."""


@dataclass(frozen=True, slots=True)
class Hold:
    """The number of topics past CROSSED whose hold has not run out, as steps: ``many`` from each of ``moments`` on."""

    method: TrafficClock
    moments: Floats
    many: NDArray[np.bool_]
    share: float
    """The part of the judged time in which an incident is on."""

    def alarms(self, silences: Silences, hours: Floats) -> Floats:
        """Return after how many hours from its last record each is called dead, held no longer; inf for never.

        Without a hold it would be after ``hours``.
        """
        crossed, runs_out = spans(self.method, silences)
        dead = silences.start + hours
        known = np.isfinite(dead)
        place = np.searchsorted(self.moments, np.where(known, dead, 0.0), "right") - 1
        calm = np.append(self.moments, np.inf)[self._next_calm()]
        ends = np.where(self.many[place], calm[place], dead)
        held = known & self.many[place] & (dead >= crossed) & (dead < runs_out)
        at = np.where(held, np.minimum(ends, runs_out), dead)
        return np.asarray(at - silences.start)

    def _next_calm(self) -> NDArray[np.int64]:
        """For each step the place of the first one from it on that is no incident."""
        found = np.full(len(self.many), len(self.many), np.int64)
        following = len(self.many)
        for place in range(len(self.many) - 1, -1, -1):
            following = following if self.many[place] else place
            found[place] = following
        return found


def spans(method: TrafficClock, silences: Silences) -> tuple[Floats, Floats]:
    """Return when each silence crosses, and when its hold runs out: 24 hours and two of its busiest days later."""
    crossed = silences.start + method.hours(silences, CROSSED)
    at = silences.unit, silences.week
    clock, row = cumulative(method.rates[at]), np.arange(len(silences))
    missed = 2.0 * method.rates[at].reshape(-1, 7, 24).sum(-1).max(-1, initial=0.0)
    known = np.isfinite(crossed) & method.promised[at]
    two_days = reached(clock, row, np.where(known, crossed, 0.0), np.where(known, missed, 0.0))
    return crossed, np.where(known, np.maximum(crossed + 24.0, two_days), crossed)


def hold(trial: Trial, method: TrafficClock) -> Hold:
    """Replay the whole fleet: every silence that crosses, closed or not, false or not."""
    silences = _all(trial)
    crossed, runs_out = spans(method, silences)
    ended = np.minimum(silences.end, runs_out)
    counts = crossed < ended
    begins, ends = np.sort(crossed[counts]), np.sort(ended[counts])
    moments = np.concatenate([[0.0], begins, ends])
    steps = np.concatenate([[0], np.ones(len(begins), np.int64), -np.ones(len(ends), np.int64)])
    order = np.argsort(moments, kind="stable")
    moments, crowd = moments[order], np.cumsum(steps[order])
    promised = method.promised.sum(0)[np.minimum((moments // 168).astype(np.int64), trial.weeks - 1)]
    # After the set's last record all are silent, because nothing more is known.
    over = max((times[-1] for times in trial.units.times if len(times)), default=0.0)
    many = (crowd > np.maximum(0.04 * promised, 5)) & (moments < over)
    lasted = np.diff(np.append(moments, moments[-1]))
    judged = (moments >= 168.0 * np.flatnonzero(trial.eligible.any(0))[0]) & (moments < over)
    share = float(lasted[many & judged].sum() / lasted[judged].sum()) if judged.any() else 0.0
    return Hold(method, moments, many, share)


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

"""What a person gets who sets nothing: the product's default rate on fleets of several sizes, with outages and without.

Thresholds start with the prior and are fitted each week to the weeks before it, as the product does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from exporter.domain.calibration import FALSE_ALARMS, TOPIC, poisson_interval
from tests.bench.detection.fleet import Fleet, Floats, topics
from tests.bench.detection.hold import hold
from tests.bench.detection.product import product_method
from tests.bench.detection.reference import refitted
from tests.bench.detection.silences import FIRST_WEEK, LONGEST, Silences, Trial, trial
from tests.bench.detection.streams import generate
from tests.bench.detection.table import Rows, number

SIZES = (50, 375, 2000)
KINDS = 12.5
"""Topics that ``generate`` makes for one of each kind."""

FOREVER = 1_000_000
AGES = (1, 2, 4, 8, 16, FOREVER)
"""Weeks of history at which a row of the second table begins."""

_HEADER = (
    "judged",
    "threshold at the end",
    "false alarms per 1,000 topic-weeks",
    "alarms a week",
    "geo. mean h",
    "median h",
    "p90 h",
    "unseen at 28 d",
    "outages alarmed",
)


def fleets(sizes: Sequence[int], seed: int) -> list[tuple[str, Callable[[], Fleet]]]:
    """Return generated fleets by name, each made when it is asked for."""
    made: list[tuple[str, Callable[[], Fleet]]] = []
    for size in sizes:
        for outages in (True, False):
            name = f"{size:,} topics, {'a tenth with an outage' if outages else 'no outages'}"
            made.append((name, lambda size=size, outages=outages: _fleet(size, seed, outages=outages)))  # type: ignore[misc]
    return made


class Given:
    """What the owner of a fleet gets by the default rate, topics alone."""

    def __init__(self, fleet: Fleet, first_week: int = 1) -> None:
        self._made = made = trial(topics(fleet), first_week=first_week)
        self._published = refitted(made, [FALSE_ALARMS], first_week)
        self._method = product_method(made, self._published, FALSE_ALARMS)
        self._held = hold(made, product_method(made, self._published))

    def in_weeks(self, first: int, last: int) -> tuple[str, ...]:
        """Return a row of the weeks from ``first`` to before ``last``, by the history that is known then."""
        made = self._made
        last = min(last, made.weeks)
        eligible = made.eligible[:, first:last]
        if not eligible.any():
            return ("0 %", "-", *[""] * (len(_HEADER) - 2))
        written = np.zeros(made.eligible.shape, bool)
        for unit, times in enumerate(made.units.times):
            written[unit, (times[times < 168.0 * made.weeks] // 168).astype(np.int64)] = True
        closed, outages, cuts = (
            silences.where((silences.week >= first) & (silences.week < last))
            for silences in (made.closed, _outages(made), made.cuts)
        )
        false, seen = self._alarmed(closed), self._alarmed(outages)
        topic_weeks = np.unique(np.stack([closed.unit[false], closed.week[false]]), axis=1).shape[1]
        low, high = poisson_interval(topic_weeks)
        delay = np.minimum(self._hours(cuts), LONGEST)
        count = int(eligible.sum())
        return (
            f"{100 * count / written[:, first:last].sum():.0f} %",
            f"{self._published.calibration(FALSE_ALARMS, last, TOPIC).threshold.dead:.2f}",
            f"{1000 * topic_weeks / count:.2f} ({1000 * low / count:.2f} to {1000 * high / count:.2f})",
            f"{(topic_weeks + seen.sum()) / (last - first):.2f}",
            number(float(np.exp(np.log(np.maximum(delay, 0.01)).mean()))),
            number(float(np.median(delay))),
            number(float(np.quantile(delay, 0.9))),
            f"{100 * (delay >= LONGEST).mean():.1f} %",
            f"{seen.sum()} of {len(seen)}" if len(seen) else "",
        )

    def _hours(self, silences: Silences) -> Floats:
        later = self._method.later(silences, 0.0)
        return self._held.alarms(silences, self._method.hours(silences, 0.0), later)

    def _alarmed(self, silences: Silences) -> NDArray[np.bool_]:
        return np.asarray(self._hours(silences) < silences.end - silences.start)


def defaults_tables(sizes: Sequence[int], seed: int, progress: Callable[[str], None]) -> list[tuple[str, Rows]]:
    """Return two tables by their titles: a row for each fleet once eight weeks are known, and by weeks of history."""
    settled: Rows = [("fleet", *_HEADER)]
    young: Rows = [("fleet", "weeks of history", *_HEADER)]
    for name, make in fleets(sizes, seed):
        given = Given(make())
        settled.append((name, *given.in_weeks(FIRST_WEEK, FOREVER)))
        for first, last in pairwise(AGES):
            told = f"{first} to {last - 1}" if last - first > 1 else str(first)
            young.append((name, told if last < FOREVER else f"{first} or more", *given.in_weeks(first, last)))
        progress(name)
    return [("From the ninth week on", settled), ("By weeks of history", young)]


def _fleet(size: int, seed: int, *, outages: bool) -> Fleet:
    return generate(max(1, round(size / KINDS)), seed=seed, outages=outages)


def _outages(made: Trial) -> Silences:
    """The silences of eligible weeks that were put in as outages and ended, from the last record before each."""
    units, starts, ends = [], [], []
    for unit, (times, spans) in enumerate(zip(made.units.times, made.units.outages, strict=True)):
        for begin, end in spans:
            place = int(np.searchsorted(times, begin))
            if not 0 < place < len(times) or times[place] < end or times[place] - times[place - 1] > LONGEST:
                continue
            if made.eligible[unit, int(times[place - 1] // 168)]:
                units.append(unit)
                starts.append(float(times[place - 1]))
                ends.append(float(times[place]))
    return Silences(np.array(units, np.int64), np.array(starts), np.array(ends))

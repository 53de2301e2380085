"""What a person gets who sets nothing: the product's default rate on fleets of several sizes, with outages and without.

Thresholds start with the prior and are fitted each week to the weeks before it, as the product does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from exporter.domain.scoring.calibration import poisson_interval
from tests.bench.detection.clock import product_clock
from tests.bench.detection.fleet import Fleet, Floats, topics
from tests.bench.detection.hold import hold
from tests.bench.detection.reference import calibrations_of_topics, drops
from tests.bench.detection.silences import FIRST_WEEK, LONGEST, Silences, Trial, trial
from tests.bench.detection.streams import generate
from tests.bench.running import number
from tests.tables import Rows

KINDS = 12.5
"""Topics that ``generate`` makes for one of each kind."""

FOREVER = 1_000_000

_HEADER = (
    "judged",
    "threshold at the end",
    "promised then",
    "false alarms per 1,000 topic-weeks",
    "alarms a week",
    "geo. mean h",
    "median h",
    "p90 h",
    "unseen at 28 d",
    "outages alarmed",
)

OUTAGES = {"with": (True,), "without": (False,), "both": (True, False)}
"""Which fleets are measured: those with outages, those without, or both."""


@dataclass(frozen=True, slots=True)
class Got:
    """What the owner of one fleet got in some weeks."""

    weeks: int
    written: int
    """Topic-weeks with a record, and those of them that were judged."""
    judged: int
    threshold: float
    promised: float | None
    """False alarms in 1,000 topic-weeks, by the last week; None: nothing was promised yet."""
    false_alarms: int
    """Topic-weeks with one."""
    seen: int
    outages: int
    hours: Floats
    """From the last record to the alarm, of each death; LONGEST where there was none."""

    @property
    def geometric_mean(self) -> float:
        """In hours."""
        return float(np.exp(np.log(self.hours).mean()))


class Given:
    """What the owner of a fleet gets, topics alone."""

    def __init__(self, fleet: Fleet, first_week: int = 1) -> None:
        self._made = made = trial(topics(fleet), first_week=first_week, few=True)
        self._calibrations = calibrations_of_topics(made, first_week)
        clock = product_clock(made, drops(made))
        dead = np.zeros(made.eligible.shape)
        for week in range(first_week, made.weeks):
            dead[:, week] = self._calibrations[week].threshold.dead
        self._method = replace(clock, dead=dead)
        self._held = hold(made, clock)

    def in_weeks(self, first: int, last: int) -> Got | None:
        """Return what the weeks from ``first`` to before ``last`` gave, by the history known then; None: nothing."""
        made = self._made
        last = min(last, made.weeks)
        eligible = made.eligible[:, first:last]
        if not eligible.any():
            return None
        written = np.zeros(made.eligible.shape, bool)
        for unit, times in enumerate(made.units.times):
            written[unit, (times[times < 168.0 * made.weeks] // 168).astype(np.int64)] = True
        closed, outages, cuts = (
            silences.where((silences.week >= first) & (silences.week < last))
            for silences in (made.closed, _outages(made), made.cuts)
        )
        false, seen = self._alarmed(closed), self._alarmed(outages)
        calibration = self._calibrations[last]
        return Got(
            last - first,
            int(written[:, first:last].sum()),
            int(eligible.sum()),
            calibration.threshold.dead,
            calibration.promised,
            np.unique(np.stack([closed.unit[false], closed.week[false]]), axis=1).shape[1],
            int(seen.sum()),
            len(seen),
            np.clip(self._hours(cuts), 0.01, LONGEST),
        )

    def _hours(self, silences: Silences) -> Floats:
        later = self._method.later(silences, 0.0)
        return self._held.alarms(silences, self._method.hours(silences, 0.0), later)

    def _alarmed(self, silences: Silences) -> NDArray[np.bool_]:
        return np.asarray(self._hours(silences) < silences.end - silences.start)


def row(fleets: Sequence[Got | None]) -> tuple[str, ...]:
    """Return the cells of a row: means over fleets, and false alarms of all of them together."""
    got = [one for one in fleets if one is not None]
    if not got:
        return ("0 %", "-", *[""] * (len(_HEADER) - 2))

    def mean(of: Callable[[Got], float]) -> float:
        return float(np.mean([of(one) for one in got]))

    false, judged, outages = (sum(getattr(one, name) for one in got) for name in ("false_alarms", "judged", "outages"))
    low, high = poisson_interval(false)
    promises = [one.promised for one in got if one.promised is not None]
    return (
        f"{100 * judged / sum(one.written for one in got):.0f} %",
        f"{mean(lambda one: one.threshold):.2f}",
        f"{np.mean(promises):.2f}" if len(promises) == len(got) else "nothing",
        f"{1000 * false / judged:.2f} ({1000 * low / judged:.2f} to {1000 * high / judged:.2f})",
        f"{mean(lambda one: (one.false_alarms + one.seen) / one.weeks):.2f}",
        _with_range([one.geometric_mean for one in got]),
        number(mean(lambda one: float(np.median(one.hours)))),
        number(mean(lambda one: float(np.quantile(one.hours, 0.9)))),
        f"{100 * mean(lambda one: float((one.hours >= LONGEST).mean())):.1f} %",
        f"{sum(one.seen for one in got)} of {outages}" if outages else "",
    )


def _with_range(values: Sequence[float]) -> str:
    """The mean, and where there are several the least and the most."""
    figure = number(float(np.mean(values)))
    return figure if len(values) == 1 else f"{figure} ({number(min(values))} to {number(max(values))})"


def defaults_table(
    sizes: Sequence[int], seeds: Sequence[int], outages: Sequence[bool], progress: Callable[[str], None]
) -> Rows:
    """Return a header and a row for each size once eight weeks are known, of one fleet for each seed."""
    rows: Rows = [("fleet", *_HEADER)]
    for size, with_outages in product(sizes, outages):
        name = f"{size:,} topics, {'a tenth with an outage' if with_outages else 'no outages'}"
        got = []
        for seed in seeds:
            fleet = generate(max(1, round(size / KINDS)), seed=seed, outages=with_outages)
            got.append(Given(fleet).in_weeks(FIRST_WEEK, FOREVER))
            progress(f"{name}, seed {seed}")
        rows.append((name, *row(got)))
    return rows


def defaults_of(fleets: Sequence[Fleet]) -> Rows:
    """Return a header and the row of each fleet once eight weeks are known."""
    rows: Rows = [("fleet", "topics", *_HEADER)]
    for fleet in fleets:
        size = len({stream.topic for stream in fleet.streams})
        rows.append((fleet.name, str(size), *row([Given(fleet).in_weeks(FIRST_WEEK, FOREVER)])))
    return rows


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

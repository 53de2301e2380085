"""What a person gets who sets nothing: the product's default rate on fleets of several sizes, with outages and without.

Thresholds start with the prior and are fitted each week to the weeks before it, as the product does. Counted are the
weeks from the ninth on, of topics alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from exporter.domain.scoring.calibration import poisson_interval
from tests.bench.detection.clock import product_clock
from tests.bench.detection.fleet import Fleet, Floats, topics
from tests.bench.detection.hold import Hold
from tests.bench.detection.reference import calibrations_of_topics, drops
from tests.bench.detection.silences import FIRST_WEEK, LONGEST, Silences, Trial, trial
from tests.bench.detection.streams import generate
from tests.bench.running import number
from tests.tables import Rows

KINDS = 12.5
"""Topics that ``generate`` makes for one of each kind."""

_HEADER = (
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
    """What the owner of one fleet got."""

    weeks: int
    judged: int
    """Topic-weeks with a record."""
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


def measure(fleet: Fleet) -> Got:
    """Return what the owner of a fleet gets, each week by the history known then."""
    made = trial(topics(fleet))
    calibrations, clock = calibrations_of_topics(made), product_clock(made, drops(made))
    dead = np.zeros(made.eligible.shape)
    for week in range(FIRST_WEEK, made.weeks):
        dead[:, week] = calibrations[week].threshold.dead
    method, held = replace(clock, dead=dead), Hold(made, clock)

    def hours(silences: Silences) -> Floats:
        return held.alarms(silences, method.hours(silences, 0.0), method.later(silences, 0.0))

    closed, outages, cuts = (one[one.week < made.weeks] for one in (made.closed, _outages(made), made.cuts))
    false, seen = (hours(one) < one.end - one.start for one in (closed, outages))
    return Got(
        made.weeks - FIRST_WEEK,
        int(made.eligible.sum()),
        calibrations[made.weeks].threshold.dead,
        calibrations[made.weeks].promised,
        np.unique(np.stack([closed.unit[false], closed.week[false]]), axis=1).shape[1],
        int(seen.sum()),
        len(seen),
        np.clip(hours(cuts), 0.01, LONGEST),
    )


def row(got: Sequence[Got]) -> tuple[str, ...]:
    """Return the cells of a row: means over fleets, and false alarms of all of them together."""

    def mean(of: Callable[[Got], float]) -> float:
        return float(np.mean([of(one) for one in got]))

    false, judged, outages = (sum(getattr(one, name) for one in got) for name in ("false_alarms", "judged", "outages"))
    low, high = poisson_interval(false)
    promises = [one.promised for one in got if one.promised is not None]
    return (
        f"{mean(lambda one: one.threshold):.2f}",
        f"{np.mean(promises):.2f}" if len(promises) == len(got) else "nothing",
        f"{1000 * false / judged:.2f} ({1000 * low / judged:.2f} to {1000 * high / judged:.2f})",
        f"{mean(lambda one: (one.false_alarms + one.seen) / one.weeks):.2f}",
        number(mean(lambda one: one.geometric_mean)),
        number(mean(lambda one: float(np.median(one.hours)))),
        number(mean(lambda one: float(np.quantile(one.hours, 0.9)))),
        f"{100 * mean(lambda one: float((one.hours >= LONGEST).mean())):.1f} %",
        f"{sum(one.seen for one in got)} of {outages}" if outages else "",
    )


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
            got.append(measure(fleet))
            progress(f"{name}, seed {seed}")
        rows.append((name, *row(got)))
    return rows


def defaults_of(fleets: Sequence[Fleet]) -> Rows:
    """Return a header and the row of each fleet once eight weeks are known."""
    rows: Rows = [("fleet", "topics", *_HEADER)]
    for fleet in fleets:
        size = len({stream.topic for stream in fleet.streams})
        rows.append((fleet.name, str(size), *row([measure(fleet)])))
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

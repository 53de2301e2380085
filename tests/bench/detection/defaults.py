"""What a person gets who sets nothing: the product's default rate on fleets of several sizes, with outages and without.

Thresholds start with the prior and are fitted each week to the weeks before it, as the product does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from exporter.domain.calibration import FALSE_ALARMS, TOPIC
from tests.bench.detection.fleet import Fleet, topics
from tests.bench.detection.hold import hold
from tests.bench.detection.product import product_method
from tests.bench.detection.reference import refitted
from tests.bench.detection.silences import LONGEST, Silences, Trial, trial
from tests.bench.detection.streams import generate
from tests.bench.detection.table import Rows, number

SIZES = (50, 375, 2000)
KINDS = 12.5
"""Topics that ``generate`` makes for one of each kind."""

_HEADER = (
    "fleet",
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


def by_default(name: str, fleet: Fleet) -> tuple[str, ...]:
    """Return the row of one fleet: what its owner gets by the default rate, topics alone."""
    made = trial(topics(fleet))
    published = refitted(made, [FALSE_ALARMS])
    method = product_method(made, published, FALSE_ALARMS)
    held = hold(made, product_method(made, published))

    def alarmed(silences: Silences) -> np.ndarray:
        hours = held.alarms(silences, method.hours(silences, 0.0))
        return np.asarray(hours < silences.end - silences.start)

    false = alarmed(made.closed)
    topic_weeks = np.unique(np.stack([made.closed.unit[false], made.closed.week[false]]), axis=1).shape[1]
    outages = _outages(made)
    seen = alarmed(outages)
    weeks = int(made.eligible.any(0).sum())
    delay = np.minimum(held.alarms(made.cuts, method.hours(made.cuts, 0.0)), LONGEST)
    threshold = published.calibration(FALSE_ALARMS, made.weeks, TOPIC).threshold.dead
    return (
        name,
        f"{threshold:.2f}",
        f"{1000 * topic_weeks / made.eligible.sum():.2f}",
        f"{(topic_weeks + seen.sum()) / weeks:.2f}",
        number(float(np.exp(np.log(np.maximum(delay, 0.01)).mean()))),
        number(float(np.median(delay))),
        number(float(np.quantile(delay, 0.9))),
        f"{100 * (delay >= LONGEST).mean():.1f} %",
        f"{seen.sum()} of {len(seen)}" if len(seen) else "",
    )


def defaults_table(sizes: Sequence[int], seed: int, progress: Callable[[str], None]) -> Rows:
    """Return the table, a header and a row for each fleet."""
    rows: Rows = [_HEADER]
    for name, make in fleets(sizes, seed):
        rows.append(by_default(name, make()))
        progress(name)
    return rows


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

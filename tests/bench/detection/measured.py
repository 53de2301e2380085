"""One level of one fleet measured by every method: what is printed, saved and put into the docs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tests.bench.detection.baselines import METHODS, Method, TrafficClock, WallClock, product_score, wall_clocks
from tests.bench.detection.fleet import Units
from tests.bench.detection.hold import hold
from tests.bench.detection.measure import NOMINAL, Alarms, Figures, Judged, across_halves, across_time, figures, judged
from tests.bench.detection.product import Published, product_method
from tests.bench.detection.silences import Trial, trial
from tests.bench.detection.table import Rows, kinds_table, main_table

START_THRESHOLD = 4.5
"""The score past which a silence is dead before the fleet's own alarms tell better."""

COMPARED = ("product", "score", "k x largest gap", "k x largest, traffic clock", "oracle")


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures of one level of one fleet. The nominal rate NaN: a threshold of the method's own."""

    units: Units
    weeks: int
    cuts: int
    results: dict[str, dict[float, Figures]]
    in_time: dict[str, dict[float, Alarms]]
    incidents: dict[str, float]
    judged: dict[str, Judged]

    @property
    def title(self) -> str:
        """What was measured, in a line."""
        level = self.units.level
        return f"{self.units.fleet.name}: {len(self.units)} {level}s, {self.weeks} {level}-weeks, {self.cuts} cuts"

    def tables(self) -> list[tuple[str, Rows]]:
        """Titles and tables."""
        compared = [name for name in COMPARED if name in self.results]
        found = [(self.title, main_table(self.results))]
        for nominal in NOMINAL:
            title = f"By kind at a nominal {nominal:.0f} in 1,000: hours, x oracle (alarms)"
            found.append((title, kinds_table(self.results, nominal, compared)))
        split: Rows = [("method", *(f"nominal {nominal:.0f}" for nominal in NOMINAL))]
        for name in compared:
            split.append((name, *(f"{self.in_time[name][nominal].per_1000:.2f}" for nominal in NOMINAL)))
        found.append(("Fitted on the first half of the weeks, realised in the second, in 1,000", split))
        if self.incidents:
            rows: Rows = [("what", "figure"), *((name, f"{value:.4g}") for name, value in self.incidents.items())]
            found.append((f"The hold, at a threshold of {START_THRESHOLD}", rows))
        return found

    def as_json(self) -> dict[str, object]:
        """As plain values."""
        return {
            "title": self.title,
            "weeks": self.weeks,
            "cuts": self.cuts,
            "methods": {
                name: {"own" if math.isnan(rate) else f"{rate:.0f}": one.as_json() for rate, one in by_rate.items()}
                for name, by_rate in self.results.items()
            },
            "time_split": {
                name: {f"{rate:.0f}": alarms.per_1000 for rate, alarms in by_rate.items()}
                for name, by_rate in self.in_time.items()
            },
            "hold": self.incidents,
        }


def measure(units: Units, published: Published | None = None) -> Measured:
    """Try every method on one level of one fleet; the product too where it has ``published``."""
    made = trial(units)
    results: dict[str, dict[float, Figures]] = {}
    in_time: dict[str, dict[float, Alarms]] = {}
    tried = {}
    for name, method in _methods(made, published).items():
        tried[name] = judged(made, method)
        results[name] = {nominal: across_halves(tried[name], nominal) for nominal in NOMINAL}
        in_time[name] = {nominal: across_time(tried[name], nominal) for nominal in NOMINAL}
    none = np.zeros(len(units))
    if published is not None:
        own = judged(made, product_method(made, published, own_threshold=True))
        results["product"] = {math.nan: figures(own, none), **results["product"]}
    results["24 h for all"] = {
        math.nan: figures(
            judged(made, WallClock(np.zeros(made.eligible.shape), np.ones(made.eligible.shape))), none + 24
        )
    }
    score = tried["score"].method
    assert isinstance(score, TrafficClock)
    incidents = _incidents(units, score) if units.level == "topic" else {}
    return Measured(units, int(made.eligible.sum()), len(made.cuts), results, in_time, incidents, tried)


def _methods(made: Trial, published: Published | None) -> dict[str, Method]:
    methods: dict[str, Method] = {}
    if published is not None:
        methods["product"] = product_method(made, published, own_threshold=False)
    for name, make in METHODS.items():
        if name != "oracle" or all(truth is not None for truth in made.units.truths):
            methods[name] = make(made)
    return methods | dict(wall_clocks(made))


def _incidents(units: Units, score: TrafficClock) -> dict[str, float]:
    """What the hold keeps from alarming and what it costs; judged from the third week on, for a storm in the sixth."""
    made = trial(units, first_week=3)
    method = score if not len(made.common) else product_score(made)
    held = hold(made, method)
    found = {"part of the time in an incident": held.share}
    for name, silences in (("in known incidents", made.common), ("elsewhere", made.closed)):
        hours = method.hours(silences, START_THRESHOLD)
        length = silences.end - silences.start
        found[f"alarms {name} without a hold"] = float((hours < length).sum())
        found[f"alarms {name} with it"] = float((held.alarms(silences, hours) < length).sum())
    hours = method.hours(made.cuts, START_THRESHOLD)
    later = held.alarms(made.cuts, hours)
    found["single deaths alarmed later by it"] = float((later > hours + 0.1).mean())
    return found

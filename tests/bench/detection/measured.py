"""One level of one fleet measured by every method: what is printed, saved and put into the docs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from exporter.domain.scoring.calibration import TOPIC
from tests.bench.detection.baselines import FIVES, METHODS, Method, WallClock, product_score, wall_clocks
from tests.bench.detection.fleet import Units
from tests.bench.detection.hold import hold
from tests.bench.detection.measure import (
    NOMINAL,
    Alarms,
    Figures,
    Judged,
    across_halves,
    across_time,
    figures,
    judged,
    supported,
)
from tests.bench.detection.product import ProductClock, Published, product_method
from tests.bench.detection.promise import PromiseReport, account
from tests.bench.detection.reference import of_partitions, refitted
from tests.bench.detection.silences import Trial, trial
from tests.bench.detection.table import Rows, kinds_table, main_table

START_THRESHOLD = 4.5
"""The score past which a silence is dead before one is fitted to the fleet's own alarms."""


class NothingJudgedError(Exception):
    """No stream of a set has enough records to be judged; the text says what is needed."""


COMPARED = ("product", "score", FIVES, "k x largest gap", "k x largest, traffic clock", "oracle")


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures of one level of one fleet. The nominal rate NaN: a threshold of the method's own."""

    units: Units
    weeks: int
    cuts: int
    results: dict[str, dict[float, Figures]]
    in_time: dict[str, dict[float, Alarms | None]]
    can_show: Rows
    """What the set can show and what it cannot."""
    incidents: dict[str, float]
    judged: dict[str, Judged]
    account: PromiseReport | None = None
    """Of the product's alarms; without its job of topics only."""

    @property
    def title(self) -> str:
        """What was measured, in a line."""
        level = self.units.level
        return f"{self.units.fleet.name}: {len(self.units)} {level}s, {self.weeks} {level}-weeks, {self.cuts} cuts"

    def tables(self) -> list[tuple[str, Rows]]:
        """Titles and tables."""
        compared = [name for name in COMPARED if name in self.results]
        found = [(self.title, main_table(self.results)), ("What this set can show", self.can_show)]
        fitted = list(self.in_time[compared[0]])
        if len(set(self.units.kinds)) > 1:
            for nominal in fitted:
                title = f"By kind at a nominal {nominal:.0f} in 1,000: hours, x oracle (alarms)"
                found.append((title, kinds_table(self.results, nominal, compared, self._best_rule(nominal))))
        split: Rows = [("method", *(f"nominal {nominal:.0f}" for nominal in fitted))]
        for name in compared:
            alarms = self.in_time[name].values()
            split.append((name, *("" if one is None else f"{one.per_1000:.2f}" for one in alarms)))
        if fitted:
            found.append(("Fitted on the first half of the weeks, realised in the second, in 1,000", split))
        if self.incidents:
            rows: Rows = [("what", "figure"), *((name, f"{value:.4g}") for name, value in self.incidents.items())]
            found.append((f"The hold, at a threshold of {START_THRESHOLD}", rows))
        return found + (self.account.tables() if self.account else [])

    def _best_rule(self, nominal: float) -> str:
        """The simple rule with the lowest geometric mean over all cuts."""
        rules = [name for name in self.in_time if name not in COMPARED or name == "k x largest gap"]
        return min(rules, key=lambda name: self.results[name][nominal].delays.geometric_mean)


def measure(units: Units, published: Published | None = None) -> Measured:
    """Try every method on one level of one fleet; the product by what it ``published``, or its core makes.

    Raises NothingJudgedError where no stream gives enough to judge by.
    """
    made = trial(units)
    if not len(made.cuts):
        raise NothingJudgedError(
            f"{units.fleet.name}: nothing to judge by: none of {len(units)} {units.level}s has, before the week of a "
            "record, 10 active hours in 2 of 8 weeks or a period. Give it busier streams or a longer set"
        )
    rates = supported(made)
    if published is None:
        published = refitted(made, NOMINAL) if units.level == TOPIC else of_partitions(made)
    results: dict[str, dict[float, Figures]] = {}
    in_time: dict[str, dict[float, Alarms | None]] = {}
    tried = {}
    for name, method in _methods(made, published).items():
        tried[name] = judged(made, method)
        results[name] = {nominal: across_halves(tried[name], nominal) for nominal in rates}
        in_time[name] = {nominal: across_time(tried[name], nominal) for nominal in rates}
    results["score past 4.5"] = {math.nan: figures(tried["score"], np.full(len(units), START_THRESHOLD))}
    ages = WallClock(np.zeros(made.eligible.shape), np.ones(made.eligible.shape))
    results["24 h for all"] = {math.nan: figures(judged(made, ages), np.full(len(units), 24.0))}
    score = tried["score"].method
    assert isinstance(score, ProductClock)
    incidents = _incidents(made, score) if units.level == "topic" else {}
    promises = account(made, published) if published.calibrations else None
    return Measured(
        units, int(made.eligible.sum()), len(made.cuts), results, in_time, _can_show(made), incidents, tried, promises
    )


def _can_show(made: Trial) -> Rows:
    units, fleet, weeks = made.units, made.units.fleet, int(made.eligible.sum())
    several, fitted = made.eligible.any(1).sum(), supported(made)
    rows: Rows = [("of", "what it can show")]
    rows.append(
        (f"{units.level}s", f"{several} of {len(units)} are judged, in {weeks} weeks, and cut {len(made.cuts)} times")
    )
    for nominal in NOMINAL:
        due, text = (
            nominal * weeks / 1000,
            "nothing: in a half of the streams not even one false alarm is due",
        )
        if nominal in fitted:
            text = f"{due:.0f} false alarms are due" + ("" if due >= 10 else ": half or twice of a rate is luck")
        rows.append((f"{nominal:.0f} in 1,000", text))
    if all(truth is None for truth in units.truths):
        rows.append(("the oracle", "nothing: nobody knows how the streams were made"))
    if not any(units.outages):
        rows.append(("outages", "none is known: real ones that were repaired count as false alarms"))
    if not fleet.incidents:
        rows.append(("incidents", "none is known: what fell silent together, as on a holiday, counts as false alarms"))
    return rows


def _methods(made: Trial, published: Published) -> dict[str, Method]:
    methods: dict[str, Method] = {"product": product_method(made, published)}
    for name, make in METHODS.items():
        if name != "oracle" or all(truth is not None for truth in made.units.truths):
            methods[name] = make(made)
    return methods | dict(wall_clocks(made))


def _incidents(settled: Trial, score: ProductClock) -> dict[str, float]:
    """What the hold keeps from alarming and what it costs; judged from the third week on, for a storm in the sixth."""
    made = trial(settled.units, first_week=3, known=settled.history)
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

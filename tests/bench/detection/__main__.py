"""Print the bench of detection: ``make bench-detection``, for a set of one's own ``ARGS="--events FILE"``."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.bench.detection.baselines import METHODS, Method, WallClock, wall_clocks
from tests.bench.detection.events import EventsError, events
from tests.bench.detection.fleet import Fleet, Units, partitions, topics
from tests.bench.detection.measure import NOMINAL, Figures, across_halves, across_time, figures, judged
from tests.bench.detection.routes import MissingSetError, routes
from tests.bench.detection.silences import Trial, trial
from tests.bench.detection.streams import generate
from tests.bench.detection.table import as_text, kinds_table, main_table

SETS: dict[str, Callable[[], Fleet]] = {"generator": generate, "routes": routes}
COMPARED = ("score", "k x largest gap", "k x largest, traffic clock", "oracle")


def main() -> int:
    """Print the tables of the chosen sets; with --save keep their figures as JSON."""
    parser = argparse.ArgumentParser(prog="make bench-detection ARGS=...", description=__doc__)
    parser.add_argument("--events", type=Path, help="a CSV of stream_id,unix_ts to judge by instead of the sets here")
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS), help="default: all")
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="write the figures there, a JSON file for each set")
    options = parser.parse_args()
    try:
        fleets = [events(options.events)] if options.events else [SETS[name]() for name in options.sets]
    except (EventsError, MissingSetError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    for fleet in fleets:
        found = {}
        for units in (topics(fleet), partitions(fleet)):
            if len(units):
                found[units.level] = bench(units)
        if options.save:
            options.save.mkdir(parents=True, exist_ok=True)
            path = options.save / f"{fleet.name}.json"
            path.write_text(json.dumps(found, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return 0


def bench(units: Units) -> dict[str, object]:
    """Try every method on one level of one fleet and print the tables; return the figures."""
    made = trial(units)
    weeks = int(made.eligible.sum())
    print(f"\n{units.fleet.name}: {len(units)} {units.level}s, {weeks} {units.level}-weeks, {len(made.cuts)} cuts")
    results: dict[str, dict[float, Figures]] = {}
    in_time = {}
    for name, method in _methods(made).items():
        result = judged(made, method)
        results[name] = {nominal: across_halves(result, nominal) for nominal in NOMINAL}
        in_time[name] = {nominal: across_time(result, nominal) for nominal in NOMINAL}
    always = judged(made, WallClock(np.zeros(made.eligible.shape), np.ones(made.eligible.shape)))
    results["24 h for all"] = {math.nan: figures(always, np.full(len(units), 24.0))}
    print(as_text(main_table(results)))
    compared = [name for name in COMPARED if name in results]
    for nominal in NOMINAL:
        print(f"\nby kind at a nominal {nominal:.0f} in 1,000: hours, x oracle (alarms)")
        print(as_text(kinds_table(results, nominal, compared)))
    print(
        "\nin a time split, realised in 1,000: "
        + "; ".join(
            f"{name} " + ", ".join(f"{alarms.per_1000:.2f} at {nominal:.0f}" for nominal, alarms in rates.items())
            for name, rates in in_time.items()
            if name in compared
        )
    )
    return _plain(
        {
            "weeks": weeks,
            "methods": {
                name: {"24 h" if math.isnan(rate) else f"{rate:.0f}": one.as_json() for rate, one in by_rate.items()}
                for name, by_rate in results.items()
            },
        }
    )


def _methods(made: Trial) -> dict[str, Method]:
    methods = {
        name: make(made)
        for name, make in METHODS.items()
        if name != "oracle" or all(truth is not None for truth in made.units.truths)
    }
    return methods | wall_clocks(made)


def _plain(value: object) -> object:
    """The same with three digits, and null for what is not known."""
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float):
        return round(value, 3) if math.isfinite(value) else None
    return value


if __name__ == "__main__":
    sys.exit(main())

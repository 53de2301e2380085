"""Streams of one kind alone: the product beside the best simple rule, each with thresholds fitted to that kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from exporter.domain.scoring.calibration import FALSE_ALARMS
from tests.bench.detection.baselines import Method, Oracle, wall_clocks
from tests.bench.detection.fleet import Fleet, Stream, topics
from tests.bench.detection.measure import across_halves, judged
from tests.bench.detection.product import product_method
from tests.bench.detection.reference import refitted
from tests.bench.detection.silences import trial
from tests.bench.detection.streams import KINDS, MONDAY, Clock
from tests.bench.detection.table import Rows, number

RATES = (20.0, 10.0, 5.0, 2.0)
"""False alarms in 1,000 topic-weeks of the kind."""

BEST_RULE = "k x largest gap"
WEEKS = 40


def kind_table(kinds: Sequence[str], seeds: Sequence[int], per_kind: int) -> Rows:
    """Return a header and a row for each kind and method: geometric means in hours over the seeds, x the best rule."""
    rows: Rows = [("kind", "method", *(f"at {rate:.0f} in 1,000" for rate in RATES))]
    for kind in kinds:
        hours = {name: np.zeros(len(RATES)) for name in ("product", BEST_RULE, "oracle")}
        for name, logs in _logs(kind, seeds, per_kind):
            hours[name] += logs / len(seeds)
        for name, logs in hours.items():
            ratios = np.exp(logs - hours[BEST_RULE])
            cells = [f"{number(float(np.exp(one)))}, x {ratio:.2f}" for one, ratio in zip(logs, ratios, strict=True)]
            rows.append((kind, name, *cells))
    return rows


def _logs(kind: str, seeds: Sequence[int], per_kind: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the logarithms of mean hours at RATES, by method, for each seed."""
    for seed in seeds:
        random, clock = np.random.default_rng([seed, list(KINDS).index(kind)]), Clock(WEEKS)
        made = [Stream(f"{kind}-{place:03}", 0, kind, *KINDS[kind](random, clock)) for place in range(per_kind)]
        one = trial(topics(Fleet(kind, MONDAY, WEEKS, made, (), ())))
        methods: dict[str, Method] = {
            "product": product_method(one, refitted(one, [FALSE_ALARMS])),
            BEST_RULE: wall_clocks(one)[BEST_RULE],
            "oracle": Oracle(one),
        }
        for name, method in methods.items():
            result = judged(one, method)
            yield name, np.log([across_halves(result, rate).delays.geometric_mean for rate in RATES])

"""What the product would publish, without its Spark job: the reference's parameters, and the product's calibration.

A test compares it with the job (``tests/spark/test_bench_product.py``). Of topics only: partitions are judged beside
their topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np

from exporter.domain import HELD_FROM
from exporter.domain.calibration import TOPIC, Calibration, Unusual, calibrations
from spark_rollups.learning import week_of
from tests.bench.detection.baselines import TrafficClock, product_score
from tests.bench.detection.fleet import HOURS_A_WEEK
from tests.bench.detection.product import CLUSTER, Columns, Key, Published
from tests.bench.detection.score import promises
from tests.bench.detection.silences import FIRST_WEEK, LONGEST, Silences, Trial


def refitted(trial: Trial, asked: Sequence[float]) -> Published:
    """Return the yardsticks and calibrations of each judged week of a trial of topics."""
    first = week_of(datetime.fromtimestamp(trial.units.fleet.start, UTC).date())
    maxima = _maxima(trial, product_score(trial), first)
    calibrated: dict[float, dict[int, Sequence[Calibration]]] = {
        rate: {week: calibrations(maxima, first + week, rate) for week in range(FIRST_WEEK, trial.weeks + 1)}
        for rate in asked
    }
    weeks = range(FIRST_WEEK, trial.weeks)
    return Published({week: _yardsticks(trial, week) for week in weeks}, calibrated)


def _yardsticks(trial: Trial, week: int) -> dict[Key, Columns]:
    made = promises(trial.history, week)
    return {
        stream: {
            "profile": made.profile[unit],
            "clock_step": made.step[unit],
            "log_mean": made.mean[unit] if made.clock[unit] else None,
            "log_spread": made.spread[unit],
            "max_silence_seconds": None if np.isnan(made.max_silence[unit]) else 3600.0 * made.max_silence[unit],
        }
        for unit, stream in enumerate(trial.units.streams)
    }


def _maxima(trial: Trial, score: TrafficClock, first: int) -> Unusual:
    """The largest unusual silence of each topic, week of begin and week of end, as the job keeps them.

    Also those in outages and incidents, which a product cannot know.
    """
    units = trial.units
    by_clock = TrafficClock(score.rates, score.step, score.mean, score.spread, score.slot_hours, score.promised)
    end_of_set = trial.weeks * HOURS_A_WEEK
    parts, judged = [], np.zeros((len(units), trial.weeks), bool)
    for unit, (times, vague) in enumerate(zip(units.times, units.vague, strict=True)):
        known = times[times < end_of_set]
        judged[unit, (known // HOURS_A_WEEK).astype(np.int64)] = True
        begins, ends = times[:-1], times[1:]
        ended = ~vague[1:] & ~vague[:-1] & (ends - begins > 1.0) & (ends - begins <= LONGEST) & (ends < end_of_set)
        parts.append(Silences(np.full(ended.sum(), unit), begins[ended], ends[ended]))
    silences = Silences(
        np.concatenate([one.unit for one in parts]),
        np.concatenate([one.start for one in parts]),
        np.concatenate([one.end for one in parts]),
    )
    scores = by_clock.scores(silences)
    weeks = np.stack([silences.unit, silences.week, (silences.end // HOURS_A_WEEK).astype(np.int64)])
    descending = np.argsort(-scores, kind="stable")
    _, largest = np.unique(weeks[:, descending], axis=1, return_index=True)
    unusual = np.zeros(len(silences), bool)
    unusual[descending[largest]] = True
    unusual &= scores > HELD_FROM
    silences, scores = silences.where(unusual), scores[unusual]
    crossed = silences.start + by_clock.hours(silences, HELD_FROM)
    counts = (judged & score.promised).sum(0)
    number = len(silences)
    return Unusual(
        np.full(number, TOPIC),
        np.full(number, CLUSTER),
        silences.unit,
        first + silences.week,
        first + (silences.end // HOURS_A_WEEK).astype(np.int64),
        scores,
        units.fleet.start + crossed * 3600.0,
        {(TOPIC, CLUSTER, first + week): int(count) for week, count in enumerate(counts) if count},
    )

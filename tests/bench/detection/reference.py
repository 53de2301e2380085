"""What the product would publish, without its Spark job: by the product's own core.

A test compares it with the job (``tests/spark/test_bench_product.py``). Thresholds of topics only: those of partitions
are made beside their topic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from exporter.domain.learning.baselines import Baselines
from exporter.domain.learning.drops import Drop, drop_days
from exporter.domain.learning.hours import Hours
from exporter.domain.learning.rest_days import DAY
from exporter.domain.scoring.calibration import TOPIC, Accepted, Calibration, Unusual, calibrations
from exporter.domain.scoring.weekly_scores import maxima
from exporter.domain.verdicts import HELD_FROM
from spark_rollups.drops import COVERED
from tests.bench.detection.fleet import Units, topics
from tests.bench.detection.history import first_week_of, hours_of
from tests.bench.detection.product import CLUSTER, Columns, Key, Published
from tests.bench.detection.silences import FIRST_WEEK, Trial


def refitted(trial: Trial, rates: Sequence[float], first_week: int = FIRST_WEEK) -> Published:
    """Return the yardsticks and calibrations of each week of a trial of topics, from ``first_week`` on."""
    first = first_week_of(trial.units.fleet)
    unusual = _unusual(trial, first)
    calibrated: dict[float, dict[int, Sequence[Calibration]]] = {
        rate: {
            week: calibrations(_ended(unusual, first + week), first + week, Accepted(rate))
            for week in range(first_week, trial.weeks + 1)
        }
        for rate in rates
    }
    found = yardsticks(trial, trial.history.baselines, first_week)
    return Published(found, calibrated, drops=drops(trial.units, trial.history.hours))


def of_partitions(trial: Trial) -> Published:
    """Return the yardsticks of a trial of partitions; their thresholds, which take topics too, are the job's."""
    whole = topics(trial.units.fleet)
    return Published(yardsticks(trial, trial.history.baselines), {}, drops=drops(whole, hours_of(whole, polled=False)))


def yardsticks(trial: Trial, made: Baselines, first_week: int = FIRST_WEEK) -> Mapping[int, Mapping[Key, Columns]]:
    """Return the rows of baselines by week and stream, as the job publishes them."""
    found: dict[int, dict[Key, Columns]] = {week: {} for week in range(first_week, trial.weeks)}
    weeks = (made.week - first_week_of(trial.units.fleet)).tolist()
    for row, (stream, week) in enumerate(zip(made.stream.tolist(), weeks, strict=True)):
        if week in found:
            found[week][trial.units.streams[stream]] = _columns(made, row)
    return found


def unusual_silences(trial: Trial) -> tuple[Unusual, int]:
    """Return the unusual silences of a trial of topics, and the number of the week after it."""
    first = first_week_of(trial.units.fleet)
    return _unusual(trial, first), first + trial.weeks


def _ended(unusual: Unusual, week: int) -> Unusual:
    """What is known as a week begins: silences that still last then are in no incident yet."""
    return unusual[unusual.week_ended < week]


def _columns(made: Baselines, row: int) -> Columns:
    return {
        "slot_seconds": float(made.slot_seconds[row]),
        "profile": made.profile[row],
        "clock_step": made.step[row],
        "log_mean": _or_none(made.mean[row]),
        "log_spread": _or_none(made.spread[row]),
        "suspect_silence_seconds": _or_none(made.suspect_silence[row]),
        "max_silence_seconds": _or_none(made.max_silence[row]),
        "pause_slots": made.pause[row],
        "schedule": made.schedule[row],
    }


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def drops(units: Units, hours: Hours) -> Sequence[Drop]:
    """Return the days on which the fleet dropped."""
    first, days = round(units.fleet.start / DAY), units.fleet.weeks * 7
    active = np.zeros((len(units), days), np.int64)
    mine = hours[hours.active]
    np.add.at(active, (mine.stream, mine.hour // 24 - first), 1)
    known = np.where(active.any(1), np.argmax(active > 0, axis=1), days)
    seen = np.full(days, 24.0)
    for begin, end in units.fleet.unseen:
        for day in range(int(begin // 24), min(int(end // 24) + 1, days)):
            seen[day] -= max(0.0, min(end, 24.0 * day + 24.0) - max(begin, 24.0 * day))
    names = np.array([topic for topic, _ in units.streams], object)
    found = drop_days(active, known, seen >= 24.0 * COVERED, range(days))
    return [Drop(CLUSTER, first + one.day, frozenset(names[one.topics].tolist()), one.judged) for one in found]


def _unusual(trial: Trial, first: int) -> Unusual:
    """The largest unusual silence of each topic, week of begin and week of end, as the job keeps them.

    Also those in outages and incidents, which a product cannot know.
    """
    found = maxima(trial.history.hours, trial.history.baselines, range(first, first + trial.weeks))
    own = found.week == found.week_ended
    counts = np.bincount((found.week - first)[own], minlength=trial.weeks)
    some = np.flatnonzero(found.score > HELD_FROM)
    return Unusual(
        np.full(len(some), TOPIC),
        np.full(len(some), CLUSTER),
        found.stream[some].astype(np.int64),
        found.week[some],
        found.week_ended[some],
        found.score[some],
        found.silent_from[some],
        found.overdue[some],
        {(TOPIC, CLUSTER, first + week): int(count) for week, count in enumerate(counts) if count},
    )

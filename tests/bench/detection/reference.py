"""What the product would publish, without its Spark job: by the product's own core.

A test compares it with the job (``tests/spark/test_bench_product.py``). Of topics only: partitions are judged beside
their topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np

from exporter.domain import HELD_FROM
from exporter.domain.baselines import Baselines
from exporter.domain.calibration import TOPIC, Accepted, Calibration, Unusual, calibrations
from exporter.domain.hours import SECOND, UNKNOWN, Hours
from exporter.domain.learning import baselines
from exporter.domain.maxima import maxima
from exporter.domain.rests import DAY, Drop, drops
from spark_rollups.drops import COVERED
from spark_rollups.learning import week_of
from tests.bench.detection.product import CLUSTER, Columns, Key, Published
from tests.bench.detection.silences import FIRST_WEEK, Trial, slots_of


def refitted(trial: Trial, asked: Sequence[float], first_week: int = FIRST_WEEK) -> Published:
    """Return the yardsticks and calibrations of each week of a trial of topics, from ``first_week`` on."""
    first = week_of(datetime.fromtimestamp(trial.units.fleet.start, UTC).date())
    hours = _hours(trial)
    found_drops = _drops(trial, hours)
    made = Baselines.joined(list(baselines(hours, range(first + 1, first + trial.weeks))))
    unusual = _unusual(trial, hours, made, first)
    calibrated: dict[float, dict[int, Sequence[Calibration]]] = {
        rate: {
            week: calibrations(_ended(unusual, first + week), first + week, Accepted(rate))
            for week in range(first_week, trial.weeks + 1)
        }
        for rate in asked
    }
    found: dict[int, dict[Key, Columns]] = {week: {} for week in range(first_week, trial.weeks)}
    for row, (stream, week) in enumerate(zip(made.stream.tolist(), (made.week - first).tolist(), strict=True)):
        if week in found:
            found[week][trial.units.streams[stream]] = _columns(made, row)
    return Published(found, calibrated, drops=found_drops)


def unusual_silences(trial: Trial) -> tuple[Unusual, int]:
    """Return the unusual silences of a trial of topics, and the number of the week after it."""
    first = week_of(datetime.fromtimestamp(trial.units.fleet.start, UTC).date())
    hours = _hours(trial)
    made = Baselines.joined(list(baselines(hours, range(first + 1, first + trial.weeks))))
    return _unusual(trial, hours, made, first), first + trial.weeks


def _ended(unusual: Unusual, week: int) -> Unusual:
    """What is known as a week begins: silences that still last then are in no incident yet."""
    return unusual[unusual.week_ended < week]


def _columns(made: Baselines, row: int) -> Columns:
    return {
        "profile": made.profile[row],
        "clock_step": made.step[row],
        "log_mean": _or_none(made.mean[row]),
        "log_spread": _or_none(made.spread[row]),
        "max_silence_seconds": _or_none(made.max_silence[row]),
        "active_slots": int(made.active_slots[row]),
        "pause_slots": made.pause[row],
        "schedule": made.schedule[row],
    }


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _hours(trial: Trial) -> Hours:
    """Return the hours of each unit as a backfill tells of them."""
    start, parts = trial.units.fleet.start, []
    for unit, (times, vague) in enumerate(zip(trial.units.times, trial.units.vague, strict=True)):
        told = slots_of(times, vague, 1.0)
        first = np.round((start + told.first * 3600.0) * SECOND)
        moments = np.where(np.isnan(first), UNKNOWN, np.nan_to_num(first)).astype(np.int64)
        hour = (told.starts + start / 3600.0).astype(np.int64)
        parts.append((np.full(len(hour), unit, np.intp), hour, moments, moments, told.vague))
    stream, hour, moments, last, unknown = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Hours(stream, hour, moments, last, unknown, np.zeros(len(hour), np.int16))


def _drops(trial: Trial, hours: Hours) -> Sequence[Drop]:
    """Return the days on which the fleet dropped."""
    first, days = round(trial.units.fleet.start / DAY), trial.weeks * 7
    active = np.zeros((len(trial.units), days), np.int64)
    mine = hours[hours.active]
    np.add.at(active, (mine.stream, mine.hour // 24 - first), 1)
    known = np.where(active.any(1), np.argmax(active > 0, axis=1), days)
    seen = np.full(days, 24.0)
    for begin, end in trial.units.fleet.unseen:
        for day in range(int(begin // 24), min(int(end // 24) + 1, days)):
            seen[day] -= max(0.0, min(end, 24.0 * day + 24.0) - max(begin, 24.0 * day))
    names = np.array([topic for topic, _ in trial.units.streams], object)
    found = drops(active, known, seen >= 24.0 * COVERED, range(days))
    return [Drop(CLUSTER, first + one.day, frozenset(names[one.topics].tolist()), one.judged) for one in found]


def _unusual(trial: Trial, hours: Hours, made: Baselines, first: int) -> Unusual:
    """The largest unusual silence of each topic, week of begin and week of end, as the job keeps them.

    Also those in outages and incidents, which a product cannot know.
    """
    found = maxima(hours, made, range(first, first + trial.weeks))
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

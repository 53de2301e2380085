"""The promise kept or not: the product's verdicts by its own thresholds, refitted each week to the weeks before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from exporter.domain.scoring.calibration import TOPIC
from tests.bench.detection.fleet import Floats
from tests.bench.detection.hold import hold
from tests.bench.detection.measure import Alarms, delays
from tests.bench.detection.product import Published, product_method
from tests.bench.detection.silences import FIRST_WEEK, Silences, Trial
from tests.bench.detection.table import Rows, number

_HEADER = (
    "asked for",
    "promised",
    "weeks",
    "realised (95 %)",
    "false alarms",
    "topic-weeks",
    "in known incidents",
    "median h",
    "geo. mean h",
    "p90 h",
)


@dataclass(frozen=True, slots=True)
class PromiseResult:
    """What came of so many accepted false alarms in 1,000 topic-weeks, in the weeks of one promise.

    ``promised`` is the part that this level of streams gets, None: in these weeks the job promised nothing.
    ``false`` are topic-weeks with a false alarm, after the hold; ``in_incidents`` those of known incidents.
    """

    asked: float
    promised: float | None
    weeks: int
    false: Alarms
    in_incidents: int
    cuts: int
    median: float
    geometric_mean: float
    p90: float


@dataclass(frozen=True, slots=True)
class PromiseReport:
    """The product's own verdicts on one trial, and the job's own figures of its promise at the end of the set."""

    level: str
    results: Sequence[PromiseResult]
    statements: Sequence[tuple[float, str]]
    made_by: str
    seconds: float | None

    def tables(self) -> list[tuple[str, Rows]]:
        """Titles and tables."""
        rows: Rows = [_HEADER]
        for one in self.results:
            low, high = one.false.interval
            promised = "uncalibrated" if one.promised is None else f"{one.promised:g}"
            realised = f"{one.false.per_1000:.2f} ({low:.2f}-{high:.2f})"
            counts = (str(one.false.count), str(one.false.weeks), str(one.in_incidents))
            times = (number(one.median), number(one.geometric_mean), number(one.p90))
            rows.append((f"{one.asked:g}", promised, str(one.weeks), realised, *counts, *times))
        statement_rows: Rows = [
            ("asked for", "what the calibration says at the end of the set"),
            *((f"{one:g}", text) for one, text in self.statements),
        ]
        statement_rows.append(("made by", self.made_by))
        return [
            (f"The product's own {self.level} alarms, after its hold, by thresholds that it refitted each week", rows),
            ("Its own account of them", statement_rows),
        ]


def account(trial: Trial, published: Published) -> PromiseReport:
    """Judge a trial as the product would have, at each of the accepted rates of false alarms."""
    level = trial.units.level
    held = hold(trial, product_method(trial, published)) if level == TOPIC else None
    results, statements = [], []
    for rate, by_week in published.calibrations.items():
        method = product_method(trial, published, rate)
        hours = [method.hours(silences, 0.0) for silences in (trial.closed, trial.common, trial.cuts)]
        if held is not None:
            silences = trial.closed, trial.common, trial.cuts
            hours = [held.alarms(one, own) for one, own in zip(silences, hours, strict=True)]
        weeks = range(FIRST_WEEK, trial.weeks)
        promised = {week: published.calibration(rate, week, level).promised for week in weeks}
        for promise in sorted(set(promised.values()), key=str):
            of_it = [week for week, one in promised.items() if one == promise]
            results.append(_promise_result(trial, rate, promise, of_it, *hours))
        statements += [(rate, str(one)) for one in by_week[trial.weeks] if one.kind == level]
    made_by = "the product's core, compared with the Spark job on ten weeks by a test; --product runs the job"
    if published.seconds is not None:
        made_by = (
            f"the Spark job; as of the past it ran {published.as_of_runs} times, and of {published.compared:,} "
            f"expectations {published.differing:,} were not what the run over all weeks gave"
        )
    return PromiseReport(level, results, statements, made_by, published.seconds)


def _promise_result(
    trial: Trial,
    rate: float,
    promised: float | None,
    weeks: Sequence[int],
    closed_hours: Floats,
    common_hours: Floats,
    cut_hours: Floats,
) -> PromiseResult:
    topic = np.unique([name for name, _ in trial.units.streams], return_inverse=True)[1]
    chosen = np.zeros(trial.weeks, bool)
    chosen[list(weeks)] = True

    def false(silences: Silences, hours: Floats) -> int:
        """Topic-weeks of the chosen weeks with an alarm that a record cleared."""
        alarmed = (hours < silences.end - silences.start) & chosen[np.minimum(silences.week, trial.weeks - 1)]
        return len(np.unique(np.stack([topic[silences.unit[alarmed]], silences.week[alarmed]]), axis=1).T)

    cuts = chosen[trial.cuts.week]
    timed = delays(cut_hours[cuts], trial.cut_gap[cuts])
    return PromiseResult(
        rate,
        promised,
        len(weeks),
        Alarms(false(trial.closed, closed_hours), _topic_weeks(trial, topic, chosen)),
        false(trial.common, common_hours),
        timed.cuts,
        timed.median,
        timed.geometric_mean,
        timed.p90,
    )


def _topic_weeks(trial: Trial, topic: NDArray[np.intp], chosen: NDArray[np.bool_]) -> int:
    """The judged topic-weeks; of partitions a topic must have two that were judged."""
    judged = np.zeros((topic.max() + 1, trial.weeks), np.int64)
    np.add.at(judged, topic, trial.eligible)
    return int((judged[:, chosen] >= (1 if trial.units.level == TOPIC else 2)).sum())

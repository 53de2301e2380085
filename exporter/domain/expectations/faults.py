"""Rules that published expectations may break. An impossible expectation is not used."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from exporter.domain.arrays import Codes, Flags, Floats
from exporter.domain.expectations.table import NONE, ExpectationTable
from exporter.domain.learning.schedule import Schedule
from exporter.domain.learning.traffic_clock import HOURS

FAULTS = (
    "",
    "slot_seconds must be above 0",
    "suspect_silence_seconds must be above 0 and at most max_silence_seconds",
    "pause_slots must be a number",
    "falling must end after it began",
    "rests must be in order and must not overlap",
    f"schedule.deadlines must hold {HOURS} values",
    "schedule.cycle_seconds and schedule.runs_a_week must be above 0, schedule.cycle_start_seconds a number",
    f"profile must hold {HOURS} rates",
    "clock_step and log_spread must be above 0, log_mean a number",
    "suspect_score must be at most dead_score",
    "profile must hold rates that are not negative and not all 0",
)
"""Faults in columns are indices into this; the first one that a row has counts. 0: none."""


def faults_of(table: ExpectationTable) -> Codes:
    """Return which rule each row breaks."""
    figures, rates = table.figures, table.profiles.rates
    suspect_limit, limit, pause = (
        figures[name] for name in ("suspect_silence_seconds", "max_silence_seconds", "pause_slots")
    )
    suspect, dead = figures["suspect_score"], figures["dead_score"]
    planned, profiled = table.schedule.codes >= 0, table.profile != NONE
    clocked, by_profile = planned | profiled, profiled & ~planned
    limited = ~np.isnan(limit) | ~np.isnan(suspect_limit)
    # A row that has limits by the wall clock alone is judged by nothing else.
    more = clocked | ~limited
    with np.errstate(invalid="ignore"):
        limits = (suspect_limit > 0) & (suspect_limit <= limit) & (limit < np.inf)
        scores = (suspect > -np.inf) & (suspect <= dead) & (dead < np.inf)
        total = rates.sum(axis=1, dtype=np.float64)
        possible = (rates >= 0).all(axis=1) & (total > 0) & (total < np.inf)
    above_0 = {name: _above_zero(figures[name]) for name in ("slot_seconds", "clock_step", "log_spread")}
    broken = [
        ~above_0["slot_seconds"],
        limited & ~limits,
        more & np.isinf(pause),
        more & ~table.falling.column(lambda one: _in_order([one.since, one.until]), none=True),
        more & ~table.rests.column(lambda rests: _in_order([at for one in rests for at in one[:2]]), none=True),
        planned & (table.clock < 0),
        planned & ~table.schedule.column(_possible_runs, none=True),
        by_profile & (table.profile < 0),
        by_profile & ~(above_0["clock_step"] & above_0["log_spread"] & np.isfinite(figures["log_mean"])),
        clocked & ~scores,
        clocked & ~np.append(possible, True)[np.maximum(table.clock, -1)],
    ]
    return np.asarray(np.select(broken, list(range(1, len(FAULTS))), 0), np.int8)


def _possible_runs(schedule: Schedule) -> bool:
    cycle, begin, runs = schedule.cycle_seconds, schedule.cycle_start_seconds, schedule.runs_a_week
    return None not in (cycle, begin, runs) and 0 < cycle < math.inf and math.isfinite(begin) and runs > 0


def _in_order(moments: Sequence[float]) -> bool:
    return all(map(math.isfinite, moments)) and all(one <= other for one, other in pairwise(moments))


def _above_zero(values: Floats) -> Flags:
    with np.errstate(invalid="ignore"):
        return np.asarray((values > 0) & (values < np.inf))

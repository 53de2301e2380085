"""Rules that published expectations may break. An impossible expectation is not used."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Codes, Flags, Floats
from exporter.domain.learning.drops import OngoingDrop
from exporter.domain.learning.rest_days import Rest
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


@dataclass(frozen=True, slots=True, eq=False)
class Stated:
    """The values of n rows, a column [n] each. NaN where there is none, or none that is a number."""

    slot: Floats
    limited: Flags
    """Whether there is a limit of silence."""
    suspect_limit: Floats
    limit: Floats
    paused: Flags
    """Whether there is a longest pause."""
    pause: Floats
    falling: Flags
    """Whether its drop is valid, or there is none. The same for its rests."""
    rests: Flags
    planned: Flags
    """Whether there is a schedule, whether it has the right number of deadlines, whether its values are possible."""
    deadlines: Flags
    runs: Flags
    profiled: Flags
    rates: Flags
    """Whether there is a profile, and whether it has the right number of rates."""
    step: Floats
    mean: Floats
    spread: Floats
    suspect: Floats
    dead: Floats
    possible: Flags
    """Whether the values of its clock for each hour are possible."""


def faults_of(stated: Stated) -> Codes:
    """Return which rule each row breaks."""
    clocked = stated.planned | stated.profiled
    # A row that has limits by the wall clock alone is judged by nothing else.
    more = clocked | ~stated.limited
    by_profile = stated.profiled & ~stated.planned
    with np.errstate(invalid="ignore"):
        limits = (stated.suspect_limit > 0) & (stated.suspect_limit <= stated.limit) & (stated.limit < np.inf)
        scores = (stated.suspect > -np.inf) & (stated.suspect <= stated.dead) & (stated.dead < np.inf)
    figures = _above_zero(stated.step) & _above_zero(stated.spread) & np.isfinite(stated.mean)
    broken = [
        ~_above_zero(stated.slot),
        stated.limited & ~limits,
        more & stated.paused & ~np.isfinite(stated.pause),
        more & ~stated.falling,
        more & ~stated.rests,
        stated.planned & ~stated.deadlines,
        stated.planned & ~stated.runs,
        by_profile & ~stated.rates,
        by_profile & ~figures,
        clocked & ~scores,
        clocked & ~stated.possible,
    ]
    return np.asarray(np.select(broken, list(range(1, len(FAULTS))), 0), np.int8)


def possible_profiles(profiles: NDArray[np.floating]) -> Flags:
    """Return which rows are profiles: finite, not negative, not all 0."""
    if not len(profiles):
        return np.zeros(0, dtype=np.bool_)
    with np.errstate(invalid="ignore"):
        lowest, total = profiles.min(axis=1), profiles.sum(axis=1, dtype=np.float64)
    possible: Flags = (lowest >= 0) & np.isfinite(total) & (total > 0)
    return possible


def possible_runs(schedule: Schedule) -> bool:
    """Return whether the values of a schedule are possible; its deadlines are checked elsewhere."""
    cycle, begin, runs = schedule.cycle_seconds, schedule.cycle_start_seconds, schedule.runs_a_week
    return None not in (cycle, begin, runs) and 0 < cycle < math.inf and math.isfinite(begin) and runs > 0


def ends_later(falling: OngoingDrop) -> bool:
    """Return whether a drop ends after it began."""
    return _in_order([falling.since, falling.until])


def apart(rests: Sequence[Rest]) -> bool:
    """Return whether rests are in order and do not overlap."""
    return _in_order([each for one in rests for each in (one.since, one.until)])


def _in_order(moments: Sequence[float]) -> bool:
    return all(map(math.isfinite, moments)) and all(one <= other for one, other in pairwise(moments))


def _above_zero(values: Floats) -> Flags:
    with np.errstate(invalid="ignore"):
        return np.asarray((values > 0) & (values < np.inf))

"""Which rules published expectations break: an impossible one promises nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from exporter.domain import Expectation
from exporter.domain.arrays import Flags
from exporter.domain.schedule import Schedule
from exporter.domain.traffic_clock import HOURS


def possible_profiles(profiles: NDArray[np.floating]) -> Flags:
    """Tell which rows are profiles: finite, not negative, not all 0."""
    if not len(profiles):
        return np.zeros(0, dtype=np.bool_)
    lowest, total = profiles.min(axis=1), profiles.sum(axis=1, dtype=np.float64)
    possible: Flags = (lowest >= 0) & np.isfinite(total) & (total > 0)
    return possible


def fault_of(row: Expectation) -> str | None:
    """Return which rule an expectation breaks; the values of its profile are looked at elsewhere."""
    if not _above_zero(row.slot_seconds):
        return "slot_seconds must be above 0"
    if row.max_silence_seconds is not None or row.suspect_silence_seconds is not None:
        fault = _wall_fault(row.suspect_silence_seconds, row.max_silence_seconds)
        if fault is not None or (row.schedule is None and row.profile is None):
            return fault
    if row.pause_slots is not None and not _finite(row.pause_slots):
        return "pause_slots must be a number"
    if row.falling is not None and not _in_order([row.falling.since, row.falling.until]):
        return "falling must end after it began"
    if row.rests and not _in_order([each for one in row.rests for each in (one.since, one.until)]):
        return "rests must be in order and must not overlap"
    if row.schedule is not None:
        return _schedule_fault(row.schedule) or _scores_fault(row)
    return None if row.profile is None else _profile_fault(row, row.profile)


def _profile_fault(row: Expectation, profile: Sequence[float]) -> str | None:
    if len(profile) != HOURS:
        return f"profile must hold {HOURS} rates"
    if not (_above_zero(row.clock_step) and _above_zero(row.log_spread) and _finite(row.log_mean)):
        return "clock_step and log_spread must be above 0, log_mean a number"
    return _scores_fault(row)


def _scores_fault(row: Expectation) -> str | None:
    if (
        row.suspect_score is None
        or row.dead_score is None
        or not -math.inf < row.suspect_score <= row.dead_score < math.inf
    ):
        return "suspect_score must be at most dead_score"
    return None


def _schedule_fault(schedule: Schedule) -> str | None:
    if len(schedule.deadlines) != HOURS:
        return f"schedule.deadlines must hold {HOURS} values"
    if not (_above_zero(schedule.cycle_seconds) and _finite(schedule.cycle_start_seconds) and schedule.runs_a_week > 0):
        return "schedule.cycle_seconds and schedule.runs_a_week must be above 0, schedule.cycle_start_seconds a number"
    return None


def _wall_fault(suspect: float | None, dead: float | None) -> str | None:
    if suspect is None or dead is None or not 0 < suspect <= dead < math.inf:
        return "suspect_silence_seconds must be above 0 and at most max_silence_seconds"
    return None


def _in_order(moments: Sequence[float]) -> bool:
    return all(map(math.isfinite, moments)) and all(one <= other for one, other in pairwise(moments))


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _above_zero(value: float | None) -> bool:
    return value is not None and 0 < value < math.inf

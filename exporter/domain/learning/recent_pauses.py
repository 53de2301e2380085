"""Pauses that a stream made since the week of its baseline began.

A baseline knows only the weeks before its own. A stream that has changed its rhythm since, such as an hourly one that
became daily, would be dead in each new pause until Monday. Two pauses of a length are enough to know the third.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from exporter.domain.arrays import Floats, Rows
from exporter.domain.learning.baselines import Baselines
from exporter.domain.learning.hours import Hours
from exporter.domain.learning.pauses import pauses
from exporter.domain.learning.slots import BY_FIVE, BY_HOUR, in_slots, silences_between, week_of
from exporter.domain.learning.traffic_clock import PAUSE_SCORE

RECENT_DAYS = 14
"""Number of days back to which hours are needed. A longer silence is no pause of a week."""


def with_recent_pauses(baselines: Baselines, in_force: Rows, hours: Hours, as_of: float) -> Baselines:
    """Return the baselines with the pauses known at a moment (Unix seconds).

    ``in_force`` are the rows of ``baselines`` that judge present silences, one a stream at most, and ``hours`` are of
    all days since their weeks began, from RECENT_DAYS before the moment on. Only silences count that are unusual by
    the baseline: nights and weekends are in it.
    """
    pause: Floats = baselines.pause.copy()
    clocked = in_force[baselines.clocked[in_force]]
    of_stream = np.full(int(max(baselines.stream.max(initial=-1), hours.stream.max(initial=-1))) + 1, -1, np.intp)
    of_stream[baselines.stream[clocked]] = clocked
    clocks = baselines.clocks()
    for slot in (BY_HOUR, BY_FIVE):
        found = silences_between(in_slots(hours, slot), slot)
        found = found[of_stream[found.stream] >= 0]
        row = of_stream[found.stream]
        mine = (baselines.slot_seconds[row] == slot.seconds) & (found.end <= as_of) & (found.slots > 0)
        mine &= week_of(found.end) >= baselines.week[row]
        found, row = found[mine], row[mine]
        start = clocks.start(row, found.start)
        missed = clocks.slots_missed(row, start, found.end)
        unusual = clocks.score(row, missed) > PAUSE_SCORE
        length = np.zeros(int(unusual.sum()))
        known = pauses(row[unusual], missed[unusual], length, np.full(len(pause), np.inf))
        pause = np.fmax(pause, known)
    return replace(baselines, pause=pause)

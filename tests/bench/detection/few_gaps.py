"""What the law of gaps calls dead while little is known of a stream, and how much of that is written again.

The history of each stream begins anew every few weeks, so that many streams are young. The law judges a silence while
its stream has fewer than ten active hours in eight weeks, or fewer than two whole weeks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from exporter.domain.judging.gap_law import find_limits
from exporter.domain.learning.baselines import ACTIVE_SLOTS_NEEDED, WEEKS, WEEKS_NEEDED
from tests.bench.detection.fleet import HOURS_A_WEEK, Fleet, Floats, Span, topics
from tests.bench.detection.silences import LONGEST
from tests.bench.detection.table import Rows

EVERY_WEEKS = 8
RECORDS = ((1, 1), (2, 3), (4, 6), (7, 10), (11, 10**6))
"""A row of the table has streams of so many active hours."""

_DAY, _HOUR = 24.0, 3600.0
_SPAN = WEEKS * HOURS_A_WEEK


def few_gaps_table(fleets: Sequence[Fleet]) -> Rows:
    """Return a row for each set and number of known active hours."""
    rows: Rows = [
        ("set", "active hours", "topic-weeks", "dead", "of these back within 28 d", "false per 1,000 topic-weeks",
         "median limit d")
    ]  # fmt: skip
    for fleet in fleets:
        found = _silences(fleet)
        stream, week, active, lived, length, to_end = found.T
        _, limit = find_limits(active - 1.0, lived * _HOUR)
        limit /= _HOUR
        closed = np.isfinite(length)
        dead = np.where(closed, length, to_end) > limit
        back = dead & closed & (length - limit <= LONGEST)
        false = dead & (length <= LONGEST)
        for low, high in (*RECORDS, (1, 10**6)):
            mine = (active >= low) & (active <= high)
            weeks = len(np.unique(np.stack([stream[mine], week[mine]]), axis=1).T)
            if not weeks:
                continue
            alarmed = len(np.unique(np.stack([stream[mine & false], week[mine & false]]), axis=1).T)
            rows.append(
                (
                    fleet.name,
                    "all" if (low, high) == (1, 10**6) else f"{low} to {high}" if high < 10**6 else f"{low} or more",
                    f"{weeks:,}",
                    f"{int((mine & dead).sum()):,}",
                    f"{int((mine & back).sum()):,}",
                    f"{1000 * alarmed / weeks:.2f}",
                    f"{float(np.median(limit[mine])) / _DAY:.0f}",
                )
            )
    return rows


def _silences(fleet: Fleet) -> Floats:
    """Return the silences that the law judges, a row each: [stream, week, active hours, hours lived, length, to end].

    ``length`` is infinite where no record ended it, ``to end`` the hours to the end of the set.
    """
    units, rows = topics(fleet), list[tuple[float, ...]]()
    incidents = [(begin, end) for _, begin, end in fleet.incidents]
    for unit, (times, vague, outages) in enumerate(zip(units.times, units.vague, units.outages, strict=True)):
        for number, begin in enumerate(range(0, fleet.weeks - WEEKS_NEEDED, EVERY_WEEKS)):
            known = times >= begin * HOURS_A_WEEK
            if known.any():
                stream = unit * fleet.weeks + number
                mine = _of_stream(times[known], vague[known], [*incidents, *outages])
                end = fleet.weeks * HOURS_A_WEEK
                rows += [(stream, at // HOURS_A_WEEK, *each, end - at) for at, *each in mine]
    return np.array(rows)


def _of_stream(times: Floats, vague: np.ndarray, lost: Sequence[Span]) -> list[tuple[float, float, float, float]]:
    """Return when each silence began that the law judges, the active hours and hours lived before, and its length."""
    hours, found = np.unique(np.floor(times)), []
    first_day = np.floor(times[0] / _DAY) * _DAY
    ends = np.append(times[1:], np.inf)
    for place in np.flatnonzero((ends - times >= 1.0) & ~np.append(vague[1:], False)).tolist():
        at, end = float(times[place]), float(ends[place])
        monday = at // HOURS_A_WEEK * HOURS_A_WEEK
        low, high = np.searchsorted(hours, [monday - _SPAN, monday])
        if high - low >= ACTIVE_SLOTS_NEEDED and (monday - first_day) // HOURS_A_WEEK >= WEEKS_NEEDED:
            if len(hours) > WEEKS * ACTIVE_SLOTS_NEEDED:
                break  # it stays with its profile
            continue
        if any(at < until and end > since for since, until in lost if np.isfinite(end)):
            continue
        low, high = np.searchsorted(hours, [at - _SPAN, at])
        found.append((at, float(high - low), at - float(hours[low]), end - at))
    return found

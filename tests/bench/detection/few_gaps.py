"""What the law of gaps calls dead while little is known of a stream, and how much of that is written again.

The history of each stream begins anew every few weeks, so that many streams are young. The law judges a silence while
its stream has fewer than ten active hours in eight weeks, or fewer than two whole weeks.
"""

from collections.abc import Sequence

import numpy as np

from exporter.domain.history.streams import Streams, add_topics, objects
from exporter.domain.judging.gap_law import find_limits
from exporter.domain.judging.rollup_verdicts import Verdicts
from exporter.domain.learning.baselines import ACTIVE_SLOTS_NEEDED, WEEKS, WEEKS_NEEDED
from exporter.domain.verdicts import GAPS, NO_RULE, PERIOD, SCHEDULE, TRAFFIC_CLOCK
from tests.bench.detection.fleet import HOURS_A_WEEK, Fleet, Floats, Span, topics
from tests.bench.detection.history import first_week_of, history
from tests.bench.detection.silences import LONGEST, gaps_before
from tests.tables import Rows

EVERY_WEEKS = 8

_DAY, _HOUR = 24.0, 3600.0
_SPAN = WEEKS * HOURS_A_WEEK


def _topic_weeks(stream: Floats, week: Floats) -> int:
    return len(np.unique(np.stack([stream, week]), axis=1).T)


def few_gaps_table(fleets: Sequence[Fleet]) -> Rows:
    rows: Rows = [("set", "dead", "of these back within 28 d", "share", "false per 1,000 topic-weeks")]
    for fleet in fleets:
        stream, week, active, lived, length, to_end = _silences(fleet).T
        _, limit = find_limits(active - 1.0, lived * _HOUR)
        limit /= _HOUR
        closed = np.isfinite(length)
        dead = np.where(closed, length, to_end) > limit
        false = dead & (length <= LONGEST)
        died, returned = int(dead.sum()), int((dead & closed & (length - limit <= LONGEST)).sum())
        rate = 1000 * _topic_weeks(stream[false], week[false]) / _topic_weeks(stream, week)
        share = f"{returned / died:.0%}" if died else "-"
        rows.append((fleet.name, f"{died:,}", f"{returned:,}", share, f"{rate:.2f}"))
    return rows


def _silences(fleet: Fleet) -> Floats:
    """Return the silences that the law judges, a row each: [stream, week, active hours, hours lived, length, to end].

    ``length`` is infinite where no record ended it, ``to end`` the hours to the end of the set.
    """
    units, rows = topics(fleet), list[tuple[float, ...]]()
    for unit, (times, vague, outages) in enumerate(zip(units.times, units.vague, units.outages, strict=True)):
        for number, begin in enumerate(range(0, fleet.weeks - WEEKS_NEEDED, EVERY_WEEKS)):
            known = times >= begin * HOURS_A_WEEK
            if known.any():
                stream = unit * fleet.weeks + number
                mine = _of_stream(times[known], vague[known], [*fleet.incidents, *outages])
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
        gaps, lived = gaps_before(times, np.array([at]))
        found.append((at, float(gaps[0]) + 1.0, float(lived[0]), end - at))
    return found


def rules_table(fleet: Fleet) -> Rows:
    """Return how many topics with a record are judged, and by which rule, when so many weeks of history are known."""
    units = topics(fleet)
    made, first = history(units).baselines, first_week_of(fleet)
    rows: Rows = [("weeks of history", "topics", "judged", *(f"by {rule}" for rule in _RULES))]
    for weeks in (1, 2, 3, 8):
        now = weeks * HOURS_A_WEEK
        hours = [np.unique(np.floor(times[times < now])) for times in units.times]
        some = np.flatnonzero([len(one) > 0 for one in hours])
        last = np.array([hours[unit][-1] for unit in some])
        # The silences of the week that begins have no baseline before it is over.
        row = np.full(2 * len(some), -1, np.intp)
        for number, (unit, at) in enumerate(zip(some.tolist(), last.tolist(), strict=True)):
            found = np.flatnonzero((made.stream == unit) & (made.week == first + at // HOURS_A_WEEK))
            row[len(some) + number] = found[0] if len(found) else -1
        judged = Verdicts(
            _streams(fleet, [hours[unit] for unit in some.tolist()], now), made, row, fleet.start + now * _HOUR
        )
        rule = judged.rule[len(some) :].tolist()
        rows.append(
            (
                str(weeks),
                f"{len(some):,}",
                f"{100 * sum(one != NO_RULE for one in rule) / len(some):.1f} %",
                *(f"{100 * rule.count(one) / len(some):.0f} %" for one in _RULES),
            )
        )
    return rows


_RULES = (TRAFFIC_CLOCK, SCHEDULE, PERIOD, GAPS)


def _streams(fleet: Fleet, hours: Sequence[Floats], now: float) -> Streams:
    """Return topics of one partition with these active hours, polled since the fleet began, as of ``now`` (hours)."""
    last, since = (np.array([fleet.start + one[place] * _HOUR for one in hours]) for place in (-1, 0))
    partitions = Streams.blank(
        len(hours),
        topic=np.arange(len(hours)),
        cluster="bench",
        name=objects([f"topic-{number}" for number in range(len(hours))]),
        leader=1,
        state="observed",
        observed_until=fleet.start + now * _HOUR,
        last_advance=last,
        polled_from=fleet.start,
        known_since=since,
        known_slots=[len(one) for one in hours],
        end_offset=1.0,
        records_7d=1,
        rests=objects([()] * len(hours)),
    )
    return add_topics(partitions, partitions)

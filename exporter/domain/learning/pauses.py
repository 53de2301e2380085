"""Past silences of a stream -> how long its pauses are.

A repaired outage happens once, pauses happen again. A silence of a length that a stream has ended twice is no death,
whatever its score by the traffic clock.
"""

from dataclasses import replace

import numpy as np

from exporter.domain.arrays import Flags, Floats, Rows, runs
from exporter.domain.learning.baselines import Baselines
from exporter.domain.learning.hours import Hours
from exporter.domain.learning.slots import BY_FIVE, BY_HOUR, cut_into_slots, silences_between, week_of
from exporter.domain.learning.traffic_clock import PAUSE_SCORE

RECENT_DAYS = 14
"""Number of days back to which hours are needed. A longer silence is no pause of a week."""


def add_recent_pauses(baselines: Baselines, in_force: Rows, hours: Hours, as_of: float) -> Baselines:
    """Return the baselines with the pauses known at a moment (Unix seconds).

    ``in_force`` are the rows of ``baselines`` that judge present silences: at most one for each stream. ``hours`` are
    those of all days since their weeks began, and not from before RECENT_DAYS ago. Only silences count that are
    unusual by the baseline: nights and weekends are in it. The largest one of the baseline is one of the two.
    """
    pause: Floats = baselines.pause.copy()
    clocked = in_force[baselines.clocked[in_force]]
    of_stream = np.full(int(max(baselines.stream.max(initial=-1), hours.stream.max(initial=-1))) + 1, -1, np.intp)
    of_stream[baselines.stream[clocked]] = clocked
    clocks = baselines.clocks()
    for slot in (BY_HOUR, BY_FIVE):
        found = silences_between(cut_into_slots(hours, slot), slot)
        found = found[of_stream[found.stream] >= 0]
        row = of_stream[found.stream]
        mine = (baselines.slot_seconds[row] == slot.seconds) & (found.end <= as_of) & (found.slots > 0)
        mine &= week_of(found.end) >= baselines.week[row]
        found, row = found[mine], row[mine]
        start = clocks.start(row, found.start)
        missed = clocks.slots_missed(row, start, found.end)
        unusual = clocks.score(row, missed) > PAUSE_SCORE
        row, missed = row[unusual], missed[unusual]
        same = (baselines.slot_seconds[clocked] == slot.seconds) & ~baselines.scheduled[clocked]
        before = clocked[same & np.isin(clocked, row)]
        before = before[clocks.score(before, baselines.largest_missed[before]) > PAUSE_SCORE]
        row, missed = np.append(row, before), np.append(missed, baselines.largest_missed[before])
        known = pauses(row, missed, np.zeros(len(row)), np.full(len(pause), np.inf))
        pause = np.fmax(pause, known)
    return replace(baselines, pause=pause)


WEEK = 7 * 86_400.0

SHORT_WEEKS, LONG_WEEKS, PAUSE_WEEKS = 8, 15, 28
"""Number of past weeks in which pauses are looked for: of any length, longer than a week (two between three runs on the
first of the month), and those whose next one may still be due (two between three quarters)."""

DUE_SECONDS, DUE_TIMES = 3 * 86_400.0, 2.0
"""Length of a pause in seconds, and a multiple. After longer pauses the next one may still be due until the last one is
older than this multiple of the longest time between two of them."""

MARGIN = 1.25
"""Largest ratio of two similar pauses. A third pause may then be longer than the shorter of the two by this ratio."""

LARGE_SHARE = 0.2
"""Share of a stream's known past. A single pause of this share or more is enough: such a past is too short for two."""

SPELL_SECONDS, SLOW_SPELL_SECONDS, BETWEEN = 5 * 86_400.0, 20 * 86_400.0, 0.25
"""Shortest pause between two spells in seconds (the second: of streams too slow for a profile), and a share of the
longest pause. A stream comes in spells if two such pauses are similar, and no other pause is longer than that share."""

SPELL_SUSPECT, SPELL_DEAD = 1.25, 1.5
"""Multiples of the longest pause between spells. A longer silence is suspect or dead, however active the stream was
before."""

MONTH_SECONDS = 27 * 86_400.0, 32 * 86_400.0
"""Shortest and longest month in seconds. A stream too slow for a profile comes in spells after one pause of a month."""


def select_remembered(stream: Rows, length: Floats, age: Floats, streams: int) -> Flags:
    """Return which past silences count, given the length of each and its age since its end, in seconds.

    Rare pauses count as long as another one may be due. What a stream did before its rhythm changed does not count.
    """
    long = np.flatnonzero(length > DUE_SECONDS)
    long = long[np.lexsort((age[long], stream[long]))]
    last, apart = np.full(streams, np.inf), np.zeros(streams)
    np.minimum.at(last, stream[long], age[long])
    same = stream[long[1:]] == stream[long[:-1]]
    np.maximum.at(apart, stream[long[1:]][same], (age[long[1:]] - age[long[:-1]])[same])
    due = last <= DUE_TIMES * apart
    recent = age <= np.where(length > WEEK, LONG_WEEKS, SHORT_WEEKS) * WEEK
    return np.asarray(recent | ((length > DUE_SECONDS) & due[stream]))


def pauses(stream: Rows, missed: Floats, length: Floats, lived: Floats) -> Floats:
    """Return for each stream the number of missed slots up to which a silence is a pause; 0 where no pause is proved.

    ``stream``, ``missed`` and ``length`` are those of each past silence: its stream, the slots that it missed, and its
    length in seconds. ``lived`` is for how long each stream is known, in seconds.
    """
    pause = np.zeros(len(lived))
    if not len(stream):
        return pause
    order = np.lexsort((missed, stream))
    stream, missed, length = stream[order], missed[order], length[order]
    at = runs(stream)
    last = np.append(at[1:], len(stream)) - 1
    several = last > at
    longest, second_longest = missed[last[several]], missed[last[several] - 1]
    pause[stream[at[several]]] = second_longest * np.where(longest <= MARGIN * second_longest, MARGIN, 1.0)
    large = length[last] >= LARGE_SHARE * lived[stream[at]]
    pause[stream[at[large]]] = MARGIN * missed[last[large]]
    return pause


def spells(stream: Rows, length: Floats, slow: Flags) -> Floats:
    """Return the longest pause of each stream that comes in spells, in seconds; NaN for all others."""
    longest = np.zeros(len(slow))
    np.maximum.at(longest, stream, length)
    share = length / longest[stream]
    alike = np.bincount(stream, weights=share * MARGIN >= 1.0, minlength=len(slow))
    between = np.bincount(stream, weights=(share > BETWEEN) & (share * MARGIN < 1.0), minlength=len(slow))
    least, most = MONTH_SECONDS
    monthly = slow & (longest >= least) & (longest <= most)
    found = ((alike > 1) | monthly) & (between == 0) & (longest >= np.where(slow, SLOW_SPELL_SECONDS, SPELL_SECONDS))
    return np.where(found, longest, np.nan)

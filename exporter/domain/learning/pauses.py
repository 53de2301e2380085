"""The silences that a stream ended -> which silences are pauses that its own past holds.

A repaired outage is one silence; pauses come again. What a stream ended twice is no death, whatever its score by
the traffic clock.
"""

from __future__ import annotations

import numpy as np

from exporter.domain.arrays import Flags, Floats, Rows
from exporter.domain.learning.hours import runs

WEEK = 7 * 86_400.0

SHORT_WEEKS, LONG_WEEKS, PAUSE_WEEKS = 8, 15, 28
"""So far back pauses are looked for: all, those of more than a week (two between three runs on the first of the month),
and those of which the next may still be due (two between three quarters)."""

DUE_SECONDS, DUE_TIMES = 3 * 86_400.0, 2.0
"""The next of the pauses of more than three days may be due until the last of them is so many times as old as the
longest time between two of them."""

MARGIN = 1.25
"""Two pauses are alike where one is at most so many times the other: then a third may be so many times as long too."""

LARGE_SHARE = 0.2
"""One pause is enough where it took so much of the stream's past: then the past is too short to hold two."""

SPELL_SECONDS, SLOW_SPELL_SECONDS, BETWEEN = 5 * 86_400.0, 20 * 86_400.0, 0.25
SPELL_SUSPECT, SPELL_DEAD = 1.25, 1.5
"""A stream comes in spells where two pauses of so long (the second: where it is too slow for a profile) are alike, and
no other lasted from a quarter of that on. Past so many times the longest it is suspect and dead, however active it was
before."""

MONTH_SECONDS = 27 * 86_400.0, 32 * 86_400.0
"""One pause is enough for a stream too slow for a profile where it is as long as a month."""


def remembered(stream: Rows, length: Floats, age: Floats, streams: int) -> Flags:
    """Return which past silences count, by their length and how long ago each ended, in seconds.

    What ended once in a while counts for as long as it may come again; what a stream did before it changed does not.
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
    """Return up to how many missed slots a silence is a pause, for each stream; 0 where no past silence proves one.

    Of each past silence: its stream, the slots that it missed and its length in seconds. ``lived`` is how long each
    stream is known, in seconds.
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
    """Return the longest pause of each stream that comes in spells, in seconds; NaN of all others."""
    longest = np.zeros(len(slow))
    np.maximum.at(longest, stream, length)
    share = length / longest[stream]
    alike = np.bincount(stream, weights=share * MARGIN >= 1.0, minlength=len(slow))
    between = np.bincount(stream, weights=(share > BETWEEN) & (share * MARGIN < 1.0), minlength=len(slow))
    least, most = MONTH_SECONDS
    monthly = slow & (longest >= least) & (longest <= most)
    found = ((alike > 1) | monthly) & (between == 0) & (longest >= np.where(slow, SLOW_SPELL_SECONDS, SPELL_SECONDS))
    return np.where(found, longest, np.nan)

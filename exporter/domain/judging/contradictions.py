"""Where the configuration contradicts the history: an outage in which a topic wrote, a holiday that it works through.

Only records contradict the configuration; an hour that nobody observed does not. The usual activity of a span follows
from the same span in the weeks before it, as in ``exporter.domain.learning.rest_days``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from exporter.domain.formatting import duration, moment, plural, setting_duration, some
from exporter.domain.learning.drops import LEAST_REFERENCES, LOW, REFERENCE_WEEKS
from exporter.domain.learning.hours import Integers
from exporter.domain.learning.rest_days import quiet
from exporter.domain.verdicts import TopicOverride

CALENDARS, OUTAGES, OVERRIDES = "calendars", "outages", "overrides"
"""The settings that history can contradict."""

LOOKBACK_WEEKS = 26
"""Number of past weeks checked. Holidays and outages that ended earlier are not checked."""

MOST_HOLIDAYS = 3
"""Number of past holidays checked. A topic works through a calendar if it wrote on each of these that is known."""

QUIET_WEEKS = 2
"""Number of weeks before the newest holiday that show whether a topic has a quiet day of the week."""

LONG_MUTE = 365 * 86_400.0
"""Length of a mute, in seconds. A longer one counts as one without an end."""

LOOSE = 100.0
"""Multiple of a topic's longest silence. A ``max_silence`` of this multiple or more finds deaths too late."""

_HOUR, _WEEK_HOURS = 3600, 168


@dataclass(frozen=True, slots=True)
class Contradiction:
    """An entry of a setting that the history of a topic contradicts. None where a field does not apply."""

    setting: str
    entry: str
    """The part of the entry: ``DE-BY, Easter Monday``, ``max_silence: 1d``, ``until: 2026-03-01``."""
    cluster: str
    topic: str
    since: float | None = None
    until: float | None = None
    """The span in which the topic wrote, Unix seconds."""
    active_hours: int | None = None
    """Hours in the span with records."""
    usual_hours: float | None = None
    """Hours with records in the same span of a usual week."""
    longest_silence: float | None = None
    limit: float | None = None
    """The longest silence of the topic's past, and ``max_silence``, in seconds."""
    records: int | None = None
    """Number of records in the last seven days."""


def compared(active: Integers, known_from: int, since: float, until: float) -> tuple[int, float] | None:
    """Return the number of whole hours of a span in which a topic was active, and the usual number.

    ``active`` are its active hours (since 1970) in order. ``known_from`` is the first hour with known activity. None if
    the topic is usually active in none of these hours, or if too few weeks are known.
    """
    first, end = int(-(-since // _HOUR)), int(until // _HOUR)
    weeks = [_WEEK_HOURS * back for back in range(1, REFERENCE_WEEKS + 1) if first - _WEEK_HOURS * back >= known_from]
    if end <= first or len(weeks) < LEAST_REFERENCES:
        return None
    begins = first - np.array([0, *weeks])
    counts = np.searchsorted(active, begins + end - first) - np.searchsorted(active, begins)
    usual = float(np.median(counts[1:]))
    return (int(counts[0]), usual) if usual >= 1.0 else None


def wrote_as_usual(found: tuple[int, float] | None) -> bool:
    """Return whether the topic wrote as usual, or nearly so. ``found`` is what ``compared`` returned."""
    return found is not None and found[0] > LOW * found[1]


def holiday_worked(
    active: Integers, known_from: int, holidays: Sequence[tuple[float, float, str]]
) -> tuple[tuple[float, float, str], tuple[int, float]] | None:
    """Return the newest of the past ``holidays`` (in order) on which a topic wrote, if it did on each known one.

    Also None for a topic without a quiet day of the week: no calendar applies to it.
    """
    known = [(day, found) for day in reversed(holidays) if (found := compared(active, known_from, *day[:2]))]
    if not known or not all(wrote_as_usual(found) for _, found in known):
        return None
    begin = int(holidays[-1][0] // _HOUR) - QUIET_WEEKS * _WEEK_HOURS
    before = active[(active >= begin) & (active < begin + QUIET_WEEKS * _WEEK_HOURS)]
    rates = np.bincount((before - begin) % _WEEK_HOURS, minlength=_WEEK_HOURS)[None, :].astype(np.float64)
    return known[0] if quiet(rates)[0] else None


def of_override(
    override: TopicOverride, key: tuple[str, str], now: float, longest_silence: float | None, records: int
) -> Contradiction | None:
    """Return how the history of a topic (cluster, name) contradicts the override in force as of ``now``, None if not.

    ``longest_silence`` in seconds is that of the weeks before the present silence, None where unknown; ``records`` are
    those of the last seven days.
    """
    found = Contradiction(OVERRIDES, "", *key)
    if override.retired:
        return replace(found, entry="retired: true", records=records) if records else None
    if override.muted_until is not None:
        if override.muted_until - now <= LONG_MUTE:
            return None
        return replace(found, entry=f"muted_until: {moment(override.muted_until, '%Y-%m-%d')}")
    limit = override.max_silence_seconds
    if limit is None or not longest_silence or longest_silence <= limit < LOOSE * longest_silence:
        return None
    entry = f"max_silence: {setting_duration(limit)}"
    return replace(found, entry=entry, limit=limit, longest_silence=longest_silence)


def summary_lines(found: Iterable[Contradiction]) -> Iterator[str]:
    """Yield a message for each entry, cluster and kind of contradiction: the setting, some topics, the effect."""
    for _, group in groupby(sorted(found, key=lambda one: (_alike(one), one.topic)), _alike):
        every = list(group)
        names = f"{some(one.topic for one in every)} of {every[0].cluster}"
        yield f"{every[0].setting}: {every[0].entry}: {_meaning(every[0], names)}"


def _alike(one: Contradiction) -> tuple[str, str, str, bool]:
    return one.setting, one.entry, one.cluster, _too_short(one)


def _too_short(one: Contradiction) -> bool:
    return one.limit is not None and one.longest_silence is not None and one.limit < one.longest_silence


def _meaning(one: Contradiction, names: str) -> str:
    hours = f"in {plural(one.active_hours or 0, 'hour')} of it, usually in {one.usual_hours or 0.0:.3g}"
    if one.setting == CALENDARS:
        return f"{names} wrote {hours}. Until it rests on a holiday, it is judged on holidays as on any day"
    if one.setting == OUTAGES:
        return f"{names} wrote {hours}: it was not out. The entry excuses nothing but silences in that time"
    if one.records is not None:
        return f"{names} had {plural(one.records, 'record')} in 7 days. It stays retired: nobody is told when it dies"
    if one.limit is None:
        return f"{names} is muted for more than a year. Nobody is told when it dies"
    longest, limit = duration(one.longest_silence), duration(one.limit)
    if _too_short(one):
        return f"{names} was silent for {longest} in its past and wrote again. By this entry such a silence is dead"
    return f"{names} was never silent for more than {longest}. By this entry it is dead {limit} after its last record"

"""The evidence line: why a verdict is what it is, in one sentence with real values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from exporter.domain.expectations.silence_rules import find_retirement
from exporter.domain.formatting import duration, duration_at_most, moment, plural
from exporter.domain.learning.baselines import ACTIVE_SLOTS_NEEDED, WEEKS_NEEDED
from exporter.domain.learning.drops import OngoingDrop
from exporter.domain.learning.rest_days import Rest
from exporter.domain.learning.schedule import Schedule
from exporter.domain.learning.slots import week_of
from exporter.domain.learning.traffic_clock import FIRST_MONDAY
from exporter.domain.polls.readings import State
from exporter.domain.verdicts import TopicOverride, Verdict

_MINUTE, _HOUR, _DAY, _WEEK = 60.0, 3600.0, 86_400.0, 7 * 86_400.0

FOLLOWS = "with its topic: "
"""How the evidence of a partition begins that has the verdict of its topic."""

_OBSERVED_SHARE = 0.95
"""Observed share of the past. With less, the line says how much was observed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceFacts:
    """The facts of one judged stream that its evidence line shows. Moments are Unix seconds; None where unknown.

    Those from ``active_slots`` to ``polled_from`` are named as in ``Expectation``.
    """

    as_of: float
    topic: str
    partition: int | None = None
    verdict: str
    state: str | None = None
    reason: str | None = None
    last_advance: float | None = None
    observed_until: float | None = None
    unreadable_since: float | None = None
    silence_seconds: float | None = None
    active_slots: int | None = None
    history_start: float | None = None
    weeks: int | None = None
    observed_seconds: float | None = None
    largest_silence_seconds: float | None = None
    largest_silence_end: float | None = None
    largest_missed: float | None = None
    max_silence_seconds: float | None = None
    slot_seconds: float = _HOUR
    schedule: Schedule | None = None
    rests: Sequence[Rest] | None = ()
    polled_from: float | None = None
    """Its first poll."""
    missed_slots: float | None = None
    suspect_from: float | None = None
    expected_by: float | None = None
    partitions: int = 1
    partitions_live: int = 0
    partitions_learning: int = 0
    falling: OngoingDrop | None = None
    """The drop that holds it."""
    held: str | None = None
    """Another reason why it is held."""
    by_gaps: bool = False
    """Whether the law of gaps judges it (``exporter.domain.judging.gap_law``)."""
    newest: float | None = None
    """The timestamp of its newest record, where the age of that is proved."""
    records: int | None = None
    """Number of records ever written."""
    baseline_of: float | None = None
    """The last advance at the time its baseline was chosen, if it may have advanced since."""


def evidence(row: EvidenceFacts) -> str:
    """Return the line of a verdict that history gave."""
    if row.verdict == Verdict.LEARNING:
        clauses = [f"learning: {_missing(row)}", silence(row)]
    else:
        emptied = "now empty" if row.state == State.EMPTY else None
        usual = _few_gaps(row) if row.by_gaps else _usual_silence(row)
        aged = _abandoned(row) if row.last_advance is None and row.verdict == Verdict.SUSPECT else None
        clauses = [silence(row), _rested(row), usual, aged, _limits(row), _held(row), _by_wall_clock(row), emptied]
    return "; ".join(clause for clause in (*clauses, _misdated(row), _proved_until(row), _siblings(row)) if clause)


def _few_gaps(row: EvidenceFacts) -> str | None:
    if row.history_start is None or row.last_advance is None:
        return None
    active = plural(row.active_slots or 0, "active hour")
    return f"{active} known since {moment(min(row.history_start, row.last_advance))}"


def _by_wall_clock(row: EvidenceFacts) -> str | None:
    if not _by_period(row):
        return None
    return "by its few gaps" if row.by_gaps else "by its period, not calibrated"


def died_before_polls(dead_from: float | None, polled_from: float | None) -> bool:
    """Return whether a stream was dead at its first poll (both Unix seconds, None where unknown)."""
    return dead_from is not None and polled_from is not None and dead_from <= polled_from


def _abandoned(row: EvidenceFacts) -> str | None:
    newest = row.newest if row.last_advance is None else row.last_advance
    if newest is None or row.polled_from is None or row.observed_until is None:
        return None
    before = "" if row.records is None else f"; {plural(row.records, 'record')} before"
    return (
        f"newest record of {moment(newest)[:_DATE]} by its timestamp; "
        f"nothing written in {duration(max(0.0, row.observed_until - row.polled_from))} of polls{before}"
    )


def explain_override(row: EvidenceFacts, override: TopicOverride) -> str:
    """Return the line of a verdict that the configuration gave."""
    if override.max_silence_seconds is not None:
        rule = f"dead past {duration(override.max_silence_seconds)}"
    elif override.muted_until is not None:
        rule = f"muted until {moment(override.muted_until)}"
    else:
        rule = "retired"
    override_clause = f"{rule}, as the configuration says of {override.topics}"
    return "; ".join(clause for clause in (silence(row), override_clause) if clause)


def silence(row: EvidenceFacts) -> str | None:
    """Return how long it is silent and since when; None where it never advanced."""
    if row.last_advance is None:
        return None
    since = moment(row.last_advance)
    if row.silence_seconds is None:
        return f"last advance {since}, silence not measured"
    if row.silence_seconds < _MINUTE:
        return f"last advance {since}"
    return f"silent {duration(row.silence_seconds)} (since {since})"


def describe_first_poll(first_poll: float) -> str:
    """Return the silence of a stream in words, if nobody saw it advance since its ``first_poll`` (Unix seconds)."""
    return f"silent at least since {moment(first_poll)}, when it was first polled"


def _rested(row: EvidenceFacts) -> str | None:
    since = math.inf if row.last_advance is None else row.last_advance
    found = [one for one in row.rests or () if one.since < row.as_of and one.until > since]
    if not found:
        return None
    return f"not counted: {', '.join(f'{_when(one)} ({one.why})' for one in found)}"


def _when(rest: Rest) -> str:
    """Return the day of a rest, or its begin and end if it is not a UTC day: holidays are those of a time zone."""
    if rest.since % _DAY == 0 and rest.until - rest.since == _DAY:
        return moment(rest.since, "{day} %d %b")
    since, until = (moment(at, "{day} %d %b %H:%M") for at in (rest.since, rest.until))
    return f"{since.removesuffix(' UTC')} to {until}"


def _held(row: EvidenceFacts) -> str | None:
    why = row.held if row.falling is None else row.falling.describe(row.expected_by, row.as_of)
    return None if why is None else f"held: {why}"


def _usual_silence(row: EvidenceFacts) -> str | None:
    if row.schedule is not None and row.last_advance is not None:
        missing = row.verdict not in (Verdict.LIVE, Verdict.QUIET) and not _unproved(row)
        return row.schedule.describe_missed_run(row.last_advance, row.as_of) if missing else str(row.schedule)
    if row.last_advance is None or row.history_start is None or row.largest_silence_seconds is None:
        return None
    chosen_by = row.last_advance if row.baseline_of is None else row.baseline_of
    if find_baseline_end(chosen_by) <= row.history_start:
        return None
    baseline = "".join(describe_baseline(row.history_start, chosen_by, row.observed_seconds))
    if row.largest_silence_seconds < row.slot_seconds:
        never = f"never silent for {'a whole hour' if _by_the_hour(row) else duration(row.slot_seconds)}"
    else:
        never = f"never silent over {duration_at_most(row.largest_silence_seconds)}"
        if row.largest_silence_end is not None:
            never += f" (until {moment(row.largest_silence_end)})"
    missed, most = row.missed_slots, row.largest_missed
    if missed is None or most is None or missed <= max(most, 1.0):
        return f"in the {baseline} {never}"
    slots = "hours" if _by_the_hour(row) else f"slots of {duration(row.slot_seconds)}"
    return f"in the {baseline} {never}, missed {_count(missed)} active {slots}, before at most {_count(most)}"


def describe_baseline(history_start: float, last_advance: float, observed_seconds: float | None) -> tuple[str, str]:
    """Return the span that a stream was judged by, and how much of it was observed.

    For example ``("22 days before Mon 2026-03-02", ", of which 9 were observed,")``. The second text is empty if nearly
    all of it was observed, or if that is unknown. The span ends with the Monday (UTC) before ``last_advance``: silences
    that ended later are not in the baseline. ``observed_seconds`` is the observed part of the span.
    """
    until = find_baseline_end(last_advance)
    span = until - history_start
    # The first day counts, so that no silence of the span lies before it.
    days, before = math.ceil(span / _DAY), f" before {moment(until)[:_DATE]}"
    length = duration(span) if span < _DAY else plural(days, "day").removeprefix("1 ")
    if observed_seconds is not None and observed_seconds < _OBSERVED_SHARE * span:
        if observed_seconds < _DAY:
            return length + before, f", of which {duration(observed_seconds)} were observed,"
        if (seen := math.floor(observed_seconds / _DAY)) < days:
            return length + before, f", of which {seen} {'was' if seen == 1 else 'were'} observed,"
    return (f"{days // 7} weeks" if days >= 14 and days % 7 == 0 else length) + before, ""


def find_baseline_end(last_advance: float) -> float:
    """Return the Monday (UTC) before a last advance: the end of its baseline."""
    return FIRST_MONDAY + float(week_of(np.array([last_advance]))[0]) * _WEEK


_DATE = len("Mon 2026-03-02")


def _count(slots: float) -> str:
    """Return a number of slots, which may be a fraction: ``41``, ``3.2``."""
    return f"{slots:.0f}" if slots >= 10 else f"{slots:.1f}"


def _by_the_hour(row: EvidenceFacts) -> bool:
    return row.slot_seconds == _HOUR


def _limits(row: EvidenceFacts) -> str | None:
    dead_from = None if row.expected_by is None else _same_day(row, row.expected_by)
    from_ = None if row.suspect_from is None else f"suspect since {_same_day(row, row.suspect_from)}"
    if row.verdict in (Verdict.DEAD, Verdict.RETIRED):
        dead = f"dead past {duration(row.max_silence_seconds)}, so" if _by_period(row) else "dead"
        died = dead if dead_from is None else f"{dead} since {dead_from}"
        if row.verdict == Verdict.DEAD:
            return died
        if row.last_advance is None or died_before_polls(row.expected_by, row.polled_from):
            return "; ".join(clause for clause in (died, _abandoned(row)) if clause)
        dead_after = 0.0
        if row.expected_by is not None and row.last_advance is not None:
            dead_after = row.expected_by - row.last_advance
        return f"{died}; retired after {duration(float(find_retirement(dead_after)))} of silence"
    if row.verdict == Verdict.HELD:
        return _if_proved(row, from_)
    if row.verdict in (Verdict.SUSPECT, Verdict.LATE):
        suspect = from_ if row.verdict == Verdict.SUSPECT else None
        dead_later = None if dead_from is None else f"dead from {dead_from}"
        return "; ".join(clause for clause in (suspect, dead_later) if clause)
    if row.expected_by is None:
        return None
    return f"dead from {moment(row.expected_by)}{' if still silent' if row.expected_by < row.as_of else ''}"


def _if_proved(row: EvidenceFacts, from_: str | None) -> str | None:
    if from_ is None or not _unproved(row):
        return from_
    return f"held: its silence is not proved; {from_} if it is still silent"


def _unproved(row: EvidenceFacts) -> bool:
    if row.verdict != Verdict.HELD or row.suspect_from is None or row.observed_until is None:
        return False
    return row.suspect_from > row.observed_until


def _by_period(row: EvidenceFacts) -> bool:
    if row.max_silence_seconds is None or row.schedule is not None:
        return False
    if row.last_advance is None or row.expected_by is None:
        return True
    return row.expected_by - row.last_advance >= row.max_silence_seconds - 1.0


def _same_day(row: EvidenceFacts, at: float) -> str:
    """Return a moment, without its date if the whole silence is in one day: the line already has that date."""
    day = None if row.last_advance is None else row.last_advance // _DAY
    return moment(at, "%H:%M") if at // _DAY == day == row.as_of // _DAY else moment(at)


def _missing(row: EvidenceFacts) -> str:
    slots = row.active_slots or 0
    if slots == 0 and row.state == State.NEVER_WRITTEN:
        return "never written"
    if slots == 0 and row.state == State.EMPTY:
        return "empty, and no record was seen being written"
    if slots == 0 and row.state == State.UNREADABLE:
        # Since when, and why, stands at the end of the line where polls know it.
        return "never read" if row.unreadable_since is not None else f"never read ({row.reason or 'no answer'})"
    if row.active_slots is None or row.weeks is None:
        return "too little history"
    if slots < ACTIVE_SLOTS_NEEDED:
        few = f"{plural(slots, 'active hour')} of {ACTIVE_SLOTS_NEEDED} needed"
        return f"{few}, now empty" if row.state == State.EMPTY else few
    if row.weeks < WEEKS_NEEDED:
        return f"{plural(row.weeks, 'whole week')} of {WEEKS_NEEDED} needed"
    return "not every partition could be read"


def _proved_until(row: EvidenceFacts) -> str | None:
    if row.unreadable_since is not None:
        return f"unreadable since {moment(row.unreadable_since)} ({row.reason or 'no answer'})"
    until = row.observed_until
    if until is None or row.as_of - until <= row.slot_seconds:
        return None
    whole = row.partitions > 1 and row.partition is None
    return f"{'not all of it looked at' if whole else 'not looked at'} since {moment(until)}"


def _misdated(row: EvidenceFacts) -> str | None:
    if row.state == State.FUTURE:
        return "newest record dated in the future"
    if row.state == State.CONTRADICTORY:
        return "newest record dated after its last advance: it was dated ahead, and no staleness follows from it"
    if row.state == State.PRESERVED:
        return "newest record dated before its last advance: mirrored or back-dated"
    return None


def _siblings(row: EvidenceFacts) -> str | None:
    if row.partitions <= 1 or row.partitions_learning >= row.partitions:
        return None
    live = f"{row.partitions_live} of {row.partitions} partitions of {row.topic} live"
    return f"{live}, {row.partitions_learning} learning" if row.partitions_learning else live

"""The evidence line: why a verdict is what it is, in one sentence with real values."""

import math

import numpy as np

from exporter.domain.expectations.silence_rules import find_retirement
from exporter.domain.formatting import duration, duration_at_most, moment, plural
from exporter.domain.groups.readers import Readership
from exporter.domain.judging.detection import GOOD_SHARE
from exporter.domain.judging.stream_facts import StreamFacts
from exporter.domain.learning.baselines import ACTIVE_SLOTS_NEEDED, WEEKS_NEEDED
from exporter.domain.learning.rest_days import Rest
from exporter.domain.learning.slots import week_of
from exporter.domain.learning.traffic_clock import FIRST_MONDAY
from exporter.domain.polls.readings import State
from exporter.domain.replicas.comparison import ReplicaState
from exporter.domain.verdicts import GAPS, SILENT, Verdict

_MINUTE, _HOUR, _DAY, _WEEK = 60.0, 3600.0, 86_400.0, 7 * 86_400.0

FOLLOWS = "with its topic: "
"""How the evidence of a partition begins that has the verdict of its topic."""

INCIDENT = "{incident}"
"""Stands for the incident in a line that is made before incidents are known. No name of a topic has braces."""

_OBSERVED_SHARE = 0.95
"""Observed share of the past. With less, the line says how much was observed."""


def evidence(row: StreamFacts) -> str:
    """Return why a stream has its verdict, in one sentence."""
    if row.follows is not None:
        return FOLLOWS + evidence(row.follows)
    clauses: list[str | None]
    if row.override is not None:
        rule = word_override(row.override.max_silence_seconds, row.override.muted_until)
        said = f"{rule}, as the configuration says of {row.override.topics}"
        clauses = [_unseen(row), silence(row), said, _proved_until(row) if row.verdict == Verdict.HELD else None]
    elif row.unused is not None:
        clauses = [_unseen(row), silence(row), f"learning: {row.unused}"]
    else:
        readers = None if row.readers is None else describe_readers(row.readers, silent=row.verdict in SILENT)
        after = [_misdated(row), _proved_until(row), _siblings(row), row.replication, readers]
        clauses = [None if row.judged_by_record is not None else _unseen(row), *_reasons(row), *after]
    return "; ".join(filter(None, clauses))


def _reasons(row: StreamFacts) -> list[str | None]:
    if row.verdict == Verdict.LEARNING:
        return [f"learning: {_missing(row)}", silence(row)]
    emptied = "now empty" if row.state == State.EMPTY else None
    usual = _few_gaps(row) if row.rule == GAPS else _usual_silence(row)
    aged = _abandoned(row) if row.last_advance is None and row.verdict == Verdict.SUSPECT else None
    return [silence(row), _rested(row), usual, aged, _limits(row), _held(row), _by_wall_clock(row), emptied]


def describe_readers(of: Readership, *, silent: bool) -> str:
    """Return how many consumer groups read a topic, in words; those that only committed in it are listed apart."""
    still, verb = " still" if silent else "", "reads" if of.assigned == 1 else "read"
    read = f"{plural(of.assigned, 'consumer group')}{still} {verb} it" if of.assigned else "no consumer group reads it"
    left = f"{plural(of.committed, 'group')} committed in it and left it" if of.committed else ""
    gone = f"{plural(of.gone, 'group')} without a member committed in it" if of.gone else ""
    return "; ".join(filter(None, (read, left, gone)))


def describe_replica(state: str | None, source: str, *, source_lives: bool, whole: bool, silent: bool) -> str | None:
    """Return the replica state of a copy of ``source`` in words, None where it does not help to explain the verdict.

    ``state`` is that of the worst partition of its topic, so for one partition (``whole`` is false)
    the line speaks of some partitions.
    """
    match state:
        case ReplicaState.STOPPED if whole and silent:
            return f"source {source}{' lives' if source_lives else ' went on'}, replica silent: replication stopped"
        case ReplicaState.STOPPED:
            return f"replication of {source} stopped in some partitions"
        case ReplicaState.BEHIND:
            return f"behind its source {source}" if whole else f"replication of {source} is behind in some partitions"
        case ReplicaState.SOURCE_DEAD_TOO:
            return f"its source {source} is dead too"
        case ReplicaState.IN_STEP if silent:
            return f"in step with its source {source}"
    return None


def _unseen(row: StreamFacts) -> str | None:
    """Return what is known of a last advance that nobody saw."""
    silence = row.silence
    if silence is None:
        unknown = row.override is not None and row.last_advance is None and row.verdict == Verdict.LEARNING
        return "learning: since when it is silent is not known" if unknown else None
    if silence.known:
        return None
    if not silence.advanced:
        return None if row.state in (State.NEVER_WRITTEN, State.EMPTY) else "no advance was ever seen"
    if silence.not_before is None:
        return f"silent at least since {moment(silence.since)}, when it was first polled"
    between = f"{moment(silence.not_before)} and {moment(silence.since)}"
    return f"it advanced between {between} while nobody looked; silent at least since then"


def _few_gaps(row: StreamFacts) -> str | None:
    if row.history_start is None or row.last_advance is None:
        return None
    active = plural(row.active_slots or 0, "active hour")
    return f"{active} known since {moment(min(row.history_start, row.last_advance))}"


def _by_wall_clock(row: StreamFacts) -> str | None:
    if not _by_period(row):
        return None
    return "by its few gaps" if row.rule == GAPS else "by its period, not calibrated"


def _abandoned(row: StreamFacts) -> str | None:
    newest = row.judged_by_record if row.last_advance is None else row.last_advance
    if newest is None or row.polled_from is None or row.observed_until is None:
        return None
    before = "" if row.records is None else f"; {plural(row.records, 'record')} before"
    return (
        f"newest record of {moment(newest)[:_DATE]} by its timestamp; "
        f"nothing written in {duration(max(0.0, row.observed_until - row.polled_from))} of polls{before}"
    )


def word_override(max_silence_seconds: float | None, muted_until: float | None) -> str:
    """Return what the configuration says of a topic: its limit, until when it is muted, or that it is retired."""
    if max_silence_seconds is not None:
        return f"dead past {duration(max_silence_seconds)}"
    return "retired" if muted_until is None else f"muted until {moment(muted_until)}"


def silence(row: StreamFacts) -> str | None:
    """Return how long it is silent and since when; None where it never advanced."""
    if row.last_advance is None:
        return None
    since = moment(row.last_advance)
    if row.silence_seconds is None:
        return f"last advance {since}, silence not measured"
    if row.silence_seconds < _MINUTE:
        return f"last advance {since}"
    return f"silent {duration(row.silence_seconds)} (since {since})"


def _rested(row: StreamFacts) -> str | None:
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


def _held(row: StreamFacts) -> str | None:
    why = _held_alone(row) if row.held is None else row.held
    if row.falling is not None:
        why = row.falling.describe(row.expected_by, row.as_of)
    return None if why is None else f"held: {why}"


def _held_alone(row: StreamFacts) -> str | None:
    silence = row.silence
    if row.verdict != Verdict.HELD or silence is None or _unproved(row):
        return None
    good, missed = silence.polls_good, silence.polls_missed
    if silence.settling:
        return f"the exporter has polled it only {plural(good, 'time')} since it started"
    if good < GOOD_SHARE * (good + missed):
        return f"only {good:,} of {good + missed:,} polls in this silence were good"
    return f"its silence is proved until {moment(silence.until)} only"


def _usual_silence(row: StreamFacts) -> str | None:
    if row.schedule is not None and row.last_advance is not None:
        missing = row.verdict not in (Verdict.LIVE, Verdict.QUIET) and not _unproved(row)
        return row.schedule.describe_missed_run(row.last_advance, row.as_of) if missing else str(row.schedule)
    if row.last_advance is None or row.history_start is None or row.largest_silence_seconds is None:
        return None
    chosen_by = row.last_advance if row.baseline_of is None else row.baseline_of
    until = FIRST_MONDAY + float(week_of(np.array([chosen_by]))[0]) * _WEEK
    if until <= row.history_start:
        return None
    by_the_hour = row.slot_seconds == _HOUR
    baseline = _describe_baseline(row.history_start, until, row.observed_seconds)
    if row.largest_silence_seconds < row.slot_seconds:
        never = f"never silent for {'a whole hour' if by_the_hour else duration(row.slot_seconds)}"
    else:
        never = f"never silent over {duration_at_most(row.largest_silence_seconds)}"
        if row.largest_silence_end is not None:
            never += f" (until {moment(row.largest_silence_end)})"
    missed, most = row.missed_slots, row.largest_missed
    if missed is None or most is None or missed <= max(most, 1.0):
        return f"in the {baseline} {never}"
    slots = "hours" if by_the_hour else f"slots of {duration(row.slot_seconds)}"
    return f"in the {baseline} {never}, missed {_count(missed)} active {slots}, before at most {_count(most)}"


def _describe_baseline(history_start: float, until: float, observed_seconds: float | None) -> str:
    """Return the span that a stream was judged by: ``22 days before Mon 2026-03-02, of which 9 were observed,``.

    How much was observed is left out if it was nearly all, or if that is unknown. The span ends with the Monday (UTC)
    before the last advance: silences that ended later are not in the baseline.
    """
    span = until - history_start
    # The first day counts, so that no silence of the span lies before it.
    days, before = math.ceil(span / _DAY), f" before {moment(until)[:_DATE]}"
    length = duration(span) if span < _DAY else plural(days, "day").removeprefix("1 ")
    if observed_seconds is not None and observed_seconds < _OBSERVED_SHARE * span:
        if observed_seconds < _DAY:
            return f"{length}{before}, of which {duration(observed_seconds)} were observed,"
        if (seen := math.floor(observed_seconds / _DAY)) < days:
            return f"{length}{before}, of which {seen} {'was' if seen == 1 else 'were'} observed,"
    return (f"{days // 7} weeks" if days >= 14 and days % 7 == 0 else length) + before


_DATE = len("Mon 2026-03-02")


def _count(slots: float) -> str:
    """Return a number of slots, which may be a fraction: ``41``, ``3.2``."""
    return f"{slots:.0f}" if slots >= 10 else f"{slots:.1f}"


def _limits(row: StreamFacts) -> str | None:
    dead_from = None if row.expected_by is None else _same_day(row, row.expected_by)
    from_ = None if row.suspect_from is None else f"suspect since {_same_day(row, row.suspect_from)}"
    if row.verdict in (Verdict.DEAD, Verdict.RETIRED):
        dead = f"dead past {duration(row.max_silence_seconds)}, so" if _by_period(row) else "dead"
        died = dead if dead_from is None else f"{dead} since {dead_from}"
        if row.verdict == Verdict.DEAD:
            return died
        by, polled_from = row.expected_by, row.polled_from
        dead_at_first_poll = by is not None and polled_from is not None and by <= polled_from
        if row.last_advance is None or dead_at_first_poll:
            return "; ".join(filter(None, (died, _abandoned(row))))
        dead_after = 0.0 if by is None else by - row.last_advance
        return f"{died}; retired after {duration(float(find_retirement(dead_after)))} of silence"
    if row.verdict == Verdict.HELD:
        if from_ is not None and row.suspect_from is not None and row.suspect_from > row.as_of:
            from_ = from_.replace("since", "from")
        return f"held: its silence is not proved; {from_} if it is still silent" if _unproved(row) else from_
    if row.verdict in (Verdict.SUSPECT, Verdict.LATE):
        suspect = from_ if row.verdict == Verdict.SUSPECT else None
        dead_later = None if dead_from is None else f"dead from {dead_from}"
        return "; ".join(filter(None, (suspect, dead_later)))
    if row.expected_by is None:
        return None
    return f"dead from {moment(row.expected_by)}{' if still silent' if row.expected_by < row.as_of else ''}"


def _unproved(row: StreamFacts) -> bool:
    if row.verdict != Verdict.HELD or row.suspect_from is None or row.observed_until is None:
        return False
    return row.suspect_from > row.observed_until


def _by_period(row: StreamFacts) -> bool:
    if row.max_silence_seconds is None or row.schedule is not None:
        return False
    if row.last_advance is None or row.expected_by is None:
        return True
    return row.expected_by - row.last_advance >= row.max_silence_seconds - 1.0


def _same_day(row: StreamFacts, at: float) -> str:
    """Return a moment, without its date if the whole silence is in one day: the line already has that date."""
    day = None if row.last_advance is None else row.last_advance // _DAY
    return moment(at, "%H:%M") if at // _DAY == day == row.as_of // _DAY else moment(at)


def _missing(row: StreamFacts) -> str:
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


def _proved_until(row: StreamFacts) -> str | None:
    if row.unreadable_since is not None:
        return f"unreadable since {moment(row.unreadable_since)} ({row.reason or 'no answer'})"
    until = row.observed_until
    if until is None or row.as_of - until <= row.slot_seconds:
        return None
    whole = row.partitions > 1 and row.partition is None
    return f"{'not all of it looked at' if whole else 'not looked at'} since {moment(until)}"


def _misdated(row: StreamFacts) -> str | None:
    match row.state:
        case State.FUTURE:
            return "newest record dated in the future"
        case State.CONTRADICTORY:
            return "newest record dated after its last advance: it was dated ahead, and no staleness follows from it"
        case State.PRESERVED:
            return "newest record dated before its last advance: mirrored or back-dated"
    return None


def _siblings(row: StreamFacts) -> str | None:
    if row.partitions <= 1 or row.partitions_learning >= row.partitions:
        return None
    live = f"{row.partitions_live} of {row.partitions} partitions of {row.topic} alive"
    return f"{live}, {row.partitions_learning} learning" if row.partitions_learning else live

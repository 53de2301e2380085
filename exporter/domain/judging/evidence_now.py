"""The evidence line between rollups: what the rollup published of a stream, with its present silence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from exporter.domain.arrays import replace_nan
from exporter.domain.expectations.silence_rules import ExpectationSet, JudgedSilences
from exporter.domain.formatting import moment, plural
from exporter.domain.groups.readers import Readership
from exporter.domain.judging.detection import GOOD_SHARE, Judgement
from exporter.domain.judging.evidence import (
    FOLLOWS,
    EvidenceFacts,
    describe_first_poll,
    evidence,
    explain_override,
    silence,
)
from exporter.domain.judging.gap_law import DEAD_AFTER_SECONDS, SUSPECT_AFTER_SECONDS
from exporter.domain.judging.incidents import Incident
from exporter.domain.judging.readers_and_copies import SILENT, readers_line
from exporter.domain.learning.drops import OngoingDrop
from exporter.domain.learning.profiles import scale_missed
from exporter.domain.polls.readings import State
from exporter.domain.polls.silence import Silence
from exporter.domain.verdicts import GAPS, NO_RULE, Expectation, TopicOverride, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectNow:
    """What polls and sweeps report of a stream; None where unknown."""

    topic: str = ""
    partition: int | None = None
    silence: Silence | None = None
    state: State | None = None
    reason: str | None = None
    partitions: tuple[int, int, int] = (1, 1, 0)
    """Number of partitions of its topic, of these that live, and of these that are learning."""
    readers: Readership | None = None
    override: TopicOverride | None = None
    published: str | None = None
    """The evidence line of the rollup, where nothing newer is known."""
    newest: float | None = None
    """The timestamp of its newest record."""
    records: int | None = None
    """Number of records ever written."""
    with_topic: JudgedSubject | None = None
    """Its topic, where a partition has the verdict of that."""


NOTHING = SubjectNow()


class JudgedSubject(NamedTuple):
    """The judgement of a topic or partition, and the facts behind it."""

    judgement: Judgement
    expectation: Expectation | None = None
    """The expectation that judges it, None where none is in force."""
    incident: Incident | None = None
    """The incident that holds it."""
    seen: SubjectNow = NOTHING


class Foreseen(NamedTuple):
    """When a silence becomes suspect and dead (Unix seconds), and its missed slots; None where unknown."""

    suspect_from: float | None = None
    dead_from: float | None = None
    missed: float | None = None


def evidence_now(subject: JudgedSubject, now: float) -> str:
    """Return one sentence that explains the verdict at ``now`` (Unix seconds)."""
    return evidence_of_all([subject], now)[0]


def evidence_of_all(subjects: Sequence[JudgedSubject], now: float) -> list[str]:
    """Return the sentence of each subject, which are all different. Their expectations are prepared only once."""
    foreseen = foresee(subjects, now)
    of_topics: dict[tuple[str, Judgement], str] = {}
    lines = []
    for subject, to_come in zip(subjects, foreseen, strict=True):
        topic = subject.seen.with_topic
        if topic is None:
            lines.append(_line(subject, now, to_come))
            continue
        if (key := (subject.seen.topic, topic.judgement)) not in of_topics:
            of_topics[key] = evidence_now(topic, now)
        lines.append(FOLLOWS + of_topics[key])
    return lines


def _line(subject: JudgedSubject, now: float, foreseen: Foreseen) -> str:
    judgement, expectation, _, seen = subject
    if seen.published:
        return seen.published
    row = _judged(subject, now, foreseen)
    if seen.override is not None:
        return _joined([_unseen(seen), explain_override(row, seen.override)])
    unusable = expectation is None or expectation.rule != NO_RULE
    if judgement.verdict is Verdict.LEARNING and unusable and seen.state not in (State.NEVER_WRITTEN, State.EMPTY):
        why = "no expectation of it is in force" if expectation is None else "what is published of it cannot be used"
        return _joined([_unseen(seen), silence(row), f"learning: {why}"])
    after = [_replication(judgement, expectation), _readers(judgement, seen)]
    return _joined([None if row.newest is not None else _unseen(seen), evidence(row), *after])


def _joined(clauses: Sequence[str | None]) -> str:
    return "; ".join(clause for clause in clauses if clause)


def _span(subject: JudgedSubject, now: float) -> tuple[float | None, float]:
    last, known = subject.judgement.last_advance, subject.seen.silence
    since = known.since if last is None and known is not None else last
    return since, now if known is None else known.until


def falling(incident: Incident | None, expectation: Expectation | None) -> OngoingDrop | None:
    """Return the drop of the fleet that holds a subject, as published for it; None where none holds it."""
    if incident is None or incident.falling is None:
        return None
    own = None if expectation is None else expectation.falling
    return own or incident.falling


_LEARNED = (
    *("active_slots", "history_start", "weeks", "observed_seconds", "largest_silence_seconds", "largest_silence_end"),
    *("largest_missed", "max_silence_seconds", "slot_seconds", "schedule", "rests", "polled_from"),
)
"""What evidence shows of an expectation."""


def _judged(subject: JudgedSubject, now: float, foreseen: Foreseen) -> EvidenceFacts:
    judgement, expectation, incident, seen = subject
    last, (since, until) = judgement.last_advance, _span(subject, now)
    learned = {} if expectation is None else {name: getattr(expectation, name) for name in _LEARNED}
    # Without any advance only the age of its newest record can have judged it.
    newest = seen.newest if last is None and judgement.verdict in (Verdict.SUSPECT, Verdict.RETIRED) else None
    if newest is not None:
        foreseen = Foreseen(newest + SUSPECT_AFTER_SECONDS, newest + DEAD_AFTER_SECONDS)
        learned["polled_from"] = since
    partitions, live, learning = seen.partitions
    return EvidenceFacts(
        as_of=now,
        topic=seen.topic,
        partition=seen.partition,
        verdict=judgement.verdict,
        state=None if seen.state is None else str(seen.state),
        reason=seen.reason,
        last_advance=last,
        observed_until=until,
        unreadable_since=until if seen.state is State.UNREADABLE else None,
        silence_seconds=None if last is None else max(0.0, until - last),
        **learned,
        missed_slots=foreseen.missed,
        suspect_from=foreseen.suspect_from,
        expected_by=foreseen.dead_from if judgement.expected_by is None else judgement.expected_by,
        partitions=partitions,
        partitions_live=live,
        partitions_learning=learning,
        falling=falling(incident, expectation),
        held=_held(judgement, seen.silence, foreseen.suspect_from) if incident is None else str(incident),
        by_gaps=expectation is not None and expectation.rule == GAPS,
        newest=newest,
        records=seen.records,
        baseline_of=None if expectation is None else expectation.last_advance,
    )


def foresee(subjects: Sequence[JudgedSubject], now: float) -> list[Foreseen]:
    """Return what becomes of the silence of each subject, which are all different, if it lasts."""
    found = [Foreseen()] * len(subjects)
    chosen = [
        (row, one.expectation, since, until)
        for row, one in enumerate(subjects)
        for since, until in [_span(one, now)]
        if one.expectation is not None and since is not None
    ]
    if not chosen:
        return found
    rows, expectations, since, until = zip(*chosen, strict=True)
    judged_by = ExpectationSet(expectations)
    of_each = np.argsort(judged_by.table.number)  # they stand there in the order of their names
    foreseen = judged_by.foresee(JudgedSilences(of_each, np.array(since), np.array(until)))
    for row, expectation, of_one in zip(rows, expectations, np.column_stack(foreseen).tolist(), strict=True):
        suspect_from, dead_from, missed = map(replace_nan, of_one)
        found[row] = Foreseen(suspect_from, dead_from, missed and missed * _missed_scale(expectation))
    return found


def _missed_scale(row: Expectation) -> float:
    if row.schedule is not None or row.profile is None or None in (row.active_slots, row.observed_seconds):
        return 1.0
    known = (np.array([value], np.float64) for value in (row.active_slots, row.observed_seconds, row.profile))
    return float(scale_missed(*known)[0])


def _held(judgement: Judgement, silence: Silence | None, suspect_from: float | None) -> str | None:
    if judgement.verdict is not Verdict.HELD or silence is None:
        return None
    if suspect_from is not None and suspect_from > silence.until:
        return None
    good, missed = silence.polls_good, silence.polls_missed
    if silence.settling:
        return f"the exporter has polled it only {plural(good, 'time')} since it started"
    if good < GOOD_SHARE * (good + missed):
        return f"only {good:,} of {good + missed:,} polls in this silence were good"
    return f"its silence is proved until {moment(silence.until)} only"


def _unseen(seen: SubjectNow) -> str | None:
    silence = seen.silence
    if silence is None or silence.known:
        return None
    if not silence.advanced:
        return None if seen.state in (State.NEVER_WRITTEN, State.EMPTY) else "no advance was ever seen"
    if silence.not_before is None:
        return describe_first_poll(silence.since)
    between = f"{moment(silence.not_before)} and {moment(silence.since)}"
    return f"it advanced between {between} while nobody looked; silent at least since then"


def _replication(judgement: Judgement, expectation: Expectation | None) -> str | None:
    if expectation is None or expectation.last_advance != judgement.last_advance:
        return None
    return expectation.replication if expectation.verdict == judgement.verdict else None


def _readers(judgement: Judgement, seen: SubjectNow) -> str | None:
    if seen.readers is None:
        return None
    return readers_line(seen.readers, silent=judgement.verdict in SILENT)

"""The partitions of a topic, each with its judgement, for ``explain``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from exporter.domain import Expectation, Reading, State, TopicOverride, Verdict
from exporter.domain.judging.detection import judge, overruled
from exporter.domain.judging.evidence_now import JudgedSubject, SubjectNow
from exporter.domain.judging.incidents import Incident
from exporter.domain.polls.silence import Silence


class TopicPartitions(NamedTuple):
    """What is known of the partitions of a topic."""

    readings: Mapping[int, Reading]
    silences: Mapping[int, Silence | None]
    rows: Mapping[int | None, Expectation]
    incidents: Mapping[int | None, Incident]
    override: TopicOverride | None


def siblings_of(known: TopicPartitions, topic: str, now: float) -> Mapping[int, JudgedSubject]:
    """Return every partition of a topic with its judgement."""
    judged = {number: _judged(known, number, now) for number in known.silences}
    partitions = counted(judged)
    found = {}
    for number, one in judged.items():
        reading = known.readings.get(number)
        seen = SubjectNow(
            topic=topic,
            partition=number,
            silence=known.silences[number],
            state=None if reading is None else reading.state,
            reason=None if reading is None or reading.reason is None else str(reading.reason),
            partitions=partitions,
            override=known.override,
        )
        found[number] = one._replace(seen=seen)
    return found


def _judged(known: TopicPartitions, number: int, now: float) -> JudgedSubject:
    silence, row, incident = known.silences[number], known.rows.get(number), known.incidents.get(number)
    if known.override is not None:
        return JudgedSubject(overruled(silence, known.override, now))
    judgement = judge(silence, row, now)
    held_before = number not in known.readings and row is not None and row.verdict == Verdict.HELD
    if incident is not None or held_before:
        judgement = judgement._replace(verdict=Verdict.HELD)
    return JudgedSubject(judgement, row, incident)


def counted(siblings: Mapping[int, JudgedSubject]) -> tuple[int, int, int]:
    """Return how many partitions there are, how many of them live, and how many are learning."""
    verdicts = [one.judgement.verdict for one in siblings.values()]
    living = sum(verdict in (Verdict.LIVE, Verdict.QUIET, Verdict.LATE) for verdict in verdicts)
    return len(verdicts), living, verdicts.count(Verdict.LEARNING)


def state_of(readings: Mapping[int, Reading], partition: int | None) -> State | None:
    """Return the state that all readings have; of a whole topic not that it cannot be read."""
    states = {one.state for number, one in readings.items() if partition in (None, number)}
    state = states.pop() if len(states) == 1 else None
    return None if partition is None and state is State.UNREADABLE else state

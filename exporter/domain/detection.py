"""Snapshot and promises -> verdicts: every partition, every topic, and what is held for the time being."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from exporter.domain import (
    SUSPECT_SHARE,
    Advance,
    Expectation,
    Reading,
    Snapshot,
    State,
    TopicOverride,
    TopicPartition,
    Verdict,
)
from exporter.domain.expectations import CODES, VERDICTS, Promises, Scores, Silences, retired_after
from exporter.domain.incidents import NO_LEADER, Held, Incident, Streams, hold
from exporter.domain.silence import Silence, silence_of, union
from exporter.domain.traffic_clock import HOUR, Floats

GOOD_SHARE = 0.9
"""With a smaller share of good polls in a silence it is too badly seen to be news."""

NOTHING_TOLD: Mapping[tuple[str, str, int], Advance] = {}

_WITHOUT_TIME = (State.EMPTY, State.NEVER_WRITTEN, State.NO_TIMESTAMP)
"""States of partitions that hold no timestamp at all."""

_NO_SILENCE = Silence(0.0, 0.0, known=False)
_ALARMING = [CODES[Verdict.SUSPECT], CODES[Verdict.DEAD]]


class Judgement(NamedTuple):
    """A verdict as of now. What is not known or not promised is None."""

    verdict: Verdict
    last_advance: float | None = None
    expected_by: float | None = None
    score: float | None = None


@dataclass(frozen=True, slots=True)
class TopicRollUp:
    """One topic at one poll; timestamps are Unix seconds, None where they are not known."""

    partitions: int
    newest: float | None
    judgement: Judgement
    states: Mapping[State, int]
    verdicts: Mapping[Verdict, int]


@dataclass(frozen=True, slots=True)
class Assessment:
    """What is known of one cluster as of one poll: a judgement each, and the topics rolled up."""

    judgements: Mapping[TopicPartition, Judgement]
    topics: Mapping[str, TopicRollUp]
    incidents: tuple[Incident, ...] = ()
    held_topics: int = 0
    """Topics of which anything is held as part of an incident."""


def assess(
    snapshot: Snapshot,
    promises: Promises,
    now: float,
    override_of: Callable[[str], TopicOverride | None] = lambda _: None,
    *,
    advances: Mapping[tuple[str, str, int], Advance] = NOTHING_TOLD,
    in_force: bool = True,
) -> Assessment:
    """Judge every partition and topic of a snapshot.

    ``promises`` are those of the snapshot's cluster; one that belongs to an earlier topic of the same name
    is not used. Where they are not ``in_force`` nothing is judged by them, but the last advances that they know
    are still true. ``override_of`` returns what the configuration says of a topic; that wins. ``advances`` are what
    earlier lives of the exporter told, by (cluster, topic, partition), for partitions that nothing is published of.
    """
    topics = snapshot.metadata.topics
    overrides = {name: found for name in topics if (found := override_of(name)) is not None}
    numbers = {name: number for number, name in enumerate(topics)}
    members: list[list[Silence | None]] = [[] for _ in topics]
    silences: list[Silence | None] = []
    rows: list[int] = []
    for key, reading in snapshot.readings.items():
        topic_id = topics[key.topic].topic_id
        row = promises.row(key.topic, key.partition, topic_id)
        if row >= 0:
            silence = silence_of(reading, promises.expectations[row])
        else:
            told = advances.get((snapshot.cluster, key.topic, key.partition)) if advances else None
            fits = told is not None and (topic_id is None or told.topic_id in (None, topic_id))
            silence = silence_of(reading, None, told if fits else None)
        members[numbers[key.topic]].append(silence)
        silences.append(silence)
        rows.append(row)
    for number, (name, info) in enumerate(topics.items()):
        silences.append(union(members[number]))
        rows.append(promises.row(name, None, info.topic_id))
    named = [key.topic for key in snapshot.readings] + list(topics)
    for place, (silence, name) in enumerate(zip(silences, named, strict=True)):
        if silence is None or name in overrides or not in_force:
            rows[place] = -1
    scores = _score(promises, silences, rows, now)
    held = _hold(scores, snapshot, [numbers[key.topic] for key in snapshot.readings])
    judgements = _judgements(scores, silences)
    if overrides:
        for place, name in enumerate(named):
            if name in overrides:
                judgements[place] = overruled(silences[place], overrides[name], now)
    by_partition = dict(zip(snapshot.readings, judgements, strict=False))
    held_names = {name for incident in held.incidents for name in incident.topics}
    return Assessment(
        by_partition,
        _roll_up(snapshot, by_partition, judgements[len(by_partition) :]),
        held.incidents,
        len(held_names),
    )


def judge(silence: Silence | None, expectation: Expectation | None, now: float) -> Judgement:
    """Judge one silence by what history promised, as ``assess`` does but for incidents."""
    promised = expectation is not None and silence is not None
    promises = Promises([] if expectation is None else [expectation])
    return _judgements(_score(promises, [silence], [0 if promised else -1], now), [silence])[0]


def may_be_held(silence: Silence | None, expectation: Expectation | None, now: float) -> bool:
    """Tell whether a silence that ``judge`` calls suspect or dead is held if many topics fell silent with it."""
    if silence is None or expectation is None:
        return False
    scores = _score(Promises([expectation]), [silence], [0], now)
    return bool((np.isin(scores.verdicts, _ALARMING) & scores.crossed).any())


def overruled(silence: Silence | None, override: TopicOverride, now: float) -> Judgement:
    """Judge a silence by the configuration alone.

    Only a proved silence can be ``suspect`` or ``dead``, and only one that cannot be longer than it is proved is
    ``live`` or ``quiet``: until then it is ``learning``.
    """
    last_advance = silence.since if silence is not None and silence.known else None
    limit = override.max_silence_seconds
    if override.retired or limit is None:
        return Judgement(Verdict.RETIRED if override.retired else Verdict.MUTED, last_advance)
    expected_by = None if last_advance is None else last_advance + limit
    if silence is None:
        return Judgement(Verdict.LEARNING)
    proved = silence.until - silence.since
    if proved > limit:
        verdict = Verdict.RETIRED if proved >= retired_after(limit) else Verdict.DEAD
    elif proved > SUSPECT_SHARE * limit:
        verdict = Verdict.SUSPECT
    elif now - silence.since > SUSPECT_SHARE * limit and now - silence.until > SUSPECT_SHARE * limit:
        verdict = Verdict.HELD
    elif silence.longest > SUSPECT_SHARE * limit:
        verdict = Verdict.LEARNING
    else:
        verdict = Verdict.QUIET if proved > HOUR else Verdict.LIVE
    return Judgement(verdict, last_advance, expected_by)


def _score(promises: Promises, silences: list[Silence | None], rows: list[int], now: float) -> Scores:
    """Score silences by the promises; news that is too badly seen, or too soon after the start, is held."""
    seen = np.array([_NO_SILENCE if silence is None else silence for silence in silences], dtype=np.float64)
    since, until, _, _, settling, good, missed, _ = seen.reshape(-1, len(Silence._fields)).T
    chosen = np.array(rows, dtype=np.intp)
    scores = promises.judge(Silences(chosen, since, until), now)
    alarming = np.isin(scores.verdicts, _ALARMING)
    new = np.ones(len(chosen), dtype=np.bool_)
    new[chosen >= 0] = scores.verdicts[chosen >= 0] != promises.published[chosen[chosen >= 0]]
    doubted = (good < GOOD_SHARE * (good + missed)) | (settling > 0)
    scores.verdicts[alarming & new & doubted] = CODES[Verdict.HELD]
    return scores


def _hold(scores: Scores, snapshot: Snapshot, topic: list[int]) -> Held:
    """Hold what fell silent together."""
    count = len(topic)
    leaders = [NO_LEADER if reading.leader is None else reading.leader for reading in snapshot.readings.values()]
    held = hold(
        Streams(
            names=list(snapshot.metadata.topics),
            topics_promised=scores.promised[count:],
            topics_crossed=scores.crossed[count:],
            topic=np.array(topic, dtype=np.intp),
            leader=np.array(leaders, dtype=np.intp),
            promised=scores.promised[:count],
            crossed=scores.crossed[:count],
        )
    )
    alarming = np.isin(scores.verdicts, _ALARMING)
    scores.verdicts[alarming & np.concatenate([held.partitions, held.topics])] = CODES[Verdict.HELD]
    return held


def _judgements(scores: Scores, silences: list[Silence | None]) -> list[Judgement]:
    since = [silence.since if silence is not None and silence.known else None for silence in silences]
    scores.expected_by[[moment is None for moment in since]] = np.nan
    verdicts = [VERDICTS[code] for code in scores.verdicts.tolist()]
    columns = verdicts, since, _where_known(scores.expected_by), _where_known(scores.score)
    return list(map(Judgement._make, zip(*columns, strict=True)))


def _where_known(values: Floats) -> list[float | None]:
    found: list[float | None] = values.tolist()
    for place in np.flatnonzero(np.isnan(values)):
        found[place] = None
    return found


def _roll_up(
    snapshot: Snapshot, judgements: Mapping[TopicPartition, Judgement], of_topics: list[Judgement]
) -> Mapping[str, TopicRollUp]:
    readings: dict[str, list[tuple[Reading, Judgement]]] = {name: [] for name in snapshot.metadata.topics}
    for key, reading in snapshot.readings.items():
        readings[key.topic].append((reading, judgements[key]))
    return {
        name: TopicRollUp(
            partitions=len(info.partitions),
            newest=newest_of_topic(reading for reading, _ in readings[name]),
            judgement=judgement,
            states=Counter(reading.state for reading, _ in readings[name]),
            verdicts=Counter(judgement.verdict for _, judgement in readings[name]),
        )
        for (name, info), judgement in zip(snapshot.metadata.topics.items(), of_topics, strict=True)
    }


def newest_of_topic(readings: Iterable[Reading]) -> float | None:
    """Return the largest timestamp of all partitions; None where that of one which may hold records is not known.

    A partition that cannot be read counts as it was last read: its newest record is no older than that.
    """
    told = [reading if reading.latest is not None else reading.before for reading in readings]
    known = [reading for reading in told if reading is not None]
    if len(known) < len(told) or any(one.newest is None and one.state not in _WITHOUT_TIME for one in known):
        return None
    return newest_of(known)


def newest_of(readings: Iterable[Reading]) -> float | None:
    """Return the largest timestamp known; one in the future counts only where there is no other."""
    known = [(reading.state is not State.FUTURE, reading.newest) for reading in readings if reading.newest is not None]
    return max(known)[1] if known else None

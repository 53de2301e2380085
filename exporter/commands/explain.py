"""The command ``explain``: prints what is published of a topic and what its broker returns now."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple, TextIO

import click
import numpy as np

from exporter.clock import SystemClock
from exporter.collectors.consumer_groups import GroupWatch
from exporter.commands.explained_subject import ExplainedSubject, ReplicaNow
from exporter.commands.explanation import explain, plain, record
from exporter.commands.siblings import TopicPartitions, counted, siblings_of, state_of
from exporter.domain import (
    Expectation,
    GroupSweep,
    PollFailure,
    Reading,
    Reason,
    Snapshot,
)
from exporter.domain.expectations.silence_rules import ExpectationSet
from exporter.domain.judging.detection import Detector, may_be_held, newest_by_topic
from exporter.domain.judging.incidents import Incident
from exporter.domain.overrides import Overrides
from exporter.domain.polls.cluster_state import ClusterState
from exporter.domain.polls.inspections import OfTopic
from exporter.domain.polls.silence import Silence, silence_of, union
from exporter.domain.ports import Clock, SnapshotSink, SourceError
from exporter.domain.scoring.calibration import PARTITION, TOPIC
from exporter.factory.clusters import build_cluster, make_naming, make_replica_watches
from exporter.factory.monitor import last_states
from exporter.factory.sources import make_poll_source, owners_of
from exporter.history.published import Expectations, ExpectationsError, TopicRow, TopicRows, in_force, of_topic
from exporter.settings import ClusterSettings, Settings, TopicFilter
from exporter.state.problems import not_inspected
from exporter.waiting import waiting

SWEEP_SECONDS = 20.0
"""Time limit for reading consumer groups. The output says how many groups were not read by then."""


class ExplainError(Exception):
    """Nothing is known of the topic. The message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The topic or partition to explain; ``partition`` None is the whole topic."""

    topic: str
    partition: int | None = None

    @classmethod
    def parse(cls, text: str) -> Subject:
        """Read ``TOPIC`` or ``TOPIC:PARTITION``. Raises ValueError with the rule."""
        match = re.fullmatch(r"([A-Za-z0-9._-]{1,249})(?::(\d{1,9}))?", text, re.ASCII)
        if match is None:
            raise ValueError(f"must be TOPIC or TOPIC:PARTITION, such as orders:3, got {text!r}")
        return cls(match[1], None if match[2] is None else int(match[2]))


def explain_to(
    out: TextIO,
    settings: Settings,
    subject: Subject,
    cluster: str | None,
    clock: Clock | None = None,
    *,
    style: str = "text",
) -> None:
    """Write the explanation to ``out``. Raises ExplainError where nothing is known of the subject."""
    clock = SystemClock() if clock is None else clock
    published, problem = None, None
    try:
        published = of_topic(settings.history.folder, subject.topic)
    except ExpectationsError as error:
        problem = str(error)
    name = _cluster(settings, subject, published, cluster)
    rows = {row.expectation.partition: row for row in _rows_of(published, name)}
    with waiting(f"reading {subject.topic}"):
        snapshot, poll_problem, uninspected, sweep = _poll(settings, subject.topic, name, clock)
    now = clock.now()
    override = Overrides([one.as_override() for one in settings.overrides]).of(name or "", subject.topic, now)
    readings = _readings(snapshot, subject.topic)
    if not rows and not readings:
        raise ExplainError(_unknown(settings, subject, published, problem, poll_problem))
    if subject.partition is not None:
        _require(subject, set(readings) | {number for number in rows if number is not None})
    info = None if snapshot is None or not readings else snapshot.metadata.topics[subject.topic]
    topic_id = None if info is None else info.topic_id
    row = rows.get(subject.partition)
    current = {number: one.expectation for number, one in rows.items() if _same_topic(one.expectation, topic_id)}
    silences = _silences(readings, current)
    max_age = settings.expectations.max_age
    usable = current if published is not None and in_force(published.as_of, now, max_age) else {}
    silence = _silence(subject, silences, current, readings)
    incidents: Mapping[int | None, Incident] = {}
    unsure = None
    if override is None and readings:
        # A partition is held with its topic, too, and a topic that lives may have partitions that are held.
        overdue = may_be_held(union(silences.values()), usable.get(None), now) or any(
            may_be_held(one, usable.get(number), now)
            for number, one in silences.items()
            if subject.partition in (None, number)
        )
        if overdue:
            incidents, unsure = _incidents(settings, subject.topic, name, clock)
    newest, inspected = (None, None) if snapshot is None else _newest_and_inspected(snapshot, subject)
    siblings = siblings_of(TopicPartitions(readings, silences, usable, incidents, override), subject.topic, now)
    case = ExplainedSubject(
        cluster=name,
        topic=subject.topic,
        partition=subject.partition,
        now=now,
        published_at=None if published is None else published.published_at,
        stale=bool(current) and not usable,
        expectation=current.get(subject.partition),
        further={} if row is None else row.further,
        override=override,
        owner=owners_of(settings).of(name or "", subject.topic),
        silence=silence,
        incident=incidents.get(subject.partition),
        reading=None if subject.partition is None else readings.get(subject.partition),
        newest=newest,
        config=None if info is None else info.config,
        inspected=inspected,
        not_inspected=uninspected,
        poll_problem=poll_problem,
        sweep=sweep,
        copies=[] if snapshot is None else list(_replicas(settings, subject, name, clock)),
        may_be_held=unsure,
        partitions=counted(siblings),
        state=state_of(readings, subject.partition),
        siblings={} if subject.partition is not None else siblings,
        past_alarms=None
        if published is None
        else published.past_alarms.get(TOPIC if subject.partition is None else PARTITION),
        advice=problem or _advice(settings, published, known_before=row is not None),
    )
    if style == "json":
        json.dump(record(case), out, indent=2)
        out.write("\n")
        return
    colours = out.isatty() and "NO_COLOR" not in os.environ
    out.writelines(line.rstrip() + "\n" for line in explain(case, _painted if colours else plain))


def _painted(text: str, colour: str) -> str:
    return click.style(text, fg=colour) if colour else text


def _cluster(settings: Settings, subject: Subject, published: TopicRows | None, chosen: str | None) -> str | None:
    """Return the cluster of the subject, None where none is known."""
    configured = {cluster.name for cluster in settings.clusters}
    holding = set() if published is None else {row.expectation.cluster for row in published.rows}
    if chosen is not None:
        if chosen not in configured | holding:
            raise ExplainError(f"--cluster must be one of {', '.join(sorted(configured | holding))}, got {chosen!r}")
        return chosen
    known = holding or configured
    if len(known) > 1:
        names = ", ".join(sorted(known))
        raise ExplainError(f"{subject.topic} may be in several clusters ({names}): choose one with --cluster NAME")
    return next(iter(known), None)


def _rows_of(published: TopicRows | None, cluster: str | None) -> list[TopicRow]:
    return [] if published is None else [row for row in published.rows if row.expectation.cluster == cluster]


class _BrokerAnswers(NamedTuple):
    """What the broker answered; ``poll_problem`` is why there is no snapshot."""

    snapshot: Snapshot | None
    poll_problem: str | None
    not_inspected: str = ""
    sweep: GroupSweep | None = None


def _poll(settings: Settings, topic: str, cluster: str | None, clock: Clock) -> _BrokerAnswers:
    """Poll the topic once, inspect it where that is configured, and sweep its groups."""
    configured: dict[str | None, ClusterSettings] = {one.name: one for one in settings.clusters}
    if cluster not in configured:
        return _BrokerAnswers(None, "no cluster of that name is configured; give --config or --bootstrap-server")
    only = TopicFilter(include=(re.escape(topic),), internal=True)
    narrowed = configured[cluster].model_copy(update={"topics": only})
    inspection = None
    with closing(build_cluster(narrowed, settings, clock, state=_state_in(settings, narrowed))) as collectors:
        result = collectors.poller.poll()
        if collectors.inspector is not None and (inspection := collectors.inspector.inspect()).at is not None:
            result = collectors.poller.poll()
        if isinstance(result, PollFailure):
            return _BrokerAnswers(None, f"{result.reason}: {result.detail}")
        if topic not in result.metadata.topics:
            return _BrokerAnswers(None, "the topic does not exist, or the exporter lacks the DESCRIBE right on it")
        if (refused := result.metadata.topics[topic]).reason is not None and not refused.partitions:
            step = "; next step: grant DESCRIBE on it" if refused.reason is Reason.UNAUTHORIZED else ""
            return _BrokerAnswers(None, f"the topic could not be described: {refused.reason}{step}")
        uninspected = "" if inspection is None else inspection.problem or not_inspected(inspection)
        sweep = None if collectors.groups is None else _sweep(collectors.groups, clock)
        return _BrokerAnswers(result, None, uninspected, sweep)


def _state_in(settings: Settings, cluster: ClusterSettings) -> ClusterState | None:
    last = last_states(settings, [cluster]).get(cluster.name)
    return None if last is None else last.state


def _incidents(
    settings: Settings, topic: str, cluster: str | None, clock: Clock
) -> tuple[Mapping[int | None, Incident], str | None]:
    """Poll the whole cluster once and return the incidents that hold the topic (None) and its partitions.

    Where the poll fails none of them, and why it is not known what else fell silent.
    """
    published = Expectations(settings.history.folder)
    published.refresh()
    if published.published is None:
        return {}, None
    rows = published.published.rows.of_cluster(cluster or "")
    [configured] = [one for one in settings.clusters if one.name == cluster]
    with closing(build_cluster(configured, settings, clock, state=_state_in(settings, configured))) as collectors:
        result = collectors.poller.poll()
    if isinstance(result, PollFailure):
        return {}, f"other topics could not be read ({result.reason})"
    now, overrides = clock.now(), Overrides([one.as_override() for one in settings.overrides])
    assessment = Detector(ExpectationSet(rows)).assess(
        result, now, lambda topic: overrides.of(configured.name, topic, now)
    )
    layout, number = assessment.layout, assessment.layout.number_of(topic)
    if number is None:
        return {}, None
    found: dict[int | None, Incident | None] = {None: assessment.incident_of(number, topic=True)}
    for row in range(layout.first[number], layout.first[number + 1]):
        found[int(layout.partition[row])] = assessment.incident_of(row, topic=False)
    return {each: incident for each, incident in found.items() if incident is not None}, None


def _replicas(settings: Settings, subject: Subject, cluster: str | None, clock: Clock) -> Iterator[ReplicaNow]:
    """Compare the topic with its source, for each pair of clusters whose target is this cluster."""
    for pair, watch in zip(settings.replicas, make_replica_watches(settings, clock), strict=True):
        if pair.target != cluster:
            continue
        naming = make_naming(pair, settings)
        everything = {one.name: one for one in settings.clusters}[pair.source]
        try:
            with closing(make_poll_source(everything, settings)) as source:
                names = [
                    name for name in source.metadata(fresh=True).topics if naming.replica_of(name) == subject.topic
                ]
            if not names:
                continue
            # The source first: the records that are missing then existed when the target was read.
            _poll_alone(settings, pair.source, names, watch, clock)
            _poll_alone(settings, pair.target, [subject.topic], watch, clock)
            comparison = watch.compare()
        except SourceError as error:
            yield ReplicaNow(pair.source, problem=f"{error.reason}: {error.detail}")
            continue
        finally:
            watch.close()
        found = {} if comparison is None else comparison.readings
        readings = [one for key, one in found.items() if subject.partition in (None, key.partition)]
        if readings:
            yield ReplicaNow(f"{pair.source}/{', '.join(names)}", readings, pair.stopped_after)


def _poll_alone(settings: Settings, cluster: str, topics: Sequence[str], sink: SnapshotSink, clock: Clock) -> None:
    """Poll these topics of one cluster once. Raises SourceError where the poll fails."""
    only = TopicFilter(include=tuple(map(re.escape, topics)), internal=True)
    [known] = [one for one in settings.clusters if one.name == cluster]
    narrowed = known.model_copy(update={"topics": only})
    with closing(build_cluster(narrowed, settings, clock, after=[sink])) as collectors:
        result = collectors.poller.poll()
    if isinstance(result, PollFailure):
        raise SourceError(result.reason, result.detail)


def _sweep(groups: GroupWatch, clock: Clock) -> GroupSweep:
    began = clock.monotonic()
    return groups.sweep(lambda: clock.monotonic() - began > SWEEP_SECONDS)


def _readings(snapshot: Snapshot | None, topic: str) -> Mapping[int, Reading]:
    if snapshot is None:
        return {}
    return {key.partition: reading for key, reading in snapshot.readings.of_topics([topic]).items()}


def _newest_and_inspected(snapshot: Snapshot, subject: Subject) -> tuple[float | None, OfTopic | None]:
    """Return the newest timestamp of the subject and the results of its inspection; a partition as a topic of one."""
    whole = snapshot.table.layout
    if whole.number_of(subject.topic) is None:
        return None, None
    of_topic = whole.rows_of(subject.topic)
    rows = np.arange(of_topic.start, of_topic.stop)
    if subject.partition is not None:
        rows = rows[whole.partition[of_topic] == subject.partition]
    layout = whole.part(rows)
    if not len(layout):
        return None, None
    newest = float(newest_by_topic(snapshot.table.laid_out(layout))[0])
    everywhere = np.ones(len(snapshot.inspected.layout), dtype=np.bool_)
    inspected = snapshot.inspected.laid_out(layout, everywhere, everywhere)
    return None if np.isnan(newest) else newest, inspected.of_topics.topic(0) if len(inspected) else None


def _same_topic(row: Expectation, topic_id: str | None) -> bool:
    return topic_id is None or row.topic_id is None or row.topic_id == topic_id


def _silences(
    readings: Mapping[int, Reading],
    rows: Mapping[int | None, Expectation],
) -> Mapping[int, Silence | None]:
    """Return the silence of each partition: by its reading, else as published."""
    silences: dict[int, Silence | None] = {}
    for number in sorted({*readings, *(number for number in rows if number is not None)}):
        reading, row = readings.get(number), rows.get(number)
        if reading is None:
            silences[number] = _published(row)
            continue
        silence = silence_of(reading, row)
        # One call cannot wait until a silence has settled, as a running exporter does.
        silences[number] = None if silence is None else silence._replace(settling=False)
    return silences


def _published(row: Expectation | None) -> Silence | None:
    if row is None or row.last_advance is None:
        return None
    return Silence(row.last_advance, max(row.as_of, row.last_advance), known=True)


def _silence(
    subject: Subject,
    silences: Mapping[int, Silence | None],
    rows: Mapping[int | None, Expectation],
    readings: Mapping[int, Reading],
) -> Silence | None:
    if subject.partition is not None:
        return silences.get(subject.partition)
    return union(silences.values()) if readings else _published(rows.get(None))


def _require(subject: Subject, known: set[int]) -> None:
    if known and subject.partition not in known:
        raise ExplainError(f"{subject.topic} has no partition {subject.partition}: its partitions are {_range(known)}")


def _range(numbers: set[int]) -> str:
    return str(min(numbers)) if len(numbers) == 1 else f"{min(numbers)} to {max(numbers)}"


def _advice(settings: Settings, published: TopicRows | None, *, known_before: bool) -> str:
    if known_before:
        return "what is published belongs to an earlier topic of that name; the next rollup learns this topic"
    if published is None:
        return (
            f"{settings.history.folder / 'published'} holds no expectations: collect history with "
            "`topic-liveness serve` or `topic-liveness backfill`, then run `topic-liveness rollup`"
        )
    return "the last rollup did not know the topic; run `topic-liveness rollup` again once history holds it"


def _unknown(
    settings: Settings, subject: Subject, published: TopicRows | None, problem: str | None, poll_problem: str | None
) -> str:
    text = f"nothing is known of {subject.topic}"
    if published is not None and published.alike:
        text += f", did you mean {' or '.join(published.alike)}?"
    advice = problem or _advice(settings, published, known_before=False)
    return f"{text}\n  published: {advice}\n  broker: {poll_problem or 'the topic has no partitions'}"

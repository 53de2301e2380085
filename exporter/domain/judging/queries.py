"""Topics and partitions of all clusters, filtered, sorted and cut to a page on columns; objects only for its rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from exporter.domain.arrays import Flags, Floats, replace_nan
from exporter.domain.groups.readers import Readership, find_readers, groups_in, why_unknown
from exporter.domain.groups.sweep import GroupSweep
from exporter.domain.judging.detection import Assessment, Judgements
from exporter.domain.judging.evidence_now import JudgedSubject, SubjectNow
from exporter.domain.judging.subject_facts import (
    describe_config,
    describe_copy,
    describe_expectation,
    describe_judged,
    describe_reading,
    record_subject,
)
from exporter.domain.polls.readings import State, TopicPartition
from exporter.domain.polls.table import STATES, Snapshot
from exporter.domain.replicas.comparison import Comparison
from exporter.domain.scoring.calibration import PARTITION, TOPIC
from exporter.domain.scoring.thresholds import PastAlarms
from exporter.domain.verdicts import OF_ALL_PARTITIONS, VERDICT_CODES, VERDICTS, Expectation, TopicOverride, Verdict

GRAVEST = (
    Verdict.DEAD,
    Verdict.SUSPECT,
    Verdict.HELD,
    Verdict.LATE,
    Verdict.LEARNING,
    Verdict.QUIET,
    Verdict.LIVE,
    Verdict.RETIRED,
    Verdict.MUTED,
)
"""Verdicts in the order in which people should look at them."""
_RANK = np.array([GRAVEST.index(verdict) for verdict in VERDICTS], dtype=np.float64)

_OF_ALL = [VERDICT_CODES[verdict] for verdict in OF_ALL_PARTITIONS]

SORTS = ("severity", "name", "silence", "score", "last_record")
"""Keys to sort a listing by. ``severity``: dead first, the longest silent of them first."""


@dataclass(frozen=True, slots=True, eq=False)
class ClusterFacts:
    """What the exporter knows of one cluster that it currently polls."""

    cluster: str
    snapshot: Snapshot
    assessment: Assessment
    sweep: GroupSweep | None
    expectation: Callable[[str, int | None], Expectation | None]
    """Returns the published expectation of a topic (partition None) or partition of this cluster."""
    now: float
    """The wall clock at the last poll, and the time since: a clock that was set in between changes no silence."""
    override: Callable[[str], TopicOverride | None] = lambda _: None
    published_at: float | None = None
    in_force: bool = False
    past_alarms: Mapping[str, PastAlarms] = field(default_factory=dict)
    """Past alarms of the thresholds, by kind of stream."""
    comparisons: Sequence[Comparison] = ()
    """Of its topics that are replicas with their sources in other clusters."""


@dataclass(frozen=True, slots=True)
class Query:
    """Which rows to return; an empty filter lets all pass. ``search`` is a part of a topic's name."""

    clusters: Collection[str] = ()
    topics: Collection[str] = ()
    verdicts: Collection[str] = ()
    states: Collection[str] = ()
    owners: Collection[str] = ()
    search: str = ""
    sort: str = "severity"
    descending: bool = False
    of_living: bool = False
    """Only partitions of topics with none of OF_ALL_PARTITIONS."""
    offset: int = 0
    limit: int = 100


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a listing; ``total`` counts the rows that pass the filters."""

    total: int
    items: Sequence[Mapping[str, Any]] = field(default_factory=tuple)


def topics(known: Sequence[ClusterFacts], query: Query) -> Page:
    """Return a page of topics."""
    found = []
    for one in _chosen(known, query):
        passed = _of_topics(one, query) & _verdict_is(one.assessment.of_topics, query)
        if query.states:
            passed &= one.assessment.states[:, [STATES.index(_state(name)) for name in query.states]].any(axis=1)
        rows = np.flatnonzero(passed)
        found.append((one, rows, _keys(query, one.assessment.of_topics, one.assessment.newest)[rows]))
    return _page(found, query, _topic, topic_record)


def partitions(known: Sequence[ClusterFacts], query: Query) -> Page:
    """Return a page of partitions."""
    found = []
    for one in _chosen(known, query):
        table = one.snapshot.table
        passed = _of_topics(one, query)[table.layout.topic] & _verdict_is(one.assessment.of_partitions, query)
        if query.states:
            passed &= np.isin(table.state_now, [STATES.index(_state(name)) for name in query.states])
        if query.of_living:
            passed &= ~np.isin(one.assessment.of_topics.verdict, _OF_ALL)[table.layout.topic]
        rows = np.flatnonzero(passed)
        newest = np.where(table.read, table.newest, np.nan)
        found.append((one, rows, _keys(query, one.assessment.of_partitions, newest)[rows]))
    return _page(found, query, _partition, partition_record)


def topic_record(one: ClusterFacts, row: int, judged: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of the topic with this number in the layout; ``judged`` is what ``describe_judged`` returns."""
    assessment = one.assessment
    name = assessment.layout.topics[row]
    info, newest = one.snapshot.metadata.topics[name], assessment.newest[row]
    counted = zip(STATES, assessment.states[row].tolist(), strict=True)
    verdicts = zip(VERDICTS, assessment.verdicts[row].tolist(), strict=True)
    readers = _readers(one, name)
    return {
        "cluster": one.cluster,
        "topic": name,
        **judged,
        "last_record": replace_nan(newest),
        "owner": info.owner,
        "readers": None if readers is None else readers.assigned,
        "groups_committed_only": None if readers is None else readers.committed,
        "groups_without_members": None if readers is None else readers.gone,
        "partitions": int(assessment.layout.first[row + 1] - assessment.layout.first[row]),
        "states": {str(state): count for state, count in counted if count},
        "verdicts": {str(verdict): count for verdict, count in verdicts if count},
    }


def partition_record(one: ClusterFacts, row: int, judged: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of the partition in this row; ``judged`` is what ``describe_judged`` returns."""
    key, table = one.assessment.layout.key(row), one.snapshot.table
    reading = table.reading(row)
    return {
        "cluster": one.cluster,
        "topic": key.topic,
        "partition": key.partition,
        **judged,
        "last_record": reading.newest,
        "owner": one.snapshot.metadata.topics[key.topic].owner,
        **describe_reading(reading),
    }


def _readers(one: ClusterFacts, topic: str) -> Readership | None:
    return None if one.sweep is None else find_readers(one.sweep, [topic]).readership()[0]


def _topic_seen(one: ClusterFacts, row: int) -> SubjectNow:
    name, states = one.assessment.layout.topics[row], np.flatnonzero(one.assessment.states[row])
    state = STATES[states[0]] if len(states) == 1 else None
    return SubjectNow(
        topic=name,
        silence=one.assessment.silence_of(row, topic=True),
        state=None if state is State.UNREADABLE else state,
        partitions=_partitions(one, row),
        readers=_readers(one, name),
        override=one.override(name),
        newest=replace_nan(one.assessment.newest[row]),
        records=int(one.snapshot.table.latest[one.assessment.layout.rows_of(name)].sum()),
    )


def _topic(one: ClusterFacts, row: int) -> JudgedSubject:
    assessment = one.assessment
    return JudgedSubject(
        assessment.of_topics.judgement(row),
        one.expectation(assessment.layout.topics[row], None) if one.in_force else None,
        assessment.incident_of(row, topic=True),
        _topic_seen(one, row),
    )


def _partition(one: ClusterFacts, row: int) -> JudgedSubject:
    key, reading = one.assessment.layout.key(row), one.snapshot.table.reading(row)
    topic = int(one.assessment.layout.topic[row])
    return JudgedSubject(
        one.assessment.of_partitions.judgement(row),
        one.expectation(*key) if one.in_force else None,
        one.assessment.incident_of(row, topic=False),
        SubjectNow(
            topic=key.topic,
            partition=key.partition,
            silence=one.assessment.silence_of(row, topic=False),
            state=reading.state,
            reason=None if reading.reason is None else str(reading.reason),
            partitions=_partitions(one, topic),
            override=one.override(key.topic),
            newest=reading.newest,
            records=reading.latest,
            with_topic=_topic(one, topic) if one.assessment.follows[row] else None,
        ),
    )


_LIVING = [VERDICT_CODES[verdict] for verdict in (Verdict.LIVE, Verdict.QUIET, Verdict.LATE)]


def _partitions(one: ClusterFacts, topic: int) -> tuple[int, int, int]:
    """Return how many partitions a topic has, how many of them live, and how many are learning."""
    counts = one.assessment.verdicts[topic]
    return int(counts.sum()), int(counts[_LIVING].sum()), int(counts[VERDICT_CODES[Verdict.LEARNING]])


def _chosen(known: Sequence[ClusterFacts], query: Query) -> list[ClusterFacts]:
    return [one for one in known if not query.clusters or one.cluster in query.clusters]


def _state(name: str) -> Any:
    return next(state for state in STATES if state == name)


def _of_topics(one: ClusterFacts, query: Query) -> Flags:
    names, info = one.assessment.layout.topics, one.snapshot.metadata.topics
    passed = np.ones(len(names), dtype=np.bool_)
    if query.search:
        wanted = query.search.lower()
        passed &= np.fromiter((wanted in name.lower() for name in names), np.bool_, len(names))
    if query.topics:
        passed &= np.fromiter((name in query.topics for name in names), np.bool_, len(names))
    if query.owners:
        passed &= np.fromiter(((info[name].owner or "") in query.owners for name in names), np.bool_, len(names))
    return passed


def _verdict_is(judged: Judgements, query: Query) -> Flags:
    if not query.verdicts:
        return np.ones(len(judged), dtype=np.bool_)
    return np.isin(judged.verdict, [code for verdict, code in VERDICT_CODES.items() if verdict in query.verdicts])


def _keys(query: Query, judged: Judgements, newest: Floats) -> Floats:
    """Return two columns to sort by. Unknown values come last in both directions."""
    nothing = np.zeros(len(judged))
    if query.sort == "severity":
        rank = _RANK[judged.verdict]
        columns = [-rank if query.descending else rank, judged.last_advance]
    elif query.sort == "name":
        columns = [nothing, nothing]
    else:
        # The longest silence is the earliest advance.
        by = {"silence": -judged.last_advance, "score": judged.score, "last_record": newest}[query.sort]
        columns = [nothing, -by if query.descending else by]
    return np.column_stack(columns)


Found = tuple[ClusterFacts, "np.ndarray[Any, np.dtype[np.intp]]", Floats]


def _page(
    found: Sequence[Found],
    query: Query,
    subject: Callable[[ClusterFacts, int], JudgedSubject],
    record: Callable[[ClusterFacts, int, Mapping[str, Any]], dict[str, Any]],
) -> Page:
    if not found:
        return Page(0)
    number = np.concatenate([np.full(len(rows), place) for place, (_, rows, _) in enumerate(found)])
    rows, keys = np.concatenate([rows for _, rows, _ in found]), np.concatenate([keys for _, _, keys in found])
    order = np.lexsort((rows, number, keys[:, 1], keys[:, 0]))
    if query.sort == "name" and query.descending:
        order = order[::-1]
    chosen = order[query.offset : query.offset + query.limit]
    shown = [(found[number[at]][0], int(rows[at])) for at in chosen]
    judged: dict[int, Mapping[str, Any]] = {}
    for cluster, *_ in found:
        places = [place for place, (one, _) in enumerate(shown) if one is cluster]
        judged |= zip(places, describe_judged([subject(*shown[place]) for place in places], cluster.now), strict=True)
    return Page(len(rows), [record(*one, judged[place]) for place, one in enumerate(shown)])


def explain_subject(one: ClusterFacts, topic: str, partition: int | None) -> dict[str, Any] | None:
    """Return all known facts of a topic (``partition`` None) or partition; None where it is not in the cluster."""
    layout, table, sweep = one.assessment.layout, one.snapshot.table, one.sweep
    number = layout.number_of(topic)
    row = number if partition is None else layout.row(TopicPartition(topic, partition))
    if number is None or row is None:
        return None
    rows = layout.rows_of(topic) if partition is None else slice(row, row + 1)
    proved = table.last_good_poll[rows]
    reading = None if partition is None else table.reading(row)
    expectation, info = one.expectation(topic, partition), one.snapshot.metadata.topics[topic]
    log_bytes, disk_bytes = _sizes(one, topic, partition)
    return record_subject(
        one.cluster,
        _topic(one, row) if partition is None else _partition(one, row),
        one.now,
        {int(layout.partition[each]): _partition(one, each) for each in range(rows.start, rows.stop)}
        if partition is None
        else {},
        None if expectation is None else describe_expectation(expectation, one.published_at, in_force=one.in_force),
        proved_until=None if not len(proved) or np.isnan(proved).any() else float(proved.min()),
        last_record=replace_nan(one.assessment.newest[number]) if reading is None else reading.newest,
        reading=None if reading is None else describe_reading(reading),
        owner=info.owner,
        config=None if info.config is None else describe_config(info.config),
        groups=None
        if sweep is None or sweep.blank
        else [each._asdict() for each in groups_in(sweep, topic, partition)],
        other_groups=[] if sweep is None else sorted(sweep.others or ()),
        all_groups_known=_readers(one, topic) is not None,
        groups_unknown=None if sweep is None else why_unknown(sweep, topic),
        log_bytes=log_bytes,
        disk_bytes=disk_bytes,
        replica_of=[
            describe_copy(compared.source, source, readings)
            for compared in one.comparisons
            for source, readings in compared.table.find_copies(topic, partition).items()
        ],
        past_alarms=None
        if (alarms := one.past_alarms.get(TOPIC if partition is None else PARTITION)) is None
        else asdict(alarms),
    )


def _sizes(one: ClusterFacts, topic: str, partition: int | None) -> tuple[int | None, int | None]:
    found = one.snapshot.inspected
    place = found.layout.number_of(topic) if partition is None else found.layout.row(TopicPartition(topic, partition))
    if place is None:
        return None, None
    return found.of_topics.topic(place) if partition is None else found.partition(place)

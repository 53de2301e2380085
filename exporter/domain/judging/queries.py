"""Topics and partitions of all clusters, filtered, sorted and cut to a page on columns; records only of its rows."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import numpy as np

from exporter.domain.arrays import Flags, Floats, Rows, replace_nan
from exporter.domain.judging.current_facts import ClusterFacts, describe_reading, describe_verdict, find_facts
from exporter.domain.judging.detection import Judgements
from exporter.domain.judging.stream_facts import StreamFacts
from exporter.domain.polls.readings import State
from exporter.domain.polls.table import STATES
from exporter.domain.verdicts import OF_ALL_PARTITIONS, VERDICT_CODES, VERDICTS, Verdict

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
    return _page(known, query, topics=True)


def partitions(known: Sequence[ClusterFacts], query: Query) -> Page:
    """Return a page of partitions."""
    return _page(known, query, topics=False)


def _select(one: ClusterFacts, query: Query, *, topics: bool) -> tuple[Rows, Floats]:
    """Return the rows that pass the filters, and their keys."""
    assessment, table = one.assessment, one.snapshot.table
    judged, passed = assessment.of_topics, _of_topics(one, query)
    states = [STATES.index(State(name)) for name in query.states]
    if topics:
        newest, in_states = assessment.newest, assessment.states[:, states].any(axis=1)
    else:
        if query.of_living:
            passed &= ~np.isin(judged.verdict, _OF_ALL)
        judged, passed = assessment.of_partitions, passed[table.layout.topic]
        newest, in_states = np.where(table.read, table.newest, np.nan), np.isin(table.state_now, states)
    if states:
        passed &= in_states
    if query.verdicts:
        codes = [code for verdict, code in VERDICT_CODES.items() if verdict in query.verdicts]
        passed &= np.isin(judged.verdict, codes)
    rows = np.flatnonzero(passed)
    return rows, _keys(query, judged, newest)[rows]


def _topic_record(one: ClusterFacts, row: int, facts: StreamFacts) -> dict[str, Any]:
    assessment = one.assessment
    counted = zip(STATES, assessment.states[row].tolist(), strict=True)
    verdicts = zip(VERDICTS, assessment.verdicts[row].tolist(), strict=True)
    readers = facts.readers
    return {
        "cluster": one.cluster,
        "topic": facts.topic,
        **describe_verdict(facts),
        "last_record": replace_nan(assessment.newest[row]),
        "owner": one.snapshot.metadata.topics[facts.topic].owner,
        "readers": None if readers is None else readers.assigned,
        "groups_committed_only": None if readers is None else readers.committed,
        "groups_without_members": None if readers is None else readers.gone,
        "partitions": facts.partitions,
        "states": {str(state): count for state, count in counted if count},
        "verdicts": {str(verdict): count for verdict, count in verdicts if count},
    }


def _partition_record(one: ClusterFacts, row: int, facts: StreamFacts) -> dict[str, Any]:
    reading = one.snapshot.table.get_row(row)
    return {
        "cluster": one.cluster,
        "topic": facts.topic,
        "partition": facts.partition,
        **describe_verdict(facts),
        "last_record": reading.newest,
        "owner": one.snapshot.metadata.topics[facts.topic].owner,
        **describe_reading(reading),
    }


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


def _page(known: Sequence[ClusterFacts], query: Query, *, topics: bool) -> Page:
    chosen = [one for one in known if not query.clusters or one.cluster in query.clusters]
    if not chosen:
        return Page(0)
    found = [(one, *_select(one, query, topics=topics)) for one in chosen]
    number = np.concatenate([np.full(len(rows), place) for place, (_, rows, _) in enumerate(found)])
    rows, keys = np.concatenate([rows for _, rows, _ in found]), np.concatenate([keys for _, _, keys in found])
    order = np.lexsort((rows, number, keys[:, 1], keys[:, 0]))
    if query.sort == "name" and query.descending:
        order = order[::-1]
    shown = order[query.offset : query.offset + query.limit]
    records: dict[int, Mapping[str, Any]] = {}
    record = _topic_record if topics else _partition_record
    for place, (one, *_) in enumerate(found):
        mine = shown[number[shown] == place]
        mine_rows = rows[mine].tolist()
        facts = find_facts(one, mine_rows, topics=topics)
        records |= zip(mine.tolist(), map(record, repeat(one), mine_rows, facts), strict=True)
    return Page(len(rows), [records[at] for at in shown.tolist()])

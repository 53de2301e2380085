"""One silence judged alone, expectations as a table, and judgements as objects, for tests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from exporter.domain.arrays import Flags, replace_nan
from exporter.domain.expectations.silence_rules import ExpectationSet
from exporter.domain.expectations.table import (
    FIGURES,
    NONE,
    TEXTS,
    DictionaryColumn,
    ExpectationTable,
)
from exporter.domain.judging.current_facts import ClusterFacts, find_facts
from exporter.domain.judging.detection import (
    Assessment,
    Judgements,
    make_judgements,
    overrule_silences,
    score_silences,
)
from exporter.domain.judging.evidence import evidence
from exporter.domain.judging.incidents import Holds, Incident
from exporter.domain.judging.stream_facts import StreamFacts
from exporter.domain.learning.traffic_clock import HOURS
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.metadata import Metadata, TopicInfo
from exporter.domain.polls.readings import State
from exporter.domain.polls.silence import Silence, Silences
from exporter.domain.polls.table import STATES, Snapshot, Table
from exporter.domain.verdicts import VERDICTS, Expectation, TopicOverride, Verdict
from tests.memberships import membership_of

Key = tuple[str, str, int | None]
"""(cluster, topic, partition); partition None is the topic as a whole."""


class Judgement(NamedTuple):
    """A verdict as of now. Unknown values are None."""

    verdict: Verdict
    last_advance: float | None = None
    expected_by: float | None = None
    score: float | None = None


def judgement_in(judged: Judgements, row: int) -> Judgement:
    """Return one row as an object."""
    numbers = (judged.last_advance[row], judged.expected_by[row], judged.score[row])
    return Judgement(VERDICTS[judged.verdict[row]], *map(replace_nan, numbers))


def judge(silence: Silence | None, expectation: Expectation | None, now: float) -> Judgement:
    """Judge one silence by its expectation, as ``Detector.assess`` does, but without incidents."""
    silences = silences_in([silence])
    rows = np.array([0 if expectation is not None and silence is not None else -1], dtype=np.intp)
    known = set_of([] if expectation is None else [expectation])
    return judgement_in(make_judgements(score_silences(known, silences, rows, now), silences), 0)


def overrule(silence: Silence | None, override: TopicOverride, now: float) -> Judgement:
    """Judge one silence by the configuration alone."""
    judged = overrule_silences(silences_in([silence]), override.max_silence_seconds, override.retired, now)
    return judgement_in(judged, 0)


def silences_in(silences: Iterable[Silence | None]) -> Silences:
    """Return silences as columns."""
    given = list(silences)
    every = [Silence(0.0, 0.0, known=False) if each is None else each for each in given]
    return Silences(
        np.array([each is not None for each in given], dtype=np.bool_),
        np.array([each.since for each in every], dtype=np.float64),
        np.array([each.until for each in every], dtype=np.float64),
        np.array([each.known for each in every], dtype=np.bool_),
        np.array([each.advanced for each in every], dtype=np.bool_),
        np.array([each.settling for each in every], dtype=np.bool_),
        np.array([each.polls_good for each in every], dtype=np.int64),
        np.array([each.polls_missed for each in every], dtype=np.int64),
        np.array([np.nan if each.not_before is None else each.not_before for each in every], dtype=np.float64),
    )


def set_of(rows: Iterable[Expectation]) -> ExpectationSet:
    """Return expectations prepared to judge silences."""
    return ExpectationSet(table_of(rows))


def rows_of(table: ExpectationTable) -> list[Expectation]:
    """Return the rows of a table as objects."""
    return [table.row(row) for row in range(len(table))]


def rows_in(table: ExpectationTable) -> dict[Key, Expectation]:
    """Return the rows of a table as objects, by what they are of."""
    return {(row.cluster, row.topic, row.partition): row for row in rows_of(table)}


def line(row: Expectation | None, silence: Silence | None, now: float, **known: Any) -> str:
    """Return the evidence of a topic that is silent so; ``known`` is as in ``facts_of``."""
    return evidence(facts_of(row, silence, now, **known))


def facts_of(
    row: Expectation | None,
    silence: Silence | None,
    now: float,
    *,
    judgement: Judgement | None = None,
    incident: Incident | None = None,
    **known: Any,
) -> StreamFacts:
    """Return the facts of a topic that is silent so; ``known`` are further ones."""
    override = known.get("override")
    judgement = judgement or (overrule(silence, override, now) if override else judge(silence, row, now))
    layout = Layout.build({"orders": [0]})
    numbers = [np.array([np.nan if value is None else value]) for value in judgement[1:]]
    judged = Judgements(np.array([VERDICTS.index(judgement.verdict)], np.int8), *numbers)
    state = STATES.index(known.get("state", State.OBSERVED))
    assessment = Assessment(
        layout,
        judged,
        judged,
        np.array([np.nan]),
        np.eye(len(STATES), dtype=np.int64)[[state]],
        np.eye(len(VERDICTS), dtype=np.int64)[judged.verdict],
        Holds(np.array([-1 if incident is None else 0]), np.array([-1]), () if incident is None else (incident,)),
        silences_in([None, silence]),
        np.array([False]),
        set_of([] if row is None else [row]),
        np.array([-1, -1 if row is None else 0]),
    )
    metadata = Metadata({}, {"orders": TopicInfo(None)}, membership=membership_of({"orders": {}}))
    snapshot = Snapshot("prod", now, now, 0.0, metadata, Table.empty(layout), {}, {})
    one = ClusterFacts("prod", snapshot, assessment, None, now, lambda _: override, in_force=True)
    [found] = find_facts(one, [0], topics=True)
    return replace(found, **known)


def table_of(rows: Iterable[Expectation]) -> ExpectationTable:
    """Return expectations as a table."""
    expectations = list(rows)

    def each(name: str) -> list[Any]:
        return [getattr(row, name) for row in expectations]

    def there(name: str) -> Flags:
        return np.array([one is not None for one in each(name)], np.bool_)

    profiled = there("profile")
    return ExpectationTable.arrange(
        {name: DictionaryColumn.encode(each(name)) for name in TEXTS},
        {name: np.array(each(name), np.float64) for name in FIGURES},
        np.array([one or 0 for one in each("partition")], np.int64),
        ~there("partition"),
        np.where(profiled, np.cumsum(profiled) - 1, NONE).astype(np.int32),
        np.array([one for one in each("profile") if one is not None], np.float64).reshape(-1, HOURS),
        DictionaryColumn.keep_each(each("schedule")),
        rests=DictionaryColumn.encode(tuple(one) if one else None for one in each("rests")),
        falling=DictionaryColumn.encode(each("falling")),
        end_offset=np.array([one or 0 for one in each("end_offset")], np.int64),
        ended=there("end_offset"),
    )

"""One silence judged alone, expectations as a table, and judgements as objects, for tests."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from exporter.domain.arrays import Flags, replace_nan
from exporter.domain.expectations.silence_rules import ExpectationSet
from exporter.domain.expectations.table import FIGURES, NONE, TEXTS, DictionaryColumn, ExpectationTable
from exporter.domain.judging.detection import Judgements, make_judgements, overrule_silences, score_silences
from exporter.domain.learning.traffic_clock import HOURS
from exporter.domain.polls.silence import Silence, Silences
from exporter.domain.verdicts import VERDICTS, Expectation, TopicOverride, Verdict
from exporter.history.published import Expectations, Publication
from exporter.storage.files import Location

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
    given = list(silences)
    columns = Silences.blank(len(given), since=0.0, until=0.0)
    for row, each in enumerate(given):
        if each is not None:
            columns.there[row] = True
            for name, value in each._asdict().items():
                getattr(columns, name)[row] = np.nan if value is None else value
    return columns


def set_of(rows: Iterable[Expectation]) -> ExpectationSet:
    """Return expectations prepared to judge silences."""
    return ExpectationSet(table_of(rows))


def read_published(history: Location) -> Publication:
    """Return what a rollup published in a history folder, and insist that it can be read."""
    expectations = Expectations(history)
    assert expectations.refresh() and expectations.published is not None, expectations.problem
    return expectations.published


def rows_of(table: ExpectationTable) -> list[Expectation]:
    return [table.row(row) for row in range(len(table))]


def rows_in(table: ExpectationTable) -> dict[Key, Expectation]:
    """Return the rows of a table as objects, by what they are of."""
    return {(row.cluster, row.topic, row.partition): row for row in rows_of(table)}


def table_of(rows: Iterable[Expectation]) -> ExpectationTable:
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

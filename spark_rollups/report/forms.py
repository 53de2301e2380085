"""Report -> JSON, by the schema beside this file, and CSV lists. Both are complete."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime, tzinfo
from functools import cache
from itertools import chain
from typing import Any

from exporter.domain.formatting import iso
from spark_rollups.report.model import (
    ACTION,
    REPORT_VERSION,
    ClusterCoverage,
    Entry,
    Finding,
    Gap,
    ListedTopic,
    Report,
    Section,
)
from spark_rollups.report.topic_facts import Relations
from spark_rollups.report.wording import delete_command, in_plain_words, readers, visible

_NOT_IN_JSON = ("of_owner", "by_cluster", "compared_with")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def to_json(report: Report) -> Iterator[str]:
    """Return the lines of the report as JSON: every entry, times as ISO 8601 with ``Z``, unknown as null."""
    return _lines({"report_version": REPORT_VERSION, **_plain(report)})


def _lines(value: Any) -> Iterator[str]:
    """Set sections and the items of lists one a line: compact, and fit for a diff."""
    match value:
        case {"report_version": _} | {"entries": _}:
            members = [(f"{json.dumps(name)}: ", item) for name, item in value.items()]
            opening, closing = "{}"
        case [dict(), *_]:
            members = [("", item) for item in value]
            opening, closing = "[]"
        case _:
            yield json.dumps(value, allow_nan=False)
            return
    yield opening
    for left, (name, item) in zip(reversed(range(len(members))), members, strict=True):
        lines = list(_lines(item))
        lines[0] = name + lines[0]
        lines[-1] += "," if left else ""
        yield from (f" {line}" for line in lines)
    yield closing


def _plain(value: Any) -> Any:
    if isinstance(value, (str, int, float, type(None))):
        return value
    if is_dataclass(value):
        kind: Any = type(value)
        return {name: _plain(getattr(value, name)) for name in _names_of(kind)} | _also(value)
    if isinstance(value, datetime):
        return iso(value.timestamp())
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, tzinfo):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value]


@cache
def _names_of(kind: type) -> Sequence[str]:
    return [field.name for field in fields(kind) if field.name not in _NOT_IN_JSON]


def _also(value: object) -> dict[str, Any]:
    also: dict[str, Any] = {}
    match value:
        case Entry():
            also = {"kind": "topic" if value.is_topic else "partitions"}
        case Finding():
            also = {"plain": in_plain_words(value)}
        case Relations():
            also = {"told": readers(value)}
        case Section():
            also = {"topic_count": value.topic_count, "partition_count": value.partition_count}
        case Gap():
            also = {"seconds": value.seconds}
        case ClusterCoverage():
            also = {"good_poll_share": value.good_poll_share}
    return also


def topics_csv(report: Report) -> Iterator[str]:
    """Return the lines of a list of all topics."""
    return _of_topics(report.topics)


def candidates_csv(report: Report) -> Iterator[str]:
    """Return the lines of a list of topics that may be deleted, with the command that does it."""
    return _of_topics(report.candidates, ("command",))


def cut_off_csv(report: Report) -> Iterator[str]:
    """Return the lines of a list of copies that have lost their source."""
    return _of_topics(report.cut_off)


def _of_topics(topics: Iterable[ListedTopic], more: Sequence[str] = ()) -> Iterator[str]:
    yield from _csv(
        (
            *("cluster", "topic", "owner", "verdict", "partitions", "partitions_live", "last_advance"),
            *("silence_seconds", "dead_since", "records_7d", "consumer_groups"),
            *("groups_committed_only", "groups_without_members", "readers", "producers"),
            *("disk_bytes", "replica_of", "replica_state", "mirrored_to", "evidence", *more),
        ),
        (
            (
                *(topic.cluster, topic.topic, topic.owner, topic.verdict, topic.partitions, topic.partitions_live),
                *(_moment(topic.last_advance), topic.silence_seconds, _moment(topic.dead_since), topic.records_7d),
                *(topic.relations.consumer_groups, topic.relations.groups_committed_only),
                topic.relations.groups_without_members,
                *(_names(topic.relations), topic.relations.producers),
                *(
                    topic.relations.disk_bytes,
                    topic.relations.replica_of,
                    topic.relations.replica_state,
                    " ".join(topic.relations.mirrored_to),
                ),
                topic.evidence,
                *((delete_command(topic.topic),) if more else ()),
            )
            for topic in topics
        ),
    )


def action_csv(report: Report) -> Iterator[str]:
    """Return the lines of a list of what needs action: topics, and partitions of topics that live."""
    yield from _csv(
        (
            *("section", "cluster", "topic", "partition", "owner", "verdict", "last_advance", "silence_seconds"),
            *("overdue_since", "silence_score", "dead_score", "consumer_groups"),
            *("groups_committed_only", "groups_without_members", "readers", "disk_bytes", "evidence"),
        ),
        (
            (
                *(key, entry.cluster, entry.topic, finding.partition, entry.owner, finding.verdict),
                *(_moment(finding.last_advance), finding.silence_seconds, _moment(finding.overdue_since)),
                *(finding.silence_score, finding.dead_score, entry.relations.consumer_groups),
                *(entry.relations.groups_committed_only, entry.relations.groups_without_members),
                _names(entry.relations),
                *(entry.relations.disk_bytes, finding.evidence),
            )
            for key in ACTION
            for entry in report.section(key).entries
            for finding in entry.findings
        ),
    )


def _names(relations: Relations) -> str | None:
    return None if relations.readers is None else "; ".join(relations.readers)


def _csv(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Return lines of RFC 4180; a text that a spreadsheet would take for a formula has an apostrophe before it."""
    line = io.StringIO()
    writer = csv.writer(line, lineterminator="")
    for row in chain([heads], rows):
        writer.writerow([*map(_cell, row)])
        yield line.getvalue()
        line.seek(0)
        line.truncate()


def _cell(value: object) -> object:
    if not isinstance(value, str):
        return value
    # A line break in a name would end the row: the writer quotes none, as it writes no line end itself.
    text = visible(value)
    return f"'{text}" if value.startswith(_FORMULA) or text.lstrip().startswith(_FORMULA) else text


def _moment(when: datetime | None) -> str | None:
    return None if when is None else iso(when.timestamp())


LISTS = {
    "topics.csv": topics_csv,
    "action.csv": action_csv,
    "candidates.csv": candidates_csv,
    "cut-off.csv": cut_off_csv,
}
"""File name -> what makes it."""

"""Report -> JSON, by the schema beside this file. It is complete."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime, tzinfo
from functools import cache
from typing import Any

from exporter.domain.formatting import iso
from spark_rollups.report.model import REPORT_VERSION, ClusterCoverage, Entry, Finding, Gap, Report, Section
from spark_rollups.report.topic_facts import Relations
from spark_rollups.report.wording import in_plain_words, readers

_NOT_IN_JSON = ("of_owner", "by_cluster", "compared_with")


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

"""Report -> JSON. It is complete."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from datetime import date, datetime
from typing import Any

from exporter.domain.formatting import iso
from spark_rollups.report.model import REPORT_VERSION, Report

_OF_OWNERS = ("of_owner", "owner", "page")


def to_json(report: Report) -> str:
    """Return the report as JSON: every entry, times as ISO 8601 with ``Z``, unknown as null."""
    whole = {name: getattr(report, name) for name in _names_of(Report) if name not in _OF_OWNERS}
    owners = [{name: getattr(part, name) for name in ("owner", "summary", "counts", "page")} for part in report.owners]
    document = {"report_version": REPORT_VERSION, **whole, "owners": owners}
    return json.dumps(document, default=_plain, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return iso(value.timestamp())
    if isinstance(value, date):
        return value.isoformat()
    if is_dataclass(value):
        return {name: getattr(value, name) for name in _names_of(type(value))}
    return str(value)


def _names_of(kind: Any) -> list[str]:
    return [field.name for field in fields(kind)]

"""The files of a report in one folder. The JSON is complete."""

import json
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from datetime import date, datetime
from typing import Any

from exporter.domain.formatting import iso
from exporter.storage.files import Location, delete, files_in, make_folder, put
from spark_rollups.report.model import REPORT_VERSION, Report
from spark_rollups.report.render import render_html, render_markdown

_OF_OWNERS = ("of_owner", "owner", "page")


def render_json(report: Report) -> str:
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


HTML, MARKDOWN, JSON = "liveness.html", "liveness.md", "liveness.json"
OWNERS = "owners"
"""The folder of the pages of owners."""

_PAGE = re.compile(r".*\.(html|md)")


def write_files(report: Report, folder: Location) -> None:
    """Write all files of a report, and take away pages of owners that it does not have.

    Each file is replaced whole, the page that the exporter shows as the last: what fails on the way, a full disk too,
    leaves the page of an earlier report, and is mended by the next run. Raises OSError.
    """
    make_folder(folder / OWNERS)
    written = set()
    for name, text in _files(report):
        path = folder / name
        put(path, lambda file, text=text: file.write(text.encode(errors="backslashreplace")))  # type: ignore[misc]
        written.add(path)
    for page in files_in(folder / OWNERS, _PAGE):
        if page.path not in written:
            delete(page.path)


def _files(report: Report) -> Iterator[tuple[str, str]]:
    yield JSON, render_json(report)
    for part in report.owners:
        if part.page is not None:
            yield f"{part.page}.html", render_html(part)
            yield f"{part.page}.md", render_markdown(part)
    yield MARKDOWN, render_markdown(report)
    yield HTML, render_html(report)

"""Writes the weekly report of some tables, in its three forms: the one way into this room. The JSON is complete."""

import json
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, date, datetime, tzinfo
from typing import Any

from exporter.domain.formatting import iso
from exporter.domain.links import Links
from exporter.storage.files import Location, delete, files_in, make_folder, put
from spark_rollups.report.build import build_report
from spark_rollups.report.model import NO_LINKS, REPORT_VERSION, Report
from spark_rollups.report.render import render_html, render_markdown
from spark_rollups.report.tables import read_facts
from spark_rollups.spark.failures import KnownError, NotStartedError
from spark_rollups.stages.publish import latest
from spark_rollups.store.tables import Tables

HTML, MARKDOWN, JSON = "liveness.html", "liveness.md", "liveness.json"
"""The forms of a report."""
OWNERS = "owners"
"""The folder of the pages of owners."""

_PAGE = re.compile(r".*\.(html|md)")
_OF_OWNERS = ("of_owner", "owner", "page")


def write_report(
    tables: Tables,
    *,
    as_of: datetime | None,
    output: Location | None = None,
    asked_for: datetime | None = None,
    zone: tzinfo = UTC,
    links: Links = NO_LINKS,
) -> tuple[datetime, Location]:
    """Write the report of the newest verdicts at or before ``as_of`` (None: of the newest), with moments in ``zone``.

    Return the moment of these verdicts, and the folder.

    The newest are those of no clock that was ahead: as of now, or of an hour later at most. Where the verdicts are much
    older than ``asked_for`` (None: ``as_of``), a warning says that the rollup may have stopped.

    ``output`` is a folder, by default ``<history>/published/reports/<date of the verdicts>``. All files are written,
    or none. Raises NotStartedError where there are no verdicts, KnownError where the folder cannot be written or the
    tables not used.
    """
    history = tables.history
    tables.notes()  # raises where another release made them
    facts = read_facts(tables, as_of or latest(datetime.now(UTC)))
    if facts is None:
        then, advice = "", f"run `topic-liveness rollup --history {history}` first"
        if as_of is not None:
            then, advice = f" up to {as_of.isoformat()}", f"name a later moment, or {advice}"
        raise NotStartedError(f"no verdicts in {history / 'tables' / 'verdicts'}{then}: {advice}")
    facts = replace(facts, asked_for=asked_for or as_of)
    folder: Location = output or history / "published" / "reports" / f"{facts.as_of.astimezone(UTC):%Y-%m-%d}"
    try:
        write_files(build_report(facts, zone, links), folder)
    except OSError as error:
        raise KnownError(
            f"cannot write the report to {folder}: {error.strerror}; name a writable folder with --output"
        ) from error
    return facts.as_of, folder


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


def render_json(report: Report) -> str:
    """Return the report as JSON: every entry, times as ISO 8601 with ``Z``, unknown as null."""
    whole = {name: getattr(report, name) for name in _names_of(Report) if name not in _OF_OWNERS}
    owners = [{name: getattr(part, name) for name in ("owner", "summary", "page")} for part in report.owners]
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

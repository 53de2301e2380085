"""Writes the weekly report of some tables: the one way into this room."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo

from exporter.domain.links import Links
from exporter.storage.files import Location
from spark_rollups.report.build import build_report
from spark_rollups.report.folder import HTML, JSON, MARKDOWN, write_files
from spark_rollups.report.model import NO_LINKS
from spark_rollups.report.tables import read_facts
from spark_rollups.spark.failures import KnownError, NotStartedError
from spark_rollups.stages.publish import latest
from spark_rollups.store.tables import Tables


@dataclass(frozen=True, slots=True)
class ReportPaths:
    """The files of one report in its three forms, and its moment. Pages of owners are in the same folder."""

    as_of: datetime
    html: Location
    markdown: Location
    json: Location


def write_report(
    tables: Tables,
    *,
    as_of: datetime | None,
    output: Location | None = None,
    asked_for: datetime | None = None,
    zone: tzinfo = UTC,
    links: Links = NO_LINKS,
) -> ReportPaths:
    """Write the report of the newest verdicts at or before ``as_of`` (None: of the newest), with moments in ``zone``.

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
    return ReportPaths(facts.as_of, folder / HTML, folder / MARKDOWN, folder / JSON)

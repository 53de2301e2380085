"""The shell around the transformations: options, session, order of the stages, progress.

Run as ``python -P -m spark_rollups.job rollup|report --history DIR``.
"""

import logging
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import click
from pyspark.sql import SparkSession

from exporter.domain.exit_codes import ExitCode
from exporter.domain.formatting import iso_of
from exporter.domain.history.retention import KEPT_DAYS, LEAST_DAYS
from exporter.domain.history.retention import retention_days as days_of_tables
from exporter.domain.learning.rest_days import Calendar
from exporter.domain.links import Links
from exporter.domain.scoring.calibration import FALSE_ALARMS, AlarmBudget
from exporter.domain.verdicts import Outage, TopicOverride
from exporter.java import JavaError, java
from exporter.storage.files import FileInfo, Location, files_below
from spark_rollups.options import Folder, JsonOption, Moment, SparkSetting, Zone
from spark_rollups.progress import Progress
from spark_rollups.report.write import HTML, JSON, MARKDOWN, write_report
from spark_rollups.rollup import RollupRequest, run_rollup
from spark_rollups.spark.failures import (
    KnownError,
    NotStartedError,
    end_at_signals,
    ignore_in_handlers,
    is_lost_connection,
    next_step,
    shorten_error,
)
from spark_rollups.spark.session import SessionError, cache_folder, last_lines, require_jvm, require_user, start_session
from spark_rollups.stages.upkeep import Retention
from spark_rollups.store.durable import read_text
from spark_rollups.store.lock import hold_rollup_lock
from spark_rollups.store.tables import Tables

_DATA = re.compile(r"[^.].*\.parquet")
_FOOTER_BYTES = 8 * 2**10
"""What a Parquet file of windows takes without rows (measured)."""
_LAST_LINES = 20
"""Of a log that ends with its pod, what goes to standard error where Spark does not start."""

EXIT_CODES = "\b\nExit codes:\n" + "".join(f"  {code:<5}{code.meaning}\n" for code in ExitCode)


@click.group(epilog=EXIT_CODES)
def main() -> None:
    """Turn the exporter's history into verdicts, and verdicts into the weekly report."""


_history = click.option(
    "--history",
    type=Folder(),
    required=True,
    help="The folder that the exporter writes (history.folder), or its URI.",
)
_as_of = click.option("--as-of", type=Moment(), help="Judge by what was known at this moment. Default: now.")
_master = click.option("--master", help="Where Spark runs. Default: what spark-submit says, or else local[*].")
_zone = click.option("--zone", type=Zone(), default="UTC", show_default=True, help="Time zone of the report's moments.")
_links = click.option("--links", type=JsonOption(Links), default="{}", help="What the report links to.")
_outages = click.option(
    "--outages",
    type=JsonOption(tuple[Outage, ...]),
    default="[]",
    help="The setting `outages`, likewise: silences in an outage are no false alarms.",
)
_conf = click.option("--conf", type=SparkSetting(), multiple=True, help="Any Spark setting; repeatable.")


@main.command(epilog=EXIT_CODES)
@_history
@_as_of
@_master
@_conf
@click.option(
    "--overrides",
    type=JsonOption(tuple[TopicOverride, ...]),
    default="[]",
    help="The setting `overrides` as JSON. `topic-liveness rollup --config FILE` passes it.",
)
@_outages
@click.option(
    "--calendars",
    type=JsonOption(tuple[Calendar, ...]),
    default="[]",
    help="The days of the setting `calendars`, likewise: topics with quiet days may be silent on them.",
)
@click.option(
    "--false-alarms",
    type=click.FloatRange(min=0.01, max=1000.0),
    default=FALSE_ALARMS,
    show_default=True,
    help="False alarms to accept in 1,000 topic-weeks: thresholds are fitted to them.",
)
@click.option(
    "--false-alarms-a-week",
    type=click.FloatRange(min=0.01, max=1000.0),
    help="False alarms a week in the whole fleet, in place of --false-alarms.",
)
@click.option("--rebuild", is_flag=True, help="Learn everything again, from all windows.")
@click.option(
    "--retention-days",
    type=click.IntRange(LEAST_DAYS, 36_500),
    default=KEPT_DAYS,
    show_default=True,
    help="For how many days results are kept.",
)
@click.option("--report", "and_report", is_flag=True, help="Then write the weekly report, in the same session.")
@_zone
@_links
def rollup(  # noqa: PLR0913 - an option of the command each
    *,
    history: Location,
    as_of: datetime | None,
    master: str | None,
    conf: Sequence[tuple[str, str]],
    overrides: Sequence[TopicOverride],
    outages: Sequence[Outage],
    calendars: Sequence[Calendar],
    false_alarms: float,
    false_alarms_a_week: float | None,
    rebuild: bool,
    retention_days: int,
    and_report: bool,
    zone: ZoneInfo,
    links: Links,
) -> None:
    """Turn history into verdicts, and publish expectations."""
    progress = Progress()
    with (
        _ending_well(history, "rollup", progress),
        _history_of(history) as files,
        hold_rollup_lock(history) as progress.guard,
        _session("rollup", history, files, master, conf, progress, again=rebuild) as spark,
    ):
        retention = Retention(days_of_tables(retention_days))
        accepted = AlarmBudget(false_alarms, false_alarms_a_week)
        configured = overrides, outages, calendars
        request = RollupRequest(as_of, rebuild, *configured, accepted, retention)
        tables = run_rollup(spark, history, request, progress)
        if and_report:
            _report(progress, tables, as_of=as_of, zone=zone, links=links)


@main.command(epilog=EXIT_CODES)
@_history
@_as_of
@_master
@_conf
@click.option("--output", type=Folder(), help="Folder for the report's files, or its URI.")
@_zone
@_links
def report(
    *,
    history: Location,
    as_of: datetime | None,
    master: str | None,
    conf: Sequence[tuple[str, str]],
    output: Location | None,
    zone: ZoneInfo,
    links: Links,
) -> None:
    """Write the weekly report as HTML, Markdown and JSON."""
    progress = Progress()
    with (
        _ending_well(history, "report", progress),
        _history_of(history) as files,
        _session("report", history, files, master, conf, progress) as spark,
    ):
        asked_for, tables = as_of or datetime.now(UTC), Tables(spark, history)
        _report(progress, tables, as_of=as_of, output=output, asked_for=asked_for, zone=zone, links=links)


def _report(progress: Progress, tables: Tables, **options: Any) -> None:
    with progress.stage("report") as details:
        as_of, folder = write_report(tables, **options)
        details.append(f"as of {iso_of(as_of)}")
    for name in (HTML, MARKDOWN, JSON):
        click.echo(folder / name)


@contextmanager
def _session(
    name: str,
    history: Location,
    files: Sequence[FileInfo],
    master: str | None,
    conf: Sequence[tuple[str, str]],
    progress: Progress,
    *,
    again: bool = True,
) -> Iterator[SparkSession]:
    with progress.stage("spark") as details:
        java()  # before Spark asks for it in many lines
        require_user()
        spark = start_session(
            f"topic-liveness {name}",
            master=master,
            log=_log(history, name),
            data_bytes=_size_of_rows(history, files),
            new_bytes=None if again else sum(file.size for file in _new(history, files)),
            conf=dict(conf),
            storage=history,
        )
        ignore_in_handlers()
        details.append(f"{spark.version} on {spark.sparkContext.master}")
    try:
        yield spark
    except Exception as error:
        if is_lost_connection(error):
            require_jvm(_log(history, name))
        with suppress(Exception):  # the JVM may be what failed
            spark.stop()
        raise
    spark.stop()


def _log(history: Location, name: str) -> Path:
    """Return where Spark's log is: beside the history, or on this host where that lies elsewhere.

    The cache of an image has the jars and is read-only there: then it is the folder of temporary files.
    """
    if isinstance(history, Path):
        return history / f"{name}.log"
    cache = cache_folder()
    writable = not cache.exists() or os.access(cache, os.W_OK)
    return (cache if writable else Path(tempfile.gettempdir())) / f"{name}.log"


@contextmanager
def _history_of(history: Location) -> Iterator[Sequence[FileInfo]]:
    advice = f"run `topic-liveness serve` or `topic-liveness backfill` with history.folder {str(history)!r} first"
    try:
        if isinstance(history, Path) and not history.is_dir():
            raise click.UsageError(f"there is no history folder {str(history)!r}: {advice}")
        # Other folders may be there that are not ours, such as lost+found.
        files = [file for name in ("spool", "tables") for file in files_below(history / name, _DATA)]
    except OSError as error:
        here = isinstance(history, Path)
        unread = error.filename if here else history
        advice = "Make it readable for this user" if here else "Check its address, credentials and rights"
        raise NotStartedError(f"{unread} cannot be read: {error.strerror}. {advice} and run it again") from error
    if not files and not (isinstance(history, Path) and (history / "tables").is_dir()):
        raise click.UsageError(f"the history folder {str(history)!r} holds no spool files and no tables: {advice}")
    yield files


def _new(history: Location, files: Sequence[FileInfo]) -> Sequence[FileInfo]:
    try:
        known = set(read_text(history / "published" / "ingested.txt").split())
    except (OSError, ValueError):
        known = set()
    return [file for file in files if file.path.parent.parent.name == "spool" and file.name not in known]


def _size_of_rows(history: Location, files: Sequence[FileInfo]) -> int:
    """Return about how many bytes of rows a run may process: those of tables and of new files in the spool.

    Each window of five minutes is a file of its own, most of which is the footer. Ingested files stay in the spool for
    days and do not count; neither do published files, nor those in quarantine.
    """
    tables = f"{history / 'tables'}/"
    worked = [*_new(history, files), *(file for file in files if str(file.path).startswith(tables))]
    return sum(max(file.size - _FOOTER_BYTES, 0) for file in worked)


@contextmanager
def _ending_well(history: Location, name: str, progress: Progress) -> Iterator[None]:
    """Turn every ending into its exit code and, unless all is well, one line on standard error.

    An unforeseen error is whole in the log only: most of it is pages of Java. Where the history lies elsewhere the log
    ends with its pod, so that its last lines follow where Spark does not start.
    """
    log = _log(history, name)
    end_at_signals()
    # Else the bridge to the JVM logs a stack of its own for every call that fails.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        yield
    except (KnownError, JavaError) as error:
        click.echo(f"Error: {error}", err=True)
        if isinstance(error, SessionError) and not isinstance(history, Path):
            for line in last_lines(log, _LAST_LINES):
                click.echo(f"  {log.name}: {line}", err=True)
        sys.exit(error.exit_code if isinstance(error, KnownError) else ExitCode.NOT_STARTED)
    except click.ClickException:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, a person gets a line
        with suppress(OSError), log.open("a", encoding="utf-8") as file:
            file.writelines(traceback.format_exception(error))
        click.echo(f"Error: {progress.at}: {shorten_error(error)}; details in {log}. {next_step(error)}", err=True)
        sys.exit(ExitCode.FOUND)


if __name__ == "__main__":
    main(prog_name=os.environ.get("TOPIC_LIVENESS_PROGRAM", "python -m spark_rollups.job"))

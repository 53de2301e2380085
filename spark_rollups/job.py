"""The shell around the transformations: options, session, order of the stages, progress.

Run as ``python -P -m spark_rollups.job rollup|report --history DIR``.
"""

from __future__ import annotations

import logging
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime
from pathlib import Path
from types import FrameType

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from exporter.domain import Outage, TopicOverride
from spark_rollups import ingest, rollups
from spark_rollups.calibration import FALSE_ALARMS, calibrate, keep
from spark_rollups.lock import LockedError, only_one
from spark_rollups.maxima import maxima
from spark_rollups.options import Moment, Said, SparkSetting
from spark_rollups.overrides import parse, parse_outages
from spark_rollups.profiles import FIVE, HOUR, PERIOD_WEEKS, monday, week_of
from spark_rollups.publish import ahead, publish
from spark_rollups.relations import relations_at, with_relations
from spark_rollups.report import ReportError, write_report
from spark_rollups.schemas import VERDICTS, conform
from spark_rollups.session import SessionError, require_java, start_session
from spark_rollups.silence import observed
from spark_rollups.tables import Tables, TablesError
from spark_rollups.verdicts import Threshold, verdicts, with_topics
from spark_rollups.yardsticks import WHOLE_WEEKS_NEEDED, finer, taught, yardsticks

EXIT_CODES = """\b
Exit codes:
  0    done; spool files or rows put into quarantine are named in the output
  1    it failed on the way: run it again, what is done is not done twice
  2    it could not start: an option, Java, the history folder, or another rollup is at work
  130  interrupted
  143  terminated
"""


FIRST_DAY = date(1970, 1, 1)


class Progress:
    """One line a stage: what it did and how long it took."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self.at = "start"
        """The stage under way, or else the last one."""

    @contextmanager
    def stage(self, name: str) -> Iterator[list[str]]:
        """Time a stage; what is appended to the list is said of it."""
        began, said, self.at = time.monotonic(), list[str](), name
        if sys.stdout.isatty():
            click.echo(f"{name:<10} ...", nl=False)
        try:
            yield said
        except BaseException:
            if sys.stdout.isatty():
                click.echo()
            raise
        lead = "\r" if sys.stdout.isatty() else ""
        click.echo(f"{lead}{name:<10} {time.monotonic() - began:6.1f} s  {', '.join(said)}")

    def done(self, text: str) -> None:
        """Say that all is done, and how long it took in all."""
        click.echo(f"{'done':<10} {time.monotonic() - self._began:6.1f} s  {text}")


@click.group(epilog=EXIT_CODES)
def main() -> None:
    """Turn the exporter's history into verdicts, and verdicts into the weekly report."""


_history = click.option(
    "--history",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="The folder that the exporter writes (history.folder).",
)
_as_of = click.option("--as-of", type=Moment(), help="Judge by what was known at this moment. Default: now.")
_master = click.option("--master", help="Where Spark runs. Default: what spark-submit says, or else local[*].")
_conf = click.option("--conf", type=SparkSetting(), multiple=True, help="Any Spark setting, as often as needed.")


@main.command(epilog=EXIT_CODES)
@_history
@_as_of
@_master
@_conf
@click.option(
    "--overrides",
    type=Said(parse),
    default=(),
    help="What the configuration says of topics, as `topic-liveness rollup --config FILE` hands it over.",
)
@click.option(
    "--outages", type=Said(parse_outages), default=(), help="Its known outages: what fell silent then was no mistake."
)
@click.option(
    "--false-alarms",
    type=click.FloatRange(min=0.01, max=1000.0),
    default=FALSE_ALARMS,
    show_default=True,
    help="False alarms to promise in 1,000 topic-weeks: thresholds are fitted to it.",
)
@click.option("--rebuild", is_flag=True, help="Make all that is learned again from all windows.")
def rollup(
    *,
    history: Path,
    as_of: datetime | None,
    master: str | None,
    conf: Sequence[tuple[str, str]],
    overrides: Sequence[TopicOverride],
    outages: Sequence[Outage],
    false_alarms: float,
    rebuild: bool,
) -> None:
    """Take in spool files, roll them up, judge every partition and publish expectations."""
    progress = Progress()
    with (
        _ending_well(history / "rollup.log", progress, TablesError, ingest.UnreadFileError),
        _history_of(history),
        only_one(history),
        _session("rollup", history, master, conf, progress) as spark,
    ):
        run_rollup(
            spark,
            history,
            as_of=as_of,
            rebuild=rebuild,
            progress=progress,
            overrides=overrides,
            outages=outages,
            false_alarms=false_alarms,
        )


@main.command(epilog=EXIT_CODES)
@_history
@_as_of
@_master
@_conf
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), help="Folder for the report's files.")
def report(
    history: Path, as_of: datetime | None, master: str | None, conf: Sequence[tuple[str, str]], output: Path | None
) -> None:
    """Write the weekly report as HTML, Markdown and JSON."""
    progress = Progress()
    with _ending_well(history / "report.log", progress, ReportError, TablesError), _history_of(history):
        with _session("report", history, master, conf, progress) as spark, progress.stage("report") as said:
            paths = write_report(spark, history, as_of=as_of, output=output)
            said.append(f"as of {_text(paths.as_of)}")
        for path in (paths.html, paths.markdown, paths.json):
            click.echo(path)


def run_rollup(
    spark: SparkSession,
    history: Path,
    *,
    as_of: datetime | None,
    rebuild: bool,
    progress: Progress,
    overrides: Sequence[TopicOverride] = (),
    outages: Sequence[Outage] = (),
    false_alarms: float = FALSE_ALARMS,
) -> None:
    """Run every stage in order. Whatever it was interrupted at, the next run ends with the same tables.

    Where tables are damaged that is so once they are mended by hand: the next run makes all days again.
    """
    tables = Tables(spark, history)
    try:
        _run_stages(
            tables,
            history,
            as_of=as_of,
            rebuild=rebuild,
            progress=progress,
            overrides=overrides,
            outages=outages,
            false_alarms=false_alarms,
        )
    except TablesError:
        ingest.note_pending(tables, FIRST_DAY)
        raise


def _run_stages(
    tables: Tables,
    history: Path,
    *,
    as_of: datetime | None,
    rebuild: bool,
    progress: Progress,
    overrides: Sequence[TopicOverride],
    outages: Sequence[Outage],
    false_alarms: float,
) -> None:
    began = datetime.now(UTC)
    taken = []
    for table in ingest.SPOOL_TABLES:
        with progress.stage(table.name) as said:
            done = ingest.ingest_table(tables, history, table)
            taken.append(done)
            said.append(f"{done.rows} rows from {len(done.files)} new files")
            if done.again:
                said.append("the table had lost rows: all of the spool was taken in again")
            if done.refusals:
                said.append(f"{len(done.refusals)} put into quarantine")
    ingest.record(tables, taken)
    watermark = ingest.publish_ingested(history, taken, began)
    since = FIRST_DAY if rebuild else ingest.pending_since(tables)
    moment = as_of or began.replace(microsecond=0)
    if since is not None:
        ingest.note_pending(tables, since)
        roll_up(tables, since, progress)
    with progress.stage("yardsticks") as said:
        said.append(measure(tables, moment.date(), since))
    if since is not None:
        ingest.clear_pending(tables)
    with progress.stage("thresholds") as said:
        calibrated = calibrate(tables.read("maxima"), moment, false_alarms, outages, overrides)
        keep(tables, calibrated, moment)
        said.extend(map(str, calibrated))
    with progress.stage("verdicts") as said:
        thresholds = {one.kind: one.threshold for one in calibrated}
        judged = judge(tables, moment, thresholds, overrides, of_the_past=as_of is not None)
        tally = judged.where(F.col("partition").isNotNull()).groupBy("verdict").count().orderBy("verdict").collect()
        said.append(f"as of {_text(moment)}")
        said.extend(f"{row['count']} {row['verdict']}" for row in tally)
    with progress.stage("publish") as said:
        now = datetime.now(UTC)
        wrong = ahead(history, now)
        name = publish(judged, history, as_of=moment, published_at=now, calibrated=calibrated, watermark=watermark)
        said.append(name or "a later one is published already: left in force")
        if wrong is not None:
            said.append(f"in place of one as of {wrong}, ahead of this host's clock: a wrong clock published it")
    tables.spark.catalog.clearCache()
    refusals = [refusal for done in taken for refusal in done.refusals]
    for refusal in refusals:
        click.echo(f"quarantine: {refusal.reason}", err=True)
    progress.done(f"{len(refusals)} refusals, see {history / 'quarantine'}" if refusals else str(tables.folder))


def roll_up(tables: Tables, since: date, progress: Progress) -> None:
    """Make hourly and daily again from the UTC day ``since`` on."""
    where = f"date >= '{since.isoformat()}'"
    with progress.stage("hourly") as said:
        hours = rollups.hourly(
            tables.read("windows"),
            tables.read("inventory").persist(),
            tables.read("coverage").persist(),
            since=since,
            earlier=tables.read("hourly"),
        )
        tables.replace_where("hourly", hours.repartition("date"), where)
        said.append("all days" if since == FIRST_DAY else f"from {since} on")
    with progress.stage("daily") as said:
        days = rollups.daily(tables.read("hourly"), since=since)
        tables.replace_where("daily", days.repartition("date"), where)
        said.append("all days" if since == FIRST_DAY else f"from {since} on")


def measure(tables: Tables, last: date, since: date | None) -> str:
    """Make the yardsticks of all weeks up to that of ``last`` that are missing, or older than ``since``.

    With each the maxima of the week before it, of which it is the first to know.
    """
    hours = tables.read("hourly")
    days = tables.read("daily").where(F.col("first_advance").isNotNull()).select("date").distinct().collect()
    there = {week_of(row[0]) for row in tables.read("yardsticks").select("week").distinct().collect()}
    weeks = there | {week for week in taught(week_of(row[0]) for row in days) if week <= week_of(last)}
    wanted = [week for week in sorted(weeks) if week not in there or (since is not None and week > week_of(since))]
    if not wanted:
        return "all there" if there else "no history yet"
    begin = monday(wanted[0] - PERIOD_WEEKS)
    recent = with_topics(hours.where(F.col("date") >= F.lit(begin)))
    in_slots = {HOUR: rollups.gaps(recent, ("stream",)).persist()}
    made = yardsticks(in_slots[HOUR], wanted).localCheckpoint()
    told = hours.where(F.col("active_fives").isNotNull()).agg(F.min("date")).first()
    fine = [week for week in wanted if told and told[0] and week >= week_of(told[0]) + WHOLE_WEEKS_NEEDED]
    if fine:
        in_slots[FIVE] = rollups.gaps(rollups.fives(recent), ("stream",), FIVE.seconds).persist()
        made = finer(made, yardsticks(in_slots[FIVE], fine, FIVE)).localCheckpoint()
    before = tables.read("yardsticks").where(~F.col("week").isin([monday(week) for week in wanted]))
    over = [week - 1 for week in wanted]
    # First, so that a week whose yardsticks are there has its maxima too.
    tables.replace_where("maxima", maxima(in_slots, made.unionByName(before), over), f"week_ended in ({_listed(over)})")
    tables.replace_where("yardsticks", made, f"week in ({_listed(wanted)})")
    return f"of {len(wanted)} weeks"


def _listed(weeks: Sequence[int]) -> str:
    return ", ".join(f"date'{monday(week)}'" for week in weeks)


def judge(
    tables: Tables,
    as_of: datetime,
    thresholds: Mapping[str, Threshold],
    overrides: Sequence[TopicOverride] = (),
    *,
    of_the_past: bool,
) -> DataFrame:
    """Write the verdicts of ``as_of``, made of nothing that became known later; return them."""
    moment = F.lit(as_of)
    windows = tables.read("windows").where(F.col("window_end") <= moment)
    coverage = tables.read("coverage").where(F.col("window_end") <= moment).localCheckpoint()
    inventory = tables.read("inventory").where(F.col("observed_at") <= moment).localCheckpoint()
    hours = tables.read("hourly").where(F.col("hour") <= moment)
    if of_the_past:
        since = _not_over(tables, as_of)
        then = rollups.hourly(windows, inventory, coverage, since=since, earlier=hours)
        hours = hours.where(F.col("date") < F.lit(since)).unionByName(then)
    # Computed here and their plans forgotten: Spark looks through the whole plan again at every further step.
    hours, seen = hours.localCheckpoint(), observed(windows, coverage, inventory).localCheckpoint()
    judged = verdicts(hours, seen, tables.read("yardsticks"), as_of, thresholds, overrides)
    known = relations_at(tables.read("relations"), as_of)
    rows = with_relations(judged, known).localCheckpoint()
    tables.put_as_of("verdicts", conform(rows, VERDICTS, "verdicts").repartition(1), as_of)
    return rows


def _not_over(tables: Tables, as_of: datetime) -> date:
    """The first day of which the hourly table may tell what was not known yet at ``as_of``."""
    began = tables.read("windows").where((F.col("window_end") > F.lit(as_of)) & (F.col("window_start") < F.lit(as_of)))
    row = began.agg(F.min("date")).first()
    return min(as_of.date(), as_of.date() if row is None or row[0] is None else row[0])


@contextmanager
def _session(
    name: str, history: Path, master: str | None, conf: Sequence[tuple[str, str]], progress: Progress
) -> Iterator[SparkSession]:
    with progress.stage("spark") as said:
        require_java()
        log, size = history / f"{name}.log", sum(path.stat().st_size for path in history.rglob("*.parquet"))
        spark = start_session(f"topic-liveness {name}", master=master, log=log, data_bytes=size, conf=dict(conf))
        # Spark's own handler speaks to the JVM from within whatever call it interrupts, and now and then fails there.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        said.append(f"{spark.version} on {spark.sparkContext.master}")
    try:
        yield spark
    except (KeyboardInterrupt, SystemExit):
        # The interrupted call's answer is still under way, so nothing more can be asked of the JVM. It
        # ends by itself when this process does.
        raise
    except BaseException:
        with suppress(Exception):  # the JVM may be what failed
            spark.stop()
        raise
    spark.stop()


@contextmanager
def _history_of(history: Path) -> Iterator[None]:
    advice = f"run `topic-liveness serve` or `topic-liveness backfill` with history.folder {str(history)!r} first"
    if not history.is_dir():
        raise click.UsageError(f"there is no history folder {str(history)!r}: {advice}")
    if not any((history / "spool").glob("*/[!.]*.parquet")) and not (history / "tables").is_dir():
        raise click.UsageError(f"the history folder {str(history)!r} holds no spool files and no tables: {advice}")
    yield


@contextmanager
def _ending_well(log: Path, progress: Progress, *known: type[Exception]) -> Iterator[None]:
    """Turn every ending into its exit code and, unless all is well, one line on standard error.

    What nobody foresaw is told whole in ``log`` only: most of it is pages of Java.
    """
    signal.signal(signal.SIGTERM, _terminated)
    # The bridge to the JVM logs a stack of its own for every call that is interrupted.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        yield
    except KeyboardInterrupt:
        click.echo("interrupted: run it again, what is done is not done twice", err=True)
        sys.exit(130)
    except (SessionError, LockedError) as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(2)
    except known as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(1)
    except click.ClickException:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, a person gets a line
        with suppress(OSError), log.open("a", encoding="utf-8") as file:
            file.writelines(traceback.format_exception(error))
        click.echo(f"Error: {progress.at}: {_cause(error)}; details in {log}. Mend that and run it again", err=True)
        sys.exit(1)


def _cause(error: Exception) -> str:
    """What went wrong, in one line: of Java's page the outermost error and the innermost cause."""
    lines = [line.strip() for line in f"{type(error).__name__}: {error}".splitlines()]
    heads = [line.removeprefix(": ") for line in lines if line.startswith(": ")]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return ", because of ".join(line.rstrip(".") for line in [(heads or lines)[0], *causes[-1:]])


def _terminated(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(143)


def _text(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


if __name__ == "__main__":
    main(prog_name="spark_rollups.job")

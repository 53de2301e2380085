"""The stages of a rollup: ingest, days and streams, baselines, thresholds, verdicts, expectations.

Whatever it was interrupted at, the next run ends with the same tables: what must be made again is recorded before
anything is written. Each table is written once, in such an order that the next run can go on after any of these writes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, date, datetime, timedelta

import click
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from exporter.domain.formatting import iso_of
from exporter.domain.history.rows import Source
from exporter.domain.learning.baselines import WEEKS
from exporter.domain.learning.baselines_of_streams import weeks_with_baselines
from exporter.domain.learning.pauses import RECENT_DAYS
from exporter.domain.learning.rest_days import Calendar, Rests
from exporter.domain.scoring.calibration import AlarmBudget, Calibration, Threshold
from exporter.domain.verdicts import Outage, TopicOverride
from exporter.storage.files import Location
from spark_rollups.progress import Progress
from spark_rollups.spark.batches import KEY
from spark_rollups.spark.frames import arrow_schema, compute_once, merge_parts, spread, start_worker
from spark_rollups.spool import ingest, spool_files
from spark_rollups.stages.calibration import calibrate
from spark_rollups.stages.drops import RECHECKED_DAYS, drops_before, update_drops
from spark_rollups.stages.folding import FIRST_DAY, update_streams
from spark_rollups.stages.learning import learn_weeks, monday, week_of
from spark_rollups.stages.publish import publish
from spark_rollups.stages.relations import add_relations, relations_at
from spark_rollups.stages.upkeep import Retention, clock_ahead, is_due, note, run_upkeep
from spark_rollups.stages.verdicts import Rule, hold_incidents, judge_streams
from spark_rollups.store.schemas import CALIBRATION
from spark_rollups.store.tables import Tables, TablesError


@dataclass(frozen=True, slots=True)
class RollupRequest:
    """The options of a run."""

    as_of: datetime | None = None
    """Judge as of this moment, which is not before the newest row; None: now."""
    rebuild: bool = False
    overrides: Sequence[TopicOverride] = ()
    outages: Sequence[Outage] = ()
    calendars: Sequence[Calendar] = ()
    accepted: AlarmBudget = field(default_factory=AlarmBudget)
    retention: Retention = field(default_factory=Retention)


def run_rollup(spark: SparkSession, history: Location, request: RollupRequest, progress: Progress) -> Tables:
    """Run every stage in order; return the tables.

    If tables are damaged, the next run after a repair by hand rebuilds all days.
    """
    spark.catalog.clearCache()
    start_worker(spark)
    tables = Tables(spark, history)
    tables.guard = progress.guard
    tables.notes()  # raises where another release made them, which finds them as they are
    try:
        _Run(tables, request, progress).run()
    except TablesError:
        ingest.note_pending(tables, FIRST_DAY)
        raise
    return tables


class _Run:
    def __init__(self, tables: Tables, request: RollupRequest, progress: Progress) -> None:
        self._tables, self._history, self._request, self._progress = tables, tables.history, request, progress
        self._began = datetime.now(UTC)
        self._moment = request.as_of or self._began.replace(microsecond=0)
        self._shards = 1

    def run(self) -> None:
        tables, progress = self._tables, self._progress
        tables.names()  # raises where one lost a commit, before anything is taken in or published
        taken = self._ingested()
        tables.guard()
        ingest.publish_ingested(self._history, taken, self._began)
        self._require_no_later_row()
        windows_from = tables.windows_from(self._began.date())
        since = FIRST_DAY if self._request.rebuild else ingest.find_pending_day(tables)
        if since is not None and windows_from is not None and since < windows_from:
            click.echo(f"days before {windows_from} stay as they are: their windows are not kept any more")
            since = windows_from
        if since is not None:
            ingest.note_pending(tables, since)
        self._shards = spread(
            tables.spark, rows=sum(done.rows for done in taken), streams=tables.read("streams").count()
        )
        streams = self._streams(since)
        rests = self._rests(since)
        with progress.stage("baselines") as details:
            details.append(measure(tables, self._moment.astimezone(UTC).date(), since, self._shards))
        if since is not None:
            tables.note(pending=None)
        calibrated = self._calibrated()
        rows = self._judged(streams, {one.kind: one.threshold for one in calibrated}, rests)
        self._published(rows, calibrated)
        if is_due(tables, self._moment, self._began):
            with progress.stage("upkeep") as details:
                if refused := clock_ahead(tables, self._moment):
                    details.append(refused)
                else:
                    details.append(run_upkeep(tables, self._moment, self._request.retention))
                    note(tables, self._moment)
        refusals = [refusal for done in taken for refusal in done.refusals]
        for refusal in refusals:
            click.echo(f"quarantine: {refusal}", err=True)
        quarantine = self._history / "quarantine"
        progress.finish(f"{len(refusals)} refusals, see {quarantine}" if refusals else str(tables.folder))

    def _ingested(self) -> Sequence[ingest.IngestResult]:
        taken = []
        ledger = ingest.read_ledger(self._tables)
        for table in spool_files.SPOOL_TABLES:
            with self._progress.stage(table.name) as details:
                done = ingest.ingest_table(self._tables, self._history, table, ledger)
                taken.append(done)
                details.append(f"{done.rows} rows from {len(done.files)} new files")
                if done.refusals:
                    details.append(f"{len(done.refusals)} refusals")
        ingest.record(self._tables, taken)
        return taken

    def _require_no_later_row(self) -> None:
        """Refuse a moment before the newest row: what was judged then stands in the table of verdicts."""
        if self._request.as_of is None:
            return
        moments = (("coverage", "window_end"), ("inventory", "observed_at"))
        found = [self._tables.read(table).agg(F.max(F.unix_micros(at))).collect()[0][0] for table, at in moments]
        newest = max((one for one in found if one is not None), default=0)
        if newest > self._moment.timestamp() * 1e6:
            given, known = iso_of(self._moment), iso_of(datetime.fromtimestamp(newest / 1e6, UTC))
            raise click.UsageError(
                f"--as-of must not lie before the newest row of the history, which is of {known}, got {given}: leave "
                f"it out, or see what was judged then by `topic-liveness report --as-of {given}`"
            )

    def _streams(self, since: date | None) -> DataFrame:
        tables = self._tables
        with self._progress.stage("days") as details:
            details.append("none" if since is None else "all days" if since == FIRST_DAY else f"from {since} on")
            made = update_streams(tables, since, self._moment, self._shards)
            rows = compute_once(made, also_after_writes=True)
            streams = rows.where("stream is not null").select("stream.*")
            if since is not None:
                days = rows.where("day is not null").select("day.*")
                few = since >= self._began.date() - timedelta(days=3)
                days = merge_parts(days, self._shards) if few or self._shards == 1 else days.repartition("date")
                # First: the next run goes on from what its days knew as they began.
                tables.replace_where("daily", days, f"date >= date'{since}'")
                tables.replace("streams", streams.coalesce(1))
        return streams

    def _rests(self, since: date | None) -> Rests:
        """Look for fleet-wide drops in the days that were made again; return when topics rest."""
        tables, today = self._tables, self._moment.astimezone(UTC).date()
        oldest = today - timedelta(days=RECHECKED_DAYS)
        with self._progress.stage("drops") as details:
            since = oldest if since is None else min(since, oldest)
            details.append(update_drops(tables, since, self._began.date(), self._request.retention.days["drops"]))
        return Rests(self._request.calendars, drops_before(tables, today), (today - FIRST_DAY).days)

    def _calibrated(self) -> Sequence[Calibration]:
        request = self._request
        with self._progress.stage("thresholds") as details:
            maxima, known = self._tables.read("maxima"), (request.outages, request.overrides, request.calendars)
            made = calibrate(maxima, self._moment, request.accepted, *known, shards=self._shards)
            keep(self._tables, made, self._moment)
            details.extend(map(str, made))
        return made

    def _judged(self, streams: DataFrame, thresholds: Mapping[str, Threshold], rests: Rests) -> DataFrame:
        with self._progress.stage("verdicts") as details:
            rule = Rule(self._moment.timestamp(), thresholds, tuple(self._request.overrides), {}, rests)
            rows = compute_once(judge(self._tables, streams, self._moment, rule, self._shards))
            self._tables.put_as_of("verdicts", merge_parts(rows, self._shards), self._moment)
            tally = rows.where(F.col("partition").isNotNull()).groupBy("verdict").count().orderBy("verdict").collect()
            details.append(f"as of {iso_of(self._moment)}")
            details.extend(f"{row['count']} {row['verdict']}" for row in tally)
            if not tally:
                details.append("nothing to judge: the history lists no partition at that moment")
        return rows

    def _published(self, rows: DataFrame, calibrated: Sequence[Calibration]) -> None:
        with self._progress.stage("publish") as details:
            name = publish(
                rows,
                self._history,
                as_of=self._moment,
                published_at=datetime.now(UTC),
                calibrated=calibrated,
                guard=self._tables.guard,
            )
            details.append(name or "a later one is published already: left in force")


def measure(tables: Tables, last: date, since: date | None, shards: int) -> str:
    """Compute the baselines of weeks up to that of ``last``: missing ones, and those that use days from ``since`` on.

    Compute with each the maxima of the week before it, which it is the first to know completely.
    """
    weeks_made = tables.read("baselines").select("week").distinct().collect() if tables.exists("baselines") else ()
    there = {week_of(row[0]) for row in weeks_made}
    days = tables.read("daily")
    if there:
        # After a pause of the rollup several weeks are still to be made.
        next_made_of = monday(max(there) + 1 - WEEKS)
        oldest = min(one for one in (since, last - timedelta(weeks=WEEKS + 1), next_made_of) if one is not None)
        days = days.where(F.col("date") >= F.lit(oldest))
    active = days.where(F.col("active") != 0).select("date").distinct().collect()
    weeks = there | {week for week in weeks_with_baselines(week_of(row[0]) for row in active) if week <= week_of(last)}
    wanted = [week for week in sorted(weeks) if week not in there or (since is not None and week > week_of(since))]
    if not wanted:
        return "all there" if there else "no history yet"
    daily, before, coverage = (tables.read(name) for name in ("daily", "baselines", "coverage"))
    rows = compute_once(learn_weeks(daily, before, coverage, wanted, shards))
    few = len(wanted) == 1 or shards == 1
    maxima = rows.where("maximum is not null").select("maximum.*")
    made = rows.where("baseline is not null").select("baseline.*")
    # First, so that a week whose baselines are there has its maxima too.
    over = [week - 1 for week in wanted]
    tables.replace_where("maxima", merge_parts(maxima, shards), f"week_ended in ({_dates(over)})")
    made = merge_parts(made, shards) if few else made.repartition("week")
    tables.replace_where("baselines", made, f"week in ({_dates(wanted)})")
    rows.unpersist()
    return f"of {len(wanted)} weeks"


def _dates(weeks: Sequence[int]) -> str:
    return ", ".join(f"date'{monday(week)}'" for week in weeks)


def keep(tables: Tables, calibrated: Sequence[Calibration], as_of: datetime) -> None:
    """Store the calibration of ``as_of``."""
    rows = []
    for one in calibrated:
        low, high = one.interval or (None, None)
        rates = {"realised": one.realised, "realised_low": low, "realised_high": high}
        rows.append({"as_of": as_of, "judged_topic_weeks": one.topic_weeks, **asdict(one), **rates})
    table = pa.Table.from_pylist(rows, arrow_schema(CALIBRATION))
    tables.put_as_of("calibration", tables.spark.createDataFrame(table, CALIBRATION).coalesce(1), as_of)


def judge(tables: Tables, streams: DataFrame, as_of: datetime, rule: Rule, shards: int) -> DataFrame:
    """Return the verdict rows of ``as_of`` with the published columns; ``streams`` are in their state of then.

    When clusters were last polled (or backfilled, where nobody ever polled) is added to ``rule``.
    """
    moment = F.lit(as_of)
    polled = tables.read("coverage").where(F.col("window_end") <= moment).groupBy("cluster")
    good, by_poll = F.unix_micros("last_good_poll"), F.col("source") == Source.POLL.value
    # A backfill of some topics is no poll that fails to list the others.
    newest = F.coalesce(F.max(F.when(by_poll, good)), F.max(good))
    last = polled.agg(newest.alias("last")).where("last is not null").collect()
    rule = replace(rule, polled={row.cluster: row["last"] for row in last})
    week = F.to_date(F.date_trunc("week", "last_advance"))
    weeks = [row[0] for row in streams.where("last_advance is not null").select(week).distinct().collect()]
    baselines = tables.read("baselines").where(F.col("week").isin(weeks))
    if shards > 1:  # else it costs more than what is left out
        in_force = streams.where("last_advance is not null").select(F.xxhash64(*KEY, week).alias("number"))
        numbered = baselines.withColumn("number", F.xxhash64(*KEY, "week"))
        baselines = numbered.join(in_force, "number", "left_semi").drop("number")
    day = as_of.astimezone(UTC).date()
    recent = tables.read("daily").where(F.col("date").between(F.lit(day - timedelta(days=RECENT_DAYS)), F.lit(day)))
    rows = judge_streams(streams, baselines, recent, rule, shards)
    rows = hold_incidents(compute_once(rows))
    if not tables.exists("relations"):
        return rows
    return add_relations(rows, relations_at(tables.read("relations"), as_of))

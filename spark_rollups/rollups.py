"""Windows -> hourly -> daily: DataFrame -> DataFrame, built-in functions only.

Records are counted by offsets, not by adding up windows. The windows and inventory rows of a partition
are put in order; each accounts for the offsets past the highest one seen before it. So nothing counts
twice where two exporters watch the same cluster or where a backfill meets the first poll, and what was
written while nobody looked shows as a jump between the end of one row and the start of the next.
"""

from __future__ import annotations

from datetime import date

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from exporter.domain import Source
from spark_rollups.schemas import DAILY, HOURLY, conform

SLOT_SECONDS = 3600.0
"""The slot by which polled and backfilled history are both judged."""

FIVE_MINUTES = 300.0
"""The slot by which a stream is judged once there is enough history of it that is so fine."""

CLOCKS_AGREE_SECONDS = 60
"""The clocks of two exporters, and the moment of a poll and of its last answer, are no further apart than this."""

WHOLE_TOPIC = ("cluster", "topic", "topic_id")
STREAM = (*WHOLE_TOPIC, "partition")
"""One partition of one topic; a topic that was made again is another one."""


def hourly(
    windows: DataFrame,
    inventory: DataFrame,
    coverage: DataFrame,
    *,
    since: date | None = None,
    earlier: DataFrame | None = None,
) -> DataFrame:
    """Return one HOURLY row for each partition and hour in which something is known to have happened.

    With ``since`` only the UTC days from then on are made; ``earlier`` are the hourly rows of the days
    before, which give each partition its last known offset. The result is the same as that part of a
    full rebuild.
    """
    recent = _from_day(windows, "window_end", since)
    looks = _from_day(inventory, "observed_at", since)
    rows = _moments(_happened(before_first_poll(recent, inventory))).unionByName(_looks(looks))
    if since is not None and earlier is not None:
        rows = rows.unionByName(_known_before(earlier, since))
    rows = _unseen_span(_counted(rows), coverage)
    hours = _by_hour(_in_hours(rows))
    if since is not None:
        hours = hours.where(F.col("date") >= F.lit(since))
    return conform(hours, HOURLY, "hourly")


def daily(hours: DataFrame, *, since: date | None = None) -> DataFrame:
    """Return one DAILY row for each partition and UTC day with an hourly row, from the day ``since`` on."""
    rows = gaps(hours if since is None else _with_last_before(hours, since), STREAM)
    if since is not None:
        rows = rows.where(F.col("date") >= F.lit(since))
    days = rows.groupBy(*STREAM, "date").agg(
        F.count("first_advance").alias("active_hours"),
        F.sum("records").alias("records"),
        F.min("first_advance").alias("first_advance"),
        F.max("last_advance").alias("last_advance"),
        F.max("silent_slots").alias("largest_silent_slots"),
        F.count(F.when(F.col("censored_gap"), 1)).alias("censored_gaps"),
    )
    return conform(days, DAILY, "daily")


def _with_last_before(hours: DataFrame, since: date) -> DataFrame:
    """The hours from the day ``since`` on, and of each partition the one that its first silence starts with."""
    notable = (F.col("date") < F.lit(since)) & (F.col("first_advance").isNotNull() | F.col("censored"))
    last = hours.where(notable).groupBy(*STREAM).agg(F.max_by(F.struct(*HOURLY.names), "hour").alias("last"))
    return hours.where(F.col("date") >= F.lit(since)).unionByName(last.select("last.*"))


def fives(hours: DataFrame) -> DataFrame:
    """Return the hours as they are told in slots of five minutes: those told by the hour alone are censored."""
    told = F.col("active_fives").isNotNull()
    advances = {name: F.when(told, F.col(name)) for name in ("first_advance", "last_advance")}
    untold = F.col("first_advance").isNotNull() & ~told
    return hours.withColumns({**advances, "censored": F.col("censored") | untold})


def gaps(hours: DataFrame, stream: tuple[str, ...], slot_seconds: float = SLOT_SECONDS) -> DataFrame:
    """Add to each hour the silence that it ended, in slots.

    ``silent_slots`` counts the silent slots since the last active one of an hour before; it is null where the
    hour ended no silence or one that is no evidence. ``censored_gap`` says that it was no evidence: when the
    records at one of its ends were written is not known. ``hour_before`` and ``silent_since`` tell of the
    hour before: which it was, and its last advance.
    """

    def slot(at: str) -> Column:
        return F.floor(F.unix_micros(at) / (slot_seconds * 1e6))

    active = F.col("first_advance").isNotNull()
    before = Window.partitionBy(*stream).orderBy("hour").rowsBetween(Window.unboundedPreceding, -1)
    seen = F.when(active | F.col("censored"), F.struct("hour", "last_advance", active.alias("active")))
    silent = slot("first_advance") - slot("before.last_advance") - 1
    apart = F.unix_timestamp("hour") - F.unix_timestamp("before.hour") > int(SLOT_SECONDS)
    known = active & F.col("before.active") & ~F.col("censored")
    ended = (active | F.col("censored")) & F.col("before.hour").isNotNull()
    return (
        hours.withColumn("before", F.last(seen, ignorenulls=True).over(before))
        .withColumn("silent_slots", F.when(ended & known, silent.cast("long")))
        .withColumn("censored_gap", F.coalesce(ended & ~known & apart, F.lit(False)))
        .withColumns({"hour_before": F.col("before.hour"), "silent_since": F.col("before.last_advance")})
        .drop("before")
    )


def before_first_poll(windows: DataFrame, inventory: DataFrame) -> DataFrame:
    """Cut backfilled windows off where the first poll of their partition stood: what polls saw, wins."""
    first = (
        inventory.where((F.col("source") == Source.POLL.value) & ~F.col("deleted") & F.col("latest_offset").isNotNull())
        .groupBy(*STREAM)
        .agg(F.min("observed_at").alias("polled_from"), F.min_by("latest_offset", "observed_at").alias("polled_offset"))
    )
    backfilled = F.col("source") == Source.BACKFILL.value
    begins = F.coalesce("first_advance", "window_start")
    crosses = backfilled & (F.col("window_end") > F.col("polled_from"))
    joined = join_streams(windows, first, STREAM, "left").where(
        ~backfilled | F.col("polled_from").isNull() | (begins < F.col("polled_from"))
    )
    end_offset = F.least("end_offset", "polled_offset")
    return joined.withColumns(
        {
            "window_end": F.when(crosses, F.col("polled_from")).otherwise(F.col("window_end")),
            "last_advance": F.when(
                crosses & (F.col("last_advance") > F.col("polled_from")), F.col("polled_from")
            ).otherwise(F.col("last_advance")),
            "records": F.when(crosses, F.greatest(F.lit(0).cast("long"), end_offset - F.col("start_offset"))).otherwise(
                F.col("records")
            ),
            "end_offset": F.when(crosses, end_offset).otherwise(F.col("end_offset")),
        }
    ).drop("polled_from", "polled_offset")


def join_streams(left: DataFrame, right: DataFrame, stream: tuple[str, ...], how: str) -> DataFrame:
    """Join on the columns of a stream, of which any may be null; keep those of ``left``."""
    renamed = right.withColumnsRenamed({name: f"right_{name}" for name in stream})
    same = F.lit(True)
    for name in stream:
        same = same & F.col(name).eqNullSafe(F.col(f"right_{name}"))
    return left.join(renamed, same, how).drop(*(f"right_{name}" for name in stream))


def _from_day(rows: DataFrame, until: str, since: date | None) -> DataFrame:
    if since is None:
        return rows
    return rows.where((F.col("date") >= F.lit(since)) | (F.col(until) > F.lit(since).cast("timestamp")))


def _happened(windows: DataFrame) -> DataFrame:
    """Leave out windows that only say that a partition could not be read."""
    return windows.where(
        F.col("first_advance").isNotNull()
        | (F.col("records") > 0)
        | (F.col("offset_regressions") > 0)
        | ((F.col("future_timestamps") > 0) & (F.col("source") == Source.BACKFILL.value))
    )


def _moments(windows: DataFrame) -> DataFrame:
    """Windows as rows to put in order. ``rank`` breaks ties of ``at``: backfill, then looks, then polls."""
    return windows.select(
        *STREAM,
        "exporter",
        "source",
        F.col("window_start").alias("at"),
        F.col("window_end").alias("until"),
        F.when(F.col("source") == Source.BACKFILL.value, 1).otherwise(3).alias("rank"),
        "start_offset",
        "end_offset",
        F.coalesce("records", F.lit(0).cast("long")).alias("window_records"),
        "advances",
        "first_advance",
        "last_advance",
        "max_inner_gap_seconds",
        "resolution_seconds",
        "observed_seconds",
        "offset_regressions",
        (
            (F.col("resolution_seconds") <= FIVE_MINUTES)
            & (F.unix_micros("window_end") - F.unix_micros("window_start") <= FIVE_MINUTES * 1e6)
        ).alias("fine"),
    )


def _looks(inventory: DataFrame) -> DataFrame:
    """Inventory rows as rows to put in order: where the offsets stood at a moment."""
    known = inventory.where(~F.col("deleted") & F.col("latest_offset").isNotNull())
    return known.select(
        *STREAM,
        "exporter",
        "source",
        F.col("observed_at").alias("at"),
        F.col("observed_at").alias("until"),
        F.lit(2).alias("rank"),
        F.col("latest_offset").alias("start_offset"),
        F.col("latest_offset").alias("end_offset"),
        F.lit(0).cast("long").alias("window_records"),
        *_unknown("advances bigint", "first_advance timestamp", "last_advance timestamp"),
        *_unknown("max_inner_gap_seconds double", "resolution_seconds double"),
        F.lit(0.0).alias("observed_seconds"),
        F.lit(0).cast("long").alias("offset_regressions"),
        F.lit(False).alias("fine"),
    )


def _known_before(hours: DataFrame, since: date) -> DataFrame:
    """The last known offset of each partition before the day ``since``, as a row that comes first."""
    known = hours.where((F.col("date") < F.lit(since)) & F.col("end_offset").isNotNull())
    last = known.groupBy(*STREAM).agg(F.max_by("end_offset", "hour").alias("end_offset"), F.max("hour").alias("at"))
    return last.select(
        *STREAM,
        F.lit("").alias("exporter"),
        F.lit("").alias("source"),
        "at",
        F.lit(since).cast("timestamp").alias("until"),
        F.lit(0).alias("rank"),
        *_unknown("start_offset bigint"),
        "end_offset",
        F.lit(0).cast("long").alias("window_records"),
        *_unknown("advances bigint", "first_advance timestamp", "last_advance timestamp"),
        *_unknown("max_inner_gap_seconds double", "resolution_seconds double"),
        F.lit(0.0).alias("observed_seconds"),
        F.lit(0).cast("long").alias("offset_regressions"),
        F.lit(False).alias("fine"),
    )


def _unknown(*columns: str) -> list[Column]:
    pairs = (column.split() for column in columns)
    return [F.lit(None).cast(kind).alias(name) for name, kind in pairs]


def _counted(rows: DataFrame) -> DataFrame:
    """Say of each row which records it accounts for: ``seen`` by it, and ``unseen`` before it."""
    order = Window.partitionBy(*STREAM).orderBy((F.col("rank") != 0), "at", "rank", "until", "end_offset", "exporter")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    offset = F.when(F.col("end_offset").isNotNull(), F.struct("end_offset", "until"))
    passed = F.unix_micros("at") - F.unix_micros("last.until")
    # What is known from the days before is known up to midnight: so it is told the same in a rebuild.
    other_day = (passed >= 0) & (F.to_date("at") > F.to_date(F.timestamp_micros(F.unix_micros("last.until") - 1)))
    later = other_day | (passed >= CLOCKS_AGREE_SECONDS * 1_000_000)
    fell = (F.col("end_offset") < F.col("last.end_offset")) & later
    look = F.col("rank") == 2
    rows = (
        rows.withColumn("last", F.last(offset, ignorenulls=True).over(before))
        .withColumn("offset_regressions", F.when(look & fell, 1).otherwise(F.col("offset_regressions")).cast("long"))
        .withColumn("epoch", F.sum((F.col("offset_regressions") > 0).cast("int")).over(order))
        .withColumn("place", F.row_number().over(order))
    )
    # Offsets only grow within an epoch; a restart begins the next one.
    run = Window.partitionBy(*STREAM, "epoch").orderBy("place")
    highest = F.max("end_offset").over(run.rowsBetween(Window.unboundedPreceding, -1))
    grown = F.greatest(F.lit(0).cast("long"), F.col("end_offset") - F.greatest("highest", "start_offset"))
    jumped = F.greatest(F.lit(0).cast("long"), F.col("start_offset") - F.col("highest"))
    return (
        rows.withColumn("highest", highest)
        .withColumn("seen", F.when(F.col("highest").isNull(), F.col("window_records")).otherwise(grown))
        .withColumn("unseen", F.coalesce(jumped, F.lit(0).cast("long")))
        .withColumn("end_offset", F.max("end_offset").over(run.rowsBetween(Window.unboundedPreceding, 0)))
        .where(F.col("rank") > 0)
        .where(~look | F.col("last").isNull() | (F.col("unseen") > 0) | (F.col("offset_regressions") > 0))
    )


def _unseen_span(rows: DataFrame, coverage: DataFrame) -> DataFrame:
    """Add ``unseen_since``: the last good poll before an inventory row that found the offsets moved."""
    odd = (F.col("rank") == 2) & ((F.col("unseen") > 0) | (F.col("offset_regressions") > 0))
    looks = rows.where(odd).select("cluster", "at").distinct()
    polls = coverage.where(F.col("last_good_poll").isNotNull()).select(
        F.col("cluster").alias("polled_cluster"), "last_good_poll"
    )
    since = (
        looks.join(polls, (F.col("cluster") == F.col("polled_cluster")) & (F.col("last_good_poll") < F.col("at")))
        .groupBy("cluster", "at")
        .agg(F.max("last_good_poll").alias("unseen_since"))
    )
    return rows.join(F.broadcast(since), ["cluster", "at"], "left")


def _in_hours(rows: DataFrame) -> DataFrame:
    """Give each row its hour; a window that spans hours marks its last hour too, without records."""
    look, moved = F.col("rank") == 2, F.col("unseen") > 0
    active = F.col("first_advance").isNotNull()
    span = F.col("at").cast("double"), F.col("unseen_since").cast("double")
    within_a_slot = F.coalesce(span[0] - span[1] <= SLOT_SECONDS, F.lit(False))
    within_five = F.coalesce(span[0] - span[1] <= FIVE_MINUTES, F.lit(False))
    hidden = (F.col("rank") == 1) & ~active
    vague = F.coalesce(F.col("resolution_seconds") > SLOT_SECONDS, F.lit(False))
    lost = ~look & moved
    found = look & (moved | (F.col("offset_regressions") > 0))
    rows = rows.withColumns(
        {
            "censored": hidden | vague | lost | (found & ~within_a_slot),
            "records": F.col("seen") + F.col("unseen"),
            "fine": F.when(look, within_five).otherwise(F.coalesce("fine", F.lit(False))),
            "first_advance": F.when(look & moved & within_a_slot, F.col("at")).otherwise(F.col("first_advance")),
            "last_advance": F.when(look & moved, F.col("at")).otherwise(F.col("last_advance")),
        }
    )
    hour = F.date_trunc("hour", F.coalesce("first_advance", "at"))
    # A hidden span ends at its window's end, of which the last instant is outside.
    end = F.when(hidden, F.timestamp_micros(F.unix_micros("until") - 1)).otherwise(F.col("last_advance"))
    rows = rows.withColumns({"hour": hour, "last_hour": F.date_trunc("hour", end)})
    spans = F.col("last_hour") > F.col("hour")
    hours = F.when(spans, F.array("hour", "last_hour")).otherwise(F.array("hour"))
    rows = rows.withColumn("spans", spans).withColumn("its_hour", F.explode(hours))
    further = F.col("its_hour") > F.col("hour")
    end_known = F.when(hidden, F.col("until")).otherwise(F.col("last_advance"))
    nothing = F.lit(0).cast("long")
    changed = {
        "hour": F.col("its_hour"),
        "first_advance": F.when(further & active, F.col("last_advance")).otherwise(F.col("first_advance")),
        "last_advance": F.when(F.col("spans") & ~further, F.col("first_advance")).otherwise(end_known),
        "records": F.when(further, nothing).otherwise(F.col("records")),
        "advances": F.when(further, F.when(F.col("advances").isNotNull(), nothing)).otherwise(F.col("advances")),
        "offset_regressions": F.when(further, nothing).otherwise(F.col("offset_regressions")),
        "observed_seconds": F.when(further, F.lit(0.0)).otherwise(F.col("observed_seconds")),
    }
    for name in ("start_offset", "end_offset", "max_inner_gap_seconds"):
        changed[name] = F.when(~further, F.col(name))
    fives = _five("first_advance").bitwiseOR(_five("last_advance"))
    return rows.withColumns(changed).withColumn("active_fives", F.when(F.col("fine"), fives))


def fives_of_all() -> Column:
    """Return, as an aggregate, ``active_fives`` of rows taken together: null where one that advanced tells of none."""
    untold = F.bool_or(F.col("first_advance").isNotNull() & F.col("active_fives").isNull())
    return F.when(~untold, F.bit_or("active_fives"))


def _five(at: str) -> Column:
    """The bit of the slot of five minutes, within its hour, in which a moment lies."""
    return F.call_function("shiftleft", F.lit(1), F.floor(F.minute(at) / 5).cast("int"))


def _by_hour(rows: DataFrame) -> DataFrame:
    """Fold the rows of an hour; of several exporters the one that observed longest speaks for advances."""
    chain = Window.partitionBy(*STREAM, "exporter", "hour").orderBy("place")
    pause = F.col("first_advance").cast("double") - F.lag("last_advance").over(chain).cast("double")
    by_exporter = (
        rows.withColumn("pause", F.when(F.col("rank") == 3, pause))
        .groupBy(*STREAM, "hour", "exporter")
        .agg(
            F.max(F.when(F.col("source") == Source.POLL.value, 1).otherwise(0)).alias("polled"),
            F.sum("records").alias("records"),
            F.sum("advances").alias("advances"),
            F.min("first_advance").alias("first_advance"),
            F.max("last_advance").alias("last_advance"),
            F.max(F.greatest("max_inner_gap_seconds", "pause")).alias("max_inner_gap_seconds"),
            F.max("resolution_seconds").alias("resolution_seconds"),
            F.min(F.when(F.col("start_offset").isNotNull(), F.struct("place", "start_offset"))).alias("start"),
            F.max(F.when(F.col("end_offset").isNotNull(), F.struct("place", "end_offset"))).alias("end"),
            F.max("censored").alias("censored"),
            F.sum("offset_regressions").alias("offset_regressions"),
            F.sum("observed_seconds").alias("observed_seconds"),
            fives_of_all().alias("active_fives"),
        )
    )
    best = F.max(F.struct("observed_seconds", "exporter", "advances", "max_inner_gap_seconds")).alias("best")
    return (
        by_exporter.groupBy(*STREAM, "hour")
        .agg(
            F.max("polled").alias("polled"),
            F.sum("records").alias("records"),
            F.min("first_advance").alias("first_advance"),
            F.max("last_advance").alias("last_advance"),
            F.max("resolution_seconds").alias("resolution_seconds"),
            F.min("start").alias("start"),
            F.max("end").alias("end"),
            F.max("censored").alias("censored"),
            F.max("offset_regressions").alias("offset_regressions"),
            fives_of_all().alias("active_fives"),
            best,
        )
        .withColumns(
            {
                "date": F.to_date("hour"),
                "source": F.when(F.col("polled") == 1, Source.POLL.value).otherwise(Source.BACKFILL.value),
                "advances": F.col("best.advances"),
                "max_inner_gap_seconds": F.col("best.max_inner_gap_seconds"),
                "start_offset": F.col("start.start_offset"),
                "end_offset": F.col("end.end_offset"),
            }
        )
    )

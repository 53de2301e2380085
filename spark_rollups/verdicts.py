"""History -> verdicts, for each partition and for each topic as the union of its partitions.

A silence is measured by the yardstick of the week in which it began (``spark_rollups.yardsticks``), and
only as far as polls prove it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from exporter.domain import DEAD_AT_LATEST_SECONDS, HELD_FROM, State, TopicOverride, Verdict
from spark_rollups.clock import HOURS, end_of_slot, face, hours_since, missed, moment_of, reading, timestamp_of
from spark_rollups.evidence import evidence, retired_after
from spark_rollups.incidents import held_until, hold
from spark_rollups.overrides import decided, overridden
from spark_rollups.rollups import SLOT_SECONDS, STREAM, WHOLE_TOPIC, fives_of_all, join_streams
from spark_rollups.yardsticks import ACTIVE_SLOTS_NEEDED, WEEKS_NEEDED

TRAFFIC_CLOCK, PERIOD, NO_RULE = "traffic-clock", "period", "none"
"""By which rule a stream is judged."""

TOPIC, PARTITION = "topic", "partition"
"""The kinds of streams: each has its own thresholds."""

_FAR_WEEKS = 520
_UNSEEN_SECONDS = 3600.0
"""What an exporter saw is in its spool within minutes; past an hour it has not looked."""
_LIVE = (Verdict.LIVE.value, Verdict.QUIET.value)


@dataclass(frozen=True, slots=True)
class Threshold:
    """The scores past which a silence is suspect and dead."""

    suspect: float
    dead: float


DEFAULT_THRESHOLDS: Mapping[str, Threshold] = {TOPIC: Threshold(2.5, 4.5), PARTITION: Threshold(2.5, 4.5)}
"""Where nothing is calibrated yet, for both kinds of stream."""


def stream_number(*, topic: bool = False) -> Column:
    """Return the 64-bit hash that stands for a stream, or for its whole ``topic``; its columns may be null."""
    columns = [F.coalesce(F.col(name).cast("string"), F.lit("")) for name in STREAM]
    return F.xxhash64(*columns[:-1], F.lit("")) if topic else F.xxhash64(*columns)


def with_topics(hours: DataFrame) -> DataFrame:
    """Return the hours of each partition, and of each topic as the union of its partitions (``partition`` null)."""
    columns = (*STREAM, "hour", "first_advance", "last_advance", "censored", "active_fives")
    return hours.select(*columns).unionByName(_union(hours)).withColumn("stream", stream_number())


def verdicts(
    hours: DataFrame,
    observed: DataFrame,
    yardsticks: DataFrame,
    as_of: datetime,
    thresholds: Mapping[str, Threshold] = DEFAULT_THRESHOLDS,
    overrides: Sequence[TopicOverride] = (),
) -> DataFrame:
    """Return the VERDICTS rows of ``as_of``, with the columns of EXPECTATIONS beside them.

    ``hours`` are HOURLY rows made of what was known at ``as_of``; ``observed`` says which partitions
    exist and how far their silence is proved (``spark_rollups.silence.observed``). Where one of the ``overrides`` is
    in force it decides, and the topic belongs to no incident.
    """
    hours = join_streams(hours, observed.select(*STREAM), STREAM, "left_semi")
    partitions = _with_activity(observed, hours, as_of)
    subjects = partitions.unionByName(topics_of(partitions)).withColumn("stream", stream_number())
    known = _known(with_topics(hours))
    rows = subjects.join(known, "stream", "left").join(_in_force(known, yardsticks), "stream", "left")
    judged = _judged(_measured(rows, as_of, thresholds))
    judged = judged.withColumn("promised", F.col("promised") & ~decided(overrides, as_of))
    return overridden(_with_evidence(_with_siblings(hold(judged))), overrides, as_of)


def _known(history: DataFrame) -> DataFrame:
    """One row a stream: its last advance, and how much is known of it in all."""
    return history.groupBy("stream").agg(
        F.max("last_advance").alias("last_advance"),
        F.count("first_advance").alias("known_slots"),
        F.min("first_advance").alias("known_since"),
    )


def _in_force(known: DataFrame, yardsticks: DataFrame) -> DataFrame:
    """The yardstick of the week of each stream's last advance."""
    began = known.where(F.col("last_advance").isNotNull()).select(
        "stream", F.to_date(F.date_trunc("week", "last_advance")).alias("week")
    )
    return yardsticks.join(began, ["stream", "week"]).drop("week")


def _with_activity(observed: DataFrame, hours: DataFrame, as_of: datetime) -> DataFrame:
    week_ago = F.unix_timestamp(F.lit(as_of)) - 7 * 86_400
    recent = F.when(F.unix_timestamp("hour") >= week_ago, F.col("records"))
    activity = hours.groupBy(*STREAM).agg(
        F.coalesce(F.sum(recent), F.lit(0).cast("long")).alias("records_7d"),
        F.max_by("end_offset", F.when(F.col("end_offset").isNotNull(), F.col("hour"))).alias("end_offset"),
    )
    joined = join_streams(observed, activity, STREAM, "left")
    return joined.withColumns(
        {
            "records_7d": F.coalesce("records_7d", F.lit(0).cast("long")),
            "end_offset": F.coalesce("end_offset", "latest_offset"),
        }
    ).drop("latest_offset")


def topics_of(partitions: DataFrame) -> DataFrame:
    """Each topic as the union of its partitions: silent only as far as every partition is known to be."""

    def only(*states: State) -> Column:
        return F.bool_and(F.coalesce(F.col("state").isin(*(state.value for state in states)), F.lit(False)))

    none_unknown = F.bool_and(F.col("observed_until").isNotNull())
    offsets_known = F.bool_and(F.col("end_offset").isNotNull())
    state = (
        F.when(only(State.NEVER_WRITTEN), State.NEVER_WRITTEN.value)
        .when(only(State.NEVER_WRITTEN, State.EMPTY), State.EMPTY.value)
        .when(only(State.UNREADABLE), State.UNREADABLE.value)
        .when(only(State.FUTURE), State.FUTURE.value)
        .when(only(State.PRESERVED), State.PRESERVED.value)
        .otherwise(State.OBSERVED.value)
    )
    unreadable = only(State.UNREADABLE)
    return partitions.groupBy(*WHOLE_TOPIC).agg(
        F.lit(None).cast("int").alias("partition"),
        state.alias("state"),
        F.when(unreadable, F.max("reason")).alias("reason"),
        F.max("timestamp_type").alias("timestamp_type"),
        F.lit(None).cast("int").alias("leader"),
        F.when(none_unknown, F.min("observed_until")).alias("observed_until"),
        F.when(unreadable, F.min("unreadable_since")).alias("unreadable_since"),
        F.sum("records_7d").alias("records_7d"),
        F.when(offsets_known, F.sum("end_offset")).alias("end_offset"),
    )


def _union(history: DataFrame) -> DataFrame:
    return history.groupBy(*WHOLE_TOPIC, "hour").agg(
        F.lit(None).cast("int").alias("partition"),
        F.min("first_advance").alias("first_advance"),
        F.max("last_advance").alias("last_advance"),
        F.max("censored").alias("censored"),
        fives_of_all().alias("active_fives"),
    )


def _measured(rows: DataFrame, as_of: datetime, thresholds: Mapping[str, Threshold]) -> DataFrame:
    """Add how long each stream is silent, what it missed, its score, and when that passes the thresholds."""
    # One partition that was never read leaves nothing proved of its topic but that others advanced.
    proved = F.when(F.col("partition").isNull(), F.coalesce("observed_until", "last_advance"))
    rows = rows.withColumn("observed_until", proved.otherwise(F.col("observed_until")))
    silent = F.col("observed_until").cast("double") - F.col("last_advance").cast("double")

    def of_kind(name: str) -> Column:
        topic, partition = (getattr(thresholds[kind], name) for kind in (TOPIC, PARTITION))
        return F.when(F.col("partition").isNull(), F.lit(topic)).otherwise(F.lit(partition))

    rows = rows.withColumns(
        {
            "as_of": F.lit(as_of),
            "suspect_score": of_kind("suspect"),
            "dead_score": of_kind("dead"),
            "slot_seconds": F.coalesce("slot_seconds", F.lit(SLOT_SECONDS)),
            "active_slots": F.coalesce("active_slots", "known_slots", F.lit(0).cast("long")),
            "history_start": F.coalesce("history_start", "known_since"),
            "weeks": F.coalesce("weeks", F.lit(0).cast("long")),
            # An advance may be known from after the last poll that counts: it is no negative silence.
            "silence_seconds": F.when(silent.isNotNull(), F.greatest(silent, F.lit(0.0))),
            "rule": F.when(F.col("log_mean").isNotNull(), TRAFFIC_CLOCK)
            .when(F.col("max_silence_seconds").isNotNull(), PERIOD)
            .otherwise(NO_RULE),
            "face": F.when(F.col("log_mean").isNotNull(), face(F.col("profile").cast("array<double>"))),
        }
    )
    begin = end_of_slot(F.col("last_advance"), F.col("slot_seconds"))
    # The face is computed once here, not again for each of the columns that read it.
    rows = rows.withColumn("began", begin).localCheckpoint()
    until = hours_since(F.col("observed_until"))
    overdue = F.when(until > F.col("began"), missed(F.col("face"), F.col("began"), until)).otherwise(0.0)
    return (
        rows.withColumn(
            "missed_slots", F.when(F.col("face").isNotNull() & F.col("silence_seconds").isNotNull(), overdue)
        )
        .withColumns(
            {
                "silence_score": F.when(
                    F.col("rule") == TRAFFIC_CLOCK,
                    (F.log(F.col("missed_slots") + F.col("clock_step")) - F.col("log_mean")) / F.col("log_spread"),
                ),
                "suspect_from": timestamp_of(_passes(F.col("suspect_score"), "suspect_silence_seconds")),
                "expected_by": timestamp_of(_dead_from()),
                "held_from": _passes(F.lit(HELD_FROM), "suspect_silence_seconds"),
            }
        )
        .withColumn("held_until", held_until(F.col("held_from"), F.col("face")))
        .drop("known_slots", "known_since")
    )


def _dead_from() -> Column:
    """When the silence is dead: by its score, and by the traffic clock after eight weeks at the latest."""
    passes = _passes(F.col("dead_score"), "max_silence_seconds")
    outlasted = hours_since(F.col("last_advance")) + DEAD_AT_LATEST_SECONDS / 3600.0
    return F.when(F.col("face").isNotNull(), F.least(passes, outlasted)).otherwise(passes)


def _passes(score: Column, limit: str) -> Column:
    """When the silence has the score, by the clock, or passes the limit in seconds: hours since the first Monday.

    Null where nothing is promised, or not within ten years.
    """
    slots = F.exp(F.col("log_mean") + score * F.col("log_spread")) - F.col("clock_step")
    near = slots < F.get("face", F.lit(HOURS)) * _FAR_WEEKS
    shown = reading(F.col("face"), F.col("began")) + F.greatest(slots, F.lit(0.0))
    by_clock = F.when(near, F.greatest(moment_of(F.col("face"), shown), F.col("began")))
    by_seconds = hours_since(F.col("last_advance")) + F.col(limit) / 3600.0
    return F.when(F.col("face").isNotNull(), by_clock).otherwise(by_seconds)


def _judged(rows: DataFrame) -> DataFrame:
    seconds, score = F.col("silence_seconds"), F.col("silence_score")
    by_clock = F.col("rule") == TRAFFIC_CLOCK
    usual = F.when(by_clock, score <= F.col("suspect_score")).otherwise(seconds <= F.col("suspect_silence_seconds"))
    alive = F.when(by_clock, (score <= F.col("dead_score")) & (seconds < DEAD_AT_LATEST_SECONDS)).otherwise(
        seconds <= F.col("max_silence_seconds")
    )
    dead_after = F.col("expected_by").cast("double") - F.col("last_advance").cast("double")
    silent = seconds > F.col("slot_seconds")
    unseen = F.col("as_of").cast("double") - F.col("observed_until").cast("double")
    unproved = (F.col("as_of") > F.col("suspect_from")) & (
        unseen > F.greatest(F.col("slot_seconds"), F.lit(_UNSEEN_SECONDS))
    )
    verdict = (
        F.when((F.col("rule") == NO_RULE) | seconds.isNull(), Verdict.LEARNING.value)
        .when((~silent | (usual & alive)) & unproved, Verdict.HELD.value)
        .when(~silent, Verdict.LIVE.value)
        .when(usual & alive, Verdict.QUIET.value)
        .when(alive, Verdict.SUSPECT.value)
        .when(seconds >= retired_after(dead_after), Verdict.RETIRED.value)
        .otherwise(Verdict.DEAD.value)
    )
    promised = (F.col("rule") != NO_RULE) & seconds.isNotNull()
    return rows.withColumns({"verdict": verdict, "promised": promised})


def _with_siblings(rows: DataFrame) -> DataFrame:
    siblings = Window.partitionBy(*WHOLE_TOPIC)
    partition = F.col("partition").isNotNull()
    return rows.withColumns(
        {
            "partitions": F.count(F.when(partition, 1)).over(siblings),
            "partitions_live": F.count(F.when(partition & F.col("verdict").isin(*_LIVE), 1)).over(siblings),
            "partitions_learning": F.count(F.when(partition & (F.col("verdict") == Verdict.LEARNING.value), 1)).over(
                siblings
            ),
        }
    )


def _with_evidence(rows: DataFrame) -> DataFrame:
    return rows.withColumn("evidence", evidence(active_slots_needed=ACTIVE_SLOTS_NEEDED, weeks_needed=WEEKS_NEEDED))

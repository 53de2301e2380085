"""History -> verdicts, for each partition and for each topic as the union of its partitions.

The rule is a seam: ``Rule.score`` turns past activity into limits, and everything else here is the same
for whichever rule is in force.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from exporter.model import RETIRED_AFTER_SECONDS, State, Verdict
from spark_rollups.evidence import evidence
from spark_rollups.rollups import SLOT_SECONDS, STREAM, gaps, join_streams
from spark_rollups.schemas import VERDICTS, conform

YARDSTICK_SECONDS = 56 * 86_400
"""How much history a silence is judged by: the eight weeks up to the advance with which it began."""

ACTIVE_SLOTS_NEEDED = 10
HISTORY_SECONDS_NEEDED = 7 * 86_400
"""With less evidence than these two nothing is promised."""

_TOPIC = ("cluster", "topic", "topic_id")
_LIVE = (Verdict.LIVE.value, Verdict.QUIET.value)


class Rule(Protocol):
    """Turns past activity into limits of silence."""

    @property
    def name(self) -> str:
        """What the rule is called in verdicts and published expectations."""

    @property
    def threshold(self) -> float:
        """The ``silence_score`` past which a silence is ``dead``."""

    def score(self, history: DataFrame, as_of: datetime) -> DataFrame:
        """Return limits for each stream of ``history``.

        ``history`` has one row for each stream (STREAM, ``partition`` null for a topic) and UTC hour with
        ``hour``, ``first_advance``, ``last_advance``, ``censored``; nothing in it is later than ``as_of``.
        The result adds to the stream: ``last_advance``, ``active_slots``, ``history_start``,
        ``largest_silent_slots``, ``largest_silence_end`` and ``usual_``, ``suspect_`` and
        ``max_silence_seconds``, the last three null where the evidence is too thin.
        """


@dataclass(frozen=True, slots=True)
class KLargestSilence:
    """Dead past ``factor`` times the largest silence seen before, in slots, and one slot more."""

    factor: float = 2.0
    name: str = "k-largest-silence"

    @property
    def threshold(self) -> float:
        """The factor itself: a score of 2.0 is a silence twice the largest."""
        return self.factor

    def score(self, history: DataFrame, as_of: datetime) -> DataFrame:
        """See ``Rule.score``. A silence never enters its own yardstick, however long it lasts."""
        whole = Window.partitionBy(*STREAM)
        # A silence belongs to the weeks in which it ended, wherever it began.
        within = (
            gaps(history, STREAM)
            .withColumn("ended", F.max("last_advance").over(whole))
            .where(F.unix_timestamp("hour") > F.unix_timestamp("ended") - YARDSTICK_SECONDS)
        )
        silence_end = F.when(F.col("silent_slots").isNotNull(), F.col("first_advance"))
        summed = within.groupBy(*STREAM).agg(
            F.max("ended").alias("last_advance"),
            F.count("first_advance").alias("active_slots"),
            F.min("first_advance").alias("history_start"),
            F.max("silent_slots").alias("largest_silent_slots"),
            F.max(F.struct("silent_slots", silence_end.alias("end"))).alias("largest"),
        )
        known_for = F.lit(as_of).cast("double") - F.col("history_start").cast("double")
        enough = (
            (F.col("active_slots") >= ACTIVE_SLOTS_NEEDED)
            & (known_for >= HISTORY_SECONDS_NEEDED)
            & F.col("largest_silent_slots").isNotNull()
        )
        return summed.select(
            *STREAM,
            "last_advance",
            "active_slots",
            "history_start",
            "largest_silent_slots",
            F.when(F.col("largest_silent_slots").isNotNull(), F.col("largest.end")).alias("largest_silence_end"),
            self._limit(1.0, enough).alias("usual_silence_seconds"),
            self._limit(1.0 + (self.factor - 1.0) / 2.0, enough).alias("suspect_silence_seconds"),
            self._limit(self.factor, enough).alias("max_silence_seconds"),
        )

    def _limit(self, factor: float, enough: Column) -> Column:
        largest = F.greatest("largest_silent_slots", F.lit(1).cast("long"))
        return F.when(enough, (F.lit(factor) * largest + 1.0) * SLOT_SECONDS)


def verdicts(hours: DataFrame, observed: DataFrame, as_of: datetime, rule: Rule) -> DataFrame:
    """Return the VERDICTS rows of ``as_of``.

    ``hours`` are HOURLY rows made of what was known at ``as_of``; ``observed`` says which partitions
    exist and how far their silence is proved (``spark_rollups.silence.observed``).
    """
    hours = join_streams(hours, observed.select(*STREAM), STREAM, "left_semi")
    partitions = _with_activity(observed, hours, as_of)
    subjects = partitions.unionByName(_topics(partitions))
    history = hours.select(*STREAM, "hour", "first_advance", "last_advance", "censored")
    limits = rule.score(history.unionByName(_union(history)), as_of)
    judged = _judged(join_streams(subjects, limits, STREAM, "left"), as_of, rule)
    return conform(_with_evidence(judged), VERDICTS, "verdicts")


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


def _topics(partitions: DataFrame) -> DataFrame:
    """Each topic as the union of its partitions: silent only as far as every partition is known to be."""

    def only(*states: State) -> Column:
        return F.bool_and(F.coalesce(F.col("state").isin(*(state.value for state in states)), F.lit(False)))

    none_unknown = F.bool_and(F.col("observed_until").isNotNull())
    offsets_known = F.bool_and(F.col("end_offset").isNotNull())
    state = (
        F.when(only(State.NEVER_WRITTEN), State.NEVER_WRITTEN.value)
        .when(only(State.NEVER_WRITTEN, State.EMPTY), State.EMPTY.value)
        .when(only(State.UNREADABLE), State.UNREADABLE.value)
        .otherwise(State.OBSERVED.value)
    )
    unreadable = only(State.UNREADABLE)
    return partitions.groupBy(*_TOPIC).agg(
        F.lit(None).cast("int").alias("partition"),
        state.alias("state"),
        F.when(unreadable, F.max("reason")).alias("reason"),
        F.max("timestamp_type").alias("timestamp_type"),
        F.when(none_unknown, F.min("observed_until")).alias("observed_until"),
        F.when(unreadable, F.min("unreadable_since")).alias("unreadable_since"),
        F.sum("records_7d").alias("records_7d"),
        F.when(offsets_known, F.sum("end_offset")).alias("end_offset"),
    )


def _union(history: DataFrame) -> DataFrame:
    return history.groupBy(*_TOPIC, "hour").agg(
        F.lit(None).cast("int").alias("partition"),
        F.min("first_advance").alias("first_advance"),
        F.max("last_advance").alias("last_advance"),
        F.max("censored").alias("censored"),
    )


def _judged(rows: DataFrame, as_of: datetime, rule: Rule) -> DataFrame:
    silent = F.col("observed_until").cast("double") - F.col("last_advance").cast("double")
    # An advance may be known from after the last poll that counts: it is no negative silence.
    silence = F.when(silent.isNotNull(), F.greatest(silent, F.lit(0.0)))
    limit, seconds = F.col("max_silence_seconds"), F.col("silence_seconds")
    verdict = (
        F.when(limit.isNull() | seconds.isNull(), Verdict.LEARNING.value)
        .when(seconds <= SLOT_SECONDS, Verdict.LIVE.value)
        .when(seconds <= F.col("suspect_silence_seconds"), Verdict.QUIET.value)
        .when(seconds <= limit, Verdict.SUSPECT.value)
        .when(seconds >= RETIRED_AFTER_SECONDS, Verdict.RETIRED.value)
        .otherwise(Verdict.DEAD.value)
    )
    rows = rows.withColumns(
        {
            "as_of": F.lit(as_of),
            "rule": F.lit(rule.name),
            "threshold": F.lit(rule.threshold),
            "slot_seconds": F.lit(SLOT_SECONDS),
            "active_slots": F.coalesce("active_slots", F.lit(0).cast("long")),
            "silence_seconds": silence,
            "expected_by": (F.col("last_advance").cast("double") + limit).cast("timestamp"),
        }
    )
    rows = rows.withColumn("verdict", verdict).withColumn("silence_score", rule.threshold * seconds / limit)
    siblings = Window.partitionBy(*_TOPIC)
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
    return rows.withColumn(
        "evidence", evidence(active_slots_needed=ACTIVE_SLOTS_NEEDED, history_seconds_needed=HISTORY_SECONDS_NEEDED)
    )

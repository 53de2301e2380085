"""Hours of activity -> what each stream's silences are measured by, week by week.

The yardstick of a week is made of the eight weeks before it and of nothing else, so it is computed once
and never changes; a silence is measured by that of the week in which it began, and so never enters its
own. Past silences are scored in the stream's own traffic clock, each by the profile of the other weeks
(leave one out: a profile that knows the silence itself would promise too much).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_rollups.clock import HOURS, bound, end_of_slot, hours_since, timestamp_of, total
from spark_rollups.profiles import FIVE, HOUR, PERIOD_WEEKS, SPAN, WEEKS, Past, Slot, mean_of_others, monday
from spark_rollups.schemas import YARDSTICKS, conform

_SPREAD, _SPREAD_WEIGHT = 0.45, 4.0
"""A silence's log varies by about so much from week to week (measured on generated streams and real
departures); the prior counts as so many weeks."""

_CLIP = 3.0
_WEEKLY_SHARE = 0.7

ACTIVE_SLOTS_NEEDED = 10
WEEKS_NEEDED = 2
"""With less evidence than these two a stream is judged by its period, if it has one, or not at all."""

PERIODS_NEEDED = 4
PERIOD_REGULARITY, PERIOD_SUSPECT, PERIOD_DEAD = 1.5, 1.5, 1.75
"""A slow stream has a period where its longest silence is at most 1.5 times the median; past so many
times the longest it is suspect and dead."""

WHOLE_WEEKS_NEEDED, SEVERAL = 2, 2.0
"""With so much history in slots of five minutes a stream is judged by these, if its active hours have several
active ones on average: batches and rare records gain nothing by them (measured)."""


def finer(by_hours: DataFrame, by_fives: DataFrame) -> DataFrame:
    """Put the yardsticks in slots of five minutes in the place of those in hours where they are ripe."""
    key = ["stream", "week"]
    ripe = F.date_diff("week", F.to_date("history_start")) >= 7 * WHOLE_WEEKS_NEEDED
    several = F.col("clock_step") / FIVE.hours >= SEVERAL * F.col("active_hours")
    hours = by_hours.where(F.col("log_mean").isNotNull()).select(*key, F.col("clock_step").alias("active_hours"))
    chosen = by_fives.where(F.col("log_mean").isNotNull() & ripe).join(hours, key).where(several).localCheckpoint()
    return by_hours.join(chosen.select(*key), key, "left_anti").unionByName(chosen.drop("active_hours"))


def taught(active: Iterable[int]) -> set[int]:
    """Return the weeks that have yardsticks, given those in which any stream was active."""
    return {week + after for week in active for after in range(1, WEEKS + 1)}


def yardsticks(hours: DataFrame, weeks: Iterable[int], slot: Slot = HOUR) -> DataFrame:
    """Return the YARDSTICKS rows of these weeks, of which there must be one.

    ``hours`` has one row for each stream and UTC hour with ``stream``, ``hour``, ``first_advance``,
    ``last_advance``, ``censored``, ``active_fives`` and, of the silence that the hour ended (``rollups.gaps``, in
    the same slots), ``silent_slots``, ``silent_since`` and ``hour_before``. It is read several times: keep it in
    the cache. A stream without activity in the eight weeks before a week has no row for it.
    """
    left, made = sorted(weeks), list[DataFrame]()
    while left:
        near = [week for week in left if week < left[0] + SPAN]
        made.append(_near(hours, near, slot))
        left = left[len(near) :]
    return conform(functools.reduce(DataFrame.unionByName, made), YARDSTICKS, "yardsticks")


def _near(hours: DataFrame, weeks: Sequence[int], slot: Slot) -> DataFrame:
    past = Past(hours, weeks, slot)
    silences = _silences(hours, past).join(past.subjects, ["stream", "week"])
    rows = (
        past.profiles()
        .join(_scored(silences, past), ["stream", "week"], "left")
        .join(_periods(silences), ["stream", "week"], "left")
    )
    return _summed(rows, slot)


def _silences(hours: DataFrame, past: Past) -> DataFrame:
    """The silences across hours that ended in the weeks before each of the wanted ones.

    A silence runs from the end of the slot of one advance to the next advance. A day with activity and
    no silent slot has one of length nothing.
    """
    ended = F.floor(hours_since(F.col("hour"))).cast("long")
    began = end_of_slot(F.col("silent_since"), F.lit(past.slot.seconds))
    silences = hours.where(F.col("silent_slots").isNotNull()).select(
        "stream",
        F.floor(ended / 24).cast("long").alias("day"),
        F.floor(ended / HOURS).cast("long").alias("week_ended"),
        hours_since(F.col("first_advance")).alias("end"),
        F.when(F.col("silent_slots") > 0, began).alias("start"),
        F.when(
            F.col("silent_slots") > 0, F.col("first_advance").cast("double") - F.col("silent_since").cast("double")
        ).alias("seconds"),
        F.when(F.col("silent_slots") > 0, F.col("silent_slots")).alias("slots"),
    )
    real = silences.where(F.col("start").isNotNull())
    nothing = (
        silences.where(F.col("start").isNull()).groupBy("stream", "day", "week_ended").agg(F.min("end").alias("end"))
    )
    rows = real.unionByName(nothing, allowMissingColumns=True)
    rows = rows.withColumn("week", F.explode(past.weeks_after(F.col("week_ended"))))
    too_old = F.col("start") < (F.col("week") - PERIOD_WEEKS) * HOURS
    return rows.where(~F.coalesce(too_old, F.lit(False))).drop("week_ended")


def _scored(silences: DataFrame, past: Past) -> DataFrame:
    """The largest score of each day of each stream and week, and its longest silence.

    A silence's score is the log of the active slots that it missed, and one slot more, by the profile
    without the week in which it began. A day without a silent slot may have had one of almost a slot across
    the edge of two: it counts so.
    """
    began = F.greatest(F.floor(F.coalesce("start", "end") / HOURS), F.col("since"))
    recent = silences.where(F.col("end") >= F.col("since") * HOURS).withColumn(
        "left_out", (F.col("week") - began).cast("int")
    )
    last = F.floor("end").cast("long")
    hours = F.when(F.col("start").isNotNull(), F.sequence(F.floor("start").cast("long"), last)).otherwise(
        F.array(F.lit(None).cast("long"))
    )
    number, key = F.col("number"), ["stream", "week", "left_out"]
    part = F.least(F.col("end"), number + 1.0) - F.greatest(F.col("start"), number)
    across = (
        past.hour_by_hour(recent.withColumn("mean", mean_of_others()), hours)
        .groupBy(*key, "day", "end", "slots")
        .agg(F.sum(past.rate() * part).alias("missed"))
        .select(
            *key, "day", F.coalesce("missed", F.lit(0.0)).alias("missed"), F.struct("slots", "end").alias("largest")
        )
    )
    day = ((F.col("week") - F.col("left_out")) * 7 + F.col("weekday")).alias("day")
    others = past.without_each_week()
    inside = others.where(F.col("missed").isNotNull()).select(*key, day, "missed", "largest")
    steps = others.groupBy(*key).agg((F.sum("rates") * past.slot.share).alias("step"))
    missed = (
        across.unionByName(inside)
        .join(steps, key)
        .withColumn("missed", F.when(F.col("missed") > 0, F.col("missed")).otherwise(F.col("step")))
        .withColumn("score", F.log(F.col("missed") + F.col("step")))
    )
    by_day = missed.groupBy("stream", "week", "day").agg(
        F.max("score").alias("score"), F.max("largest").alias("largest"), F.max("missed").alias("missed")
    )
    return by_day.groupBy("stream", "week").agg(
        F.sort_array(F.collect_list(F.struct("day", "score"))).alias("days"),
        F.max("largest").alias("largest"),
        F.max("missed").alias("largest_missed"),
    )


def _periods(silences: DataFrame) -> DataFrame:
    """The silences, in seconds and in order, of each stream and week that is too slow for a profile."""
    slow = silences.where((F.col("active_slots") < ACTIVE_SLOTS_NEEDED) & F.col("seconds").isNotNull())
    return slow.groupBy("stream", "week").agg(F.sort_array(F.collect_list("seconds")).alias("periods"))


def _summed(rows: DataFrame, slot: Slot) -> DataFrame:
    """One yardstick a stream and week: how its largest scores of a week and of a day are spread."""
    no_days = F.array().cast("array<struct<day:bigint,score:double>>")
    rows = rows.withColumn("days", F.coalesce("days", no_days))
    weeks = F.filter(
        F.transform(
            F.sequence(F.col("week") - WEEKS, F.col("week") - 1),
            lambda week: F.array_max(
                F.transform(
                    F.filter(F.col("days"), lambda one: F.floor(one["day"] / 7) == week), lambda one: one["score"]
                )
            ),
        ),
        lambda score: score.isNotNull(),
    )
    rows = rows.withColumns(
        {
            "weekly_scores": weeks,
            "by_week": _clipped(weeks),
            "by_day": _clipped(F.transform(F.col("days"), lambda one: one["score"])),
        }
    )
    inverse = _WEEKLY_SHARE / _spread("by_week") + (1.0 - _WEEKLY_SHARE) / _spread("by_day")
    means = _WEEKLY_SHARE * F.col("by_week.mean") / _spread("by_week") + (1.0 - _WEEKLY_SHARE) * F.col(
        "by_day.mean"
    ) / _spread("by_day")
    learned = (F.col("by_week.count") >= WEEKS_NEEDED) & (F.col("active_slots") >= ACTIVE_SLOTS_NEEDED)
    periods, longest = F.size("periods"), F.element_at(F.col("periods"), -1)
    middle = (
        F.get(F.col("periods"), F.floor((periods - 1) / 2).cast("int"))
        + F.get(F.col("periods"), F.floor(periods / 2).cast("int"))
    ) / 2.0
    regular = F.coalesce((F.col("active_slots") < ACTIVE_SLOTS_NEEDED) & (periods >= PERIODS_NEEDED), F.lit(False))
    periodic = F.when(regular, longest <= PERIOD_REGULARITY * middle).otherwise(False)
    return rows.select(
        "stream",
        F.date_add(F.lit(monday(0)), (F.col("week") * 7).cast("int")).alias("week"),
        F.lit(slot.seconds).alias("slot_seconds"),
        F.col("profile").cast("array<float>").alias("profile"),
        (total(F.col("profile")) * slot.share).alias("clock_step"),
        F.when(learned, means / inverse).alias("log_mean"),
        F.when(learned, 1.0 / inverse).alias("log_spread"),
        F.when(periodic, PERIOD_SUSPECT * longest).alias("suspect_silence_seconds"),
        F.when(periodic, PERIOD_DEAD * longest).alias("max_silence_seconds"),
        F.col("active_slots").cast("long").alias("active_slots"),
        F.coalesce(F.col("by_week.count"), F.lit(0.0)).cast("long").alias("weeks"),
        timestamp_of(F.greatest(F.col("first"), F.col("since") * HOURS).cast("double")).alias("history_start"),
        F.when(F.col("by_week.count") > 0, F.coalesce(F.col("largest.slots"), F.lit(0).cast("long"))).alias(
            "largest_silent_slots"
        ),
        F.when(F.col("largest.slots").isNotNull(), timestamp_of(F.col("largest.end"))).alias("largest_silence_end"),
        "largest_missed",
        F.col("weekly_scores").cast("array<float>").alias("weekly_scores"),
    )


def _clipped(scores: Column) -> Column:
    """Count, mean and sum of squared deviations of scores, each clipped by those before it.

    So a repaired outage of days does not blind the weeks after it.
    """
    none = F.struct(F.lit(0.0).alias("count"), F.lit(0.0).alias("mean"), F.lit(0.0).alias("squares"))

    def take(state: Column, score: Column) -> Column:
        most = state["mean"] + _CLIP * _spread_of(state["count"], state["squares"])
        kept = F.when(state["count"] >= 2, F.least(score, most)).otherwise(score)

        def add(one: Column) -> Column:
            count = state["count"] + 1.0
            mean = state["mean"] + (one - state["mean"]) / count
            squares = state["squares"] + (one - state["mean"]) * (one - mean)
            return F.struct(count.alias("count"), mean.alias("mean"), squares.alias("squares"))

        return bound(kept, add)

    return F.aggregate(scores, none, take)


def _spread(name: str) -> Column:
    return _spread_of(F.col(f"{name}.count"), F.col(f"{name}.squares"))


def _spread_of(count: Column, squares: Column) -> Column:
    """The spread to expect of the next score, given those seen."""
    prior = _SPREAD_WEIGHT * _SPREAD**2
    seen = F.greatest(count, F.lit(1.0))
    return F.sqrt((prior + squares) / (_SPREAD_WEIGHT + seen - 1.0) * (1.0 + 1.0 / seen))

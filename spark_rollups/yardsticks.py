"""Hours of activity -> what each stream's silences are measured by, week by week.

The yardstick of a week is made of the eight weeks before it and of nothing else, so it is computed once
and never changes; a silence is measured by that of the week in which it began, and so never enters its
own. Past silences are scored in the stream's own traffic clock, each by the profile of the other weeks
(leave one out: a profile that knows the silence itself would promise too much).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_rollups.clock import HOURS, bound, hours_since, mean_rate, rate, timestamp_of, total
from spark_rollups.schemas import YARDSTICKS, conform

WEEKS = 8
"""So many weeks make a yardstick."""

PERIOD_WEEKS = 12
"""So many weeks are looked at for a stream that is too slow for a profile."""

_MONDAY = date(1970, 1, 5)
_SPAN = 64 - PERIOD_WEEKS - 2
"""So many weeks at a time have all that they look back on in one word, and its sign bit free."""

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


@dataclass(frozen=True, slots=True)
class Slot:
    """The length of time in which a stream counts as active or not, and how strongly its rates are drawn."""

    seconds: float
    prior: float

    @property
    def share(self) -> float:
        """Its part of a week."""
        return self.seconds / 3600.0 / HOURS


HOUR = Slot(3600.0, 0.25)


def week_of(day: date) -> int:
    """Return the number of a day's week, counted from the first Monday."""
    return (day - _MONDAY).days // 7


def monday(week: int) -> date:
    """Return the first day of a week by its number."""
    return _MONDAY + timedelta(weeks=week)


def yardsticks(hours: DataFrame, weeks: Iterable[int], slot: Slot = HOUR) -> DataFrame:
    """Return the YARDSTICKS rows of these weeks, of which there must be one.

    ``hours`` has one row for each stream and UTC hour with ``stream``, ``hour``, ``first_advance``,
    ``last_advance``, ``censored`` and, of the silence that the hour ended (``rollups.gaps``),
    ``silent_slots``, ``silent_since`` and ``hour_before``. It is read several times: keep it in the cache.
    A stream without activity in the eight weeks before a week has no row for it.
    """
    left, made = sorted(weeks), list[DataFrame]()
    while left:
        near = [week for week in left if week < left[0] + _SPAN]
        made.append(_near(hours, near, slot))
        left = left[len(near) :]
    return conform(functools.reduce(DataFrame.unionByName, made), YARDSTICKS, "yardsticks")


def _near(hours: DataFrame, weeks: Sequence[int], slot: Slot) -> DataFrame:
    """The yardsticks of weeks so near to each other that all they look back on fits into the bits of a word.

    Profiles are computed hour by hour in rows of their own, which Spark compiles; with functions over arrays,
    which it interprets, a stream's week took several times as long (measured).
    """
    wanted, base = F.array(*(F.lit(week).cast("long") for week in weeks)), weeks[0] - PERIOD_WEEKS
    seen = _seen(hours, base, weeks[-1]).localCheckpoint()
    subjects = _subjects(hours, seen, wanted, base).localCheckpoint()
    past = _silences(hours, wanted).join(subjects, ["stream", "week"])
    rows = (
        _profiles(subjects, seen, slot, base)
        .join(_scored(past, _steps(subjects, seen, slot, base), seen, slot, base), ["stream", "week"], "left")
        .join(_periods(past), ["stream", "week"], "left")
    )
    return _summed(rows, slot)


def _weeks_after(number: Column, wanted: Column, reach: int) -> Column:
    """The wanted weeks whose yardstick looks back on the week ``number``."""
    return F.filter(wanted, lambda week: (week > number) & (week <= number + reach))


def _bit(place: Column) -> Column:
    return F.call_function("shiftleft", F.lit(1).cast("long"), place.cast("int"))


def _seen(hours: DataFrame, base: int, end: int) -> DataFrame:
    """One row a stream: in which weeks each of the 168 hours was active, and in which it was watched.

    Two arrays of words, whose bit n stands for the week ``base`` + n; those from ``end`` on are left out.
    """
    number = F.floor(hours_since(F.col("hour"))).cast("long")
    active = F.col("first_advance").isNotNull()
    before = F.floor(hours_since(F.col("hour_before"))).cast("long")
    unseen = F.sequence(before + 1, number)
    lost = F.when(F.col("censored_gap"), F.filter(unseen, lambda hour: (hour < number) | ~active)).when(
        F.col("censored") & ~active, F.array(number)
    )
    there = hours.where(active).select("stream", number.alias("number"), F.lit(True).alias("active"))
    gone = hours.where(lost.isNotNull()).select("stream", F.explode(lost).alias("number"), F.lit(False).alias("active"))
    week = F.floor(F.col("number") / HOURS)
    bit = _bit(week - base)
    none = F.lit(0).cast("long")
    every_hour = F.explode(F.sequence(F.lit(0).cast("long"), F.lit(HOURS - 1).cast("long")))
    told = (
        there.unionByName(gone)
        .where((week >= base) & (week < end))
        .select(
            "stream",
            (F.col("number") % HOURS).alias("hour"),
            F.when(F.col("active"), bit).otherwise(none).alias("active"),
            F.when(F.col("active"), none).otherwise(bit).alias("lost"),
        )
        .unionByName(
            hours.select("stream")
            .distinct()
            .select("stream", every_hour.alias("hour"), none.alias("active"), none.alias("lost"))
        )
    )
    by_hour = told.groupBy("stream", "hour").agg(
        F.bit_or("active").alias("active"), F.bitwise_not(F.bit_or("lost")).alias("watched")
    )
    in_order = F.sort_array(F.collect_list(F.struct("hour", "active", "watched")))
    return (
        by_hour.groupBy("stream")
        .agg(in_order.alias("hours"))
        .select("stream", F.col("hours.active").alias("active"), F.col("hours.watched").alias("watched"))
    )


def _subjects(hours: DataFrame, seen: DataFrame, wanted: Column, base: int) -> DataFrame:
    """One row for each stream and week of which there is something to learn.

    ``first`` is its first active hour, ``since`` the first week that counts; ``active_slots`` and
    ``watched_hours`` count all weeks, the arrays each of the eight, the latest first.
    """
    number = F.floor(hours_since(F.col("hour"))).cast("long")
    active = hours.where(F.col("first_advance").isNotNull())
    firsts = active.groupBy("stream", F.floor(number / HOURS).alias("of_week")).agg(F.min(number).alias("first"))
    begun = (
        firsts.withColumn("week", F.explode(_weeks_after(F.col("of_week"), wanted, PERIOD_WEEKS)))
        .groupBy("stream", "week")
        .agg(F.min("first").alias("first"))
        .withColumn("since", F.greatest(F.col("week") - WEEKS, F.floor(F.col("first") / HOURS)))
    )
    rows = _hour_by_hour(begun.withColumn("left_out", F.lit(0)), seen, base)
    words = {name: F.get(name, F.col("hour")).bitwiseAND(_window_at(F.col("hour"))) for name in ("active", "watched")}

    def by_week(word: Column) -> Column:
        return F.array(
            *(F.count_if(word.bitwiseAND(_bit(F.col("week") - back - base)) != 0) for back in range(1, WEEKS + 1))
        )

    counted = (
        rows.select("stream", "week", "first", "since", *(word.alias(name) for name, word in words.items()))
        .groupBy("stream", "week", "first", "since")
        .agg(
            F.sum(F.bit_count("active")).alias("active_slots"),
            F.sum(F.bit_count("watched")).alias("watched_hours"),
            by_week(F.col("active")).alias("active_by_week"),
            by_week(F.col("watched")).alias("watched_by_week"),
        )
    )
    return counted.where(F.col("active_slots") > 0)


def _window_at(hour: Column) -> Column:
    """The weeks that count at an hour of the week: in the first of them only from the first active hour on."""
    return F.when(hour < F.col("first_hour"), F.col("early")).otherwise(F.col("window"))


def _hour_by_hour(rows: DataFrame, seen: DataFrame, base: int, numbers: Column | None = None) -> DataFrame:
    """Give each row its stream's words, the weeks that count, and one row for each hour.

    ``left_out`` is the week, counted backwards, that does not count; 0: all do. ``numbers`` are the hours
    since the first Monday; by default the 168 of a week.
    """
    kept = F.when(F.col("left_out") > 0, F.bitwise_not(_bit(F.col("week") - F.col("left_out") - base))).otherwise(-1)
    window = (_bit(F.col("week") - base) - _bit(F.col("since") - base)).bitwiseAND(kept)
    listed = F.sequence(F.lit(0).cast("long"), F.lit(HOURS - 1).cast("long")) if numbers is None else numbers
    return (
        rows.withColumns({"window": window, "first_hour": F.col("first") - F.col("since") * HOURS})
        .withColumn("early", F.col("window").bitwiseAND(F.bitwise_not(_bit(F.col("since") - base))))
        .join(seen, "stream")
        .withColumn("number", F.explode(listed))
        .withColumn("hour", (F.col("number") % HOURS).cast("int"))
    )


def _rate(slot: Slot) -> Column:
    """The rate of an hour, of a row of ``_hour_by_hour``."""

    def active(hour: Column) -> Column:
        return F.bit_count(F.get("active", hour).bitwiseAND(F.col("window"))).cast("double")

    def watched(hour: Column) -> Column:
        return F.bit_count(F.get("watched", hour).bitwiseAND(_window_at(hour))).cast("double")

    return rate(F.col("hour"), active, watched, F.col("mean"), slot.prior)


def _mean() -> Column:
    """The rate of the whole week without the one that is left out."""

    def others(all_: str, by_week: str) -> Column:
        own = F.coalesce(F.get(by_week, F.col("left_out") - 1), F.lit(0).cast("long"))
        return (F.col(all_) - own).cast("double")

    return mean_rate(others("active_slots", "active_by_week"), others("watched_hours", "watched_by_week"))


def _profiles(subjects: DataFrame, seen: DataFrame, slot: Slot, base: int) -> DataFrame:
    """Add to each stream and week the profile of all its weeks."""
    rows = subjects.withColumn("left_out", F.lit(0)).withColumn("mean", _mean())
    kept = ("stream", "week", "first", "since", "active_slots")
    # Collecting is interpreted with all that stands inside it, so the rate is made a column of its own before.
    by_hour = _hour_by_hour(rows, seen, base).select(*kept, "hour", _rate(slot).alias("rate"))
    made = by_hour.groupBy(*kept).agg(F.sort_array(F.collect_list(F.struct("hour", "rate"))).alias("hours"))
    return made.select(*kept, F.col("hours.rate").alias("profile"))


def _steps(subjects: DataFrame, seen: DataFrame, slot: Slot, base: int) -> DataFrame:
    """The mean slot of each stream and week by the profile without each of its weeks."""
    weeks = F.explode(F.sequence(F.lit(1), (F.col("week") - F.col("since")).cast("int")))
    rows = subjects.withColumn("left_out", weeks).withColumn("mean", _mean())
    by_hour = _hour_by_hour(rows, seen, base)
    return by_hour.groupBy("stream", "week", "left_out").agg((F.sum(_rate(slot)) * slot.share).alias("step"))


def _silences(hours: DataFrame, wanted: Column) -> DataFrame:
    """The silences that ended in the weeks before each of the wanted ones.

    A silence runs from the end of the slot of one advance to the next advance. A day with activity and
    no silent slot has one of length nothing.
    """
    ended = F.floor(hours_since(F.col("hour"))).cast("long")
    began = F.floor(hours_since(F.col("hour_before"))).cast("long") + 1
    silences = hours.where(F.col("silent_slots").isNotNull()).select(
        "stream",
        F.floor(ended / 24).cast("long").alias("day"),
        F.floor(ended / HOURS).cast("long").alias("week_ended"),
        hours_since(F.col("first_advance")).alias("end"),
        F.when(F.col("silent_slots") > 0, began.cast("double")).alias("start"),
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
    past = rows.withColumn("week", F.explode(_weeks_after(F.col("week_ended"), wanted, PERIOD_WEEKS)))
    too_old = F.col("start") < (F.col("week") - PERIOD_WEEKS) * HOURS
    return past.where(~F.coalesce(too_old, F.lit(False))).drop("week_ended")


def _scored(past: DataFrame, steps: DataFrame, seen: DataFrame, slot: Slot, base: int) -> DataFrame:
    """The largest score of each day of each stream and week, and its longest silence.

    A silence's score is the log of the active slots that it missed, and one slot more, by the profile
    without the week in which it began. A day without a silent slot may have had one of almost a slot across
    the edge of two: it counts so.
    """
    began = F.greatest(F.floor(F.coalesce("start", "end") / HOURS), F.col("since"))
    recent = past.where(F.col("end") >= F.col("since") * HOURS).withColumn(
        "left_out", (F.col("week") - began).cast("int")
    )
    last = F.floor("end").cast("long")
    hours = F.when(F.col("start").isNotNull(), F.sequence(F.col("start").cast("long"), last)).otherwise(
        F.array(F.lit(None).cast("long"))
    )
    part = F.when(F.col("number") == last, F.col("end") - last).otherwise(1.0)
    missed = (
        _hour_by_hour(recent.withColumn("mean", _mean()), seen, base, hours)
        .groupBy("stream", "week", "left_out", "day", "end", "slots")
        .agg(F.sum(_rate(slot) * part).alias("missed"))
        .join(steps, ["stream", "week", "left_out"])
        .withColumn("missed", F.coalesce("missed", "step"))
        .withColumn("score", F.log(F.col("missed") + F.col("step")))
    )
    by_day = missed.groupBy("stream", "week", "day").agg(
        F.max("score").alias("score"),
        F.max(F.struct("slots", "end")).alias("largest"),
        F.max("missed").alias("missed"),
    )
    return by_day.groupBy("stream", "week").agg(
        F.sort_array(F.collect_list(F.struct("day", "score"))).alias("days"),
        F.max("largest").alias("largest"),
        F.max("missed").alias("largest_missed"),
    )


def _periods(past: DataFrame) -> DataFrame:
    """The silences, in seconds and in order, of each stream and week that is too slow for a profile."""
    slow = past.where((F.col("active_slots") < ACTIVE_SLOTS_NEEDED) & F.col("seconds").isNotNull())
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
        F.date_add(F.lit(_MONDAY), (F.col("week") * 7).cast("int")).alias("week"),
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

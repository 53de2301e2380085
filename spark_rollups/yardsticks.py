"""Hours of activity -> what each stream's silences are measured by, week by week.

The yardstick of a week is made of the eight weeks before it and of nothing else, so it is computed once
and never changes; a silence is measured by that of the week in which it began, and so never enters its
own. Past silences are scored in the stream's own traffic clock, each by the profile of the other weeks
(leave one out: a profile that knows the silence itself would promise too much).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_rollups.clock import HOURS, bound, face, hours_since, missed, rates, timestamp_of, total
from spark_rollups.schemas import YARDSTICKS, conform

WEEKS = 8
"""So many weeks make a yardstick."""

PERIOD_WEEKS = 12
"""So many weeks are looked at for a stream that is too slow for a profile."""

_MONDAY = date(1970, 1, 5)
_HOURS_A_WORD = 15
_WORDS = 12
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
    """Return the YARDSTICKS rows of these weeks.

    ``hours`` has one row for each stream and UTC hour with ``stream``, ``hour``, ``first_advance``,
    ``last_advance``, ``censored`` and, of the silence that the hour ended (``rollups.gaps``),
    ``silent_slots``, ``silent_since`` and ``hour_before``. A stream without activity in the eight weeks
    before a week has no row for it.
    """
    wanted = F.array(*(F.lit(week).cast("long") for week in sorted(weeks)))
    profiles = _profiles(_activity(hours, wanted), slot)
    measured = profiles.join(_silences(hours, wanted), ["stream", "week"], "left")
    return conform(_summed(_scored(measured, slot), slot), YARDSTICKS, "yardsticks")


def _weeks_after(number: Column, wanted: Column, reach: int) -> Column:
    """The wanted weeks whose yardstick looks back on the week ``number``."""
    return F.filter(wanted, lambda week: (week > number) & (week <= number + reach))


def _activity(hours: DataFrame, wanted: Column) -> DataFrame:
    """One row for each stream and week: active and unobserved hours of the weeks before it, packed.

    A word holds 15 hours of four bits each.
    """
    number = F.floor(hours_since(F.col("hour"))).cast("long")
    active = F.col("first_advance").isNotNull()
    before = F.floor(hours_since(F.col("hour_before"))).cast("long")
    unseen = F.sequence(before + 1, number)
    lost = F.when(F.col("censored_gap"), F.filter(unseen, lambda hour: (hour < number) | ~active)).when(
        F.col("censored") & ~active, F.array(number)
    )
    seen = hours.select("stream", number.alias("number"), active.cast("long").alias("active"), F.lit(0).alias("lost"))
    gone = hours.where(lost.isNotNull()).select(
        "stream", F.explode(lost).alias("number"), F.lit(0).cast("long").alias("active"), F.lit(1).alias("lost")
    )
    by_hour = seen.unionByName(gone)
    in_week, word = F.col("number") % HOURS, F.floor(F.col("number") % HOURS / _HOURS_A_WORD)
    shift = (4 * (in_week % _HOURS_A_WORD)).cast("int")

    def packed(name: str) -> Column:
        bits = F.call_function("shiftleft", F.col(name).cast("long"), shift)
        return F.array(
            *(F.coalesce(F.bit_or(F.when(word == place, bits)), F.lit(0).cast("long")) for place in range(_WORDS))
        )

    by_week = by_hour.groupBy("stream", F.floor(F.col("number") / HOURS).cast("long").alias("number_of_week")).agg(
        packed("active").alias("active"),
        packed("lost").alias("lost"),
        F.min(F.when(F.col("active") > 0, F.col("number"))).alias("first"),
    )
    past = by_week.withColumn("week", F.explode(_weeks_after(F.col("number_of_week"), wanted, PERIOD_WEEKS)))
    return past.groupBy("stream", "week").agg(
        F.collect_list(F.struct("number_of_week", "active", "lost")).alias("past"), F.min("first").alias("first")
    )


def _unpacked(words: Column) -> Column:
    """The 168 numbers of packed words, as doubles."""

    def number(hour: Column) -> Column:
        word = F.get(words, F.floor(hour / _HOURS_A_WORD).cast("int"))
        bits = F.call_function("shiftright", word, (4 * (hour % _HOURS_A_WORD)).cast("int"))
        return bits.bitwiseAND(F.lit(15)).cast("double")

    return F.transform(F.sequence(F.lit(0), F.lit(HOURS - 1)), number)


def _profiles(activity: DataFrame, slot: Slot) -> DataFrame:
    """Add to each stream and week the profile of all its weeks, and of all but each one."""
    no_words = F.array_repeat(F.lit(0).cast("long"), _WORDS)

    def of_week(week: Column) -> Column:
        one = F.get(F.filter(F.col("past"), lambda one: one["number_of_week"] == week), F.lit(0))

        def counted(words: Column) -> Column:
            observed = F.zip_with(
                _unpacked(words["lost"]),
                F.sequence(week * HOURS, week * HOURS + HOURS - 1),
                lambda lost, hour: F.when(hour < F.col("first"), 0.0).otherwise(1.0 - lost),
            )
            return F.struct(_unpacked(words["active"]).alias("active"), observed.alias("observed"))

        words = F.struct(
            F.coalesce(one["active"], no_words).alias("active"), F.coalesce(one["lost"], no_words).alias("lost")
        )
        return bound(words, counted)

    none = F.array_repeat(F.lit(0.0), HOURS)
    since = F.greatest(F.col("week") - WEEKS, F.floor(F.col("first") / HOURS))
    counts = F.transform(F.sequence(since, F.col("week") - 1), of_week)

    def summed(counted: Column, name: str) -> Column:
        return F.aggregate(counted, none, lambda all_, one: F.zip_with(all_, one[name], lambda a, b: a + b))

    def left_out(counted: Column) -> Column:
        def of_sums(sums: Column) -> Column:
            def others(one: Column) -> Column:
                def rest(name: str) -> Column:
                    return F.zip_with(sums[name], one[name], lambda all_, own: all_ - own)

                pair = F.struct(rest("active").alias("active"), rest("observed").alias("observed"))
                return bound(pair, lambda left: face(rates(left["active"], left["observed"], slot.prior)))

            return F.struct(
                rates(sums["active"], sums["observed"], slot.prior).alias("profile"),
                F.transform(counted, others).alias("others"),
                total(sums["active"]).alias("active_slots"),
            )

        sums = F.struct(summed(counted, "active").alias("active"), summed(counted, "observed").alias("observed"))
        return bound(sums, of_sums)

    made = activity.where(F.col("first").isNotNull()).select(
        "stream", "week", "first", since.alias("since"), F.inline(F.array(bound(counts, left_out)))
    )
    return made.where(F.col("active_slots") > 0)


def _silences(hours: DataFrame, wanted: Column) -> DataFrame:
    """One row for each stream and week: the silences that ended in the weeks before it, in order.

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
    return (
        past.where(~F.coalesce(too_old, F.lit(False)))
        .groupBy("stream", "week")
        .agg(F.array_sort(F.collect_list(F.struct("end", "start", "day", "seconds", "slots"))).alias("silences"))
    )


def _scored(rows: DataFrame, slot: Slot) -> DataFrame:
    """Score each silence: the log of the active slots it missed, and one slot more.

    A day without a silent slot may have had one of almost a slot across the edge of two: it counts so.
    """

    def score(silence: Column) -> Column:
        began = F.greatest(F.floor(F.coalesce(silence["start"], silence["end"]) / HOURS), F.col("since"))

        def by(clock: Column) -> Column:
            step = F.get(clock, F.lit(HOURS)) * slot.share
            slots = F.when(silence["start"].isNull(), step).otherwise(missed(clock, silence["start"], silence["end"]))
            return F.struct(
                silence["day"].alias("day"),
                F.log(slots + step).alias("score"),
                slots.alias("missed"),
                silence["slots"].alias("slots"),
                silence["end"].alias("end"),
            )

        return bound(F.get(F.col("others"), (began - F.col("since")).cast("int")), by)

    recent = F.filter(F.col("silences"), lambda silence: silence["end"] >= F.col("since") * HOURS)
    scores = F.transform(F.coalesce(recent, F.expr("filter(silences, x -> false)")), score)
    periods = F.transform(
        F.filter(F.col("silences"), lambda silence: silence["seconds"].isNotNull()), lambda silence: silence["seconds"]
    )
    return rows.withColumns({"scores": scores, "periods": F.array_sort(periods)}).drop("others", "silences")


def _summed(rows: DataFrame, slot: Slot) -> DataFrame:
    """One yardstick a stream and week: how its largest scores of a week and of a day are spread."""
    no_days = F.array().cast("array<struct<day:bigint,score:double>>")
    started = F.struct(
        no_days.alias("days"), F.lit(None).cast("bigint").alias("day"), F.lit(None).cast("double").alias("score")
    )

    def with_day(state: Column) -> Column:
        return F.concat(state["days"], F.array(F.struct(state["day"].alias("day"), state["score"].alias("score"))))

    def by_day(state: Column, one: Column) -> Column:
        same = state["day"] == one["day"]
        return (
            F.when(
                same,
                F.struct(
                    state["days"].alias("days"),
                    state["day"].alias("day"),
                    F.greatest(state["score"], one["score"]).alias("score"),
                ),
            )
            .when(
                state["day"].isNull(),
                F.struct(state["days"].alias("days"), one["day"].alias("day"), one["score"].alias("score")),
            )
            .otherwise(F.struct(with_day(state).alias("days"), one["day"].alias("day"), one["score"].alias("score")))
        )

    days = F.aggregate(
        "scores", started, by_day, lambda state: F.when(state["day"].isNull(), no_days).otherwise(with_day(state))
    )
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
    rows = rows.withColumn("days", days)
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
    largest = F.array_max(F.transform(F.col("scores"), lambda one: F.struct(one["slots"], one["end"])))
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
        F.when(F.col("by_week.count") > 0, F.coalesce(largest["slots"], F.lit(0).cast("long"))).alias(
            "largest_silent_slots"
        ),
        F.when(largest["slots"].isNotNull(), timestamp_of(largest["end"])).alias("largest_silence_end"),
        F.array_max(F.transform(F.col("scores"), lambda one: one["missed"])).alias("largest_missed"),
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

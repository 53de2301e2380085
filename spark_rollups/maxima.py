"""Hours of activity and yardsticks -> how unusual each stream's silences were, week by week.

What calibration learns from: each silence is scored as it was judged at the time, by the yardstick of the
week in which it began.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from exporter.domain import HELD_FROM, RETIRED_AFTER_SECONDS
from spark_rollups.clock import bound, end_of_slot, face, hours_since, missed, moment_of, reading, timestamp_of
from spark_rollups.profiles import Slot, longest_inside, monday
from spark_rollups.schemas import MAXIMA, conform
from spark_rollups.verdicts import PARTITION, TOPIC, stream_number

_STREAM = ("stream", "topic_stream", "cluster", "topic", "kind", "slot_seconds")


def maxima(hours: Mapping[Slot, DataFrame], yardsticks: DataFrame, weeks: Iterable[int]) -> DataFrame:
    """Return the MAXIMA rows of the silences that ended in these weeks.

    ``hours`` are as for ``yardsticks``, with the columns of the stream, in each of the slots that streams are judged
    by; a silence of 28 days or more is left out: an alarm of it is true, whatever comes then.
    """
    advanced = functools.reduce(DataFrame.unionByName, [_advanced(rows, slot, weeks) for slot, rows in hours.items()])
    of_week = advanced.groupBy(*_STREAM, "week_ended", F.col("week_ended").alias("week"))
    before = advanced.where(F.col("silence").isNotNull() & (F.col("week_began") < F.col("week_ended")))
    own = F.when(F.col("week_began") == F.col("week_ended"), F.col("silence"))
    both = F.flatten(F.collect_list(F.array_compact(F.array(own, "inside"))))
    silences = of_week.agg(both.alias("silences")).unionByName(
        before.groupBy(*_STREAM, "week_ended", F.col("week_began").alias("week")).agg(
            F.collect_list("silence").alias("silences")
        )
    )
    clocks = yardsticks.where(F.col("log_mean").isNotNull()).select(
        "stream", "week", "slot_seconds", "profile", "clock_step", "log_mean", "log_spread"
    )
    scored = silences.join(clocks, ["stream", "week", "slot_seconds"]).select(
        *_STREAM, "week", "week_ended", bound(face(F.col("profile").cast("array<double>")), _worst).alias("worst")
    )
    return conform(scored.select(*_STREAM, "week", "week_ended", "worst.*"), MAXIMA, "maxima")


def _advanced(hours: DataFrame, slot: Slot, weeks: Iterable[int]) -> DataFrame:
    """The hours of these weeks with an advance: the silence that each ended, and the longest inside it."""
    ended = F.to_date(F.date_trunc("week", "hour"))
    length = F.col("first_advance").cast("double") - F.col("silent_since").cast("double")
    silent = (F.col("silent_slots") > 0) & (length < RETIRED_AFTER_SECONDS)
    silence = F.struct(
        end_of_slot(F.col("silent_since"), F.lit(slot.seconds)).alias("start"),
        hours_since(F.col("first_advance")).alias("end"),
    )
    hour = F.floor(hours_since(F.col("hour"))).cast("double")
    slots = longest_inside(slot)
    inside = F.struct(hour.alias("start"), (hour + (slots + 1) * slot.hours).alias("end"))
    return hours.where(F.col("first_advance").isNotNull() & ended.isin([monday(week) for week in weeks])).select(
        "stream",
        stream_number(topic=True).alias("topic_stream"),
        "cluster",
        "topic",
        F.when(F.col("partition").isNull(), TOPIC).otherwise(PARTITION).alias("kind"),
        F.lit(slot.seconds).alias("slot_seconds"),
        ended.alias("week_ended"),
        F.to_date(F.date_trunc("week", F.coalesce("silent_since", "hour"))).alias("week_began"),
        F.when(silent, silence).alias("silence"),
        F.when(slots > 0, inside).alias("inside"),
    )


def _worst(clock: Column) -> Column:
    """The score of the silence that missed most, and when it was so unusual that an incident could hold it."""

    def counted(silence: Column) -> Column:
        return F.struct(
            missed(clock, silence["start"], silence["end"]).alias("missed"), silence["start"], silence["end"]
        )

    def scored(most: Column) -> Column:
        score = (F.log(most["missed"] + F.col("clock_step")) - F.col("log_mean")) / F.col("log_spread")
        slots = F.exp(F.col("log_mean") + HELD_FROM * F.col("log_spread")) - F.col("clock_step")
        from_ = moment_of(clock, reading(clock, most["start"]) + F.greatest(slots, F.lit(0.0)))
        moments = {"held_from": from_, "silent_from": most["start"], "silent_until": most["end"]}
        unusual = (F.when(score > HELD_FROM, timestamp_of(at)).alias(name) for name, at in moments.items())
        return F.struct(score.alias("score"), *unusual)

    return bound(F.array_max(F.transform(F.col("silences"), counted)), scored)

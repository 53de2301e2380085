"""The evidence line: why a verdict is what it is, in one sentence with real values.

Built of Spark SQL functions over the columns of a verdict row; every duration is seconds, every moment
is shown in UTC.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from exporter.domain import DEAD_BEFORE_RETIRED_SECONDS, RETIRED_AFTER_SECONDS, State, Verdict

_MINUTE, _HOUR, _DAY, _WEEK = 60, 3600, 86_400, 7 * 86_400


def evidence(*, active_slots_needed: int, weeks_needed: int) -> Column:
    """Return the line for a row with the columns of VERDICTS, ``unreadable_since`` and ``partitions_learning``."""
    verdict = F.col("verdict")
    learning = verdict == Verdict.LEARNING.value
    missing = _missing(active_slots_needed, weeks_needed)
    by_period = F.when(F.col("max_silence_seconds").isNotNull(), F.lit("by its period, not calibrated"))
    judged = F.concat_ws("; ", _silent(), _past(), _limits(), by_period)
    untaught = F.concat_ws("; ", F.concat(F.lit("learning: "), missing), _silent())
    emptied = F.when(~learning & (F.col("state") == State.EMPTY.value), F.lit("now empty"))
    return F.concat_ws(
        "; ", F.when(learning, untaught).otherwise(judged), emptied, _misdated(), _not_looked_at(), _siblings()
    )


def duration(seconds: Column) -> Column:
    """Return seconds in the two largest units, such as ``9 h 12 m``, ``3 h`` or ``45 s``."""
    whole = F.floor(seconds)
    days, hours, minutes = F.floor(whole / _DAY), F.floor(whole / _HOUR), F.floor(whole / _MINUTE)

    def pair(large: Column, unit: str, small: Column, lesser: str) -> Column:
        rest = F.when(small > 0, F.concat(small.cast("string"), F.lit(f" {lesser}")))
        return F.concat_ws(" ", F.concat(large.cast("string"), F.lit(f" {unit}")), rest)

    return (
        F.when(whole >= _DAY, pair(days, "d", hours % 24, "h"))
        .when(whole >= _HOUR, pair(hours, "h", minutes % 60, "m"))
        .when(whole >= _MINUTE, F.concat(minutes.cast("string"), F.lit(" m")))
        .otherwise(F.concat(whole.cast("string"), F.lit(" s")))
    )


def retired_after(dead_after: Column) -> Column:
    """Return the seconds of silence past which it is retired, by those past which it is dead."""
    return F.greatest(F.lit(RETIRED_AFTER_SECONDS), dead_after + DEAD_BEFORE_RETIRED_SECONDS)


def moment(at: Column) -> Column:
    """Return a moment such as ``Tue 2026-03-03 02:14 UTC``."""
    return F.date_format(at, "EEE yyyy-MM-dd HH:mm 'UTC'")


def _silent() -> Column:
    since = moment(F.col("last_advance"))
    silent = F.concat(F.lit("silent "), duration(F.col("silence_seconds")), F.lit(" (since "), since, F.lit(")"))
    fresh = F.concat(F.lit("last advance "), since)
    never_looked = F.concat(F.lit("last advance "), since, F.lit(", silence not measured"))
    return (
        F.when(F.col("last_advance").isNull(), F.lit(None).cast("string"))
        .when(F.col("silence_seconds").isNull(), never_looked)
        .when(F.col("silence_seconds") < _MINUTE, fresh)
        .otherwise(silent)
    )


def _past() -> Column:
    """How silent it ever was, and when, over the span that it was judged by."""
    span = F.col("last_advance").cast("double") - F.col("history_start").cast("double")
    weeks, days = F.round(span / _WEEK).cast("long"), F.greatest(F.round(span / _DAY).cast("long"), F.lit(1))
    words = (
        F.when(span >= 2 * _WEEK, F.concat(weeks.cast("string"), F.lit(" weeks")))
        .when(days == 1, F.lit("1 day"))
        .otherwise(F.concat(days.cast("string"), F.lit(" days")))
    )
    largest = F.col("largest_silent_slots")
    slot = F.when(_by_the_hour(), "a whole hour").otherwise(duration(F.col("slot_seconds")))
    until = F.concat(F.lit("(until "), moment(F.col("largest_silence_end")), F.lit(")"))
    over = F.concat(F.lit("never silent over "), duration(largest * F.col("slot_seconds")))
    never = F.when(largest == 0, F.concat(F.lit("never silent for "), slot)).when(
        largest > 0, F.concat_ws(" ", over, until)
    )
    missed, most = F.col("missed_slots"), F.col("largest_missed")
    compared = F.when(
        missed > F.greatest(most, F.lit(1.0)),
        F.concat(
            F.lit(", missed "),
            count(missed),
            F.lit(" active "),
            F.when(_by_the_hour(), "hours").otherwise(F.concat(F.lit("slots of "), duration(F.col("slot_seconds")))),
            F.lit(", before at most "),
            count(most),
        ),
    )
    return F.concat_ws("", F.lit("in "), words, F.lit(" "), never, compared)


def count(slots: Column) -> Column:
    """Return a number of slots that may be a part of one: ``41``, ``3.2``."""
    return F.when(slots >= 10, F.format_string("%.0f", slots)).otherwise(F.format_string("%.1f", slots))


def _by_the_hour() -> Column:
    return F.col("slot_seconds") == _HOUR


def _limits() -> Column:
    verdict = F.col("verdict")
    dead_past = F.concat(F.lit("dead past "), duration(F.col("max_silence_seconds")), F.lit(", so"))
    since = F.concat(F.lit("since "), _same_day(F.col("expected_by")))
    died = F.concat_ws(" ", F.coalesce(dead_past, F.lit("dead")), since)
    dead_after = F.col("expected_by").cast("double") - F.col("last_advance").cast("double")
    retired = F.concat(died, F.lit("; retired after "), duration(retired_after(dead_after)), F.lit(" of silence"))
    from_ = F.concat(F.lit("suspect since "), _same_day(F.col("suspect_from")))
    dead_from = F.concat(F.lit("dead from "), _same_day(F.col("expected_by")))
    proved = F.col("suspect_from") <= F.col("observed_until")
    together = F.concat(from_, F.lit("; held: many topics fell silent together"))
    unproved = F.concat(F.lit("held: suspect since "), _same_day(F.col("suspect_from")), F.lit(" if still silent"))
    return (
        F.when(verdict == Verdict.DEAD.value, died)
        .when(verdict == Verdict.RETIRED.value, retired)
        .when(verdict == Verdict.HELD.value, F.when(proved, together).otherwise(unproved))
        .when(verdict == Verdict.SUSPECT.value, F.concat_ws("; ", from_, dead_from))
        .otherwise(F.concat(F.lit("expected by "), moment(F.col("expected_by"))))
    )


def _same_day(at: Column) -> Column:
    """A moment, without its date where all of the silence lies in one day, whose date is said already."""
    day = F.to_date("last_advance")
    return F.when((F.to_date(at) == day) & (F.to_date("as_of") == day), F.date_format(at, "HH:mm 'UTC'")).otherwise(
        moment(at)
    )


def _missing(active_slots_needed: int, weeks_needed: int) -> Column:
    """What a ``learning`` row lacks, the most telling first."""
    state, slots = F.col("state"), F.col("active_slots")
    few = F.concat(
        slots.cast("string"),
        F.when(slots == 1, F.lit(" active hour of ")).otherwise(F.lit(" active hours of ")),
        F.lit(f"{active_slots_needed} needed"),
    )
    week = F.when(F.col("weeks") == 1, F.lit(" whole week of ")).otherwise(F.lit(" whole weeks of "))
    young = F.concat(F.col("weeks").cast("string"), week, F.lit(f"{weeks_needed} needed"))
    # Since when, and why, stands at the end of the line where polls know it.
    why = F.concat(F.lit(" ("), F.coalesce("reason", F.lit("no answer")), F.lit(")"))
    unread = F.concat_ws("", F.lit("never read"), F.when(F.col("unreadable_since").isNull(), why))
    no_advance = slots == 0
    return (
        F.when(no_advance & (state == State.NEVER_WRITTEN.value), F.lit("never written"))
        .when(no_advance & (state == State.EMPTY.value), F.lit("empty, and no record was seen being written"))
        .when(no_advance & (state == State.UNREADABLE.value), unread)
        .when(slots < active_slots_needed, F.concat_ws(", ", few, F.when(state == State.EMPTY.value, "now empty")))
        .when(F.col("weeks") < weeks_needed, young)
        .otherwise(F.lit("not every partition could be read"))
    )


def _not_looked_at() -> Column:
    """Says so where the silence is proved only up to some time ago."""
    until = F.coalesce("observed_until", "unreadable_since")
    whole = (F.col("partitions") > 1) & F.col("partition").isNull()
    stale = F.col("as_of").cast("double") - until.cast("double") > F.col("slot_seconds")
    unread = F.concat(
        F.lit("unreadable since "),
        moment(F.col("unreadable_since")),
        F.lit(" ("),
        F.coalesce("reason", F.lit("no answer")),
        F.lit(")"),
    )
    return F.when(F.col("unreadable_since").isNotNull(), unread).when(
        stale,
        F.concat(F.when(whole, "not all of it looked at since ").otherwise("not looked at since "), moment(until)),
    )


def _misdated() -> Column:
    """Says so where the newest record's timestamp is no sign of life, as the newest inventory row knows it."""
    return F.when(F.col("state") == State.FUTURE.value, F.lit("newest record dated in the future")).when(
        F.col("state") == State.PRESERVED.value,
        F.lit("newest record dated before its last advance: mirrored or back-dated"),
    )


def _siblings() -> Column:
    """How many partitions live; left out for a topic that has only one."""
    total, learning = F.col("partitions"), F.col("partitions_learning")
    live = F.concat(
        F.col("partitions_live").cast("string"),
        F.lit(" of "),
        total.cast("string"),
        F.lit(" partitions of "),
        F.col("topic"),
        F.lit(" live"),
    )
    return F.when(
        (total > 1) & (learning < total),
        F.concat(
            live, F.when(learning > 0, F.concat(F.lit(", "), learning.cast("string"), F.lit(" learning"))).otherwise("")
        ),
    )

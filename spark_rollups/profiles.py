"""What the past weeks of each stream were like, hour by hour -> its profile, also without any one of them.

Hours are kept as bits of words, one bit a week, and profiles are computed in a row for each hour, which Spark
compiles; with functions over arrays, which it interprets, a stream's week took several times as long (measured).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_rollups.clock import HOURS, hours_since, mean_rate, rate
from spark_rollups.rollups import FIVE_MINUTES, SLOT_SECONDS

WEEKS = 8
"""So many weeks make a yardstick."""

PERIOD_WEEKS = 12
"""So many weeks are looked at for a stream that is too slow for a profile."""

SPAN = 64 - PERIOD_WEEKS - 2
"""So many weeks at a time have all that they look back on in one word, and its sign bit free."""

_MONDAY = date(1970, 1, 5)


@dataclass(frozen=True, slots=True)
class Slot:
    """The length of time in which a stream counts as active or not, and how strongly its rates are drawn."""

    seconds: float
    prior: float

    @property
    def hours(self) -> float:
        """Its length in hours."""
        return self.seconds / 3600.0

    @property
    def share(self) -> float:
        """Its part of a week."""
        return self.hours / HOURS

    @property
    def digits(self) -> range:
        """The binary digits of how many of its kind an hour may have."""
        return range(round(1.0 / self.hours).bit_length())


HOUR = Slot(SLOT_SECONDS, 0.25)
FIVE = Slot(FIVE_MINUTES, 1.0)


def week_of(day: date) -> int:
    """Return the number of a day's week, counted from the first Monday."""
    return (day - _MONDAY).days // 7


def monday(week: int) -> date:
    """Return the first day of a week by its number."""
    return _MONDAY + timedelta(weeks=week)


class Past:
    """The weeks before some weeks: how active each stream was in each of their hours.

    ``subjects`` has a row for each stream and week of which there is something to learn.
    """

    def __init__(self, hours: DataFrame, weeks: Sequence[int], slot: Slot) -> None:
        """``hours`` are as for ``yardsticks.yardsticks``; the ``weeks``, in order, span at most SPAN."""
        self.slot = slot
        self._base = weeks[0] - PERIOD_WEEKS
        self._weeks = F.array(*(F.lit(week).cast("long") for week in weeks))
        self._seen = self._look(hours, weeks[-1]).localCheckpoint()
        self.subjects = self._learnable(hours).localCheckpoint()

    def weeks_after(self, number: Column) -> Column:
        """Return those weeks that look back on the week ``number``."""
        return F.filter(self._weeks, lambda week: (week > number) & (week <= number + PERIOD_WEEKS))

    def profiles(self) -> DataFrame:
        """Add to each stream and week the profile of all its weeks."""
        rows = self.subjects.withColumn("left_out", F.lit(0)).withColumn("mean", mean_of_others())
        kept = ("stream", "week", "first", "since", "active_slots")
        # Collecting is interpreted with all that stands inside it, so the rate is made a column of its own before.
        by_hour = self.hour_by_hour(rows).select(*kept, "hour", self.rate().alias("rate"))
        made = by_hour.groupBy(*kept).agg(F.sort_array(F.collect_list(F.struct("hour", "rate"))).alias("hours"))
        return made.select(*kept, F.col("hours.rate").alias("profile"))

    def without_each_week(self) -> DataFrame:
        """The profile of each stream and week without each of its weeks, and by it the days of the week left out.

        One row for each day: ``rates`` sums up the profile, ``missed`` is what the largest of the silences between
        two active slots of one hour missed, taken for as long as it may have been; ``largest`` is the longest, with the
        moment of its end. Null where no hour of the day had two active slots; 0 where they were neighbours.
        """
        weeks = F.explode(F.sequence(F.lit(1), (F.col("week") - F.col("since")).cast("int")))
        rows = self.subjects.withColumn("left_out", weeks).withColumn("mean", mean_of_others())
        of_week = _bit(F.col("week") - F.col("left_out") - self._base)

        def counted(word: str) -> Column:
            return F.bit_count(F.get(word, F.col("hour")).bitwiseAND(of_week))

        by_hour = self.hour_by_hour(rows).select(
            "stream",
            "week",
            "left_out",
            "hour",
            self.rate().alias("rate"),
            _number("active", self.slot, counted).alias("active"),
            _number("silent", self.slot, counted).alias("silent"),
        )
        length = (F.col("silent") + 1) * self.slot.hours
        end = (F.col("week") - F.col("left_out")) * HOURS + F.col("hour") + length
        silent = F.col("silent") > 0
        return by_hour.groupBy("stream", "week", "left_out", F.floor(F.col("hour") / 24).alias("weekday")).agg(
            F.sum("rate").alias("rates"),
            F.max(F.when(silent, F.col("rate") * length).when(F.col("active") > 1, 0.0)).alias("missed"),
            F.max(F.when(silent, F.struct(F.col("silent").cast("long").alias("slots"), end.alias("end")))).alias(
                "largest"
            ),
        )

    def hour_by_hour(self, rows: DataFrame, numbers: Column | None = None) -> DataFrame:
        """Give each row its stream's words, the weeks that count, and one row for each hour.

        ``left_out`` is the week, counted backwards, that does not count; 0: all do. ``numbers`` are the hours
        since the first Monday; by default the 168 of a week.
        """
        kept = F.when(
            F.col("left_out") > 0, F.bitwise_not(_bit(F.col("week") - F.col("left_out") - self._base))
        ).otherwise(-1)
        window = (_bit(F.col("week") - self._base) - _bit(F.col("since") - self._base)).bitwiseAND(kept)
        listed = F.sequence(F.lit(0).cast("long"), F.lit(HOURS - 1).cast("long")) if numbers is None else numbers
        return (
            rows.withColumns({"window": window, "first_hour": F.col("first") - F.col("since") * HOURS})
            .withColumn("early", F.col("window").bitwiseAND(F.bitwise_not(_bit(F.col("since") - self._base))))
            .join(self._seen, "stream")
            .withColumn("number", F.explode(listed))
            .withColumn("hour", (F.col("number") % HOURS).cast("int"))
        )

    def rate(self) -> Column:
        """The rate of an hour, of a row of ``_hour_by_hour``."""

        def active(hour: Column) -> Column:
            def counted(word: str) -> Column:
                return F.bit_count(F.get(word, hour).bitwiseAND(F.col("window")))

            return _number("active", self.slot, counted).cast("double")

        def watched(hour: Column) -> Column:
            return F.bit_count(F.get("watched", hour).bitwiseAND(_window_at(hour))).cast("double")

        return rate(F.col("hour"), active, watched, F.col("mean"), self.slot.prior)

    def _look(self, hours: DataFrame, end: int) -> DataFrame:
        """One row a stream: how each of the 168 hours was in each week, as arrays of words.

        Bit n of a word stands for the week ``self._base`` + n; those from ``end`` on are left out. ``watched`` tells of
        one bit, ``active_0`` and so on are the binary digits of how many slots were active, and ``silent_0`` and so on
        those of the most that were silent between two of them.
        """
        slots = F.lit(1) if self.slot == HOUR else F.bit_count("active_fives").cast("int")
        inside = longest_inside(self.slot)
        number = F.floor(hours_since(F.col("hour"))).cast("long")
        active = F.col("first_advance").isNotNull()
        before = F.floor(hours_since(F.col("hour_before"))).cast("long")
        unseen = F.sequence(before + 1, number)
        lost = F.when(F.col("censored_gap"), F.filter(unseen, lambda hour: (hour < number) | ~active)).when(
            F.col("censored") & ~active, F.array(number)
        )
        there = hours.where(active).select(
            "stream", number.alias("number"), slots.alias("active"), inside.alias("silent"), F.lit(0).alias("lost")
        )
        gone = hours.where(lost.isNotNull()).select(
            "stream",
            F.explode(lost).alias("number"),
            F.lit(0).alias("active"),
            F.lit(0).alias("silent"),
            F.lit(1).alias("lost"),
        )
        every_hour = F.explode(F.sequence(F.lit(0).cast("long"), F.lit(HOURS - 1).cast("long")))
        week = F.floor(F.col("number") / HOURS)
        digits = {
            word: F.shiftright(kind, place).bitwiseAND(1)
            for kind in ("active", "silent")
            for place, word in enumerate(_words(kind, self.slot))
        }
        digits["lost"] = F.col("lost")
        told = (
            there.unionByName(gone)
            .where((week >= self._base) & (week < end))
            .select(
                "stream",
                (F.col("number") % HOURS).alias("hour"),
                *((digit * _bit(week - self._base)).alias(word) for word, digit in digits.items()),
            )
            .unionByName(
                hours.select("stream")
                .distinct()
                .select("stream", every_hour.alias("hour"), *(F.lit(0).cast("long").alias(word) for word in digits))
            )
        )
        by_hour = told.groupBy("stream", "hour").agg(
            *(F.bit_or(word).alias(word) for word in digits), F.bitwise_not(F.bit_or("lost")).alias("watched")
        )
        words = (*(word for word in digits if word != "lost"), "watched")
        in_order = F.sort_array(F.collect_list(F.struct("hour", *words)))
        return (
            by_hour.groupBy("stream")
            .agg(in_order.alias("hours"))
            .select("stream", *(F.col(f"hours.{word}").alias(word) for word in words))
        )

    def _learnable(self, hours: DataFrame) -> DataFrame:
        """One row for each stream and week of which there is something to learn.

        ``first`` is its first active hour, ``since`` the first week that counts; ``active_slots`` and
        ``watched_hours`` count all weeks, the arrays each of the eight, the latest first.
        """
        number = F.floor(hours_since(F.col("hour"))).cast("long")
        active = hours.where(F.col("first_advance").isNotNull())
        firsts = active.groupBy("stream", F.floor(number / HOURS).alias("of_week")).agg(F.min(number).alias("first"))
        begun = (
            firsts.withColumn("week", F.explode(self.weeks_after(F.col("of_week"))))
            .groupBy("stream", "week")
            .agg(F.min("first").alias("first"))
            .withColumn("since", F.greatest(F.col("week") - WEEKS, F.floor(F.col("first") / HOURS)))
        )
        rows = self.hour_by_hour(begun.withColumn("left_out", F.lit(0)))
        words = {
            name: F.get(name, F.col("hour")).bitwiseAND(_window_at(F.col("hour")))
            for name in (*_words("active", self.slot), "watched")
        }

        def in_week(back: int) -> Callable[[str], Column]:
            bit = _bit(F.col("week") - back - self._base)
            return lambda word: F.count_if(F.col(word).bitwiseAND(bit) != 0)

        def in_all(word: str) -> Column:
            return F.sum(F.bit_count(word))

        backwards = range(1, WEEKS + 1)
        counted = (
            rows.select("stream", "week", "first", "since", *(word.alias(name) for name, word in words.items()))
            .groupBy("stream", "week", "first", "since")
            .agg(
                _number("active", self.slot, in_all).alias("active_slots"),
                in_all("watched").alias("watched_hours"),
                F.array(*(_number("active", self.slot, in_week(back)) for back in backwards)).alias("active_by_week"),
                F.array(*(in_week(back)("watched") for back in backwards)).alias("watched_by_week"),
            )
        )
        return counted.where(F.col("active_slots") > 0)


def longest_inside(slot: Slot) -> Column:
    """Return the most silent slots between two active ones of the same hour; 0 where the hour itself is the slot."""
    if slot == HOUR:
        return F.lit(0)
    between = F.rtrim(F.bin(F.col("active_fives")), F.lit("0"))
    return F.array_max(F.transform(F.split(between, "1"), F.length))


def mean_of_others() -> Column:
    """Return the rate of the whole week without the one that is left out."""

    def others(all_: str, by_week: str) -> Column:
        own = F.coalesce(F.get(by_week, F.col("left_out") - 1), F.lit(0).cast("long"))
        return (F.col(all_) - own).cast("double")

    return mean_rate(others("active_slots", "active_by_week"), others("watched_hours", "watched_by_week"))


def _window_at(hour: Column) -> Column:
    """The weeks that count at an hour of the week: in the first of them only from the first active hour on."""
    return F.when(hour < F.col("first_hour"), F.col("early")).otherwise(F.col("window"))


def _bit(place: Column) -> Column:
    return F.call_function("shiftleft", F.lit(1).cast("long"), place.cast("int"))


def _words(kind: str, slot: Slot) -> list[str]:
    return [f"{kind}_{digit}" for digit in slot.digits]


def _number(kind: str, slot: Slot, digit_of: Callable[[str], Column]) -> Column:
    """Put a number together from what ``digit_of`` makes of each of its words."""
    return sum((digit_of(word) * 2**place for place, word in enumerate(_words(kind, slot))), start=F.lit(0))

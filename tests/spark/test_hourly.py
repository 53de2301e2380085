"""Windows, coverage and inventory -> hours, on real Spark. Hours are counted from the story's start."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_rollups.rollups import daily, hourly
from spark_rollups.schemas import DAILY, HOURLY
from tests.spark.frames import Known, known
from tests.spark.story import HOUR, START, World, at, every, moment


@dataclass(frozen=True)
class Hour:
    """What a test looks at; times in hours since the story's start."""

    hour: float
    records: int
    first: float | None
    last: float | None
    censored: bool = False


def hours_of(known: Known, topic: str) -> list[Hour]:
    """The hours of one topic of a single partition, in order."""

    def since_start(name: str) -> Column:
        return F.round((F.col(name).cast("double") - START) / HOUR, 3).alias(name)

    rows = (
        known.hourly()
        .where(F.col("topic") == topic)
        .select(since_start("hour"), "records", since_start("first_advance"), since_start("last_advance"), "censored")
        .orderBy("hour")
    )
    return [Hour(*row) for row in rows.collect()]


def same_rows(one: DataFrame, other: DataFrame) -> bool:
    """Whether two tables hold the same rows."""
    return sorted(map(str, one.collect())) == sorted(map(str, other.collect()))


def test_an_hour_sums_up_its_polls(spark: SparkSession, tmp_path: Path) -> None:
    """Records are those between the polls, times those of the polls that saw an advance."""
    world = World(tmp_path)
    world.write("orders", 0, [at(0, 0.5), at(0, 0.5) + 1, at(0, 0.9), at(0, 1.5)])
    world.poll(at(0), at(0, 3))
    assert hours_of(known(spark, tmp_path), "orders") == [
        Hour(0.0, 2, 0.5, 0.667),
        Hour(1.0, 2, 1.0, 1.5),
    ]


def test_records_written_while_nobody_polled_are_counted_once(spark: SparkSession, tmp_path: Path) -> None:
    """After a short restart they are an advance then; after a long one its moment is not known: censored."""
    world = World(tmp_path)
    world.write("nightly", 0, [at(0, 2), at(1, 2), at(2, 2)])
    world.poll(at(0), at(1, 1.95))
    world.poll(at(1, 2.1), at(2, 1))
    world.poll(at(2, 12), at(3))
    assert hours_of(known(spark, tmp_path), "nightly") == [
        Hour(0.0, 0, None, None),
        Hour(2.0, 1, 2.0, 2.0),
        Hour(26.0, 1, 26.1, 26.1),
        Hour(60.0, 1, None, 60.0, censored=True),
    ]


def test_lost_windows_make_no_silence(spark: SparkSession, tmp_path: Path) -> None:
    """Where a window's offsets do not follow on, coverage proves nothing: the gap before it is censored."""
    world = World(tmp_path)
    world.write("orders", 0, [at(0, 1), at(0, 5), at(0, 9)])
    world.poll(at(0), at(0, 10))
    all_known = known(spark, tmp_path)
    lost = moment(at(0, 5))
    rows = replace(all_known, windows=all_known.windows.where(F.col("window_start") != F.lit(lost)))
    assert hours_of(rows, "orders") == [
        Hour(0.0, 0, None, None),
        Hour(1.0, 1, 1.0, 1.0),
        Hour(9.0, 2, 9.0, 9.0, censored=True),
    ]


def test_an_inventory_row_within_an_interval_is_no_advance(spark: SparkSession, tmp_path: Path) -> None:
    """The daily listing falls into the middle of a batch: the batch is counted once and not censored."""
    world = World(tmp_path)
    world.write("midnight", 0, [at(day) + 60.0 * step for day in range(4) for step in range(40)])
    world.poll(at(0, 0.2), at(3, 12))
    hours = hours_of(known(spark, tmp_path), "midnight")
    assert [hour.hour for hour in hours] == [0.0, 24.0, 48.0, 72.0]
    assert [hour.records for hour in hours] == [27, 40, 40, 40]
    assert not any(hour.censored for hour in hours)


def test_a_second_exporter_changes_no_count(spark: SparkSession, tmp_path: Path) -> None:
    """Two exporters that poll at different moments and restart at different moments count each record once."""
    world = World(tmp_path)
    world.write("orders", 0, every(420.0, at(0), at(2)))
    world.poll(at(0), at(2))
    world.poll(at(0, 5.33), at(0, 20.1), exporter="exporter-b", every=450.0)
    world.poll(at(0, 20.2), at(2), exporter="exporter-b", every=450.0)
    hours = hours_of(known(spark, tmp_path), "orders")
    assert sum(hour.records for hour in hours) == world.logs["orders", 0].end(at(2) - 180)
    assert not any(hour.censored for hour in hours)


def test_a_truncated_log_starts_its_count_anew(spark: SparkSession, tmp_path: Path) -> None:
    """A smaller end offset is no advance and no negative record; what follows counts from there."""
    world = World(tmp_path)
    log = world.write("orders", 0, every(HOUR, at(0), at(2)))
    log.fell = (at(1, 0.5), 10)
    world.poll(at(0), at(2))
    rows = known(spark, tmp_path).hourly()
    assert rows.agg(F.sum("offset_regressions")).collect()[0][0] == 1
    # One record was written between the last poll before the fall and the first after it.
    assert rows.agg(F.sum("records")).collect()[0][0] == 48
    assert rows.agg(F.max_by("end_offset", "hour")).collect()[0][0] == 38


def test_a_topic_made_again_is_another_stream(spark: SparkSession, tmp_path: Path) -> None:
    """The topic id parts the histories of two topics of one name."""
    world = World(tmp_path)
    world.write("orders", 0, every(HOUR, at(0), at(1)))
    world.poll(at(0), at(1))
    world.write("orders", 0, every(HOUR, at(1, 2), at(2)), topic_id="second")
    world.poll(at(1, 1), at(2), exporter="exporter-b")
    sums = known(spark, tmp_path).hourly().groupBy("topic_id").agg(F.sum("records").alias("records")).collect()
    assert {row.topic_id: row.records for row in sums} == {"id-orders": 24, "second": 22}


def test_backfill_gives_way_to_the_first_poll(spark: SparkSession, tmp_path: Path) -> None:
    """A backfill that reaches past the first poll is cut off there: the seam neither doubles nor drops."""
    world = World(tmp_path)
    world.write("orders", 0, every(900.0, at(0), at(2)))
    world.poll(at(1, 0.4), at(2))
    world.backfill(at(0), at(1, 6.7))
    hours = hours_of(known(spark, tmp_path), "orders")
    assert [hour.hour for hour in hours] == [float(hour) for hour in range(48)]
    assert {hour.records for hour in hours} == {4}


def test_hours_hidden_by_a_future_timestamp_are_censored_at_both_ends(spark: SparkSession, tmp_path: Path) -> None:
    """One window over the hidden hours marks where they begin and end, and claims no advance."""
    world = World(tmp_path)
    world.write("sensor", 0, every(HOUR, at(0), at(2)))
    world.backfill(at(0), at(2), hidden={("sensor", 0): at(1, 6)})
    hours = hours_of(known(spark, tmp_path), "sensor")
    assert hours[-2:] == [Hour(30.0, 18, None, None, censored=True), Hour(47.0, 0, None, 48.0, censored=True)]
    assert sum(hour.records for hour in hours) == 48


def test_making_only_the_last_days_gives_what_a_rebuild_gives(spark: SparkSession, tmp_path: Path) -> None:
    """Hourly and daily from any day on, with the days before as they were, equal a full rebuild."""
    world = World(tmp_path)
    world.write("orders", 0, every(7000.0, at(0), at(5)))
    world.write("rare", 0, [at(0, 3), at(2, 4), at(3, 5)])
    world.write("never", 0, [])
    log = world.write("fell", 0, every(HOUR, at(0), at(5)))
    log.fell = (at(2, 5), 20)
    world.backfill(at(0), at(1, 5.5), hidden={("rare", 0): at(0, 20)})
    world.poll(at(1, 5.6), at(2, 4.5))
    world.poll(at(2, 4.6), at(3))
    world.poll(at(3, 12), at(5), exporter="exporter-b")
    seen = known(spark, tmp_path)
    whole = seen.hourly().persist()
    whole_days = daily(whole).persist()
    for days in (1, 2, 4):
        since = moment(at(days)).date()
        later = F.col("date") >= F.lit(since)
        part = hourly(seen.windows, seen.inventory, seen.coverage, since=since, earlier=whole)
        assert same_rows(part, whole.where(later)), since
        assert same_rows(daily(whole, since=since), whole_days.where(later)), since
    assert [(field.name, field.dataType) for field in whole.schema] == [
        (field.name, field.dataType) for field in HOURLY
    ]
    assert whole_days.schema.names == DAILY.names


def test_a_day_holds_the_largest_silence_that_ended_on_it(spark: SparkSession, tmp_path: Path) -> None:
    """Silent hours count on the day of the advance that ended them; censored ones are counted apart."""
    world = World(tmp_path)
    world.write("orders", 0, [at(0, 1), at(0, 5), at(1, 2), at(1, 20), at(2, 5), at(2, 20)])
    world.poll(at(0), at(2))
    world.poll(at(2, 12), at(3))
    days = daily(known(spark, tmp_path).hourly()).orderBy("date").collect()
    start = moment(START).date()
    assert [row.date - start for row in days] == [timedelta(days=day) for day in range(3)]
    assert [row.largest_silent_slots for row in days] == [3, 20, None]
    assert [row.active_hours for row in days] == [2, 2, 1]
    assert [row.censored_gaps for row in days] == [0, 0, 2]

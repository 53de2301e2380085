"""Spark's yardsticks are those of the reference in numpy, by which the bench measures the false alarms."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from spark_rollups.job import measure
from spark_rollups.maxima import maxima
from spark_rollups.profiles import FIVE, HOUR, monday, week_of
from spark_rollups.schemas import DAILY, YARDSTICKS
from spark_rollups.tables import Tables
from spark_rollups.yardsticks import finer, taught, yardsticks
from tests.bench.detection.score import (
    FIVE_MINUTES,
    HOURLY,
    Formula,
    Slots,
    cumulative,
    elapsed,
    history_of,
    promises,
)
from tests.spark.drawn import FINE_STREAMS, FIRST, STREAMS, WEEKS, hourly, in_fives
from tests.spark.story import START

pytestmark = pytest.mark.timeout(900)  # all weeks of all streams, on whatever machine this is

WEEK_OF = {monday(FIRST + week): week for week in range(WEEKS + 1)}


@pytest.fixture(scope="module")
def told(spark: SparkSession) -> DataFrame:
    """Spark's yardsticks of every week."""
    return yardsticks(hourly(spark), range(FIRST + 1, FIRST + WEEKS + 1)).localCheckpoint()


@pytest.fixture(scope="module")
def made(told: DataFrame) -> dict[tuple[int, int], Row]:
    """The same by stream and week."""
    return {(row.stream, WEEK_OF[row.week]): row for row in told.collect()}


@pytest.mark.parametrize("week", range(1, WEEKS + 1))
def test_every_yardstick_is_that_of_the_reference(made: dict[tuple[int, int], Row], week: int) -> None:
    """Profile, step, mean and spread, the limits of slow streams, and which streams have any of them."""
    told = promises(history_of(STREAMS, WEEKS), week)
    for number in range(len(STREAMS)):
        row = made.get((number, week))
        if row is None:
            assert not told.clock[number]
            assert np.isnan(told.max_silence[number])
            continue
        assert (row.log_mean is not None) == told.clock[number]
        assert row.slot_seconds == HOUR.seconds
        np.testing.assert_allclose(row.profile, told.profile[number], rtol=1e-6)
        assert row.clock_step == pytest.approx(told.step[number], rel=1e-12)
        if told.clock[number]:
            assert row.log_mean == pytest.approx(told.mean[number], rel=1e-9)
            assert row.log_spread == pytest.approx(told.spread[number], rel=1e-9)
        limit = np.nan if row.max_silence_seconds is None else row.max_silence_seconds / 3600.0
        assert limit == pytest.approx(told.max_silence[number], rel=1e-6, nan_ok=True)
        maxima = told.week_maxima[number]
        np.testing.assert_allclose(row.weekly_scores, maxima[~np.isnan(maxima)], rtol=1e-5, atol=1e-6)


def test_the_streams_are_of_every_kind(made: dict[tuple[int, int], Row]) -> None:
    """Some have a clock, some a period, some neither, and one none at all before its first record."""
    at_end = [row for (_, week), row in made.items() if week == WEEKS]
    assert sum(row.log_mean is not None for row in at_end) >= 6
    assert sum(row.max_silence_seconds is not None for row in at_end) >= 1
    assert (9, 4) not in made
    assert (9, 7) in made


def test_a_week_is_measured_by_the_weeks_before_it_alone(spark: SparkSession, made: dict[tuple[int, int], Row]) -> None:
    """Without all that came later the yardstick of a week is the same, row for row."""
    week = 9
    before = hourly(spark).where(F.col("hour") < F.timestamp_seconds(F.lit(START + week * 168 * 3600)))
    rows = yardsticks(before, [FIRST + week]).collect()
    assert {row.stream: row for row in rows} == {number: row for (number, of), row in made.items() if of == week}


FINE_WEEKS = (2, 5, 10)
"""The weeks of which yardsticks in slots of five minutes are looked at."""


@pytest.fixture(scope="module")
def told_in_fives(spark: SparkSession) -> DataFrame:
    """Spark's yardsticks in slots of five minutes."""
    return yardsticks(in_fives(spark, FIVE), [FIRST + week for week in FINE_WEEKS], FIVE).localCheckpoint()


def test_the_weeks_with_yardsticks_are_those_after_a_week_of_activity(spark: SparkSession) -> None:
    """A stream that stopped after two weeks has one in each of the nine after its first, and in no other."""
    began = hourly(spark).where(
        (F.col("stream") == 0) & (F.col("hour") < F.timestamp_seconds(F.lit(START + 14 * 86_400)))
    )
    rows = yardsticks(began.persist(), range(FIRST + 1, FIRST + WEEKS)).select("week").collect()
    assert {week_of(row.week) for row in rows} == taught([FIRST, FIRST + 1]) == set(range(FIRST + 1, FIRST + 10))


def test_weeks_of_which_nothing_is_to_be_learned_are_not_made_at_each_rollup(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A day of activity far before all others, by a wrong clock, leaves nothing to do once its eight weeks are made."""
    days = [date(2000, 1, 3), date(2025, 1, 6)]
    active = [("prod", "orders", "id", 0, day, 1, 1, datetime(2025, 1, 6, tzinfo=UTC), None, None, 0) for day in days]
    tables = Tables(spark, tmp_path)
    tables.append("daily", spark.createDataFrame(active, DAILY))
    stick: dict[str, object] = {
        **dict.fromkeys(YARDSTICKS.names), "stream": 1, "slot_seconds": 3600.0, "profile": [], "clock_step": 0.0,
        "active_slots": 1, "weeks": 1, "history_start": datetime(2000, 1, 3, tzinfo=UTC),
    }  # fmt: skip
    weeks = [monday(week) for week in taught(map(week_of, days))]
    rows = [tuple({**stick, "week": week}[name] for name in YARDSTICKS.names) for week in weeks]
    tables.append("yardsticks", spark.createDataFrame(rows, YARDSTICKS))
    assert measure(tables, date(2025, 6, 2), None) == "all there"


def test_yardsticks_in_slots_of_five_minutes_are_those_of_the_reference(told_in_fives: DataFrame) -> None:
    """Silences inside an hour and across hours, days without any, and hours that polls did not tell of so finely."""
    made = {(row.stream, WEEK_OF[row.week]): row for row in told_in_fives.collect()}
    history = history_of(FINE_STREAMS, WEEKS, FIVE_MINUTES.slot_hours)
    for week in FINE_WEEKS:
        told = promises(history, week, FIVE_MINUTES)
        for number in range(len(FINE_STREAMS)):
            row = made.get((number, week))
            assert (row is not None and row.log_mean is not None) == told.clock[number]
            if row is None or not told.clock[number]:
                continue
            assert row.slot_seconds == 300.0
            np.testing.assert_allclose(row.profile, told.profile[number], rtol=1e-6)
            assert row.clock_step == pytest.approx(told.step[number], rel=1e-9)
            maxima = told.week_maxima[number]
            np.testing.assert_allclose(row.weekly_scores, maxima[~np.isnan(maxima)], rtol=1e-4, atol=1e-4)
            assert row.log_mean == pytest.approx(told.mean[number], rel=1e-4, abs=1e-4)
            assert row.log_spread == pytest.approx(told.spread[number], rel=1e-4)
    assert len(made) > 15


@pytest.fixture(scope="module")
def chosen(spark: SparkSession, told_in_fives: DataFrame) -> Sequence[Row]:
    """The yardsticks of the fine streams, in the slots by which each is judged."""
    by_hours = yardsticks(in_fives(spark, HOUR), [FIRST + week for week in FINE_WEEKS])
    return finer(by_hours, told_in_fives).collect()


def test_the_choice_of_slots_and_what_they_tell_know_nothing_of_later_weeks(
    spark: SparkSession, chosen: Sequence[Row]
) -> None:
    """Without all that came later every stream of a week has the same slots and the same yardstick."""
    week = FINE_WEEKS[1]
    earlier = F.col("hour") < F.timestamp_seconds(F.lit(START + week * 168 * 3600))
    by_slot = {
        slot: yardsticks(in_fives(spark, slot).where(earlier), [FIRST + week], slot).localCheckpoint()
        for slot in (HOUR, FIVE)
    }
    rows = {row.stream: row for row in finer(by_slot[HOUR], by_slot[FIVE]).collect()}
    assert rows == {row.stream: row for row in chosen if WEEK_OF[row.week] == week}
    assert {row.slot_seconds for row in rows.values()} == {300.0, 3600.0}


def test_a_stream_is_judged_by_five_minutes_from_two_whole_polled_weeks_on(chosen: Sequence[Row]) -> None:
    """Before, and where its active hours have hardly more than one active slot each, by the hour."""
    rows = chosen
    slots = {(row.stream, WEEK_OF[row.week]): row.slot_seconds for row in rows}
    assert len(slots) == len(rows) == len(FINE_STREAMS) * len(FINE_WEEKS)
    steady, rare, late = 0, 4, 5
    assert [slots[steady, week] for week in FINE_WEEKS] == [300.0] * 3
    assert [slots[rare, week] for week in FINE_WEEKS] == [3600.0, 3600.0, 3600.0]
    # In its fifth week polled for ten days.
    assert [slots[late, week] for week in FINE_WEEKS] == [3600.0, 3600.0, 300.0]


def test_a_silence_in_slots_of_five_minutes_is_scored_so_for_the_thresholds(
    spark: SparkSession, told_in_fives: DataFrame
) -> None:
    """The largest score of each week is that of the reference, be its silence inside an hour or across hours."""
    rows = maxima({FIVE: in_fives(spark, FIVE)}, told_in_fives, [FIRST + week for week in FINE_WEEKS]).collect()
    check_maxima(rows, FINE_STREAMS, FINE_WEEKS, FIVE_MINUTES)


def test_every_silence_is_scored_as_it_was_judged_when_it_began(spark: SparkSession, told: DataFrame) -> None:
    """The largest score of each stream by week of begin and end is that of the reference, by the week of begin."""
    rows = maxima({HOUR: hourly(spark)}, told, range(FIRST, FIRST + WEEKS)).collect()
    check_maxima(rows, STREAMS, range(1, WEEKS), HOURLY)
    assert {row.kind for row in rows} == {"partition"}
    assert len({row.topic_stream for row in rows}) == 6


def check_maxima(rows: Sequence[Row], streams: Sequence[Slots], weeks: Sequence[int], formula: Formula) -> None:
    """Compare with the reference the largest scores of silences that began and ended in some weeks."""
    found = {(row.stream, WEEK_OF[row.week], WEEK_OF[row.week_ended]): row for row in rows}
    history = history_of(streams, WEEKS, formula.slot_hours)
    wanted: dict[tuple[int, int, int], float] = {}
    for week in weeks:
        promised = promises(history, week, formula)
        for number in np.flatnonzero(promised.clock).tolist():
            first = streams[number].first
            if (first[~np.isnan(first)] // 168 == week).any():
                wanted[number, week, week] = -np.inf
        silences = (history.since // 168 == week) & history.silent & promised.clock[history.stream]
        silences &= history.end - history.since < 28 * 24
        row, end = history.stream[silences], history.end[silences]
        slots_missed = elapsed(cumulative(promised.profile), row, history.start[silences], end)
        score = (np.log(slots_missed + promised.step[row]) - promised.mean[row]) / promised.spread[row]
        for number, ended, one in zip(row.tolist(), (end // 168).astype(int).tolist(), score, strict=True):
            key = number, week, ended
            if ended in weeks:
                wanted[key] = max(wanted.get(key, -np.inf), one)
    assert set(found) == set(wanted)
    for key, score in wanted.items():
        assert found[key].score == (None if score == -np.inf else pytest.approx(score, rel=1e-4, abs=1e-4))
        assert (found[key].held_from is not None) == (score > 2.0)

"""Spark's yardsticks are those of the reference in numpy, by which the bench measures the false alarms."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from spark_rollups.maxima import maxima
from spark_rollups.yardsticks import HOUR, monday, yardsticks
from tests.bench.detection.score import cumulative, elapsed, history_of, promises
from tests.spark.drawn import FIRST, STREAMS, WEEKS, hourly
from tests.spark.story import START

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


def test_every_silence_is_scored_as_it_was_judged_when_it_began(
    spark: SparkSession, told: DataFrame, made: dict[tuple[int, int], Row]
) -> None:
    """The largest score of each stream by week of begin and end is that of the reference, by the week of begin."""
    rows = maxima(hourly(spark), told, range(FIRST, FIRST + WEEKS)).collect()
    found = {(row.stream, WEEK_OF[row.week], WEEK_OF[row.week_ended]): row for row in rows}
    history = history_of(STREAMS, WEEKS)
    wanted: dict[tuple[int, int, int], float] = {}
    for number, slots in enumerate(STREAMS):
        for week in range(1, WEEKS):
            if made.get((number, week)) is not None and made[number, week].log_mean is not None:
                seen = slots.first[~np.isnan(slots.first)] // 168 == week
                if seen.any():
                    wanted[number, week, week] = -np.inf
    for week in range(1, WEEKS):
        promised = promises(history, week)
        silences = (history.since // 168 == week) & history.silent & promised.clock[history.stream]
        silences &= history.end - history.since < 28 * 24
        row, end = history.stream[silences], history.end[silences]
        slots_missed = elapsed(cumulative(promised.profile), row, history.start[silences], end)
        score = (np.log(slots_missed + promised.step[row]) - promised.mean[row]) / promised.spread[row]
        for number, ended, one in zip(row.tolist(), (end // 168).astype(int).tolist(), score, strict=True):
            key = number, week, ended
            wanted[key] = max(wanted.get(key, -np.inf), one)
    assert set(found) == set(wanted)
    for key, score in wanted.items():
        assert found[key].score == (None if score == -np.inf else pytest.approx(score, rel=1e-4, abs=1e-4))
        assert (found[key].held_from is not None) == (score > 2.0)
    assert {row.kind for row in rows} == {"partition"}
    assert len({row.topic_stream for row in rows}) == 6

"""Spark's yardsticks are those of the reference in numpy, by which the bench measures the false alarms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from spark_rollups import rollups
from spark_rollups.clock import MONDAY
from spark_rollups.yardsticks import HOUR, monday, yardsticks
from tests.bench.detection.score import Slots, history_of, promises
from tests.spark.story import START

WEEKS = 13
HOURS = 168 * WEEKS
FIRST = int((START - MONDAY) // (7 * 86_400))
"""The number of the story's first week."""


def drawn(seed: int, rate: np.ndarray, *, dead: tuple[int, int] = (0, 0), unseen: tuple[int, int] = (0, 0)) -> Slots:
    """A stream with so many records an hour on average; none while dead, at unknown moments while unseen."""
    rng = np.random.default_rng(seed)
    rate = np.broadcast_to(rate, HOURS).copy()
    rate[slice(*dead)] = 0.0
    hours = np.flatnonzero(rng.poisson(rate))
    edges = np.sort(rng.uniform(0.0, 1.0, (2, len(hours))), axis=0).round(3)
    first, last = hours + edges[0], hours + edges[1]
    vague = (hours >= unseen[0]) & (hours < unseen[1])
    first[vague] = last[vague] = np.nan
    if vague.any():
        # The poll that found them fell into an hour in which others were then seen.
        vague[np.flatnonzero(vague)[-1] + 1] = True
    return Slots(hours.astype(float), first, last, vague)


HOUR_OF_WEEK = np.arange(HOURS) % 168
OFFICE = np.where((HOUR_OF_WEEK < 120) & (HOUR_OF_WEEK % 24 >= 8) & (HOUR_OF_WEEK % 24 < 18), 2.0, 0.0)
NIGHTLY = np.where(HOUR_OF_WEEK % 24 == 2, 9.0, 0.0)
WEEKLY = np.where(HOUR_OF_WEEK == 30, 99.0, 0.0)

STREAMS: Sequence[Slots] = (
    drawn(1, np.array(5.0)),
    drawn(2, np.array(0.3)),
    drawn(3, OFFICE),
    drawn(4, NIGHTLY),
    drawn(5, WEEKLY),
    drawn(6, np.array(0.02)),
    drawn(7, np.array(0.5), dead=(900, 1100)),
    drawn(8, np.array(0.5), dead=(1500, HOURS)),
    drawn(9, OFFICE, unseen=(700, 790)),
    drawn(10, np.array(2.0), dead=(0, 1000)),
    drawn(11, NIGHTLY + 0.01, unseen=(1300, 1301)),
)


def hourly(spark: SparkSession) -> DataFrame:
    """The streams as hours of activity, with the silences that they ended."""
    rows = [
        (number, *(None if np.isnan(at) else float(START + at * 3600.0) for at in (hour, first, last)), bool(vague))
        for number, one in enumerate(STREAMS)
        for hour, first, last, vague in zip(one.starts, one.first, one.last, one.vague, strict=True)
    ]
    told = spark.createDataFrame(rows, "stream long, hour double, first double, last double, censored boolean")
    return rollups.gaps(
        told.select(
            "stream",
            F.timestamp_seconds("hour").alias("hour"),
            F.timestamp_seconds("first").alias("first_advance"),
            F.timestamp_seconds("last").alias("last_advance"),
            "censored",
        ),
        ("stream",),
    )


@pytest.fixture(scope="module")
def made(spark: SparkSession) -> dict[tuple[int, int], Row]:
    """Spark's yardsticks by stream and week."""
    rows = yardsticks(hourly(spark), range(FIRST + 1, FIRST + WEEKS + 1)).collect()
    weeks = {monday(FIRST + week): week for week in range(WEEKS + 1)}
    return {(row.stream, weeks[row.week]): row for row in rows}


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

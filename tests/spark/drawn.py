"""Streams drawn at random, as hours of activity for Spark and as the reference in numpy takes them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_rollups import rollups
from spark_rollups.clock import MONDAY
from tests.bench.detection.score import Slots
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
            F.lit("prod").alias("cluster"),
            F.concat(F.lit("t-"), (F.col("stream") / 2).cast("int")).alias("topic"),
            F.lit("id").alias("topic_id"),
            (F.col("stream") % 2).cast("int").alias("partition"),
        ),
        ("stream",),
    )

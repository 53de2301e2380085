"""For streams drawn at random Spark and the exporter judge alike: verdict, score and the moment of death."""

from __future__ import annotations

from datetime import UTC, timedelta

import numpy as np
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from exporter.judging import judge
from exporter.liveness import Silence
from exporter.model import Expectation, Verdict
from spark_rollups.schemas import HOURLY, YARDSTICKS
from spark_rollups.verdicts import DEFAULT_THRESHOLDS, PARTITION, stream_number, verdicts
from tests.spark.story import at, moment

COUNT = 400
END = at(7 * 20, 61.7)
LONGEST = 35.0
"""Days of the longest silence."""


def drawn(number: int, rng: np.random.Generator) -> dict[str, object]:
    """A yardstick and a silence: by the clock in hours or in slots of five minutes, by its period, or by nothing."""
    slot = (3600.0, 300.0)[number % 2]
    profile = rng.gamma(0.3, 1.0, 168).clip(1e-4, 1.0) * 3600.0 / slot
    if number % 3 == 0:
        profile[(np.arange(168) % 24 < 8) | (np.arange(168) >= 120)] = 1e-4
    rates = profile.astype(np.float32).tolist()
    kind = ("clock", "clock", "clock", "clock", "period", "none")[number % 6]
    longest = float(rng.uniform(1.0, 15.0)) * 86_400.0
    return {
        "cluster": f"c-{number}",
        "last_advance": END - float(86_400.0 * LONGEST * rng.uniform() ** 4) - 1.0,
        "slot_seconds": 3600.0 if kind != "clock" else slot,
        "profile": rates,
        "clock_step": sum(rates) * slot / 3600.0 / 168,
        "log_mean": float(rng.normal(0.0, 1.0)) if kind == "clock" else None,
        "log_spread": float(rng.uniform(0.2, 0.8)) if kind == "clock" else None,
        "suspect_silence_seconds": 1.5 * longest if kind == "period" else None,
        "max_silence_seconds": 1.75 * longest if kind == "period" else None,
    }


def by_spark(spark: SparkSession, streams: list[dict[str, object]]) -> dict[str, Row]:
    """Return Spark's verdicts of the partitions, each of a topic in a cluster of its own."""
    names = {"topic": "t", "topic_id": "id", "partition": 0}
    hours, sticks, seen = list[tuple[object, ...]](), list[tuple[object, ...]](), list[tuple[object, ...]]()
    for stream in streams:
        last = moment(float(str(stream["last_advance"])))
        week = last.date() - timedelta(days=last.weekday())
        hour = {
            **dict.fromkeys(HOURLY.names), **names, "cluster": stream["cluster"], "date": last.date(),
            "hour": last.replace(minute=0, second=0, microsecond=0), "source": "poll", "records": 1,
            "first_advance": last, "last_advance": last, "end_offset": 9, "censored": False, "offset_regressions": 0,
        }  # fmt: skip
        stick = {
            **dict.fromkeys(YARDSTICKS.names), **stream, "stream": 0, "week": week, "active_slots": 99, "weeks": 8,
            "history_start": last,
        }  # fmt: skip
        hours.append(tuple(hour[name] for name in HOURLY.names))
        sticks.append((stream["cluster"], *names.values(), *(stick[name] for name in YARDSTICKS.names)))
        seen.append((stream["cluster"], *names.values(), "observed", None, "CreateTime", 1, 9, moment(END), None))
    key = "cluster string, topic string, topic_id string, partition int"
    told = (
        spark.createDataFrame(
            sticks, f"{key}, {', '.join(f'{field.name} {field.dataType.simpleString()}' for field in YARDSTICKS)}"
        )
        .withColumn("stream", stream_number())
        .select(*YARDSTICKS.names)
    )
    observed = spark.createDataFrame(
        seen,
        f"{key}, state string, reason string, timestamp_type string, leader int, latest_offset long, "
        "observed_until timestamp, unreadable_since timestamp",
    )
    rows = verdicts(spark.createDataFrame(hours, HOURLY), observed, told, moment(END))
    return {row.cluster: row for row in rows.where(F.col("partition").isNotNull()).collect()}


def expectation(stream: dict[str, object]) -> Expectation:
    """Return what is published of a stream."""
    clocked = stream["log_mean"] is not None
    threshold = DEFAULT_THRESHOLDS[PARTITION]
    changed = {**stream, "profile": stream["profile"] if clocked else None}
    return Expectation(
        topic="t", topic_id="id", partition=0, as_of=END, end_offset=9, verdict="live", evidence="", rule="",
        suspect_score=threshold.suspect, dead_score=threshold.dead, **changed,  # type: ignore[arg-type]
    )  # fmt: skip


def test_spark_and_the_exporter_judge_every_silence_alike(spark: SparkSession) -> None:
    """Hours and slots of five minutes, periods, silences of seconds and of five weeks: no verdict differs."""
    rng = np.random.default_rng(11)
    streams = [drawn(number, rng) for number in range(COUNT)]
    found = by_spark(spark, streams)
    assert len(found) == COUNT
    for stream in streams:
        row = found[str(stream["cluster"])]
        silence = Silence(float(str(stream["last_advance"])), END, known=True)
        live = judge(silence, expectation(stream), END)
        assert row.verdict == live.verdict, row
        if row.silence_score is not None:
            assert live.score == pytest.approx(row.silence_score, rel=1e-9, abs=1e-7)
        if row.expected_by is None:
            assert live.expected_by is None
        else:
            assert live.expected_by == pytest.approx(row.expected_by.astimezone(UTC).timestamp(), abs=0.01)
    assert {row.verdict for row in found.values()} == set(Verdict) - {Verdict.HELD, Verdict.MUTED}

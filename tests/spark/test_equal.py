"""For streams drawn at random Spark and the exporter judge alike: verdict, score and the moment of death."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, timedelta

import numpy as np
import pytest
from pyspark.sql import Row, SparkSession

from exporter.domain import (
    Activity,
    Expectation,
    PartitionInfo,
    Reading,
    State,
    TopicInfo,
    TopicOverride,
    TopicPartition,
    Verdict,
)
from exporter.domain.assessment import Assessment, Judgement
from exporter.domain.detection import Detector, judge
from exporter.domain.expectations import ExpectationSet
from exporter.domain.overrides import Overrides
from exporter.domain.silence import Silence, union
from spark_rollups.schemas import HOURLY, YARDSTICKS
from spark_rollups.verdicts import DEFAULT_THRESHOLDS, PARTITION, stream_number, verdicts
from tests.snapshots import snapshot_of
from tests.spark.story import at, moment

COUNT = 400
END = at(7 * 20, 61.7)
LONGEST = 70.0
"""Days of the longest silence: beyond what is dead at the latest, and then retired."""


def drawn(number: int, rng: np.random.Generator) -> dict[str, object]:
    """A yardstick and a silence: by the clock in hours or in slots of five minutes, by its period, or by nothing."""
    slot = (3600.0, 300.0)[number % 2]
    profile = rng.gamma(0.3, 1.0, 168).clip(1e-4, 1.0) * 3600.0 / slot
    if number % 3 == 0:
        profile[(np.arange(168) % 24 < 8) | (np.arange(168) >= 120)] = 1e-4
    rates = profile.astype(np.float32).tolist()
    kind = ("clock", "clock", "clock", "clock", "period", "none")[number % 6]
    longest = float(rng.uniform(1.0, 30.0)) * 86_400.0
    late = number % 7 == 0 or number % 12 == 4
    last = END - float(86_400.0 * LONGEST * rng.uniform() ** (1 if late else 4)) - 1.0
    unseen = END - float(rng.uniform(3_700.0, 86_400.0)) if number % 4 == 3 else END
    return {
        "cluster": f"c-{number}",
        "last_advance": last,
        "until": unseen if unseen > last else END,
        "slot_seconds": 3600.0 if kind != "clock" else slot,
        "profile": rates,
        "clock_step": sum(rates) * slot / 3600.0 / 168,
        "log_mean": float(rng.normal(3.0 if late else 0.0, 1.0)) if kind == "clock" else None,
        "log_spread": float(rng.uniform(0.2, 0.8)) if kind == "clock" else None,
        "suspect_silence_seconds": 1.5 * longest if kind == "period" else None,
        "max_silence_seconds": 1.75 * longest if kind == "period" else None,
    }


def by_spark(
    spark: SparkSession, streams: list[dict[str, object]], *, never_read: bool = False
) -> tuple[dict[str, Row], dict[str, Row]]:
    """Return Spark's verdicts of the partitions and of the topics, each with one topic in a cluster of its own.

    Where one was ``never_read`` there is a second partition in each topic, of which nothing is known.
    """
    rows = rows_of_spark(spark, streams, never_read=never_read)
    partitions = {row.cluster: row for row in rows if row.partition == 0}
    return partitions, {row.cluster: row for row in rows if row.partition is None}


def rows_of_spark(
    spark: SparkSession,
    streams: Sequence[Mapping[str, object]],
    *,
    never_read: bool = False,
    overrides: Sequence[TopicOverride] = (),
) -> list[Row]:
    """Return all verdict rows of these streams, each the partition 0 of a ``topic``, by default of one named t."""
    hours, sticks, seen = list[tuple[object, ...]](), list[tuple[object, ...]](), list[tuple[object, ...]]()
    for stream in streams:
        names = {"topic": stream.get("topic", "t"), "topic_id": "id", "partition": 0}
        last = moment(float(str(stream["last_advance"])))
        week = last.date() - timedelta(days=last.weekday())
        hour = {
            **dict.fromkeys(HOURLY.names), **names, "cluster": stream["cluster"], "date": last.date(),
            "hour": last.replace(minute=0, second=0, microsecond=0), "source": "poll", "records": 1,
            "first_advance": last, "last_advance": last, "end_offset": 9, "censored": False, "offset_regressions": 0,
        }  # fmt: skip
        stick = {
            **dict.fromkeys(YARDSTICKS.names), **told_of(stream), "stream": 0, "week": week, "active_slots": 99,
            "weeks": 8, "history_start": last,
        }  # fmt: skip
        hours.append(tuple(hour[name] for name in HOURLY.names))
        for partition in (0, None):
            sticks.append(
                (stream["cluster"], names["topic"], "id", partition, *(stick[name] for name in YARDSTICKS.names))
            )
        until = moment(float(str(stream["until"])))
        seen.append((stream["cluster"], *names.values(), "observed", None, "CreateTime", 1, 9, until, None))
        if never_read:
            nothing = ("unreadable", "unauthorized", "CreateTime", None, None, None, moment(END - 86_400.0))
            seen.append((stream["cluster"], names["topic"], "id", 1, *nothing))
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
    activity = spark.createDataFrame(hours, HOURLY)
    return verdicts(activity, observed, told, moment(END), DEFAULT_THRESHOLDS, overrides).collect()


def told_of(stream: Mapping[str, object]) -> dict[str, object]:
    """Return the yardstick of a stream, without what polls know."""
    return {name: value for name, value in stream.items() if name not in ("until", "cluster", "topic", "last_advance")}


def expectation(stream: dict[str, object]) -> Expectation:
    """Return what is published of a stream."""
    clocked = stream["log_mean"] is not None
    threshold = DEFAULT_THRESHOLDS[PARTITION]
    known = {name: stream[name] for name in ("cluster", "last_advance")}
    told = {**told_of(stream), **known, "profile": stream["profile"] if clocked else None}
    return Expectation(
        topic="t", topic_id="id", partition=0, as_of=END, end_offset=9, verdict="live", evidence="", rule="",
        suspect_score=threshold.suspect, dead_score=threshold.dead, **told,  # type: ignore[arg-type]
    )  # fmt: skip


def alike(row: Row, live: Judgement) -> None:
    """Assert that Spark's row and the exporter's judgement say the same."""
    assert row.verdict == live.verdict, row
    if row.silence_score is not None:
        assert live.score == pytest.approx(row.silence_score, rel=1e-9, abs=1e-7)
    if row.expected_by is None:
        assert live.expected_by is None
    else:
        assert live.expected_by == pytest.approx(row.expected_by.astimezone(UTC).timestamp(), abs=0.01)


def seen_silence(stream: dict[str, object]) -> Silence:
    """Return the silence that polls prove of a stream."""
    return Silence(float(str(stream["last_advance"])), float(str(stream["until"])), known=True)


def test_spark_and_the_exporter_judge_every_silence_alike(spark: SparkSession) -> None:
    """Hours and slots of five minutes, periods, silences of seconds and of ten weeks, read up to now or not."""
    rng = np.random.default_rng(11)
    streams = [drawn(number, rng) for number in range(COUNT)]
    found, _ = by_spark(spark, streams)
    assert len(found) == COUNT
    for stream in streams:
        alike(found[str(stream["cluster"])], judge(seen_silence(stream), expectation(stream), END))
    assert {row.verdict for row in found.values()} == set(Verdict) - {Verdict.MUTED}
    old = {(row.rule, row.verdict) for row in found.values() if (row.silence_seconds or 0.0) > 28 * 86_400.0}
    told = {(rule, said) for rule in ("traffic-clock", "period") for said in ("suspect", "dead", "retired")}
    assert told <= old, "what passes its limit past 28 days is dead, then retired"


def test_a_partition_that_was_never_read_leaves_its_topic_unproved_in_both(spark: SparkSession) -> None:
    """The topic lives while its other partition advances; past that it is held, never dead."""
    rng = np.random.default_rng(12)
    # Spark says so from an hour on: so long the spool may be behind.
    streams = [one for number in range(90) if seen_silence(one := drawn(number, rng)).since < END - 3_700.0]
    _, topics = by_spark(spark, streams, never_read=True)
    for stream in streams:
        alike(topics[str(stream["cluster"])], judge(union([seen_silence(stream), None]), expectation(stream), END))
    assert {row.verdict for row in topics.values()} == {Verdict.LIVE, Verdict.HELD, Verdict.LEARNING}


STEADY = {
    "cluster": "prod", "until": END, "slot_seconds": 3600.0, "profile": [1.0] * 168, "clock_step": 1.0,
    "log_mean": 1.0, "log_spread": 0.5, "suspect_silence_seconds": None, "max_silence_seconds": None,
}  # fmt: skip
"""A slot each hour: crossed past 6.4 missed hours, dead past 24.8, and held for 48 more than 6.4."""


def by_exporter(streams: Sequence[Mapping[str, object]], overrides: Overrides) -> Assessment:
    """Return what the exporter says of these streams, polled at END."""
    names = [str(stream["topic"]) for stream in streams]
    readings = {}
    for name, stream in zip(names, streams, strict=True):
        since = float(str(stream["last_advance"]))
        activity = Activity(END, since, since, since, polls_good=100)
        readings[TopicPartition(name, 0)] = Reading(State.OBSERVED, activity, leader=1, latest=9)
    infos = {name: TopicInfo("id", {0: PartitionInfo(0, (1,), (1,))}) for name in names}
    row = expectation({**STEADY, "last_advance": None})
    promises = ExpectationSet(replace(row, topic=name, partition=number) for name in names for number in (None, 0))
    snapshot = snapshot_of(readings, infos, taken_at=END)
    return Detector(promises).assess(snapshot, END, lambda name: overrides.of("prod", name, END))


@pytest.mark.parametrize(
    ("overrides", "verdict"), [((), Verdict.HELD), ((TopicOverride("gone-.*", retired=True),), Verdict.DEAD)]
)
def test_topics_that_the_configuration_decides_on_make_no_incident_in_both(
    spark: SparkSession, overrides: tuple[TopicOverride, ...], verdict: Verdict
) -> None:
    """A death is held beside twelve other silences, and dead where the configuration has retired these twelve."""
    silent, living = END - 30 * 3600.0, END - 60.0
    names = ["died", *(f"gone-{number}" for number in range(12)), *(f"lives-{number}" for number in range(50))]
    streams = [
        {**STEADY, "topic": name, "last_advance": living if name.startswith("lives") else silent} for name in names
    ]
    live = by_exporter(streams, Overrides(overrides))
    rows = rows_of_spark(spark, streams, overrides=overrides)
    of_spark = {row.topic: row.verdict for row in rows if row.partition is None}
    assert of_spark == {name: one.judgement.verdict for name, one in live.topics.items()}
    partitions = {TopicPartition(row.topic, 0): row.verdict for row in rows if row.partition == 0}
    assert partitions == {key: one.verdict for key, one in live.judgements.items()}
    assert of_spark["died"] == verdict

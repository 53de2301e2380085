"""Spark holds what the exporter would hold: the same incidents, in the whole cluster and at one leader."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from exporter.domain import HELD_DAYS, HELD_SECONDS, Verdict
from exporter.domain.incidents import Streams
from exporter.domain.incidents import hold as hold_live
from exporter.domain.layout import NO_LEADER
from exporter.domain.traffic_clock import FIRST_MONDAY, HOUR, Clocks
from spark_rollups.clock import face, timestamp_of
from spark_rollups.incidents import held_until, hold

FLEETS = 24
NOW = 500_000.25
"""Hours since the first Monday."""

Row = tuple[str, str, int | None, bool, int | None, float, float, str]


@dataclass
class Fleet:
    """One cluster of topics, each with up to four partitions, some of which lately fell silent."""

    name: str
    rows: list[Row]
    streams: Streams


def drawn(number: int) -> Fleet:
    """A fleet in which a broker, much of the cluster, or hardly anything fell silent."""
    rng = np.random.default_rng(number)
    cluster, topics = f"cluster-{number}", int(rng.integers(8, 60))
    counts = rng.integers(1, 5, topics)
    topic = np.repeat(np.arange(topics), counts)
    leader = rng.choice([1, 2, 3, NO_LEADER], len(topic), p=[0.35, 0.3, 0.3, 0.05])
    share = (0.05, 0.6, 0.15)[number % 3]
    crossed = (rng.random(len(topic)) < share) | (
        (leader == 1) & (rng.random() < 0.5) & (rng.random(len(topic)) < 0.95)
    )
    promised = rng.random(len(topic)) < 0.9
    topics_promised = rng.random(topics) < 0.95
    whole = np.array([crossed[topic == one].all() for one in range(topics)])
    topics_crossed = whole & (rng.random(topics) < 0.9)
    rows = [
        _row(cluster, one, None, bool(topics_promised[one]), None, bool(topics_crossed[one]), rng)
        for one in range(topics)
    ]
    for place, of in enumerate(topic):
        partition = int(place - np.searchsorted(topic, of))
        led = None if leader[place] == NO_LEADER else int(leader[place])
        rows.append(_row(cluster, int(of), partition, bool(promised[place]), led, bool(crossed[place]), rng))
    names = [f"t-{one}" for one in range(topics)]
    streams = Streams(
        names, topics_promised, topics_crossed & topics_promised, topic, leader, promised, crossed & promised
    )
    return Fleet(cluster, rows, streams)


def _row(
    cluster: str,
    topic: int,
    partition: int | None,
    promised: bool,
    leader: int | None,
    crossed: bool,
    rng: np.random.Generator,
) -> Row:
    begins = NOW - rng.uniform(0.1, 23.0)
    early, over = (NOW + 1.0, NOW + 25.0), (NOW - 40.0, NOW - 0.1)
    from_, until = (begins, begins + 24.0) if crossed else (early if rng.random() < 0.5 else over)
    verdict = Verdict.DEAD if rng.random() < 0.7 else Verdict.SUSPECT
    return cluster, f"t-{topic}", partition, promised, leader, from_, until, verdict.value


def test_a_hold_runs_out_for_spark_when_it_does_for_the_exporter(spark: SparkSession) -> None:
    """For random profiles both hold for a day and for two of a stream's own busiest days, whichever is longer."""
    rng, count = np.random.default_rng(4), 50
    profiles = rng.gamma(0.3, 1.0, (count, 168)) + 1e-4
    profiles[::3] *= np.arange(168) < 120
    profiles[::3] += 1e-4
    crossed = NOW + rng.uniform(0, 168, count)
    rows = [(number, profiles[number].tolist(), float(crossed[number])) for number in range(count)]
    frame = spark.createDataFrame(rows, "number int, profile array<double>, crossed double")
    faces = frame.withColumn("face", face(F.col("profile"))).localCheckpoint()
    found = faces.select("number", held_until(F.col("crossed"), F.col("face")).alias("until")).orderBy("number")
    clocks, at = Clocks(profiles, *np.ones((3, count))), np.arange(count)
    since = FIRST_MONDAY + crossed * HOUR
    days = clocks.moment(at, since, HELD_DAYS * clocks.busiest_day(at))
    lasts = np.maximum(days, since + HELD_SECONDS)
    assert (np.array([row.until for row in found.collect()]) - crossed) * HOUR == pytest.approx(lasts - since, abs=1e-3)
    assert (days > since + HELD_SECONDS).any()


def test_the_same_topics_and_partitions_are_held(spark: SparkSession) -> None:
    """For random fleets each row is held by Spark exactly where the exporter's rule holds it."""
    fleets = [drawn(number) for number in range(FLEETS)]
    told = spark.createDataFrame(
        [row for fleet in fleets for row in fleet.rows],
        "cluster string, topic string, partition int, promised boolean, leader int, held_from double, "
        "held_until double, verdict string",
    ).withColumns({"topic_id": F.lit(None).cast("string"), "observed_until": timestamp_of(F.lit(NOW))})
    found = {(row.cluster, row.topic, row.partition): row.verdict for row in hold(told).collect()}
    assert len(found) == sum(len(fleet.rows) for fleet in fleets)
    sizes = []
    for fleet in fleets:
        live = hold_live(fleet.streams)
        held: set[tuple[str, int | None]] = {(f"t-{number}", None) for number in np.flatnonzero(live.topics)}
        place = np.arange(len(fleet.streams.topic)) - np.searchsorted(fleet.streams.topic, fleet.streams.topic)
        held |= {(f"t-{fleet.streams.topic[row]}", int(place[row])) for row in np.flatnonzero(live.partitions)}
        mine = {(topic, partition) for (cluster, topic, partition) in found if cluster == fleet.name}
        assert {key for key in mine if found[fleet.name, *key] == Verdict.HELD} == held, fleet.name
        sizes.append(len(live.incidents))
    assert {0, 1} <= set(sizes)
    assert any(one.leader is not None for fleet in fleets for one in hold_live(fleet.streams).incidents)
    assert any(one.leader is None for fleet in fleets for one in hold_live(fleet.streams).incidents)


def test_only_what_is_overdue_is_held(spark: SparkSession) -> None:
    """A stream that is quiet stays so in the midst of an incident."""
    rows = [("c", f"t-{number}", None, True, None, NOW - 2.0, NOW + 20.0, "quiet") for number in range(9)]
    rows[0] = (*rows[0][:-1], "dead")
    told = spark.createDataFrame(
        rows,
        "cluster string, topic string, partition int, promised boolean, leader int, held_from double, "
        "held_until double, verdict string",
    ).withColumns({"topic_id": F.lit("id"), "observed_until": timestamp_of(F.lit(NOW))})
    verdicts = sorted(row.verdict for row in hold(told).collect())
    assert verdicts == ["held", *["quiet"] * 8]


def test_an_incident_in_one_cluster_holds_nothing_in_another_with_the_same_names(spark: SparkSession) -> None:
    """Six silent topics of ten are an incident, four of a hundred are not; counted together all ten would be one."""
    rows = [
        (cluster, f"t-{number}", None, True, None, NOW - (2.0 if number < silent else -1.0), NOW + 20.0, "dead")
        for cluster, topics, silent in (("a", 10, 6), ("b", 100, 4))
        for number in range(topics)
    ]
    told = spark.createDataFrame(
        rows,
        "cluster string, topic string, partition int, promised boolean, leader int, held_from double, "
        "held_until double, verdict string",
    ).withColumns({"topic_id": F.lit("id"), "observed_until": timestamp_of(F.lit(NOW))})
    held = {(row.cluster, row.topic) for row in hold(told).collect() if row.verdict == Verdict.HELD}
    assert held == {("a", f"t-{number}") for number in range(6)}

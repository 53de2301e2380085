"""Spark and the exporter make the same of what the configuration says of topics."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import types as T

from exporter.domain import TopicOverride, Verdict
from exporter.domain.detection import overruled
from exporter.domain.overrides import Overrides
from exporter.domain.silence import Silence
from spark_rollups.options import Said
from spark_rollups.overrides import overridden, parse

AS_OF = datetime(2026, 3, 2, 12, tzinfo=UTC)
NOW = AS_OF.timestamp()
HOUR = 3600.0
DAY = 24 * HOUR
OVERRIDES = (
    TopicOverride(r"billing\..*", max_silence_seconds=2 * HOUR),
    TopicOverride(".*-test", "prod", muted_until=NOW + 1),
    TopicOverride("over-.*", muted_until=NOW),
    TopicOverride("over-limit", max_silence_seconds=36 * HOUR),
    TopicOverride("monthly", max_silence_seconds=30 * 24 * HOUR),
    TopicOverride("(?i)LEGACY[a-z_.-]{0,9}", retired=True),
)
ROWS = T.StructType(
    [
        T.StructField("cluster", T.StringType()),
        T.StructField("topic", T.StringType()),
        T.StructField("topic_id", T.StringType()),
        T.StructField("partition", T.IntegerType()),
        T.StructField("verdict", T.StringType()),
        T.StructField("rule", T.StringType()),
        T.StructField("last_advance", T.TimestampType()),
        T.StructField("observed_until", T.TimestampType()),
        T.StructField("silence_seconds", T.DoubleType()),
        T.StructField("max_silence_seconds", T.DoubleType()),
        T.StructField("suspect_silence_seconds", T.DoubleType()),
        T.StructField("expected_by", T.TimestampType()),
        T.StructField("silence_score", T.DoubleType()),
        T.StructField("partitions_live", T.LongType()),
        T.StructField("evidence", T.StringType()),
    ]
)
SILENCES = (
    0.0,
    0.5 * HOUR,
    1.4 * HOUR,
    1.6 * HOUR,
    2.5 * HOUR,
    30 * HOUR,
    40 * HOUR,
    29 * 24 * HOUR,
    None,
    HOUR,
    31 * DAY,
    38 * DAY,
)
UNSEEN = {9: 1.6 * HOUR}
"""So long nobody has looked at the partition."""
TOPICS = (
    "billing.eu",
    "billing",
    "x-test",
    "over-there",
    "over-limit",
    "monthly",
    "legacy.orders",
    "Legacy",
    "legacy0",
    "free",
)


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> list[Row]:
    """Every topic with every silence, on two clusters, after the overrides."""
    evidence = "learning: 4 active hours of 10 needed; silent 2 h 30 m (since Mon 2026-03-02 09:30 UTC); 1 of 2 live"
    made = [
        (
            cluster,
            topic,
            "id",
            number,
            "quiet",
            "traffic-clock",
            None if silence is None else datetime.fromtimestamp(NOW - UNSEEN.get(number, 0.0) - silence, UTC),
            None if silence is None else datetime.fromtimestamp(NOW - UNSEEN.get(number, 0.0), UTC),
            silence,
            *(None, None, None, 1.5, 7, evidence),
        )
        for cluster in ("prod", "other")
        for topic in TOPICS
        for number, silence in enumerate(SILENCES)
    ]
    return overridden(spark.createDataFrame(made, ROWS), OVERRIDES, AS_OF).collect()


def test_every_row_has_the_verdict_that_the_exporter_gives_it(rows: list[Row]) -> None:
    """Pattern, cluster, order, mute and limit: one reading of them on both sides."""
    overrides = Overrides(OVERRIDES)
    seen = set()
    for row in rows:
        override = overrides.of(row.cluster, row.topic, NOW)
        until = NOW - UNSEEN.get(row.partition, 0.0)
        silence = None if row.silence_seconds is None else Silence(until - row.silence_seconds, until, known=True)
        if override is None:
            assert (row.verdict, row.rule, row.silence_score) == ("quiet", "traffic-clock", 1.5)
            continue
        live = overruled(silence, override, NOW)
        assert row.verdict == live.verdict, row
        expected_by = None if row.expected_by is None else row.expected_by.astimezone(UTC).timestamp()
        assert expected_by == (None if live.expected_by is None else pytest.approx(live.expected_by))
        assert (row.rule, row.max_silence_seconds) == ("override", override.max_silence_seconds)
        seen.add((row.topic, row.verdict))
    assert {verdict for _, verdict in seen} == set(Verdict)
    assert {verdict for topic, verdict in seen if topic == "monthly"} > {Verdict.DEAD, Verdict.RETIRED}
    assert "legacy0" not in {topic for topic, _ in seen}


def test_the_evidence_says_that_it_is_the_configuration(rows: list[Row]) -> None:
    """Silence as it is, then what the configuration says; nothing of what was learned is left."""
    said = {row.topic: row.evidence for row in rows if row.partition == 4 and row.cluster == "prod"}
    silent = "silent 2 h 30 m (since Mon 2026-03-02 09:30 UTC); "
    assert said["billing.eu"] == rf"{silent}dead past 2 h, as the configuration says of billing\..*"
    assert said["x-test"] == f"{silent}muted until Mon 2026-03-02 12:00 UTC, as the configuration says of .*-test"
    assert said["Legacy"] == f"{silent}retired, as the configuration says of (?i)LEGACY[a-z_.-]{{0,9}}"
    assert said["free"].startswith("learning: ")


def test_the_living_are_counted_after_the_overrides(rows: list[Row]) -> None:
    """N of M live speaks of the verdicts as they stand."""
    counts = {row.topic: row.partitions_live for row in rows if row.cluster == "prod"}
    assert counts["billing.eu"] == 3
    assert counts["x-test"] == 0
    assert counts["free"] == len(SILENCES)


def test_overrides_pass_through_the_command_line(tmp_path: Path) -> None:
    """What the command hands over is what the job reads, in its argument or in a file."""
    text = json.dumps([asdict(override) for override in OVERRIDES])
    (tmp_path / "overrides.json").write_text(text, encoding="utf-8")
    for handed in (text, f"@{tmp_path / 'overrides.json'}"):
        assert Said(parse).convert(handed, None, None) == OVERRIDES


@pytest.mark.parametrize("text", ["", "{", "3", "[3]", '[{"topic": "x"}]', '[{"topics": "x"}]', '[{"retired": true}]'])
def test_what_is_no_list_of_overrides_is_refused(text: str) -> None:
    """The job says so at its start instead of judging without them."""
    with pytest.raises(ValueError, match="must"):
        parse(text)

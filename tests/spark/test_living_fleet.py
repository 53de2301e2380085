"""Day one on a real broker: eight weeks of back-dated records, backfilled, rolled up, served, and explained.

What died one by one is dead; what fell silent together is held as one incident, and metrics, pages and `explain` agree
on it. In a second cluster topics live by many rhythms, and others were abandoned before monitoring began.
"""

import io
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from exporter.commands.backfill import backfill
from exporter.domain.verdicts import Verdict
from exporter.settings.load import load_settings
from spark_rollups.progress import Progress
from spark_rollups.report.write import JSON, write_report
from spark_rollups.rollup import RollupRequest, run_rollup
from tests.bench.audit import sections_of
from tests.dead_and_living import DEAD, LIVING, write_fleet
from tests.demo.broker import Broker
from tests.integration.serving import Exporter
from tests.waiting import until
from tests.workbench import Workbench

pytestmark = pytest.mark.timeout(600)

ALARMS = {Verdict.SUSPECT, Verdict.DEAD, Verdict.HELD, Verdict.RETIRED}
PREFIX = "rhythm."
SEED = 20261127
HOUR, WEEKS = 3600.0, 8
LIVES = {f"lives-{number}" for number in range(24)}
DIED = {f"died-{hours}-hours-ago": float(hours) for hours in (13, 31, 58)}
TOGETHER = {f"together-{place}": 6 + place / 16 for place in range(8)}
"""Topics, and for how many hours they are silent. All wrote twice an hour."""


@dataclass(frozen=True)
class Served:
    """The exporter once it has judged both clusters."""

    exporter: Exporter
    first: dict[str, str]
    """The verdicts of the abandoned cluster by the first poll, before anything was known of its past."""
    report: dict[str, Any]
    workbench: Workbench

    def items(self, path: str) -> list[dict[str, object]]:
        found: list[dict[str, object]] = self.exporter.page(f"/api/v1/{path}").json()["items"]
        return found

    def explained(self, topic: str) -> dict[str, object]:
        url = f"http://127.0.0.1:{self.exporter.port}"
        command = [sys.executable, "-m", "exporter", "explain", PREFIX + topic, "--url", url]
        completed = subprocess.run([*command, "--format", "json"], capture_output=True, text=True, check=True)
        found: dict[str, object] = json.loads(completed.stdout)
        return found


def verdicts(exporter: Exporter, cluster: str) -> dict[str, str]:
    shown = [one.labels for one in exporter.samples("kafka_topic_verdict{") if one.value == 1]
    return {
        labels["topic"].removeprefix(PREFIX): labels["verdict"]
        for labels in shown
        if labels["kafka_cluster"] == cluster
    }


def write_silences(workbench: Workbench, now: float) -> None:
    random, records = np.random.default_rng(20), list[tuple[str, int, float]]()
    hours = np.arange((now - WEEKS * 168 * HOUR) // HOUR, now // HOUR + 1) * HOUR
    for topic, silent in {**dict.fromkeys(LIVES, 0.0), **DIED, **TOGETHER}.items():
        workbench.create(PREFIX + topic)
        both = np.concatenate([hours + random.uniform(begin, begin + 1200, len(hours)) for begin in (0, 1200)])
        records += [(PREFIX + topic, 0, round(at, 3)) for at in both.tolist() if at < now - silent * HOUR]
    workbench.write(sorted(records, key=lambda record: record[2]))


@pytest.fixture(scope="module")
def served(
    spark: SparkSession, broker: Broker, workbench: Workbench, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """Two fleets on the broker as two clusters, of which one is polled; their past is read, rolled up and served."""
    folder, now = tmp_path_factory.mktemp("fleet"), time.time()
    write_silences(workbench, now)
    write_fleet(workbench, now, SEED, "fleet-")
    living, abandoned = (
        {"name": name, "kafka": {"bootstrap.servers": broker.bootstrap}, "topics": {"include": [pattern]}}
        for name, pattern in (("living", f"{PREFIX}.*"), ("abandoned", "fleet-.*"))
    )
    settings = {"groups": {"enabled": False}, "history": {"folder": str(folder / "history")}}
    config = folder / "config.yaml"
    serving = type("Configured", (Exporter,), {"config": config})
    # What died before the first poll of its cluster is retired.
    config.write_text(json.dumps({**settings, "clusters": [abandoned]}))
    with serving(folder) as exporter:
        whole = len(DEAD) + len(LIVING)
        until(lambda: len(verdicts(exporter, "abandoned")) == whole, "the first poll")
        until(lambda: any(exporter.history.glob("spool/inventory/*-abandoned-*.parquet")), "its inventory")
        first = verdicts(exporter, "abandoned")
    config.write_text(json.dumps({**settings, "clusters": [living, abandoned]}))
    output = io.StringIO()
    assert backfill(load_settings(config, None, {"TOPIC_LIVENESS_LOOKUPS_PER_SECOND": "1000000"}), None, output) == 0
    assert f" of {len(LIVES | DIED.keys() | TOGETHER.keys())} partitions written" in output.getvalue(), (
        output.getvalue()
    )
    tables = run_rollup(spark, exporter.history, RollupRequest(), Progress())
    report = write_report(tables, as_of=None)[1] / JSON
    with serving(folder) as exporter:
        found = Served(exporter, first, json.loads(Path(str(report)).read_text()), workbench)
        until(
            lambda: "dead" in verdicts(exporter, "living").values(),
            "the dead, once the exporter has polled three times",
        )
        yield found
    spark.catalog.clearCache()


def test_what_died_one_by_one_is_dead_and_belongs_to_no_incident(served: Served) -> None:
    found = verdicts(served.exporter, "living")
    assert {topic: found[topic] for topic in DIED} == dict.fromkeys(DIED, "dead")
    assert not {topic: found[topic] for topic in LIVES if found[topic] in ALARMS}
    explained = served.explained("died-31-hours-ago")
    assert (explained["verdict"], explained["incident"]) == ("dead", None)
    evidence = str(explained["evidence"])
    assert re.search(
        r" never silent (over|for) .*, missed [\d.]+ active hours, before at most .*; dead since ", evidence
    ), evidence


def test_metrics_pages_and_explain_agree_on_what_an_incident_holds(served: Served) -> None:
    together = {PREFIX + topic for topic in TOGETHER}
    held = {PREFIX + topic for topic, verdict in verdicts(served.exporter, "living").items() if verdict == "held"}
    assert held == together
    assert served.exporter.value("topic_liveness_held_topics", kafka_cluster="living") == len(together)
    assert {one["topic"] for one in served.items("topics?verdict=held")} == together
    (incident,) = served.items("incidents")
    members = set(incident["topics"])  # type: ignore[call-overload]
    # What is a little late just now may have fallen silent with them.
    assert together <= members <= together | {PREFIX + topic for topic in LIVES}
    explained = served.explained("together-0")
    assert (explained["verdict"], explained["incident"]) == ("held", incident["name"])
    phrase = f"{len(members)} of {incident['with_expectation']} topics fell silent together"
    assert f"held: {phrase}" in str(explained["evidence"])
    assert phrase in served.exporter.page("/").text


def named(found: Mapping[str, str], verdict: str) -> set[str]:
    return {topic for topic, one in found.items() if one == verdict}


def test_what_was_abandoned_is_retired_from_the_first_day_on(served: Served) -> None:
    """By the exporter's first poll where eight weeks are over, by all once the rollup has seen their past."""
    dead = {f"fleet-{story.name}": story.dead_days or 0 for story in DEAD}
    assert named(served.first, "retired") == {topic for topic, days in dead.items() if days >= 56}
    assert named(served.first, "suspect") - {"fleet-monthly"} == {topic for topic, days in dead.items() if days < 56}
    assert "dead" not in served.first.values()
    sections = sections_of(served.report)
    assert set(sections["abandoned"]) == set(dead)
    assert not [topic for key in ("newly-dead", "still-dead", "retired") for topic in sections[key] if topic in dead]
    assert "12 topics were abandoned before monitoring began" in served.report["summary"]
    assert served.exporter.value("topic_liveness_report_last_success_timestamp_seconds") is not None
    after = verdicts(served.exporter, "abandoned")
    assert len(after) == len(served.first)
    assert named(after, "retired") == set(dead)
    assert not {"dead", "suspect", "held"} & set(after.values())
    served.workbench.write([("fleet-dead-daily", 0, time.time())])
    until(lambda: verdicts(served.exporter, "abandoned")["fleet-dead-daily"] == "live", "it lives again")

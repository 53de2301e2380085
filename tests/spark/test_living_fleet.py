"""Day one on a real broker: eight weeks of back-dated records, backfilled, rolled up, served, and explained.

What lives in any rhythm is not dead; what died one by one is dead; what fell silent together is held as one incident,
and metrics, pages and `explain` agree on it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import yaml
from pyspark.sql import SparkSession

from exporter.domain.verdicts import Verdict
from spark_rollups.progress import Progress
from spark_rollups.rollup import RollupRequest, run_rollup
from tests.demo.broker import Broker
from tests.integration.serving import Exporter
from tests.integration.test_backfill_runs import Backfill
from tests.spark.rhythms import Fleet, fleet
from tests.waiting import until
from tests.workbench import Workbench

pytestmark = pytest.mark.timeout(600)

ALARMS = {Verdict.SUSPECT, Verdict.DEAD, Verdict.HELD, Verdict.RETIRED}
PREFIX = "rhythm."


@dataclass(frozen=True)
class Served:
    """The exporter once it has judged the fleet."""

    exporter: Exporter
    fleet: Fleet

    def verdicts(self) -> dict[str, str]:
        """The verdict of each topic in the metrics."""
        shown = [one for one in self.exporter.samples() if one.name == "kafka_topic_verdict" and one.value == 1]
        return {one.labels["topic"].removeprefix(PREFIX): one.labels["verdict"] for one in shown}

    def items(self, path: str) -> list[dict[str, object]]:
        """The items of a list of the API."""
        found: list[dict[str, object]] = self.exporter.page(f"/api/v1/{path}").json()["items"]
        return found

    def explained(self, topic: str) -> dict[str, object]:
        """What the command prints of a topic."""
        url = f"http://127.0.0.1:{self.exporter.port}"
        command = [sys.executable, "-m", "exporter", "explain", PREFIX + topic, "--url", url]
        completed = subprocess.run([*command, "--format", "json"], capture_output=True, text=True, check=True)
        found: dict[str, object] = json.loads(completed.stdout)
        return found


@pytest.fixture(scope="module")
def served(
    spark: SparkSession, broker: Broker, workbench: Workbench, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """The fleet on the broker, its past read by the backfill, its expectations made by the rollup."""
    folder, made = tmp_path_factory.mktemp("fleet"), fleet(time.time())
    for topic in made.records:
        workbench.create(PREFIX + topic)
    moments = ((PREFIX + topic, 0, at) for topic, times in made.records.items() for at in times)
    workbench.write(sorted(moments, key=lambda record: record[2]))
    backfill = Backfill(folder, broker.bootstrap, f"{PREFIX}.*", lookups_per_second=1_000_000)
    output = backfill.run()
    assert f" of {len(made.records)} partitions written" in output, output
    run_rollup(spark, backfill.history, RollupRequest(), Progress())
    clusters = json.dumps(yaml.safe_load(backfill.config.read_text())["clusters"])
    with Exporter(folder, TOPIC_LIVENESS_CLUSTERS=clusters, TOPIC_LIVENESS_GROUPS__ENABLED="false") as exporter:
        found = Served(exporter, made)
        until(lambda: "dead" in found.verdicts().values(), "the dead, once the exporter has polled three times")
        yield found
    spark.catalog.clearCache()


def test_what_lives_in_any_rhythm_is_no_alarm(served: Served) -> None:
    """Always on, by schedule, in spells, at random, moved, young: neither suspect nor dead nor held."""
    verdicts = served.verdicts()
    assert served.fleet.living <= set(verdicts)
    assert not {topic: verdicts[topic] for topic in served.fleet.living if verdicts[topic] in ALARMS}


def test_what_died_one_by_one_is_dead_and_belongs_to_no_incident(served: Served) -> None:
    """Within four days, at unrelated moments, beside an incident."""
    verdicts = served.verdicts()
    assert {topic: verdicts[topic] for topic in served.fleet.dead} == dict.fromkeys(served.fleet.dead, "dead")
    explained = served.explained("dead-31-hours-ago")
    assert (explained["verdict"], explained["incident"]) == ("dead", None)
    evidence = str(explained["evidence"])
    assert re.search(
        r" never silent (over|for) .*, missed [\d.]+ active hours, before at most .*; dead since ", evidence
    ), evidence


def test_metrics_pages_and_explain_agree_on_what_an_incident_holds(served: Served) -> None:
    """What fell silent together and nothing else is held, by one incident that names its members."""
    together = {PREFIX + topic for topic in served.fleet.together}
    held = {PREFIX + topic for topic, verdict in served.verdicts().items() if verdict == "held"}
    assert held == together
    assert served.exporter.value("topic_liveness_held_topics") == len(together)
    assert {one["topic"] for one in served.items("topics?verdict=held")} == together
    (incident,) = served.items("incidents")
    members = set(incident["topics"])  # type: ignore[call-overload]
    # What is a little late just now may have fallen silent with them.
    assert together <= members <= together | {PREFIX + topic for topic in served.fleet.living}
    explained = served.explained("together-0")
    assert (explained["verdict"], explained["incident"]) == ("held", incident["name"])
    phrase = f"{len(members)} of {incident['with_expectation']} topics fell silent together"
    assert f"held: {phrase}" in str(explained["evidence"])
    assert phrase in served.exporter.page("/").text

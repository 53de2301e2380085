"""A real Prometheus scrapes an exposition of ours, and a real Alertmanager passes its alerts on."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.answers import Reply, replying
from tests.demo.broker import free_port
from tests.grafana import ANNOTATIONS, TARGETS
from tests.plain_http import get
from tests.programs import PATIENCE_SECONDS, program, running
from tests.waiting import until

ROOT = Path(__file__).parents[2]
EXPOSITION = ROOT / "tests" / "golden" / "exposition.txt"
ALIVE = EXPOSITION.read_text(encoding="utf-8").replace('owner=""', 'owner="team-shop"')
LIVE = 'kafka_topic_verdict{kafka_cluster="prod",topic="orders",verdict="live",owner="team-shop",severity="critical"}'
DEAD = LIVE.replace("live", "dead")
BRIDGED = "TopicLivenessTopicDead"
"""The alert that outlives lost scrapes here for as long as in an installation; the others end at once."""


class Target:
    """Stands where the exporter stands, and where alerts are received."""

    def __init__(self, exposition: str) -> None:
        self.exposition = exposition
        self.broken = False
        """Whether scrapes fail."""
        self.alerts: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        self._serving = ExitStack()
        self.address = self._serving.enter_context(replying(self._reply)).removeprefix("http://")

    def close(self) -> None:
        self._serving.close()

    def _reply(self, _path: str, _headers: Message, body: bytes) -> Reply:
        if not body:  # a scrape
            kind = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
            return 503 if self.broken else 200, kind, self.exposition.encode()
        message = json.loads(body)
        with self._changed:
            self.alerts.extend({**alert, "receiver": message["receiver"]} for alert in message["alerts"])
            self._changed.notify_all()
        return 200, {}, b""

    def wait_for_alert(self, name: str, status: str, **labels: str) -> dict[str, Any]:
        """Wait for an alert of that name, status and labels; each is returned once."""
        wanted = {"alertname": name, **labels}.items()

        def match() -> dict[str, Any] | None:
            return next(
                (alert for alert in self.alerts if alert["status"] == status and wanted <= alert["labels"].items()),
                None,
            )

        with self._changed:
            self._changed.wait_for(match, PATIENCE_SECONDS)
            alert = match()
            if alert is None:
                pytest.fail(f"{name} was not {status} within {PATIENCE_SECONDS:.0f} s")
            self.alerts.remove(alert)
            return alert


class Monitoring:
    """Prometheus with our rules, and Alertmanager; seconds where an installation has minutes."""

    def __init__(self, folder: Path, scraped: list[dict[str, Any]], receiver: str) -> None:
        """Prepare in ``folder``: scrape the static targets ``scraped``, send alerts to ``receiver``."""
        self._folder = folder
        self._prometheus, self._alertmanager = free_port(), free_port()
        for name in ("alerts", "recording"):
            rules = yaml.safe_load((ROOT / "dashboards" / f"{name}.yaml").read_text(encoding="utf-8"))
            for group in rules["groups"]:
                for rule in group["rules"]:
                    rule.pop("for", None)
                    rule["expr"] = re.sub(r"(last_over_time\([^][]*\[\d+)m\](?! offset)", r"\1s]", rule["expr"])
                    if rule.get("alert") != BRIDGED:
                        rule.pop("keep_firing_for", None)
            (folder / f"{name}.yaml").write_text(yaml.safe_dump(rules), encoding="utf-8")
        prometheus = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["alerts.yaml", "recording.yaml"],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{self._alertmanager}"]}]}]},
            "scrape_configs": [{"job_name": "topic-liveness", "static_configs": scraped}],
        }
        alertmanager = yaml.safe_load((ROOT / "dashboards" / "alertmanager.yaml").read_text(encoding="utf-8"))
        alertmanager["route"] |= {"group_wait": "0s", "group_interval": "1s", "group_by": ["..."]}
        for each in alertmanager["receivers"]:
            each["webhook_configs"] = [{"url": f"http://{receiver}/", "send_resolved": True}]
        for name, config in (("prometheus", prometheus), ("alertmanager", alertmanager)):
            (folder / f"{name}.yml").write_text(yaml.safe_dump(config), encoding="utf-8")

    @contextmanager
    def running(self) -> Iterator[Monitoring]:
        with ExitStack() as stack:
            for name, port, options in (
                ("alertmanager", self._alertmanager, ["--cluster.listen-address="]),
                ("prometheus", self._prometheus, []),
            ):
                folder = "--storage.path" if name == "alertmanager" else "--storage.tsdb.path"
                command = [
                    program(name if name == "prometheus" else "prometheus-alertmanager"),
                    f"--config.file={self._folder / name}.yml",
                    f"{folder}={self._folder / name}",
                    f"--web.listen-address=127.0.0.1:{port}",
                    *options,
                ]
                ready = f"http://127.0.0.1:{port}/-/ready"
                stack.enter_context(running(command, ready, self._folder / f"{name}.log"))
            until(lambda: self.ask("scrape_samples_scraped > 0"), "a scrape")
            yield self

    def ask(self, query: str) -> list[dict[str, Any]]:
        """Return the result of an instant query. Fails with Prometheus' own words where it is refused."""
        answer = get(f"http://127.0.0.1:{self._prometheus}/api/v1/query", params={"query": query}, timeout=10)
        assert answer.is_success, f"{query}: {answer.text}"
        result: list[dict[str, Any]] = answer.json()["data"]["result"]
        return result


@pytest.fixture(scope="module")
def receiver() -> Iterator[Target]:
    """Receives alerts."""
    target = Target("")
    yield target
    target.close()


@pytest.fixture(scope="module")
def exporter() -> Iterator[Target]:
    """Shows the golden exposition: partition 1 of orders is dead."""
    target = Target(ALIVE)
    yield target
    target.close()


@pytest.fixture(scope="module")
def monitoring(tmp_path_factory: pytest.TempPathFactory, exporter: Target, receiver: Target) -> Iterator[Monitoring]:
    """Prometheus and Alertmanager that watch ``exporter`` and alert ``receiver``."""
    scraped_ = [{"targets": [exporter.address]}]
    with Monitoring(tmp_path_factory.mktemp("monitoring"), scraped_, receiver.address).running() as running_:
        yield running_


def test_death_and_recovery_reach_the_receiver_of_the_owner(
    monitoring: Monitoring, exporter: Target, receiver: Target
) -> None:
    """Dead partitions are reported, and their end; a dead topic pages its owner, once, over scrapes that are lost."""
    ticket = receiver.wait_for_alert("TopicLivenessPartitionsDead", "firing", kafka_cluster="prod", topic="orders")
    assert ticket["annotations"]["summary"] == "Partitions of orders in prod are dead"
    assert ticket["receiver"] == "shop-tickets"
    assert f"{LIVE} 1" in ALIVE
    exporter.exposition = ALIVE.replace(f"{LIVE} 1", f"{DEAD} 1")
    receiver.wait_for_alert("TopicLivenessPartitionsDead", "resolved", topic="orders")
    page = receiver.wait_for_alert(BRIDGED, "firing", topic="orders")
    assert page["annotations"]["summary"] == "Topic orders of prod is dead"
    assert (page["labels"]["severity"], page["receiver"]) == ("critical", "shop-pager")
    exporter.broken = True
    receiver.wait_for_alert("TopicLivenessExporterDown", "firing")
    exporter.broken = False
    receiver.wait_for_alert("TopicLivenessExporterDown", "resolved")
    until(lambda: monitoring.ask("up == 1"), "a scrape")
    [firing] = monitoring.ask(f'ALERTS_FOR_STATE{{alertname="{BRIDGED}"}}')
    assert float(firing["value"][1]) <= datetime.fromisoformat(page["startsAt"]).timestamp()
    assert not [alert for alert in receiver.alerts if alert["labels"]["alertname"] == BRIDGED]
    exporter.exposition = ALIVE
    receiver.wait_for_alert("TopicLivenessPartitionsDead", "firing", topic="orders")


def test_every_query_of_the_dashboards_is_answered(monitoring: Monitoring) -> None:
    """Prometheus evaluates each of them without an error, and the tables show what is dead."""
    answers: dict[str, list[dict[str, Any]]] = {}
    for query in TARGETS + ANNOTATIONS:
        answers.setdefault(f"{query.dashboard}: {query.title}", []).extend(monitoring.ask(query.as_sent()))
    [dead] = answers["overview: Living topics with dead partitions"]
    assert dead["metric"] == {"job": "topic-liveness", "kafka_cluster": "prod", "topic": "orders"}
    assert dead["value"][1] == "1"
    shown = {row["metric"]["topic"]: row["metric"] for row in answers["overview: Topics of the chosen verdicts"]}
    assert set(shown) == {"ahead", "cleared", "lost", "new", "orders"}


def test_a_stopped_exporter_is_reported_as_such(monitoring: Monitoring, exporter: Target, receiver: Target) -> None:
    """When the exporter goes away its partition's alert ends, and TopicLivenessExporterDown is all that is new."""
    exporter.close()
    receiver.wait_for_alert("TopicLivenessExporterDown", "firing", instance=exporter.address)
    receiver.wait_for_alert("TopicLivenessPartitionsDead", "resolved", topic="orders")
    others = 'ALERTS{alertname=~"TopicLiveness(PartitionsDead|ClusterUnpolled)"}'
    until(lambda: not monitoring.ask(others), "no alert goes on without its exporter")

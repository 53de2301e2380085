"""Several clusters in one process: what happens to one changes nothing for another."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.demo.broker import Broker, free_port
from tests.integration.serving import Exporter, rows_of
from tests.trio import frozen
from tests.waiting import until
from tests.workbench import Workbench

PASSWORD = "s3cr3t-of-eve"  # noqa: S105 - of a broker that lives for this file
INTERVAL, TIMEOUT = 5.0, 2.0
"""Of the exporters here, in seconds: see ``serving``."""

TOPIC = "same-name"
"""There is one of this name in both clusters, with other offsets."""


@pytest.fixture(scope="module")
def other(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A second cluster, which a test may break, with a listener for which nobody here has the password."""
    plain, controller, sasl = free_port(), free_port(), free_port()
    login = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_eve="{PASSWORD}";'
    listeners = f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl}"
    properties = {
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "advertised.listeners": listeners,
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": login,
    }
    with Broker(tmp_path_factory.mktemp("other"), jars=kafka_jars, properties=properties) as running:
        yield running


class Watched:
    """One cluster as the exporter shows it."""

    def __init__(self, exporter: Exporter, name: str) -> None:
        self._exporter = exporter
        self._name = name

    def value(self, metric: str, **labels: str) -> float | None:
        return self._exporter.value(metric, kafka_cluster=self._name, **labels)

    def offset(self) -> float | None:
        return self.value("kafka_topic_partition_current_offset", topic=TOPIC, partition="0")

    def polls(self, outcome: str = "ok") -> float:
        return self._exporter.count("polls", kafka_cluster=self._name, outcome=outcome)

    def seconds(self) -> float:
        return self.value("topic_liveness_poll_duration_seconds_sum") or 0.0


def cluster(name: str, bootstrap: str, **more: Any) -> dict[str, Any]:
    properties = {"bootstrap.servers": bootstrap, **more.pop("kafka", {})}
    return {"name": name, "kafka": properties, "topics": {"include": [TOPIC]}, **more}


def one_good_and_three(broker: Broker, other: Broker) -> list[dict[str, Any]]:
    """Return the settings of four clusters: the shared broker, the other, the other by a wrong password, nothing."""
    guarded = other.properties["listeners"].split("SASL_PLAINTEXT://")[1].split(",")[0]
    refused = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "eve",
        "sasl.password": "wrong-word",
    }
    return [
        cluster("good", broker.bootstrap),
        cluster("shaky", other.bootstrap, poll={"missed_polls": 1}),
        cluster("locked", guarded, kafka=refused),
        cluster("closed", f"127.0.0.1:{free_port()}"),
    ]


def rows(history: Path, table: str, name: str) -> list[dict[str, Any]]:
    return [row for row in rows_of(history, table) if row["cluster"] == name]


def test_a_cluster_that_freezes_dies_or_refuses_changes_nothing_for_another(
    tmp_path: Path, broker: Broker, workbench: Workbench, other: Broker
) -> None:
    """One is stopped, goes on, and is killed; one refuses the password; one never was: the fifth is served on time.

    Topics of the same name are kept apart, in series, verdicts and spool. What fails is counted by reason and
    withdrawn after its own number of missed polls.
    """
    elsewhere = Workbench(other.bootstrap)
    workbench.create(TOPIC)
    elsewhere.create(TOPIC)
    workbench.write([(TOPIC, 0, time.time())])
    elsewhere.write([(TOPIC, 0, time.time())] * 5)
    clusters = one_good_and_three(broker, other)
    overrides = [{"topics": TOPIC, "cluster": "shaky", "retired": "true"}]
    with Exporter(
        tmp_path,
        TOPIC_LIVENESS_CLUSTERS=json.dumps(clusters),
        TOPIC_LIVENESS_OVERRIDES=json.dumps(overrides),
        TOPIC_LIVENESS_HISTORY__WINDOW="5s",
    ) as exporter:
        good, shaky, locked, closed = (Watched(exporter, each["name"]) for each in clusters)
        until(lambda: (good.offset(), shaky.offset()) == (1.0, 5.0), "both read, each with its own offsets")
        assert good.value("kafka_topic_verdict", topic=TOPIC, verdict="learning") == 1
        assert shaky.value("kafka_topic_verdict", topic=TOPIC, verdict="retired") == 1
        until(lambda: locked.polls("authentication-failed") > 0, "the refused password counted")
        until(lambda: closed.polls("cluster-unreachable") > 0, "the closed port counted")

        frozen_at, polls, seconds = time.time(), good.polls(), good.seconds()
        with frozen(other):
            until(lambda: shaky.polls("cluster-unreachable") > 0, "the frozen cluster counted")
            workbench.write([(TOPIC, 0, time.time())] * 2)
            until(lambda: good.offset() == 3.0, "the advance of the good one")
            until(lambda: shaky.offset() is None, "the series of the frozen one withdrawn")
            assert shaky.value("kafka_topic_verdict", topic=TOPIC) is None
            ready = exporter.page("/-/ready")
            assert ready.status_code == 200
            assert [line.split(":")[:2] for line in ready.text.splitlines()[1:]] == [
                ["closed", " down"],
                ["good", " up"],
                ["locked", " down"],
                ["shaky", " down"],
            ]
            assert "wrong-word" not in ready.text + exporter.page("/").text + exporter.metrics()
            until(
                lambda: any(
                    row["last_good_poll"].timestamp() > frozen_at for row in rows(exporter.history, "coverage", "good")
                ),
                "the spool written meanwhile",
            )
            # Behind a cluster that is frozen it would be one in several intervals; a busy machine is late as well.
            polls = good.polls() - polls
            assert polls >= max(1, (time.time() - frozen_at) // INTERVAL // 2 - 1)
            assert (good.seconds() - seconds) / polls < TIMEOUT
        elsewhere.write([(TOPIC, 0, time.time())])
        until(lambda: shaky.offset() == 6.0, "the other one back, exact", 120)

        failed = shaky.polls("cluster-unreachable")
        other.kill()
        until(lambda: shaky.polls("cluster-unreachable") > failed, "the killed cluster counted")
        workbench.write([(TOPIC, 0, time.time())])
        until(lambda: good.offset() == 4.0, "the next advance of the good one")
        assert good.value("topic_liveness_cluster_up") == 1
        assert exporter.end() == 0
        assert "wrong-word" not in exporter.log.read_text()

        windows = {name: rows(exporter.history, "windows", name) for name in ("good", "shaky", "locked", "closed")}
        assert {name: sum(row["records"] for row in windows[name]) for name in windows} == {
            "good": 3,
            "shaky": 1,
            "locked": 0,
            "closed": 0,
        }
        assert all(row["last_good_poll"] for row in rows(exporter.history, "coverage", "good"))
        assert not any(row["last_good_poll"] for row in rows(exporter.history, "coverage", "closed"))

"""The exporter as a process: serve, break the broker, end it, kill it."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.domain.polls.readings import TopicPartition
from tests.demo.broker import Broker
from tests.integration.serving import Exporter, rows_of
from tests.integration.sweeping import commit
from tests.programs import program
from tests.waiting import until
from tests.workbench import Workbench

GROUPS = "kafka_topic_consumergroups_without_members"


@pytest.fixture
def own_broker(kafka_jars: Path, tmp_path: Path) -> Iterator[Broker]:
    """A broker that the test may break."""
    with Broker(tmp_path / "broker", jars=kafka_jars) as running:
        yield running


def loaded(pid: int, *packages: str) -> list[str]:
    """Which of these packages a process has loaded, by the shared libraries that it has mapped."""
    maps = Path(f"/proc/{pid}/maps").read_text()
    return [name for name in packages if f"/{name}" in maps]


@pytest.fixture
def exporter(tmp_path: Path, own_broker: Broker) -> Iterator[Exporter]:
    settings = {
        "TOPIC_LIVENESS_GROUPS__INTERVAL": "5s",
        "TOPIC_LIVENESS_INSPECTION__LOG_SIZES": "true",
        "TOPIC_LIVENESS_INSPECTION__INTERVAL": "5s",
    }
    with Exporter(tmp_path, own_broker.bootstrap, **settings) as running:
        yield running


def test_an_advance_is_served_survives_a_broken_broker_and_is_written_at_the_end(
    exporter: Exporter, own_broker: Broker
) -> None:
    workbench = Workbench(own_broker.bootstrap)
    workbench.create("orders", 2)
    workbench.write([("orders", 0, time.time())])
    orders = {"topic": "orders", "partition": "0"}
    until(lambda: exporter.value("kafka_topic_partition_current_offset", **orders) == 1.0, "the first offset")
    assert exporter.value("kafka_topic_partition_state", topic="orders", partition="1", state="never-written") == 1
    workbench.write([("orders", 0, time.time())] * 3)
    until(lambda: exporter.value("kafka_topic_partition_current_offset", **orders) == 4.0, "the advance")
    assert exporter.value("kafka_topic_partition_last_advance_timestamp_seconds", **orders) is not None
    assert exporter.value("kafka_topic_verdict", topic="orders", verdict="live") == 1
    commit(own_broker.bootstrap, "billing", {TopicPartition("orders", 0): 1})
    until(lambda: exporter.value(GROUPS, topic="orders") == 1.0, "the group")
    size = sum(path.stat().st_size for path in (own_broker.folder / "data" / "orders-0").glob("*.log"))
    until(lambda: exporter.value("kafka_topic_disk_size_bytes", topic="orders") == size, "an inspection")
    assert exporter.value("kafka_consumergroup_lag_sum", consumergroup="billing", topic="orders") == 3
    assert objections(exporter.metrics()) == []
    serving, clients = exporter.process.pid, exporter.clients()
    assert len(clients) == 1
    assert loaded(serving, "confluent_kafka") == []
    assert [loaded(each, "pyarrow", "pydantic", "confluent_kafka") for each in clients] == [["confluent_kafka"]]

    def staleness() -> float:
        value = exporter.value("kafka_topic_partition_staleness_seconds", **orders)
        assert value is not None, "the series outlast the first missed polls"
        return value

    own_broker.kill()
    until(lambda: exporter.value("topic_liveness_cluster_up") == 0.0, "the cluster shown as down")
    then = staleness()
    until(lambda: staleness() > then + 2.0, "staleness rising while polls give nothing")
    assert exporter.value("topic_liveness_cluster_up") == 0.0
    until(
        lambda: exporter.value("kafka_topic_partition_current_offset", **orders) is None,
        "the series withdrawn after the missed polls",
    )
    assert exporter.value("kafka_topic_verdict", topic="orders") is None, "a stopped poller is no verdict"

    own_broker.start()
    until(lambda: exporter.value("kafka_topic_partition_current_offset", **orders) == 4.0, "the series back")
    until(
        lambda: exporter.value(GROUPS, topic="orders") == 1.0,
        "a whole sweep again",
    )
    until(lambda: exporter.value("kafka_topic_disk_size_bytes", topic="orders") == size, "an inspection again")
    counted = exporter.value("kafka_topic_records_total", topic="orders")
    assert counted in {3, 4}, "the first record too, where a poll came before it"
    # As Ctrl-C in a terminal does.
    for pid in (serving, *exporter.clients()):
        os.kill(pid, signal.SIGINT)
    assert exporter.process.wait(120) == 0, exporter.log.read_text()
    rows = rows_of(exporter.history, "windows")
    assert sum(row["records"] for row in rows if row["topic"] == "orders") == counted
    coverage = rows_of(exporter.history, "coverage")
    assert any(row["last_good_poll"] for row in coverage)
    relation = max(rows_of(exporter.history, "relations"), key=lambda row: row["observed_at"])
    assert (relation["topic"], relation["consumer_groups"], relation["replica_of_topic"]) == ("orders", 1, None)
    assert relation["disk_bytes"] == size
    log = exporter.log.read_text()
    assert "poll failed: cluster-unreachable" in log
    assert "Traceback" not in log


def test_an_end_while_history_cannot_be_written_is_in_order(tmp_path: Path, broker: Broker) -> None:
    with Exporter(tmp_path, broker.bootstrap) as exporter:
        until(lambda: exporter.value("topic_liveness_cluster_up") == 1, "a good poll")
        shutil.rmtree(exporter.history / "spool")
        (exporter.history / "spool").write_text("in the way")
        exporter.process.send_signal(signal.SIGTERM)
        assert exporter.process.wait(60) == 1, exporter.log.read_text()
        log = exporter.log.read_text()
    assert "history rows could not be written to" in log
    assert "Traceback" not in log


def objections(exposition: str) -> list[str]:
    """What promtool objects to, but for ``_sum``: users of kafka_exporter have those names in their dashboards."""
    checked = subprocess.run(
        [program("promtool"), "check", "metrics"], input=exposition, text=True, capture_output=True, check=False
    )
    lines = (checked.stdout + checked.stderr).splitlines()
    return [line for line in lines if not re.match(r"kafka_consumergroup_(current_offset|lag)_sum .*_sum", line)]


def test_once_prints_an_exposition_of_the_cluster(broker: Broker, workbench: Workbench) -> None:
    workbench.create("asked-once", 2)
    workbench.write([("asked-once", 1, time.time())])
    command = [sys.executable, "-m", "exporter", "once", "--bootstrap-server", broker.bootstrap]
    owners = {"TOPIC_LIVENESS_OWNERS": r"[{topics: 'asked-(\w+)', owner: 'team-\1'}]"}
    environment = {**os.environ, **owners}
    done = subprocess.run(command, text=True, capture_output=True, check=False, timeout=60, env=environment)
    assert done.returncode == 0, done.stderr
    [info] = [line for line in done.stdout.splitlines() if line.startswith("kafka_topic_info") and "asked-once" in line]
    assert 'timestamp_type="CreateTime"' in info
    assert 'owner="team-once"' in info
    labels = 'kafka_cluster="default",topic="asked-once",partition="1"'
    assert f"kafka_topic_partition_current_offset{{{labels}}} 1\n" in done.stdout
    assert objections(done.stdout) == []


def test_kills_change_no_silence_and_delay_no_death(tmp_path: Path, broker: Broker) -> None:
    topic, limit = f"killed-{time.time_ns()}", 60.0
    Workbench(broker.bootstrap).create(topic)
    overrides = f"[{{topics: {topic}, max_silence: {limit:g}s}}]"
    settings = {"TOPIC_LIVENESS_HISTORY__WINDOW": "5s", "TOPIC_LIVENESS_OVERRIDES": overrides}
    advances = list[float | None]()

    def last_advance(exporter: Exporter) -> float | None:
        return exporter.value("kafka_topic_last_advance_timestamp_seconds", topic=topic)

    for number, seconds in enumerate((8.0, 0.0, 4.0, 7.5)):
        with Exporter(tmp_path, broker.bootstrap, **settings) as running:
            until(lambda: running.value("topic_liveness_cluster_up") == 1, "a poll")
            if number == 0:
                Workbench(broker.bootstrap).write([(topic, 0, time.time())])
                until(lambda: last_advance(running) is not None, "the advance")
            advances.append(last_advance(running))
            time.sleep(seconds)
            running.process.kill()
    with Exporter(tmp_path, broker.bootstrap, **settings) as running:
        until(lambda: running.value("kafka_topic_verdict", topic=topic, verdict="dead") == 1, "the death", 120)
        found = time.time()
        assert running.end() == 0
    assert advances[0] is not None
    assert set(advances) == {advances[0]}
    assert advances[0] + limit < found < advances[0] + limit + 15

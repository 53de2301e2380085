"""`serve` while the processes with its Kafka clients end, or stay blind."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fake_cluster import FakeCluster
from tests.integration.serving import Exporter, until
from tests.unit.test_memory import lay_out


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Exporter]:
    """An exporter of two clusters, both of which it has polled."""
    with FakeCluster(topics=2, partitions=2) as east, FakeCluster(topics=2, partitions=2) as west:
        clusters = [
            {"name": name, "kafka": {"bootstrap.servers": cluster.bootstrap}}
            for name, cluster in (("east", east), ("west", west))
        ]
        with Exporter(tmp_path, TOPIC_LIVENESS_CLUSTERS=json.dumps(clusters)) as exporter:
            until(lambda: all(polls(exporter, name) >= 2 for name in ("east", "west")), "two polls of each")
            yield exporter


def polls(exporter: Exporter, cluster: str, outcome: str = "ok") -> float:
    """How many polls of a cluster ended so."""
    return exporter.value("topic_liveness_polls_total", kafka_cluster=cluster, outcome=outcome) or 0.0


def restarts(exporter: Exporter, cluster: str) -> dict[str, float]:
    """How often processes of a cluster were replaced, by reason."""
    return {
        sample.labels["reason"]: sample.value
        for sample in exporter.samples()
        if sample.name == "topic_liveness_client_restarts_total" and sample.labels["kafka_cluster"] == cluster
    }


def test_a_client_that_aborts_or_hangs_is_replaced_and_costs_no_other_cluster(pair: Exporter) -> None:
    """Restarts are counted, silences go on, and the other cluster misses nothing. Clients end with the exporter."""
    assert restarts(pair, "east") == dict.fromkeys(("ended", "hung", "memory", "failing"), 0.0)
    silent = pair.value("kafka_topic_partition_last_record_timestamp_seconds", kafka_cluster="east", topic="bench-0000")
    aborted, stopped = pair.clients()
    os.kill(aborted, signal.SIGABRT)
    until(lambda: restarts(pair, "east")["ended"] == 1, "the end is counted")
    before = polls(pair, "east")
    until(lambda: polls(pair, "east") >= before + 2, "good polls by a new process")
    assert restarts(pair, "east") == {"ended": 1.0, "hung": 0.0, "memory": 0.0, "failing": 0.0}
    assert set(restarts(pair, "west").values()) == {0.0}
    assert pair.value("topic_liveness_cluster_up", kafka_cluster="east") == 1
    after = pair.value("kafka_topic_partition_last_record_timestamp_seconds", kafka_cluster="east", topic="bench-0000")
    assert after == silent
    assert [sample for sample in pair.samples() if sample.labels.get("verdict") == "dead"] == []
    failures = ("client-failed", "cluster-unreachable", "other-error")
    assert [reason for reason in failures if polls(pair, "west", reason)] == []

    os.kill(stopped, signal.SIGSTOP)
    until(lambda: restarts(pair, "west").get("hung") == 1, "it is found to hang", seconds=120)
    before = polls(pair, "west")
    until(lambda: polls(pair, "west") >= before + 2, "good polls by a new process", seconds=120)
    assert not Path(f"/proc/{stopped}").exists()
    running = pair.clients()
    assert len(running) == 2
    pair.process.kill()
    until(lambda: not any(Path(f"/proc/{each}").exists() for each in running), "no client outlives the exporter")


LIMITED = """
import pathlib, sys
from exporter import memory
memory.ROOT = pathlib.Path(sys.argv.pop(1))
from exporter.__main__ import main
main()
"""
"""The command, where the kernel shows cgroups in a folder."""


def test_a_client_that_grows_past_the_containers_limit_is_replaced(tmp_path: Path) -> None:
    """No poll is missed for it. What each process holds is shown, and the next one starts with less."""
    lay_out(tmp_path, "0::/\n", {"memory.max": str(32 * 2**20)})

    class Limited(Exporter):
        program = ("-c", LIMITED, str(tmp_path))

    with FakeCluster(topics=2, partitions=2) as cluster:
        clusters = [{"name": "east", "kafka": {"bootstrap.servers": cluster.bootstrap}}]
        settings = {"TOPIC_LIVENESS_CLUSTERS": json.dumps(clusters), "TOPIC_LIVENESS_METRICS__GRANULARITY": "topic"}
        with Limited(tmp_path, **settings) as exporter:

            def held() -> float:
                return exporter.value("topic_liveness_client_resident_memory_bytes", kafka_cluster="east") or 0.0

            until(lambda: polls(exporter, "east") >= 8 and held() > 0, "its memory is known")
            settled = held()
            assert settled > 8 * 2**20
            assert set(restarts(exporter, "east").values()) == {0.0}
            for number in range(30):
                cluster.command("create", f"more-{number}", 1000)
            until(lambda: restarts(exporter, "east")["memory"] == 1, "it is replaced")
            assert "MiB more than after its first calls; a new one starts" in exporter.log.read_text()
            before = polls(exporter, "east")
            until(lambda: polls(exporter, "east") >= before + 2, "good polls by a new process")
            assert held() > settled
            assert restarts(exporter, "east") == {"ended": 0.0, "hung": 0.0, "memory": 1.0, "failing": 0.0}
            poll_counts = [each for each in exporter.samples() if each.name == "topic_liveness_polls_total"]
            assert {each.labels["outcome"] for each in poll_counts if each.value} == {"ok"}


def test_a_client_that_stays_blind_after_an_outage_is_replaced(tmp_path: Path) -> None:
    """It would connect again in an hour only; within six failed polls another one sees the cluster."""
    with FakeCluster(topics=1, partitions=2, brokers=1) as cluster:
        port = int(cluster.bootstrap.rpartition(":")[2])
        kafka = {
            "bootstrap.servers": cluster.bootstrap,
            "reconnect.backoff.ms": 3_600_000,
            "reconnect.backoff.max.ms": 3_600_000,
        }
        exporter = Exporter(tmp_path, TOPIC_LIVENESS_CLUSTERS=json.dumps([{"name": "east", "kafka": kafka}]))
        until(lambda: polls(exporter, "east") >= 1, "a good poll")
    with exporter:
        until(lambda: restarts(exporter, "east")["failing"] >= 1, "a restart while the cluster is away", seconds=120)
        with FakeCluster(topics=1, partitions=2, brokers=1, port=port):
            before = polls(exporter, "east")
            until(lambda: polls(exporter, "east") >= before + 2, "good polls", seconds=180)
            assert exporter.value("topic_liveness_cluster_up", kafka_cluster="east") == 1

"""Outages of a cluster under `serve`: librdkafka now and then ends its process, or never connects again."""

from __future__ import annotations

import json
from pathlib import Path

from exporter.kafka.process import Restart
from tests.bench.outage import survive
from tests.fake_cluster import FakeCluster
from tests.integration.serving import Exporter
from tests.waiting import until


def test_an_exporter_outlives_outages_and_kills_of_its_client(kafka_jars: Path, tmp_path: Path) -> None:
    """Killed, and frozen for 21 s: after each outage it shows every series again, and no verdict is false.

    An outage does not always make librdkafka abort: a kill of the client surely ends it.
    """
    survived = survive(kafka_jars, tmp_path, outages=2, kills=1, exporters=1)
    assert (survived.disturbances, survived.whole_after, survived.false_verdicts) == (3, 3, 0)
    assert set(survived.polls) <= {"ok", "cluster-unreachable", "client-failed"}
    assert survived.restarts[Restart.ENDED] >= 1
    assert set(survived.restarts) <= {Restart.ENDED, Restart.FAILING, Restart.HUNG}


def test_a_client_that_stays_blind_after_an_outage_is_replaced(tmp_path: Path) -> None:
    """It would connect again in an hour only; within six failed polls another one sees the cluster."""
    with FakeCluster(topics=1, partitions=2, brokers=1) as cluster:
        port = int(cluster.bootstrap.rpartition(":")[2])
        backoff = dict.fromkeys(("reconnect.backoff.ms", "reconnect.backoff.max.ms"), 3_600_000)
        kafka = {"bootstrap.servers": cluster.bootstrap, **backoff}
        exporter = Exporter(tmp_path, TOPIC_LIVENESS_CLUSTERS=json.dumps([{"name": "east", "kafka": kafka}]))

        def polls() -> float:
            return exporter.value("topic_liveness_polls_total", outcome="ok") or 0.0

        until(lambda: polls() >= 1, "a good poll")
    with exporter:
        restarts = "topic_liveness_client_restarts_total"
        until(lambda: (exporter.value(restarts, reason=Restart.FAILING) or 0) >= 1, "a restart meanwhile", 120)
        with FakeCluster(topics=1, partitions=2, brokers=1, port=port):
            before = polls()
            until(lambda: polls() >= before + 2, "good polls", 180)
            assert exporter.value("topic_liveness_cluster_up", kafka_cluster="east") == 1

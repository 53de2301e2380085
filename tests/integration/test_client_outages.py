"""Outages of a cluster under `serve`: librdkafka now and then ends its process, or never connects again."""

import json
import os
import signal
import time
from pathlib import Path

from exporter.kafka.process import Restart
from tests.bench.outage import survive
from tests.demo.broker import Broker
from tests.fake_cluster import FakeCluster
from tests.integration.serving import Exporter, rows_of
from tests.waiting import until
from tests.workbench import Workbench


def test_an_exporter_outlives_outages_and_kills_of_its_client(kafka_jars: Path, tmp_path: Path) -> None:
    """Killed, and frozen for 21 s: after each outage it shows every series again, and no verdict is false.

    An outage does not always make librdkafka abort: a kill of the client surely ends it.
    """
    survived = survive(kafka_jars, tmp_path, outages=2, kills=1, exporters=1)
    assert (survived.disturbances, survived.whole_after, survived.false_verdicts) == (3, 3, 0)
    assert set(survived.polls) <= {"ok", "cluster-unreachable", "client-failed"}
    assert survived.restarts[Restart.ENDED] >= 1
    assert set(survived.restarts) <= {Restart.ENDED, Restart.FAILING, Restart.HUNG}


def test_a_client_that_ends_or_hangs_changes_no_silence_window_or_scrape(
    broker: Broker, workbench: Workbench, tmp_path: Path
) -> None:
    rests, moves = (f"{name}-{time.time_ns()}" for name in ("rests", "moves"))
    for topic in (rests, moves):
        workbench.create(topic)
        workbench.write([(topic, 0, time.time())])
    with FakeCluster(topics=2, partitions=2) as fake:
        pair = {"east": broker.bootstrap, "west": fake.bootstrap}
        clusters = [{"name": name, "kafka": {"bootstrap.servers": at}} for name, at in pair.items()]
        with Exporter(
            tmp_path,
            TOPIC_LIVENESS_CLUSTERS=json.dumps(clusters),
            TOPIC_LIVENESS_HISTORY__WINDOW="1m",
            TOPIC_LIVENESS_GROUPS__ENABLED="false",
        ) as exporter:

            def await_polls(cluster: str) -> None:
                wanted = exporter.count("polls", kafka_cluster=cluster, outcome="ok") + 2
                until(
                    lambda: exporter.count("polls", kafka_cluster=cluster, outcome="ok") >= wanted,
                    f"polls of {cluster}",
                    120,
                )

            def last_advance() -> float | None:
                return exporter.value("kafka_topic_last_advance_timestamp_seconds", topic=rests)

            for cluster in pair:
                await_polls(cluster)
            workbench.write([(topic, 0, time.time()) for topic in (rests, moves)])
            until(lambda: last_advance() is not None, "the advance is seen")
            advance = last_advance()
            _, of_west = exporter.clients()
            for number, kill in enumerate((signal.SIGABRT, signal.SIGKILL), start=1):
                os.kill(next(each for each in exporter.clients() if each != of_west), kill)
                workbench.write([(moves, 0, time.time())])
                ended = {"kafka_cluster": "east", "reason": Restart.ENDED}
                until(lambda: exporter.count("client_restarts", **ended) == number, "the end is counted")  # noqa: B023
                await_polls("east")
                assert last_advance() == advance
            os.kill(of_west, signal.SIGSTOP)
            until(
                lambda: exporter.count("client_restarts", kafka_cluster="west", reason=Restart.HUNG) == 1,
                "it hangs",
                120,
            )
            await_polls("west")
            for cluster in pair:
                assert exporter.value("kafka_brokers", kafka_cluster=cluster)
            failed = [one for one in exporter.samples("topic_liveness_polls_total") if one.labels["outcome"] != "ok"]
            assert {one.labels["kafka_cluster"] for one in failed if one.value} <= {"west"}
            assert exporter.count("client_restarts", kafka_cluster="west", reason=Restart.ENDED) == 0
            assert exporter.end() == 0
    windows = [row for row in rows_of(exporter.history, "windows") if row["topic"] in (rests, moves)]
    assert sum(row["records"] for row in windows if row["topic"] == rests) == 1
    assert sum(row["records"] for row in windows if row["topic"] == moves) == 3
    assert {(row["offset_regressions"], row["reason"]) for row in windows} == {(0, None)}


def test_a_client_that_stays_blind_after_an_outage_is_replaced(tmp_path: Path) -> None:
    """It would connect again in an hour only; within six failed polls another one sees the cluster."""
    with FakeCluster(topics=1, partitions=2, brokers=1) as cluster:
        port = int(cluster.bootstrap.rpartition(":")[2])
        backoff = dict.fromkeys(("reconnect.backoff.ms", "reconnect.backoff.max.ms"), 3_600_000)
        kafka = {"bootstrap.servers": cluster.bootstrap, **backoff}
        exporter = Exporter(tmp_path, TOPIC_LIVENESS_CLUSTERS=json.dumps([{"name": "east", "kafka": kafka}]))

        until(lambda: exporter.count("polls", outcome="ok") >= 1, "a good poll")
    with exporter:
        until(lambda: exporter.count("client_restarts", reason=Restart.FAILING) >= 1, "a restart meanwhile", 120)
        with FakeCluster(topics=1, partitions=2, brokers=1, port=port):
            before = exporter.count("polls", outcome="ok")
            until(lambda: exporter.count("polls", outcome="ok") >= before + 2, "good polls", 180)
            assert exporter.value("topic_liveness_cluster_up", kafka_cluster="east") == 1

"""`serve` while the processes with its Kafka clients end, hang, grow, or stay blind."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path

import httpx
import pytest

from tests.demo.broker import Broker
from tests.fake_cluster import FakeCluster
from tests.integration.serving import Exporter, rows_of
from tests.plain_http import NO_TLS
from tests.waiting import until
from tests.workbench import Workbench

ADVANCE = "kafka_topic_last_advance_timestamp_seconds"
SILENCE = "kafka_topic_silence_seconds"


def clusters_of(**bootstraps: str) -> str:
    """The settings of clusters by their names."""
    return json.dumps([{"name": name, "kafka": {"bootstrap.servers": at}} for name, at in bootstraps.items()])


def polls(exporter: Exporter, cluster: str, outcome: str = "ok") -> float:
    """How many polls of a cluster ended so."""
    return exporter.value("topic_liveness_polls_total", kafka_cluster=cluster, outcome=outcome) or 0.0


def restarts(exporter: Exporter, cluster: str) -> dict[str, float]:
    """How often processes of a cluster were replaced, by reason."""
    return {
        sample.labels["reason"]: sample.value
        for sample in exporter.samples("topic_liveness_client_restarts_total")
        if sample.labels["kafka_cluster"] == cluster
    }


class Scraping(threading.Thread):
    """Scrapes every 100 ms until asked to end; a scrape that fails or lacks the topic's series is kept."""

    def __init__(self, exporter: Exporter, wanted: str) -> None:
        super().__init__(daemon=True)
        self._address = f"http://127.0.0.1:{exporter.port}/metrics"
        self._wanted = wanted
        self._over = threading.Event()
        self.scrapes = 0
        self.bad: list[str] = []

    def run(self) -> None:
        with httpx.Client(timeout=30, verify=NO_TLS) as client:
            while not self._over.wait(0.1):
                page = client.get(self._address)
                self.scrapes += 1
                if page.status_code != httpx.codes.OK or self._wanted not in page.text:
                    self.bad.append(f"{page.status_code}: {page.text[:200]}")

    def end(self) -> None:
        self._over.set()
        self.join()


def test_a_client_that_ends_or_hangs_changes_no_silence_window_or_scrape(
    broker: Broker, workbench: Workbench, tmp_path: Path
) -> None:
    """A call under way is made again, and what was written meanwhile is found.

    Restarts are counted by reason, and the other cluster misses nothing.
    """
    rests, moves = (f"{name}-{time.time_ns()}" for name in ("rests", "moves"))
    for topic in (rests, moves):
        workbench.create(topic)
        workbench.write([(topic, 0, time.time())])
    nothing = dict.fromkeys(("ended", "hung", "memory", "failing"), 0.0)
    with FakeCluster(topics=2, partitions=2) as fake:
        environment = {
            "TOPIC_LIVENESS_CLUSTERS": clusters_of(east=broker.bootstrap, west=fake.bootstrap),
            "TOPIC_LIVENESS_HISTORY__WINDOW": "1m",
            "TOPIC_LIVENESS_GROUPS__ENABLED": "false",
        }
        with Exporter(tmp_path, **environment) as exporter:

            def value(name: str) -> float | None:
                return exporter.value(name, topic=rests)

            def good_polls(cluster: str) -> None:
                wanted = polls(exporter, cluster) + 2
                until(lambda: polls(exporter, cluster) >= wanted, f"good polls of {cluster}", 120)

            for cluster in ("east", "west"):
                good_polls(cluster)
                assert restarts(exporter, cluster) == nothing
            workbench.write([(topic, 0, time.time()) for topic in (rests, moves)])
            until(lambda: value(ADVANCE) is not None, "the advance is seen")
            advance = value(ADVANCE)
            assert advance is not None
            scraping = Scraping(exporter, f'{SILENCE}{{kafka_cluster="east",topic="{rests}"')
            scraping.start()
            _, stopped = exporter.clients()
            for count, kill in enumerate((signal.SIGABRT, signal.SIGKILL), start=1):
                os.kill(next(each for each in exporter.clients() if each != stopped), kill)
                workbench.write([(moves, 0, time.time())])
                until(lambda: restarts(exporter, "east")["ended"] == count, "the end is counted")  # noqa: B023
                good_polls("east")
                assert value(ADVANCE) == advance
                silence, now = value(SILENCE), time.time()
                assert silence is not None
                assert now - advance - 10 < silence < now - advance + 10
            assert (restarts(exporter, "east"), restarts(exporter, "west")) == (nothing | {"ended": 2.0}, nothing)
            failures = ("client-failed", "cluster-unreachable", "other-error")
            assert [reason for reason in failures if polls(exporter, "west", reason)] == []
            os.kill(stopped, signal.SIGSTOP)
            until(lambda: restarts(exporter, "west").get("hung") == 1, "it is found to hang", seconds=120)
            good_polls("west")
            scraping.end()
            assert scraping.scrapes > 50
            assert scraping.bad == []
            assert not Path(f"/proc/{stopped}").exists()
            assert [each for each in exporter.samples("kafka_topic") if each.labels.get("verdict") == "dead"] == []
            assert exporter.end() == 0
    assert_in_history(exporter.history, rests, moves, advance)


def assert_in_history(history: Path, rests: str, moves: str, advance: float) -> None:
    """Each record of both topics is in one window, and no poll that was missed is taken for a silence."""
    windows = sorted(rows_of(history, "windows"), key=lambda row: row["window_start"])
    [rested] = [row for row in windows if row["topic"] == rests]
    assert rested["records"] == 1
    assert rested["last_advance"].timestamp() == pytest.approx(advance, abs=1e-5)
    moved = [row for row in windows if row["topic"] == moves]
    assert sum(row["records"] for row in moved) == 3
    assert (moved[0]["start_offset"], moved[-1]["end_offset"]) == (1, 4)
    assert {(row["offset_regressions"], row["reason"]) for row in (rested, *moved)} == {(0, None)}


LIMITED = """
from exporter.kafka import process
process.GROWTH_BYTES = 8 * 2**20
from exporter.__main__ import main
main()
"""
"""The command, with processes that may grow by less."""


def test_a_client_that_grows_too_much_is_replaced(tmp_path: Path) -> None:
    """No poll is missed for it. What each process holds is shown, and the next one starts with less."""

    class Limited(Exporter):
        program = ("-c", LIMITED)

    with FakeCluster(topics=2, partitions=2) as cluster:
        clusters = clusters_of(east=cluster.bootstrap)
        settings = {"TOPIC_LIVENESS_CLUSTERS": clusters, "TOPIC_LIVENESS_METRICS__GRANULARITY": "topic"}
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
            poll_counts = exporter.samples("topic_liveness_polls_total")
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

"""A running exporter whose configuration changes: what is taken over, what is kept, and what is refused."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest
from prometheus_client.parser import text_string_to_metric_families

from exporter.collectors.producers_log_sizes import Inspector
from exporter.demo.broker import Broker, free_port
from exporter.history import History
from exporter.memory import MemoryTrimmer
from exporter.service import Service, serving
from exporter.service.scheduling import Scheduler
from exporter.settings import Settings
from tests.integration.serving import Exporter, until
from tests.plain_http import NO_TLS, get
from tests.workbench import Workbench

SUCCESS = "topic_liveness_config_last_reload_successful"


class Configured(Exporter):
    """An exporter with a configuration file that the test rewrites."""

    config: Path

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.config = folder / "config.yaml"
        self.settings: dict[str, Any] = {
            "clusters": [
                {"name": "prod", "kafka": {"bootstrap.servers": bootstrap}, "topics": {"include": ["reload-.*"]}}
            ],
            "history": {"window": "1m"},
        }
        self.write()
        super().__init__(folder)

    def write(self, **settings: Any) -> None:
        """Write the configuration with these settings."""
        self.settings |= settings
        self.config.write_text(json.dumps(self.settings))

    def ask(self) -> httpx.Response:
        return httpx.post(f"http://127.0.0.1:{self.port}/-/reload", timeout=60, verify=NO_TLS)


@pytest.fixture(scope="module")
def bench(broker: Broker) -> Workbench:
    """The shared broker, with a topic for these tests."""
    made = Workbench(broker.bootstrap)
    made.create("reload-a")
    return made


def test_other_settings_are_taken_over_without_losing_silences_windows_or_the_scrape(
    broker: Broker, bench: Workbench, tmp_path: Path
) -> None:
    """The last advance and the open window go on, new rules judge, and no scrape in between misses the series."""
    with Configured(tmp_path, broker.bootstrap) as exporter:
        topic = {"topic": "reload-a", "partition": "0"}
        until(lambda: exporter.value("kafka_topic_partition_current_offset", **topic) is not None, "the first poll")
        bench.write([("reload-a", 0, time.time())])
        name = "kafka_topic_partition_last_advance_timestamp_seconds"
        until(lambda: exporter.value(name, **topic) is not None, "an advance that was seen")
        advanced = exporter.value(name, **topic)
        exporter.write(
            poll={"chunk_size": 100},
            owners=[{"topics": "reload-a", "owner": "team-a"}],
            overrides=[{"topics": "reload-a", "max_silence": "8h"}],
            metrics={"partition": ["current_offset", "last_advance_timestamp", "silence"]},
        )
        exporter.process.send_signal(signal.SIGHUP)
        seen = []

        def owned() -> bool:
            seen.append(exporter.value("kafka_topic_partition_current_offset", **topic))
            return exporter.value("kafka_topic_info", topic="reload-a", owner="team-a") == 1.0

        until(owned, "the new owner in a scrape")
        assert None not in seen, "each scrape had the series"
        assert exporter.value(name, **topic) == advanced
        assert exporter.value("kafka_topic_partition_silence_seconds", **topic) is not None
        assert exporter.value("kafka_topic_verdict", topic="reload-a", verdict="live") == 1
        until(lambda: exporter.value(SUCCESS) == 1, "the success in the metrics")
        assert exporter.end() == 0
        windows = [
            row
            for file in sorted((exporter.history / "spool" / "windows").glob("*.parquet"))
            for row in pq.read_table(file).to_pylist()
            if row["topic"] == "reload-a"
        ]
        assert sum(row["records"] for row in windows) == 1, "the advance before the reload was written"


def test_what_cannot_be_used_changes_nothing_and_says_so(broker: Broker, bench: Workbench, tmp_path: Path) -> None:
    """A bad setting, one that needs a restart, a bad web configuration file: 500 with the reason, metric and log."""
    assert bench is not None
    with Configured(tmp_path, broker.bootstrap) as exporter:
        topic = {"topic": "reload-a", "partition": "0"}
        until(lambda: exporter.value("kafka_topic_partition_current_offset", **topic) is not None, "the first poll")
        good = exporter.value("topic_liveness_config_last_reload_success_timestamp_seconds")
        (tmp_path / "web.yml").write_text("basic_auth_users: {alice: secret}")
        for bad, problem in (
            ({"poll": {"chunk_size": 0}}, "poll.chunk_size"),
            ({"poll": {}, "exporter": "another"}, "exporter cannot change while the exporter runs: restart it"),
            ({"exporter": None, "web": {"config_file": str(tmp_path / "web.yml")}}, "must be a bcrypt hash"),
        ):
            exporter.write(**bad)
            exporter.settings = {name: value for name, value in exporter.settings.items() if value is not None}
            exporter.write()
            answer = exporter.ask()
            assert answer.status_code == 500 and problem in answer.text and "secret" not in answer.text
            until(lambda: exporter.value(SUCCESS) == 0, "the refusal in the metrics")
            assert exporter.value("kafka_topic_partition_current_offset", **topic) is not None
        assert exporter.value("topic_liveness_config_last_reload_success_timestamp_seconds") == good
        assert exporter.log.read_text().count("the configuration stays as it was: ") == 3
        del exporter.settings["web"]
        exporter.write()
        assert exporter.ask().status_code == 200
        until(lambda: exporter.value(SUCCESS) == 1, "the success in the metrics")
        assert get(f"http://127.0.0.1:{exporter.port}/-/reload").status_code == 405
        assert exporter.end() == 0


def test_clusters_come_and_go(broker: Broker, bench: Workbench, tmp_path: Path) -> None:
    """A new cluster is polled, one that is taken out leaves no series, and the one that stays keeps its connections."""
    assert bench is not None
    with Configured(tmp_path, broker.bootstrap) as exporter:
        [prod] = exporter.settings["clusters"]
        name = "kafka_topic_partition_current_offset"
        until(lambda: exporter.value(name, kafka_cluster="prod") is not None, "the first poll")
        exporter.write(clusters=[prod, {**prod, "name": "second"}, _nowhere("third")])
        assert exporter.ask().status_code == 200
        until(lambda: exporter.value(name, kafka_cluster="second") is not None, "a poll of the new cluster")
        exporter.write(clusters=[{**prod, "name": "second"}])
        assert exporter.ask().status_code == 200
        left = {sample.labels.get("kafka_cluster") for sample in exporter.samples()}
        assert left == {None, "second"}
        assert exporter.end() == 0
        assert "Traceback" not in exporter.log.read_text()


def test_a_reload_that_waits_for_a_hung_poll_does_not_hold_up_the_end(
    broker: Broker, bench: Workbench, tmp_path: Path
) -> None:
    """SIGTERM in the middle of it gives the poll the time that it has at any other end, and no more."""
    assert bench is not None
    with Configured(tmp_path, broker.bootstrap) as exporter:
        [prod] = exporter.settings["clusters"]
        until(lambda: exporter.value("kafka_topic_partition_current_offset") is not None, "the first poll")
        for client in exporter.clients():
            os.kill(client, signal.SIGSTOP)
        time.sleep(6)  # the next poll begins within 5 s
        exporter.write(clusters=[{**prod, "topics": {}}])
        exporter.process.send_signal(signal.SIGHUP)
        time.sleep(1)
        begun = time.monotonic()
        assert exporter.end() == 0
        assert time.monotonic() - begun < 8, "the reload alone waits for 14 s"


def in_process(broker: Broker, folder: Path, *names: str, **more: Any) -> dict[str, Any]:
    """The settings of a service in this process, which polls the shared broker under these names."""
    kafka, topics = {"bootstrap.servers": broker.bootstrap}, {"include": ["reload-.*"]}
    clusters = [{"name": name, "kafka": kafka, "topics": topics} for name in names]
    return {"clusters": clusters, "history": {"folder": str(folder)}, "web": {"listen": "127.0.0.1:0"}, **more}


@pytest.mark.parametrize(
    ("name", "owner", "end"), [("poll", MemoryTrimmer, "after_a_poll"), ("inspection", Inspector, "inspect")]
)
def test_a_job_that_ends_after_its_cluster_was_taken_out_brings_no_series_back(
    broker: Broker, bench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, owner: type, end: str
) -> None:
    """What a poll, or an inspection, found last is shown to nobody."""
    found, reloaded, over = threading.Event(), threading.Event(), threading.Event()
    run, every = getattr(owner, end), Scheduler.every

    def late(*given: Any) -> Any:
        result = run(*given)
        found.set()
        assert reloaded.wait(60)
        return result

    def watched_every(self: Scheduler, seconds: float, job: str, work: Callable[[], bool | None]) -> None:
        def whole() -> bool | None:
            done = work()
            if job == f"{name} of leaves" and reloaded.is_set():
                over.set()
            return done

        every(self, seconds, job, whole)

    monkeypatch.setattr(owner, end, late)
    monkeypatch.setattr(Scheduler, "every", watched_every)
    settings = in_process(
        broker,
        tmp_path,
        "leaves",
        inspection={"log_sizes": True},
        poll={"request_timeout": "1s"},
    )
    others = settings | {"clusters": [_nowhere("other")]}
    service = Service(Settings.model_validate(settings), lambda: Settings.model_validate(others))
    service.start()
    try:
        assert found.wait(60)
        bench.until(lambda: 'polls_total{kafka_cluster="leaves"' in service.monitor.metrics().decode(), 60)
        assert service.reload() is None
        reloaded.set()
        assert over.wait(60)
    finally:
        reloaded.set()
        service.stop()
    assert 'kafka_cluster="leaves"' not in service.monitor.metrics().decode()


def test_a_reload_that_fails_on_the_way_ends_nothing_and_the_next_one_takes_over(
    broker: Broker, bench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is raised: the exporter goes on and says so, and no cluster is left without polls."""
    settings = in_process(
        broker,
        tmp_path,
        "one",
        "two",
        groups={"enabled": False},
        poll={"interval": "5s"},
    )
    read = [settings]

    def configured() -> Settings:
        if not read:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return Settings.model_validate(read[-1])

    def value(name: str, **labels: str) -> float | None:
        families = text_string_to_metric_families(service.monitor.metrics().decode())
        found = (one.value for family in families for one in family.samples if (one.name, one.labels) == (name, labels))
        return next(found, None)

    def polls(cluster: str) -> float:
        return value("topic_liveness_polls_total", kafka_cluster=cluster, outcome="ok") or 0.0

    def goes_on(cluster: str, since: float) -> None:
        bench.until(lambda: polls(cluster) > since, 60)

    service = Service(configured(), configured)
    service.start()
    try:
        goes_on("one", 0)
        goes_on("two", 0)
        del read[:]
        problem = service.reload()
        assert problem is not None and "BlockingIOError" in problem
        bench.until(lambda: value(SUCCESS) == 0, 10)
        goes_on("one", polls("one"))
        read.append(settings | {"poll": {"interval": "5s", "chunk_size": 10}})
        with monkeypatch.context() as failing:
            failing.setattr(serving, "build_cluster", failed)
            problem = service.reload()
        assert problem is not None and "only a part is in force" in problem and "Reload again" in problem
        bench.until(lambda: value(SUCCESS) == 0, 10)
        assert service.reload() is None
        bench.until(lambda: value(SUCCESS) == 1, 10)
        for cluster in ("one", "two"):
            goes_on(cluster, polls(cluster))
    finally:
        service.stop()


def test_what_is_observed_no_more_leaves_metrics_and_history(
    broker: Broker, bench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups and pairs that a reload takes out have no series, and are not written again as if they were known."""
    assert bench is not None
    settings = in_process(
        broker,
        tmp_path,
        "here",
        "there",
        groups={"interval": "5s"},
        replicas=[{"source": "here", "target": "there", "policy": "identity", "interval": "1s"}],
        poll={"interval": "5s"},
    )
    without = {**settings, "groups": {"enabled": False}, "replicas": []}
    forgotten: dict[str, list[object]] = {"readers": [], "copies": []}
    forget, keep = History.forget_readers, History.keep_copies

    def forget_recorded(history: History) -> None:
        forgotten["readers"].append(history)
        forget(history)

    def keep_recorded(history: History, sources: Collection[str]) -> None:
        forgotten["copies"].append(frozenset(sources))
        keep(history, sources)

    monkeypatch.setattr(History, "forget_readers", forget_recorded)
    monkeypatch.setattr(History, "keep_copies", keep_recorded)
    names = ("replica_last_comparison_timestamp_seconds", "replica_topics{", "group_last_sweep_timestamp_seconds{")

    def shown() -> set[str]:
        text = service.monitor.metrics().decode()
        return {name for name in names if f"\ntopic_liveness_{name}" in text}

    service = Service(Settings.model_validate(settings), lambda: Settings.model_validate(without))
    service.start()
    try:
        until(lambda: shown() == set(names), "comparisons and sweeps")
        until(lambda: {"here"} in forgotten["copies"], "a poll after a comparison")
        forgotten["readers"].clear()
        forgotten["copies"].clear()
        assert service.reload() is None
        until(lambda: shown() == set(), "no series of them")
        until(lambda: len(forgotten["readers"]) >= 2, "a poll of each cluster")
        assert set(forgotten["copies"]) == {frozenset()}
    finally:
        service.stop()


def failed(*_: Any, **__: Any) -> None:
    """As where the host gives no more processes."""
    raise BlockingIOError(11, "Resource temporarily unavailable")


def test_history_that_could_not_be_written_is_not_lost_with_other_intervals(
    broker: Broker, bench: Workbench, tmp_path: Path
) -> None:
    """It waits on in memory and is written once the folder is back."""
    assert bench is not None
    spool, moved = tmp_path / "spool", tmp_path / "moved"
    settings = in_process(
        broker,
        tmp_path,
        "prod",
        groups={"enabled": False},
        poll={"interval": "5s"},
    )
    faster = settings | {"history": {"folder": str(tmp_path), "window": "10s"}}
    service = Service(Settings.model_validate(settings), lambda: Settings.model_validate(faster))
    spool.rename(moved)
    spool.write_text("")
    service.start()
    try:
        failed_once = re.compile(r"^topic_liveness_history_write_failures_total\{.*\} [1-9]", re.MULTILINE)
        until(lambda: failed_once.search(service.monitor.metrics().decode()) is not None, "a write that failed")
        assert service.reload() is None
        reloaded = time.time()
        spool.unlink()
        moved.rename(spool)

        def observed() -> list[float]:
            files = sorted((spool / "inventory").glob("*.parquet"))
            return [row["observed_at"].timestamp() for file in files for row in pq.read_table(file).to_pylist()]

        until(lambda: any(at < reloaded for at in observed()), "what was listed before")
    finally:
        service.stop()


def _nowhere(name: str) -> dict[str, Any]:
    return {"name": name, "kafka": {"bootstrap.servers": f"127.0.0.1:{free_port()}"}}


def test_a_web_configuration_that_turns_bad_is_reported_until_it_is_mended(tmp_path: Path) -> None:
    """The file before it stays in force, a metric is 0 from the next scrape on, and 1 again once it can be used."""
    web, name = tmp_path / "web.yml", "topic_liveness_web_config_last_reload_successful"
    web.write_text("http_server_config: {headers: {X-Frame-Options: deny}}")
    environment = {"TOPIC_LIVENESS_WEB__CONFIG_FILE": str(web)}
    with Exporter(tmp_path, f"127.0.0.1:{free_port()}", **environment) as exporter:
        until(lambda: exporter.value(name) == 1, "the first scrape")
        web.write_text("basic_auth_users: {alice: secret}")
        until(lambda: exporter.value(name) == 0, "the refusal in the metrics")
        assert exporter.page("/metrics").headers["x-frame-options"] == "deny"
        assert exporter.value(SUCCESS) == 1, "it is not the exporter's own configuration"
        web.write_text("http_server_config: {headers: {X-Frame-Options: sameorigin}}")
        until(lambda: exporter.value(name) == 1, "the fixed file in the metrics")
        assert exporter.page("/metrics").headers["x-frame-options"] == "sameorigin"
        assert exporter.end() == 0

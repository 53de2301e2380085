"""Replicas of a real MirrorMaker 2 between two real brokers: started, stopped, started again."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import NewPartitions

from exporter.clock import SystemClock
from exporter.collectors.poller import Poller
from exporter.domain.polls.readings import PollFailure
from exporter.domain.replicas.comparison import Comparison, NotCompared, ReplicaState
from exporter.factory.clusters import make_replica_watches
from exporter.factory.sources import make_poll_source
from exporter.history.relations import copies_of
from exporter.settings.schema import Settings
from tests.demo.broker import Broker, java_properties, resolve_kafka
from tests.demo.jars import MIRROR
from tests.demo.lifeline import Lifeline
from tests.grafana import TARGETS
from tests.integration.kafka_tools import small_java
from tests.integration.serving import Exporter
from tests.prometheus import Ask, scraping
from tests.unit.readings import Replica, ReplicaReading, replica_readings
from tests.waiting import until
from tests.workbench import EVERLASTING, Workbench

NOW = float(round(time.time()))
YEAR_AGO = NOW - 365 * 86_400
RISING, TIES, OLD = "copied-rising", "copied-ties", "copied-old"
STAMPED, MORE = "copied-stamped", "copied-more"
TOPICS = {RISING: 2, TIES: 1, OLD: 1, STAMPED: 1, MORE: 1}


ONE = ("replication.factor", "checkpoints.topic.replication.factor", "heartbeats.topic.replication.factor")
STORED = ("offset", "status", "config")


class MirrorMaker:
    """MirrorMaker 2 as its own process, from ``east`` to ``west``; copies topics whose names begin with ``copied-``."""

    def __init__(self, folder: Path, *jars: Path, east: str, west: str) -> None:
        """``jars`` are the folders with those of the broker and of MirrorMaker."""
        self._folder = folder
        self._jars = jars
        self._west = west
        self._process: Lifeline | None = None
        self.log = folder / "mirror.log"
        properties = {
            "clusters": "east, west",
            "east.bootstrap.servers": east,
            "west.bootstrap.servers": west,
            "east->west.enabled": "true",
            "east->west.topics": "copied-.*",
            # The source is shared with other tests: nothing of the mirror's own is kept there.
            "offset-syncs.topic.location": "target",
            "emit.checkpoints.enabled": "false",
            "emit.heartbeats.interval.seconds": "1",
            "refresh.topics.interval.seconds": "1",
            "offset.flush.interval.ms": "500",
            "tasks.max": "1",
            # Scanning each class of the class path for plug-ins takes half of a start.
            "plugin.discovery": "service_load",
            "offset-syncs.topic.replication.factor": "1",
            **dict.fromkeys(ONE, "1"),
            **{f"{name}.storage.replication.factor": "1" for name in STORED},
            **{f"{name}.storage.partitions": "1" for name in STORED[:2]},
        }
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "mm2.properties").write_text(java_properties(properties), encoding="ascii")
        (folder / "log4j2.properties").write_text(
            "appender.console.type=Console\nappender.console.name=console\nrootLogger.level=warn\n"
            "rootLogger.appenderRef.console.ref=console\n"
        )

    def start(self) -> None:
        """Start it; what it copies comes when it is ready, which takes some seconds."""
        command = [*small_java("256m", *self._jars), "org.apache.kafka.connect.mirror.MirrorMaker"]
        command[1:1] = [f"-Dlog4j2.configurationFile={self._folder / 'log4j2.properties'}"]
        command += [str(self._folder / "mm2.properties")]
        self._process = Lifeline([*command, "--clusters", "west"], output=self.log, cwd=self._folder)

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None


class PairTest:
    """Two clusters ``east`` and ``west`` as the exporter polls and compares them; the test says when."""

    def __init__(self, east: str, west: str, **pair: object) -> None:
        """``pair`` is what ``replicas`` holds beside source and target."""
        clusters = [
            {"name": name, "kafka": {"bootstrap.servers": at}, "topics": {"include": [r"(east\.)?copied-.*"]}}
            for name, at in (("east", east), ("west", west))
        ]
        settings = Settings.model_validate(
            {"clusters": clusters, "replicas": [{"source": "east", "target": "west", **pair}]}
        )
        self._found: list[Comparison] = []
        watches = make_replica_watches(settings, SystemClock(), self._found.append)
        self._pollers = [
            Poller(cluster.name, make_poll_source(cluster, settings), watches, SystemClock())
            for cluster in settings.clusters
        ]

    def until(self, true: Callable[[Comparison], bool], seconds: float = 120.0) -> Comparison:
        """Compare until something is so, and return that comparison."""

        def compared() -> bool:
            outcomes = [poller.poll() for poller in self._pollers]
            assert not [outcome for outcome in outcomes if isinstance(outcome, PollFailure)], outcomes
            return true(self._found[-1])

        until(compared, "the comparison", seconds)
        return self._found[-1]


def copy(topic: str, partition: int = 0) -> Replica:
    """A partition of a topic and of its replica, as MirrorMaker names it by default."""
    return Replica(topic, f"east.{topic}", partition)


@pytest.fixture(scope="module")
def west(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The cluster of the replicas; the shared broker is that of their sources."""
    with Broker(tmp_path_factory.mktemp("west"), jars=kafka_jars, heap="256m") as running:
        yield running


@pytest.fixture(scope="module")
def topics(workbench: Workbench, west: Broker) -> Iterator[Workbench]:
    """Topics with records, made on the shared broker and taken away again; two of the replicas are there already."""
    for topic, partitions in TOPICS.items():
        workbench.create(topic, partitions)
    there = Workbench(west.bootstrap)
    there.create(f"east.{STAMPED}", 1, {**EVERLASTING, "message.timestamp.type": "LogAppendTime"})
    there.create(f"east.{MORE}", 3)
    hour = [NOW - 3600 + 60 * number for number in range(50)]
    workbench.write([(topic, 0, at) for topic in (RISING, STAMPED, MORE) for at in hour])
    workbench.write([(RISING, 1, at) for at in hour[:10]])
    workbench.write([(TIES, 0, at) for at in (*hour, *[hour[-1] + 1] * 4)])
    workbench.write([(OLD, 0, YEAR_AGO + number) for number in range(20)])
    yield workbench
    for topic in TOPICS:
        workbench.delete(topic)


@pytest.fixture(scope="module")
def mirror(
    topics: Workbench, west: Broker, kafka_jars: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MirrorMaker]:
    jars = resolve_kafka(cache=cache, progress=print, artifact=MIRROR)
    folder = tmp_path_factory.mktemp("mirror")
    running = MirrorMaker(folder, kafka_jars, jars, east=topics.bootstrap, west=west.bootstrap)
    running.start()
    yield running
    running.stop()


def empty_panels(ask: Ask) -> list[str]:
    queries = [query for query in TARGETS if query.dashboard == "replication"]
    filled = {query.title for query in queries if ask("query", query=query.as_sent())["result"]}
    return [query.title for query in queries if query.title not in filled]


def assert_in_history_and_shown(stopped: Comparison, bootstraps: Mapping[str, str], folder: Path) -> None:
    """History keeps the worst state of a topic's partitions, ``explain`` and the dashboard say what is behind now."""
    assert replica_readings(stopped)[copy(RISING)].lag_records == 5
    assert copies_of(stopped)[f"east.{RISING}"] == (RISING, ReplicaState.STOPPED)
    both = [{"name": name, "kafka": {"bootstrap.servers": at}} for name, at in bootstraps.items()]
    environment = {
        "TOPIC_LIVENESS_CLUSTERS": json.dumps(both),
        "TOPIC_LIVENESS_REPLICAS": "[{source: east, target: west}]",
    }
    with Exporter(folder, **environment) as running:
        compared = {"state": "in-step", "source_topic": RISING, "partition": "1"}
        until(lambda: running.value("kafka_replica_state", **compared) == 1, "a comparison")
        command = [sys.executable, "-m", "exporter", "explain", f"east.{RISING}", "--url"]
        shown = subprocess.check_output([*command, f"http://127.0.0.1:{running.port}", "--cluster", "west"], text=True)
        with scraping(f"127.0.0.1:{running.port}", folder) as ask:
            until(lambda: empty_panels(ask) == [], "the board of replication is filled")
        assert running.end() == 0
    [line] = re.findall(f"replica of    east/{RISING}: (.*)", shown)
    assert re.search(r"; \d+ min[^;]* behind", line), line


def test_replication_is_followed_from_start_to_end(
    topics: Workbench, west: Broker, mirror: MirrorMaker, tmp_path: Path
) -> None:
    pair = PairTest(topics.bootstrap, west.bootstrap, behind_after=1, stopped_after=5)
    in_step = ReplicaReading(ReplicaState.IN_STEP, 0.0, 0)
    followed = [copy(RISING), copy(RISING, 1), copy(OLD), copy(MORE), copy(TIES)]
    started = pair.until(lambda seen: all(replica_readings(seen).get(one) == in_step for one in followed))
    found = replica_readings(started)
    assert found[copy(STAMPED)] == ReplicaReading(ReplicaState.UNKNOWN, reason=NotCompared.LOG_APPEND_TIME)
    # The topic whose replica has more partitions: those of one number are compared, the rest are named.
    extra = ReplicaReading(ReplicaState.UNKNOWN, reason=NotCompared.NO_PARTITION_IN_SOURCE)
    assert [found[copy(MORE, number)] for number in (1, 2)] == [extra, extra]
    assert any(f"{MORE} (1) -> east.{MORE} (3)" in fault for fault in started.faults)
    assert started.matching.replicas == {topic: f"east.{topic}" for topic in TOPICS}

    mirror.stop()
    written = time.time()
    topics.write([(RISING, 0, written - 240 + 60 * number) for number in range(5)])
    topics.write([(TIES, 0, at) for at in (NOW - 3600 + 60 * 49 + 1, NOW, NOW + 0.001, NOW + 0.001)])
    topics.write([(OLD, 0, YEAR_AGO + 20 + number) for number in range(3)])
    topics.write([(STAMPED, 0, written), (STAMPED, 0, written)])
    topics.admin.create_partitions([NewPartitions(MORE, 4)])[MORE].result(30)
    topics.await_leaders(MORE, 4)
    gone_on = pair.until(lambda seen: replica_readings(seen)[copy(RISING)].state is ReplicaState.BEHIND)
    found = replica_readings(gone_on)
    assert found[copy(RISING)].lag_records == 5
    # Since both were in step, which is less than the eleven minutes between the newest records.
    assert 1 < (found[copy(RISING)].lag_seconds or 0) < 300
    assert found[copy(RISING, 1)] == in_step
    # Records with the newest timestamp of the replica count as well.
    assert found[copy(TIES)].lag_records == 4
    # Dated back by a year: only polls say since when they are missing.
    assert (found[copy(OLD)].lag_records, (found[copy(OLD)].lag_seconds or 0) > 1) == (3, True)
    assert found[copy(MORE, 3)].reason is NotCompared.NO_PARTITION_IN_REPLICA
    stopped = pair.until(lambda seen: replica_readings(seen)[copy(RISING)].state is ReplicaState.STOPPED, 30)
    assert replica_readings(stopped)[copy(OLD)].state is ReplicaState.STOPPED
    assert replica_readings(stopped)[copy(RISING, 1)] == in_step
    assert_in_history_and_shown(stopped, {"east": topics.bootstrap, "west": west.bootstrap}, tmp_path)
    # Its brokers stamp its records, so nothing is counted; that it stands still is seen from offsets all the same.
    topics.write([(STAMPED, 0, written), (STAMPED, 0, written)])
    stamped = pair.until(lambda seen: replica_readings(seen)[copy(STAMPED)].state is ReplicaState.STOPPED, 30)
    assert replica_readings(stamped)[copy(STAMPED)].reason is NotCompared.LOG_APPEND_TIME

    mirror.start()

    def goes_on(seen: Comparison) -> bool:
        found = replica_readings(seen)
        in_step_again = all(found.get(one) == in_step for one in (*followed, copy(MORE, 3)))
        return in_step_again and found[copy(STAMPED)].state is ReplicaState.UNKNOWN

    pair.until(goes_on)

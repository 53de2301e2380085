"""A real MirrorMaker 2 between two brokers, and the exporter's own parts that compare them, one call at a time."""

from collections.abc import Callable, Mapping
from pathlib import Path

from exporter.clock import SystemClock
from exporter.collectors.poller import Poller
from exporter.domain.polls.readings import PollFailure
from exporter.domain.polls.table import Snapshot
from exporter.domain.replicas.comparison import Comparison
from exporter.factory.clusters import make_replica_watches
from exporter.factory.sources import make_poll_source
from exporter.settings.schema import Settings
from tests.demo.broker import java_properties
from tests.demo.lifeline import Lifeline
from tests.integration.kafka_tools import small_java
from tests.unit.readings import Replica
from tests.waiting import until

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

    def __init__(self, east: str, west: str, *, topics: str = ".*", **pair: object) -> None:
        """``topics`` is what both are polled for; ``pair`` what ``replicas`` holds beside source and target."""
        clusters = [
            {"name": name, "kafka": {"bootstrap.servers": at}, "topics": {"include": [topics]}}
            for name, at in (("east", east), ("west", west))
        ]
        settings = Settings.model_validate(
            {"clusters": clusters, "replicas": [{"source": "east", "target": "west", **pair}]}
        )
        self.clock = SystemClock()
        self._found: list[Comparison] = []
        watches = make_replica_watches(settings, self.clock, self._found.append)
        self._sources = [make_poll_source(cluster, settings) for cluster in settings.clusters]
        self._pollers = [
            Poller(cluster.name, source, watches, self.clock)
            for cluster, source in zip(settings.clusters, self._sources, strict=True)
        ]

    def close(self) -> None:
        for source in self._sources:
            source.close()

    def poll(self) -> Mapping[str, Snapshot]:
        outcomes = [poller.poll() for poller in self._pollers]
        assert not [outcome for outcome in outcomes if isinstance(outcome, PollFailure)], outcomes
        return {outcome.cluster: outcome for outcome in outcomes if isinstance(outcome, Snapshot)}

    def until(self, true: Callable[[Comparison], bool], seconds: float = 120.0) -> Comparison:
        """Compare until something is so, and return that comparison."""

        def compared() -> bool:
            self.poll()
            return true(self._found[-1])

        until(compared, "the comparison", seconds)
        return self._found[-1]


def copy(topic: str, partition: int = 0) -> Replica:
    """A partition of a topic and of its replica, as MirrorMaker names it by default."""
    return Replica(topic, f"east.{topic}", partition)

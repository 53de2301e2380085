"""A real broker with a remote tier: Kafka's own LocalTieredStorage, which is a folder (KIP-405)."""

from __future__ import annotations

import math
import subprocess
import time
from contextlib import closing
from pathlib import Path

from exporter.clock import SystemClock
from exporter.collectors.poller import Poller
from exporter.collectors.remote_tier import TierSweep, TierWatch
from exporter.domain.polls.readings import PollFailure, TopicPartition
from exporter.domain.polls.table import Snapshot
from exporter.java import java
from exporter.kafka.kafka_python_answers import EARLIEST_LOCAL, LATEST_TIERED
from exporter.kafka.poll_source import BrokerPollSource
from exporter.kafka.process import TIERS, ClientProcess, RemoteClient
from exporter.kafka.source import KafkaSource
from exporter.kafka.tiered_offsets import TierClient
from tests.demo.broker import KAFKA_VERSION, Broker
from tests.times import tier_of
from tests.views import Reading, readings_of
from tests.waiting import until
from tests.workbench import EVERLASTING, Workbench

TIERED = {**EVERLASTING, "remote.storage.enable": "true", "segment.bytes": str(1 << 20), "file.delete.delay.ms": "100"}
"""Topic settings under which a MiB is a segment; all but the last are copied to the tier at once."""
STAYS, GOES = {"local.retention.ms": "-1"}, {"local.retention.ms": "1"}
"""What was copied stays on the broker's own disk too, or goes."""

RECORD = b"x" * 100_000
"""So large that ten fill a segment."""

_IVY = """\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="topic-liveness" module="tiered"/>
  <dependencies>{}</dependencies>
</ivy-module>
"""
_DEPENDENCY = """
    <dependency org="org.apache.kafka" name="{0}" rev="{1}" transitive="false">
      <artifact name="{0}" type="jar" ext="jar" m:classifier="test"/>
    </dependency>"""


def storage_jars(cache: Path, spark_jars: Path) -> Path:
    """Return the folder of Kafka's test jars that hold LocalTieredStorage; the first call downloads 4 MB."""
    ready = cache / f"kafka-{KAFKA_VERSION}-tiered"
    if ready.is_dir():
        return ready
    staging = cache / f".{ready.name}.{time.monotonic_ns()}"
    staging.mkdir(parents=True)
    wanted = "".join(_DEPENDENCY.format(name, KAFKA_VERSION) for name in ("kafka-storage", "kafka-clients"))
    (staging / "ivy.xml").write_text(_IVY.format(wanted))
    command = [java(), f"-Divy.default.ivy.user.dir={cache / 'ivy'}", "-cp", f"{spark_jars}/*", "org.apache.ivy.Main"]
    command += ["-cache", str(cache / "ivy" / "cache"), "-ivy", str(staging / "ivy.xml")]
    command += ["-retrieve", f"{staging}/[artifact]-[revision]-[classifier].[ext]"]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    if not ready.is_dir():
        staging.rename(ready)
    return ready


class TieredBroker(Broker):
    """A broker whose remote tier is a folder."""

    def __init__(self, folder: Path, *, jars: Path, storage: Path) -> None:
        properties = {
            "remote.log.storage.system.enable": "true",
            "remote.log.storage.manager.class.name": ("org.apache.kafka.server.log.remote.storage.LocalTieredStorage"),
            "remote.log.storage.manager.class.path": f"{storage}/*",
            "rsm.config.dir": str(folder / "tier"),
            "remote.log.metadata.manager.listener.name": "PLAINTEXT",
            "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
            "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
            "remote.log.manager.task.interval.ms": "200",
            "log.retention.check.interval.ms": "200",
            "log.initial.task.delay.ms": "200",
        }
        super().__init__(folder, jars=jars, properties=properties)

    def await_tier(self, topic: str, want: tuple[int, int | None], partition: int = 0, seconds: float = 60.0) -> None:
        """Wait until (earliest local, latest tiered) of a partition are as wanted."""
        key, specs = TopicPartition(topic, partition), (EARLIEST_LOCAL, LATEST_TIERED)
        with closing(TierClient({"bootstrap.servers": self.bootstrap}, request_timeout=10)) as client:
            until(
                lambda: tuple(tier_of(client, spec, key).offset for spec in specs) == want, f"{topic}: {want}", seconds
            )

    def await_setting(self, topic: str, name: str, value: str) -> None:
        """Wait until a topic is treated by a setting: the broker tells of it a moment before it acts by it."""
        applied = f"Updating topic {topic} with new configuration : "

        def in_force() -> bool:
            lines = [line for line in self.log.read_text(errors="replace").splitlines() if applied in line]
            return bool(lines) and f"{name} -> {value}," in lines[-1]

        until(in_force, f"{name} of {topic}")


class Bench(Workbench):
    def fill(self, topic: str, times: list[float]) -> None:
        """Write records of a tenth of a segment each."""
        # A batch is never split between segments: with one record each, where segments end is known.
        self.write(((topic, 0, time) for time in times), RECORD, **{"batch.num.messages": "1"})


class TierTest:
    """The exporter's poller and its looks at the tiers, on the topics a test names; the test says when."""

    def __init__(self, bootstrap: str, include: str, *, offsets: bool = True, **properties: str) -> None:
        given = {"bootstrap.servers": bootstrap, **properties}

        def source() -> KafkaSource:
            return KafkaSource(given, clock=SystemClock(), include=[include])

        def times() -> closing[KafkaSource]:
            return closing(source())

        def tiers() -> RemoteClient:
            process = ClientProcess("test")
            return RemoteClient(process, TIERS, limit=60, alone=True, properties=given, request_timeout=10)

        self.watch = TierWatch(
            "test",
            SystemClock(),
            interval=300,
            lookups_per_second=100,
            specs=(EARLIEST_LOCAL, LATEST_TIERED) if offsets else (),
            times=times,
            tiers=tiers,
        )
        self._poller = Poller(
            "test",
            BrokerPollSource(source(), SystemClock(), metadata_seconds=0),
            [self.watch],
            SystemClock(),
            tier=self.watch,
        )

    def poll(self) -> Snapshot:
        """Poll, and insist that the cluster could be asked."""
        outcome = self._poller.poll()
        assert not isinstance(outcome, PollFailure), outcome
        return outcome

    def reading(self, topic: str) -> Reading:
        """Poll, and return what was learnt of partition 0."""
        return readings_of(self.poll())[TopicPartition(topic, 0)]

    def sweep(self) -> TierSweep:
        return self.watch.sweep()


def moments(count: int, *, since: float) -> list[float]:
    """So many times, a second apart."""
    return [math.floor(since) + float(number) for number in range(count)]

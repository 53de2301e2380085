"""A real broker with a remote tier: Kafka's own LocalTieredStorage, which is a folder (KIP-405)."""

import math
import subprocess
import time
from contextlib import closing
from pathlib import Path

from exporter.domain.polls.readings import TopicPartition
from exporter.java import java
from exporter.kafka.process import EARLIEST_LOCAL, LATEST_TIERED
from exporter.kafka.tiered_offsets import TierClient
from tests.demo.broker import KAFKA_VERSION, Broker
from tests.times import tier_of
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


class Bench(Workbench):
    def fill(self, topic: str, times: list[float]) -> None:
        """Write records of a tenth of a segment each."""
        # A batch is never split between segments: with one record each, where segments end is known.
        self.write(((topic, 0, time) for time in times), RECORD, **{"batch.num.messages": "1"})


def moments(count: int, *, since: float) -> list[float]:
    """So many times, a second apart."""
    return [math.floor(since) + float(number) for number in range(count)]

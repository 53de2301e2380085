"""Topics whose records move to a remote tier, on a real broker (Kafka 4.3.1, LocalTieredStorage)."""

import importlib.util
import io
import math
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from exporter.app import once
from exporter.domain.polls.readings import TopicPartition
from exporter.java import java
from exporter.kafka.process import EARLIEST_LOCAL, LATEST_TIERED
from exporter.kafka.tiers_and_sizes import TierClient
from exporter.settings.schema import Settings
from tests.demo.broker import KAFKA_VERSION, Broker
from tests.integration.test_offsets import ours, shell
from tests.times import tier_of
from tests.waiting import until
from tests.workbench import EVERLASTING, Workbench

DAY_AGO = math.floor(time.time()) - 86_400.0
IDLE = 12
"""Records of the topic that the tests share: a full segment, and a bit."""

TIERED = {**EVERLASTING, "remote.storage.enable": "true", "segment.bytes": str(1 << 20), "file.delete.delay.ms": "100"}
"""Topic settings under which a MiB is a segment; all but the last are copied to the tier at once."""
STAYS, GOES = {"local.retention.ms": "-1"}, {"local.retention.ms": "1"}
"""What was copied stays on the broker's own disk too, or goes."""

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


def storage_jars(cache: Path) -> Path:
    """Return the folder of Kafka's test jars that hold LocalTieredStorage; the first call downloads 4 MB."""
    ready = cache / f"kafka-{KAFKA_VERSION}-tiered"
    if ready.is_dir():
        return ready
    spark = importlib.util.find_spec("pyspark")
    assert spark is not None and spark.submodule_search_locations
    staging = cache / f".{ready.name}.{time.monotonic_ns()}"
    staging.mkdir(parents=True)
    wanted = "".join(_DEPENDENCY.format(name, KAFKA_VERSION) for name in ("kafka-storage", "kafka-clients"))
    (staging / "ivy.xml").write_text(_IVY.format(wanted))
    jars = f"{spark.submodule_search_locations[0]}/jars/*"
    command = [java(), f"-Divy.default.ivy.user.dir={cache / 'ivy'}", "-cp", jars, "org.apache.ivy.Main"]
    command += ["-cache", str(cache / "ivy" / "cache"), "-ivy", str(staging / "ivy.xml")]
    command += ["-retrieve", f"{staging}/[artifact]-[revision]-[classifier].[ext]"]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    if not ready.is_dir():
        staging.rename(ready)
    return ready


@pytest.fixture(scope="module")
def tiered(cache: Path, kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker whose remote tier is a folder, which the tests of this file share."""
    folder = tmp_path_factory.mktemp("tiered")
    properties = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "remote.log.storage.manager.class.path": f"{storage_jars(cache)}/*",
        "rsm.config.dir": str(folder / "tier"),
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
        "remote.log.manager.task.interval.ms": "200",
        "log.retention.check.interval.ms": "200",
        "log.initial.task.delay.ms": "200",
    }
    with Broker(folder, jars=kafka_jars, properties=properties) as running:
        yield running


@pytest.fixture(scope="module")
def bench(tiered: Broker) -> Workbench:
    return Workbench(tiered.bootstrap)


def fill(bench: Workbench, topic: str, times: Sequence[float]) -> None:
    """Write records of a tenth of a segment each into partition 0."""
    # A batch is never split between segments: with one record each, where segments end is known.
    bench.write(((topic, 0, time) for time in times), b"x" * 100_000, **{"batch.num.messages": "1"})


def await_tier(broker: Broker, topic: str, want: tuple[int, int | None]) -> None:
    """Wait until (earliest local, latest tiered) of partition 0 are as wanted."""
    key, specs = TopicPartition(topic, 0), (EARLIEST_LOCAL, LATEST_TIERED)
    with closing(TierClient({"bootstrap.servers": broker.bootstrap}, request_timeout=10)) as client:
        until(lambda: tuple(tier_of(client, spec, key).offset for spec in specs) == want, f"{topic}: {want}", 60.0)


@pytest.fixture(scope="module")
def idle(tiered: Broker, bench: Workbench) -> list[float]:
    """The times of the records of the topic ``idle``, which are all in the remote tier."""
    times = [DAY_AGO + number for number in range(IDLE)]
    bench.create("idle", config=TIERED | GOES)
    fill(bench, "idle", times)
    await_tier(tiered, "idle", (IDLE, IDLE - 1))
    return times


def shown(bootstrap: str, topic: str, switches: Sequence[str]) -> dict[str, float]:
    """What ``topic-liveness once`` prints, by series."""
    settings = Settings.model_validate(
        {
            "clusters": [{"name": "c", "kafka": {"bootstrap.servers": bootstrap}, "topics": {"include": [topic]}}],
            "metrics": {"partition": switches},
        }
    )
    out = io.StringIO()
    assert once(settings, out) == 0
    lines = (line.rsplit(" ", 1) for line in out.getvalue().splitlines() if not line.startswith("#"))
    return {series: float(value) for series, value in lines}


def test_a_newest_time_that_lies_in_the_tier_alone_is_found(tiered: Broker, bench: Workbench) -> None:
    """The local disk holds older times, and MAX_TIMESTAMP gives the newest of those: the look-up in the tier fixes it.

    Then it is observed: its newest record is on the broker's own disk.
    """
    times = [DAY_AGO + 3600 + number for number in range(10)]
    bench.create("disordered", config=TIERED | GOES)
    fill(bench, "disordered", times)
    await_tier(tiered, "disordered", (10, 9))
    bench.alter("disordered", STAYS)
    fill(bench, "disordered", [times[0] - 1800])
    series = shown(tiered.bootstrap, "disordered", ["staleness"])
    place = '{kafka_cluster="c",topic="disordered",partition="0"'
    assert not [name for name in series if name.startswith(f"kafka_topic_partition_state{place}")]
    age = time.time() - times[-1]
    assert age - 60 < series[f"kafka_topic_partition_staleness_seconds{place}}}"] <= age


def test_what_is_shown_of_an_idle_partition(tiered: Broker, idle: list[float]) -> None:
    series = shown(tiered.bootstrap, "idle", ["staleness", "earliest_local_offset", "latest_tiered_offset"])
    place = '{kafka_cluster="c",topic="idle",partition="0"'
    assert series[f'kafka_topic_partition_state{place},state="idle-in-tier"}}'] == 1
    assert series[f"kafka_topic_partition_earliest_local_offset{place}}}"] == IDLE
    assert series[f"kafka_topic_partition_latest_tiered_offset{place}}}"] == IDLE - 1
    age = time.time() - idle[-1]
    assert age - 60 < series[f"kafka_topic_partition_staleness_seconds{place}}}"] <= age
    assert age - 60 < series['kafka_topic_staleness_seconds{kafka_cluster="c",topic="idle"}'] <= age
    assert series['topic_liveness_lookups_total{kafka_cluster="c",spec="latest-tiered"}'] == 1
    assert not [name for name in series if name.startswith("topic_liveness_tier_lookup_failures_total")]


def test_the_command_prints_what_kafkas_own_tool_prints(tiered: Broker, bench: Workbench, cache: Path) -> None:
    for topic, records, settings in (
        ("gone", 2, TIERED | GOES),
        ("half", 11, TIERED | STAYS),
        ("local", 1, EVERLASTING),
    ):
        bench.create(f"compared-{topic}", config=settings)
        fill(bench, f"compared-{topic}", [DAY_AGO + number for number in range(records)])
    await_tier(tiered, "compared-half", (0, 9))
    await_tier(tiered, "compared-gone", (2, 1))
    rows = ours(tiered, "compared-.*", EARLIEST_LOCAL, LATEST_TIERED)
    assert [(row["topic"], row["time"], row["offset"], row["reason"]) for row in rows] == [
        ("compared-gone", EARLIEST_LOCAL, 2, None),
        ("compared-gone", LATEST_TIERED, 1, None),
        ("compared-half", EARLIEST_LOCAL, 0, None),
        ("compared-half", LATEST_TIERED, 9, None),
        ("compared-local", EARLIEST_LOCAL, 0, None),
        ("compared-local", LATEST_TIERED, None, "nothing-tiered"),
    ]
    for spec in (EARLIEST_LOCAL, LATEST_TIERED):
        printed = shell(cache, tiered, "compared-.*", spec)
        found = {(row["topic"], 0): row["offset"] for row in rows if row["time"] == spec and row["offset"] is not None}
        assert printed == found

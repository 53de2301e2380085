"""How large topics are: as Kafka's own tool and the files say."""

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

from confluent_kafka.admin import AclOperation, ResourceType

from exporter.clock import SystemClock
from exporter.collectors.poller import Poller
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.readings import Reason, TopicPartition
from exporter.domain.polls.table import Snapshot
from exporter.factory.clusters import make_inspector
from exporter.factory.sources import make_poll_source
from exporter.kafka.process import LOG_DIRS
from exporter.kafka.tiers_and_sizes import LogDirsClient
from exporter.settings.schema import Settings
from tests.demo.broker import KAFKA_VERSION, Broker
from tests.integration.kafka import DAY_AGO, Kafka
from tests.integration.kafka_tools import kafka_tool
from tests.integration.secured import Secured
from tests.integration.watch import watching
from tests.views import Inspected, Reading, readings_of
from tests.waiting import until

TOPIC = "inspected"


def on_disk(broker: Broker, topic: str, partition: int) -> int:
    return sum(path.stat().st_size for path in (broker.folder / "data" / f"{topic}-{partition}").glob("*.log"))


def test_sizes_are_those_of_kafkas_own_tool_and_of_the_files(brokers: Mapping[str, Broker], cache: Path) -> None:
    """On every version each partition has the bytes of its segments, and on the newest what kafka-log-dirs prints.

    A partition that is not there costs itself alone.
    """
    sizes = list[int]()
    for version, broker in brokers.items():
        kafka = Kafka(version, broker.bootstrap)
        kafka.create(TOPIC, 3)
        kafka.write([(TOPIC, number, DAY_AGO) for number in (0, 1) for _ in range(50)], value=b"x" * 700)
        with closing(LogDirsClient({"bootstrap.servers": broker.bootstrap}, request_timeout=30)) as client:
            found = client.log_sizes(Layout.build({TOPIC: [0, 1, 2, 9]}), 1)
        assert found.log.known.tolist() == [True, True, True, False], version
        sizes = [on_disk(broker, TOPIC, number) for number in range(3)]
        assert found.log.value.tolist()[:3] == sizes and min(sizes) == 0 < max(sizes), version
        assert found.missing is Reason.MISSING_ANSWER
    options = ("--bootstrap-server", brokers[KAFKA_VERSION].bootstrap, "--describe", "--topic-list", TOPIC)
    printed = kafka_tool(cache, "org.apache.kafka.tools.LogDirsCommand", *options).stdout
    [listing] = json.loads(printed.splitlines()[-1])["brokers"]
    by_tool = {row["partition"]: row["size"] for folder in listing["logDirs"] for row in folder["partitions"]}
    assert by_tool == {f"{TOPIC}-{number}": size for number, size in enumerate(sizes)}


def test_without_the_rights_the_rest_goes_on(secured: Secured, logged_warnings: Callable[[], list[str]]) -> None:
    settings = Settings.model_validate(
        {
            "clusters": [{"name": "test", "kafka": secured.by_password(), "topics": {"include": ["orders"]}}],
            "poll": {"request_timeout": "30s"},
            "inspection": {"log_sizes": True},
        }
    )
    [cluster], clock, monitor = settings.clusters, SystemClock(), watching()
    inspector = make_inspector(cluster, settings, clock)
    assert inspector is not None
    source = make_poll_source(cluster, settings)
    poller = Poller("test", source, [inspector, monitor], clock, inspections=inspector)

    def inspect() -> Reading:
        poller.poll()
        monitor.take_round(inspector.inspect())
        outcome = poller.poll()
        assert isinstance(outcome, Snapshot), outcome
        return readings_of(outcome)[TopicPartition("orders", 0)]

    blind = inspect()
    assert (blind.inspected, blind.latest) == (Inspected(), 1)
    labels = f'kafka_cluster="test",reason="unauthorized",spec="{LOG_DIRS}"'
    assert f"topic_liveness_inspection_failures_total{{{labels}}} 1.0\n" in monitor.metrics().decode()
    [line] = [line for line in logged_warnings() if "look-ups that failed" in line]
    assert "grant DESCRIBE on the cluster" in line
    secured.grant("liveness", [(AclOperation.DESCRIBE, "kafka-cluster")], ResourceType.BROKER)
    until(lambda: inspect().inspected != Inspected())
    found = inspect().inspected
    assert found.log_bytes == found.disk_bytes == on_disk(secured.broker, "orders", 0)

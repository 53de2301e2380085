"""How large topics are: as Kafka's own tool and the files say, and without the right."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from exporter.domain.polls.inspections import LogSizes
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.readings import TopicPartition
from exporter.kafka.kafka_python_answers import LOG_DIRS
from exporter.kafka.log_dirs import LogDirsClient
from tests.demo.broker import Broker
from tests.integration.inspecting import Inspecting
from tests.integration.kafka import DAY_AGO, Kafka
from tests.integration.kafka_tools import kafka_tool
from tests.integration.secured import Secured
from tests.views import Inspected, readings_of
from tests.waiting import until
from tests.workbench import Workbench

SPREAD = "inspected-spread"


@pytest.fixture(scope="module")
def spread(workbench: Workbench) -> Iterator[str]:
    """A topic of three partitions: the last one is empty."""
    workbench.create(SPREAD, 3)
    workbench.write([(SPREAD, number, DAY_AGO + number) for number in (0, 1) for _ in range(50)], value=b"x" * 700)
    yield SPREAD
    workbench.delete(SPREAD)


def on_disk(broker: Broker, topic: str, partition: int) -> int:
    """The bytes of the log segments in a broker's folder."""
    return sum(path.stat().st_size for path in (broker.folder / "data" / f"{topic}-{partition}").glob("*.log"))


def test_sizes_are_those_of_kafkas_own_tool_and_of_the_files(broker: Broker, spread: str, cache: Path) -> None:
    """Each partition has the bytes that kafka-log-dirs prints, which are those of its segments; the topic their sum."""
    inspecting = Inspecting(spread, **{"bootstrap.servers": broker.bootstrap})
    inspection = inspecting.inspect()
    assert (inspection.lookups, dict(inspection.failures)) == (3, {})
    options = ("--bootstrap-server", broker.bootstrap, "--describe", "--topic-list", spread)
    printed = kafka_tool(cache, "org.apache.kafka.tools.LogDirsCommand", *options).stdout
    [listing] = json.loads(printed.splitlines()[-1])["brokers"]
    by_tool = {row["partition"]: row["size"] for folder in listing["logDirs"] for row in folder["partitions"]}
    sizes = {f"{spread}-{number}": on_disk(broker, spread, number) for number in range(3)}
    assert by_tool == sizes and min(sizes.values()) == 0 < max(sizes.values())
    whole = {f'topic="{spread}"': sum(sizes.values())}
    assert inspecting.shown("kafka_topic_disk_size_bytes") == whole


def test_without_the_rights_the_rest_goes_on(secured: Secured, logged_warnings: Callable[[], list[str]]) -> None:
    """The reasons are counted and logged with the right to grant; what is granted later is shown from then on."""
    properties = secured.by_password()
    inspecting = Inspecting("orders", timeout="30s", **properties)
    inspecting.inspect()
    assert inspecting.found("orders") == Inspected()
    failures = inspecting.shown("topic_liveness_inspection_failures_total")
    assert failures == {f'reason="unauthorized",spec="{LOG_DIRS}"': 1}
    assert readings_of(inspecting.poll())[TopicPartition("orders", 0)].latest == 1
    [line] = [line for line in logged_warnings() if "not answered" in line]
    assert "grant DESCRIBE on the cluster" in line
    secured.grant("liveness", [(AclOperation.DESCRIBE, "kafka-cluster")], ResourceType.BROKER)

    def granted() -> bool:
        inspecting.inspect()
        return inspecting.found("orders").log_bytes is not None

    until(granted)
    found = inspecting.found("orders")
    assert found.log_bytes == found.disk_bytes == on_disk(secured.broker, "orders", 0)


def test_every_version_reports_how_large_it_is(brokers: Mapping[str, Broker]) -> None:
    """The sizes are those of the broker's files."""
    topic = "inspected-versions"
    for version, broker in brokers.items():
        kafka = Kafka(version, broker.bootstrap)
        kafka.create(topic)
        kafka.write([(topic, 0, DAY_AGO)])
        with closing(LogDirsClient({"bootstrap.servers": broker.bootstrap}, request_timeout=10)) as client:
            sizes = client.log_sizes(Layout.of({topic: [0]}), 1)
        assert isinstance(sizes, LogSizes), version
        assert sizes.log.value.tolist() == [on_disk(broker, topic, 0)] and sizes.log.value[0] > 0, version
        kafka.delete(topic)


@pytest.mark.usefixtures("without_kafka_python")
def test_without_the_extra_one_line_and_all_else(
    broker: Broker, spread: str, logged_warnings: Callable[[], list[str]]
) -> None:
    """kafka-python is not there: a line says how to get it, offsets are read, nothing is inspected."""
    inspecting = Inspecting(spread, **{"bootstrap.servers": broker.bootstrap})
    for _ in range(2):
        inspecting.inspect()
    assert inspecting.found(spread) == Inspected()
    assert readings_of(inspecting.poll())[TopicPartition(spread, 1)].latest == 50
    [line] = [line for line in logged_warnings() if "kafka-python" in line]
    assert "pip install '.[kafka-python]' in a checkout" in line

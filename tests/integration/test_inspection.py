"""How large topics are: as Kafka's own tool and the files say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from exporter.domain.polls.inspections import LogSizes
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.readings import Reason
from exporter.kafka.log_dirs import LogDirsClient
from tests.demo.broker import Broker
from tests.integration.kafka import DAY_AGO, Kafka
from tests.integration.kafka_tools import kafka_tool
from tests.integration.secured import Properties, Secured

TOPIC = "inspected"


def on_disk(broker: Broker, topic: str, partition: int) -> int:
    """The bytes of the log segments in a broker's folder."""
    return sum(path.stat().st_size for path in (broker.folder / "data" / f"{topic}-{partition}").glob("*.log"))


def log_sizes(properties: Properties, wanted: Layout) -> LogSizes | Reason:
    """What broker 1 says."""
    with closing(LogDirsClient(properties, request_timeout=30)) as client:
        return client.log_sizes(wanted, 1)


def test_sizes_are_those_of_kafkas_own_tool_and_of_the_files(brokers: Mapping[str, Broker], cache: Path) -> None:
    """On every version each partition has the bytes of its segments, and on the newest what kafka-log-dirs prints.

    A partition that is not there costs itself alone.
    """
    for version, broker in brokers.items():
        kafka = Kafka(version, broker.bootstrap)
        kafka.create(TOPIC, 3)
        kafka.write([(TOPIC, number, DAY_AGO) for number in (0, 1) for _ in range(50)], value=b"x" * 700)
        wanted = Layout.of({TOPIC: [0, 1, 2, 9]})
        found = log_sizes({"bootstrap.servers": broker.bootstrap}, wanted)
        assert isinstance(found, LogSizes), version
        assert found.log.known.tolist() == [True, True, True, False], version
        sizes = [on_disk(broker, TOPIC, number) for number in range(3)]
        assert found.log.value.tolist()[:3] == sizes and min(sizes) == 0 < max(sizes), version
        assert found.missing is Reason.MISSING_ANSWER
    options = ("--bootstrap-server", kafka.bootstrap, "--describe", "--topic-list", TOPIC)
    printed = kafka_tool(cache, "org.apache.kafka.tools.LogDirsCommand", *options).stdout
    [listing] = json.loads(printed.splitlines()[-1])["brokers"]
    by_tool = {row["partition"]: row["size"] for folder in listing["logDirs"] for row in folder["partitions"]}
    assert by_tool == dict(enumerate(sizes))


def test_without_the_right_the_reason_is_given(secured: Secured) -> None:
    """DESCRIBE on the cluster is none of the documented rights."""
    assert log_sizes(secured.by_password(), Layout.of({"orders": [0]})) is Reason.UNAUTHORIZED

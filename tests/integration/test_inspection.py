"""Who writes to topics and how large they are: as Kafka's own tools and the files say, and without the rights."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from exporter.domain.polls.answers import ANSWERED, reason_code
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.log_sizes import LogSizes
from exporter.domain.polls.metadata import PartitionInfo
from exporter.domain.polls.readings import Inspected, Producers, Reason, TopicPartition
from exporter.kafka.kafka_python_answers import LOG_DIRS, PRODUCERS
from exporter.kafka.producers_log_dirs import InspectionClient
from tests.demo.broker import Broker, resolve_kafka
from tests.integration.inspecting import Inspecting
from tests.integration.kafka import DAY_AGO, Kafka
from tests.integration.kafka_tools import kafka_tool
from tests.integration.secured import Secured, await_that
from tests.integration.serving import Exporter, until
from tests.integration.zookeeper import ZookeeperBroker
from tests.workbench import Workbench

SPREAD = "inspected-spread"
LAST = DAY_AGO + 60


@pytest.fixture(scope="module")
def spread(workbench: Workbench) -> Iterator[str]:
    """A topic of three partitions: two idempotent producers wrote to the first, one of them to the second."""
    workbench.create(SPREAD, 3)
    workbench.write([(SPREAD, number, DAY_AGO + number) for number in (0, 1) for _ in range(50)], value=b"x" * 700)
    workbench.write([(SPREAD, 0, LAST)])
    yield SPREAD
    workbench.delete(SPREAD)


def on_disk(broker: Broker, topic: str, partition: int) -> int:
    """The bytes of the log segments in a broker's folder."""
    return sum(path.stat().st_size for path in (broker.folder / "data" / f"{topic}-{partition}").glob("*.log"))


def test_sizes_are_those_of_kafkas_own_tool_and_of_the_files(broker: Broker, spread: str, cache: Path) -> None:
    """Each partition has the bytes that kafka-log-dirs prints, which are those of its segments; the topic their sum."""
    inspecting = Inspecting(spread, **{"bootstrap.servers": broker.bootstrap})
    inspection = inspecting.inspect()
    assert (inspection.lookups[LOG_DIRS], dict(inspection.failures)) == (3, {})
    options = ("--bootstrap-server", broker.bootstrap, "--describe", "--topic-list", spread)
    printed = kafka_tool(cache, "LogDirsCommand", *options).stdout
    [listing] = json.loads(printed.splitlines()[-1])["brokers"]
    by_tool = {row["partition"]: row["size"] for folder in listing["logDirs"] for row in folder["partitions"]}
    sizes = {f"{spread}-{number}": on_disk(broker, spread, number) for number in range(3)}
    assert by_tool == sizes and min(sizes.values()) == 0 < max(sizes.values())
    by_partition = inspecting.shown("kafka_topic_partition_log_size_bytes")
    assert by_partition == {
        f'topic="{spread}",partition="{number}"': sizes[f"{spread}-{number}"] for number in range(3)
    }
    whole = {f'topic="{spread}"': sum(sizes.values())}
    assert inspecting.shown("kafka_topic_log_size_bytes") == inspecting.shown("kafka_topic_disk_size_bytes") == whole


def test_producers_are_those_of_kafkas_own_tool(broker: Broker, spread: str, cache: Path) -> None:
    """Every idempotent producer is counted once a topic, with the time of the last record; it is the tool's list."""
    inspecting = Inspecting(spread, **{"bootstrap.servers": broker.bootstrap})
    inspecting.inspect()
    found = inspecting.found(spread).producers
    assert found is not None and len(found.ids) == 2
    at = ("--bootstrap-server", broker.bootstrap, "describe-producers", "--topic", spread, "--partition", "0")
    _, *rows = kafka_tool(cache, "TransactionsCommand", *at).stdout.strip().splitlines()
    assert {int(row.split()[0]) for row in rows} == set(found.ids)
    assert max(int(row.split()[4]) for row in rows) == round(LAST * 1000)
    assert found.last_write == LAST
    second, third = (inspecting.found(spread, number).producers for number in (1, 2))
    assert second is not None and second.ids < found.ids
    assert third == Producers()
    topic = f'topic="{spread}"'
    assert inspecting.shown("kafka_topic_producers") == {topic: 2}
    assert inspecting.shown("kafka_topic_producers_last_write_timestamp_seconds") == {topic: LAST}
    assert inspecting.shown("kafka_topic_open_transactions") == {topic: 0}
    assert inspecting.shown("kafka_topic_open_transaction_timestamp_seconds") == {}


def test_an_open_transaction_is_as_old_as_it_was_seen(broker: Broker, workbench: Workbench) -> None:
    """Its first sight is kept while it is open; committed, it is gone; the next one of that producer is another."""
    topic = "inspected-transactions"
    workbench.create(topic)
    inspecting = Inspecting(topic, **{"bootstrap.servers": broker.bootstrap})
    since, opened = "kafka_topic_open_transaction_timestamp_seconds", "kafka_topic_open_transactions"
    series = f'topic="{topic}"'
    before = time.time()
    producer = workbench.write_transaction(topic, 0, DAY_AGO, "inspected")
    inspecting.inspect()
    first = inspecting.shown(since)[series]
    assert before - 0.01 <= first <= time.time() and inspecting.shown(opened) == {series: 1}
    inspecting.inspect()
    assert inspecting.shown(since)[series] == pytest.approx(first, abs=0.01)
    producer.commit_transaction(30)

    def closed() -> bool:
        inspecting.inspect()
        return inspecting.shown(opened) == {series: 0}

    until(closed, "the marker is written")
    assert inspecting.shown(since) == {} and inspecting.shown("kafka_topic_producers") == {series: 1}
    again = time.time()
    producer.begin_transaction()
    producer.produce(topic, b"x")
    assert producer.flush(30) == 0
    inspecting.inspect()
    assert inspecting.shown(since)[series] >= again - 0.01
    producer.abort_transaction(30)
    workbench.delete(topic)


def test_one_partition_that_cannot_be_inspected_costs_only_itself(broker: Broker, spread: str) -> None:
    """A partition that is not there says so, its neighbours in the same request are answered, none is made."""
    wanted = Layout.of({spread: [1, 9], "never-made": [0]})
    there, gone, never = wanted.rows(TopicPartition(*key) for key in [(spread, 1), (spread, 9), ("never-made", 0)])
    with closing(
        InspectionClient({"bootstrap.servers": broker.bootstrap}, request_timeout=10, lookups_per_second=1000)
    ) as client:
        producers = client.producers(wanted, 1)
        sizes = client.log_sizes(wanted, 1)
        nobody = client.producers(wanted, 7), client.log_sizes(wanted, 7)
        known = client.partitions(wanted)
    unknown = reason_code(Reason.UNKNOWN_TOPIC)
    assert producers.reason[[never, there, gone]].tolist() == [unknown, ANSWERED, unknown]
    assert producers.found.row.tolist() == [there]
    assert isinstance(sizes, LogSizes) and np.flatnonzero(sizes.log.known).tolist() == [there]
    assert sizes.log.value[there] == on_disk(broker, spread, 1)
    assert sizes.missing is Reason.MISSING_ANSWER
    assert (nobody[0].failure, nobody[1]) == (Reason.LEADER_UNREACHABLE, Reason.LEADER_UNREACHABLE)
    assert list(known.layout) == [(spread, 1)] and known.info(0) == PartitionInfo(1, (1,), (1,))
    assert "never-made" not in Workbench(broker.bootstrap).admin.list_topics(timeout=10).topics


def test_without_the_rights_the_rest_goes_on(secured: Secured, logged_warnings: Callable[[], list[str]]) -> None:
    """The reasons are counted and logged with the right to grant; what is granted later is shown from then on."""
    properties = secured.by_password()
    inspecting = Inspecting("orders", timeout="30s", **properties)
    inspecting.inspect()
    assert inspecting.found("orders") == Inspected()
    failures = inspecting.shown("topic_liveness_inspection_failures_total")
    assert failures == {f'reason="unauthorized",spec="{spec}"': 1 for spec in (LOG_DIRS, PRODUCERS)}
    assert inspecting.poll().readings[TopicPartition("orders", 0)].latest == 1
    [line] = [line for line in logged_warnings() if "not answered" in line]
    assert "grant READ on topics" in line and "grant DESCRIBE on the cluster" in line
    secured.grant("liveness", [(AclOperation.READ, "orders")])
    secured.grant("liveness", [(AclOperation.DESCRIBE, "kafka-cluster")], ResourceType.BROKER)

    def granted() -> bool:
        inspecting.inspect()
        found = inspecting.found("orders")
        return found.producers is not None and found.log_bytes is not None

    await_that(granted)
    found = inspecting.found("orders")
    assert found.producers is not None and len(found.producers.ids) == 1
    assert found.log_bytes == found.disk_bytes == on_disk(secured.broker, "orders", 0)


def test_every_version_reports_who_writes_and_how_large_it_is(brokers: Mapping[str, Broker]) -> None:
    """From 2.8 on each broker's producers are shown, with the sizes of its files."""
    for version, broker in brokers.items():
        kafka, topic = Kafka(version, broker.bootstrap), "inspected-versions"
        kafka.create(topic)
        kafka.write([(topic, 0, DAY_AGO)])
        inspecting = Inspecting(topic, **{"bootstrap.servers": broker.bootstrap})
        assert dict(inspecting.inspect().failures) == {}, version
        found = inspecting.found(topic)
        assert found.producers is not None and found.producers.last_write == DAY_AGO, version
        assert len(found.producers.ids) == 1 and not found.producers.open_transactions, version
        assert found.log_bytes == found.disk_bytes == on_disk(broker, topic, 0) > 0, version
        kafka.delete(topic)


def test_a_broker_from_before_describe_producers_says_so(
    cache: Path, tmp_path: Path, logged_warnings: Callable[[], list[str]]
) -> None:
    """Kafka 2.7 answers the sizes; of producers it is logged once which broker is too old, and none are shown."""
    old = ZookeeperBroker(tmp_path / "2.7", jars=resolve_kafka("2.7.2", cache=cache, progress=print))
    with old:
        kafka = Kafka("2.7.2", old.bootstrap)
        kafka.create("old")
        kafka.write([("old", 0, DAY_AGO)])
        inspecting = Inspecting("old", **{"bootstrap.servers": old.bootstrap})
        inspecting.inspect()
        assert inspecting.inspect().failures == {(PRODUCERS, Reason.UNSUPPORTED_VERSION, 1): 1}
        size = on_disk(old, "old", 0)
        assert inspecting.found("old") == Inspected(None, size, size) and size > 0
    [line] = [line for line in logged_warnings() if "not answered" in line]
    assert line.endswith("producers unsupported-version at broker 1 (brokers answer from 2.8 on, KIP-664)")


@pytest.mark.usefixtures("without_kafka_python")
def test_without_the_extra_one_line_and_all_else(
    broker: Broker, spread: str, logged_warnings: Callable[[], list[str]]
) -> None:
    """kafka-python is not there: a line says how to get it, offsets are read, nothing is inspected."""
    inspecting = Inspecting(spread, **{"bootstrap.servers": broker.bootstrap})
    for _ in range(2):
        inspecting.inspect()
    assert inspecting.found(spread) == Inspected()
    assert inspecting.poll().readings[TopicPartition(spread, 1)].latest == 50
    [line] = [line for line in logged_warnings() if "kafka-python" in line]
    assert "pip install '.[kafka-python]' in a checkout" in line


def test_inspections_come_by_themselves_beside_the_polls(broker: Broker, workbench: Workbench, tmp_path: Path) -> None:
    """A served exporter shows the size after its first inspection, follows it at its own pace, and keeps it."""
    topic = "inspected-served"
    workbench.create(topic)
    workbench.write([(topic, 0, DAY_AGO)])
    environment = {
        "TOPIC_LIVENESS_INSPECTION__PRODUCERS": "true",
        "TOPIC_LIVENESS_INSPECTION__LOG_SIZES": "true",
        "TOPIC_LIVENESS_INSPECTION__INTERVAL": "5s",
    }
    with Exporter(tmp_path, broker.bootstrap, **environment) as exporter:

        def shown() -> tuple[float | None, float | None]:
            return (
                exporter.value("kafka_topic_disk_size_bytes", topic=topic),
                exporter.value("kafka_topic_producers", topic=topic),
            )

        until(lambda: shown() == (on_disk(broker, topic, 0), 1), "the first inspection")
        sizes = {on_disk(broker, topic, 0)}
        workbench.write([(topic, 0, DAY_AGO + 1)])
        until(lambda: shown() == (on_disk(broker, topic, 0), 2), "a later inspection")
        assert exporter.value("topic_liveness_inspection_timestamp_seconds") is not None
        sizes.add(on_disk(broker, topic, 0))
        assert exporter.end() == 0
        spooled = [pq.read_table(path).to_pylist() for path in exporter.history.glob("spool/relations/*.parquet")]
    spooled_sizes = [row["disk_bytes"] for rows in spooled for row in rows if row["topic"] == topic]
    known = set(spooled_sizes) - {None}  # a window may end before the first inspection
    assert known and known <= sizes
    workbench.delete(topic)

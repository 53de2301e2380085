"""Who reads a topic, on a real broker: groups that left it, groups of other types, and offsets outside of the log."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from exporter.clock import SystemClock
from exporter.domain.groups.readers import find_readers
from exporter.domain.groups.sweep import GroupRole
from exporter.domain.polls.readings import ANSWERED, TopicPartition
from exporter.kafka.source import KafkaSource
from tests.demo.broker import Broker, resolve_kafka
from tests.groups import readers
from tests.integration.kafka import DAY_AGO
from tests.integration.kafka_tools import small_java
from tests.integration.sweeping import commit, member, subscription, sweeping
from tests.workbench import Workbench

OFFSETS = "__consumer_offsets"
ASSIGNED, LEFT, GONE = GroupRole.ASSIGNED, GroupRole.COMMITTED, GroupRole.GONE


def polls_its_topic(consumer: Consumer) -> bool:
    consumer.poll(0.1)
    return bool(consumer.assignment())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_that_left_a_topic_does_not_read_it(workbench: Workbench, name: str, protocol: str) -> None:
    """It keeps its commits there, and lives on another topic; without any member nobody knows whether it comes back."""
    group = f"{name}-{protocol}"
    left, read = f"{group}-left", f"{group}-read"
    for topic in (left, read):
        workbench.create(topic)
        workbench.write([(topic, 0, DAY_AGO)] * 4)
    with sweeping(workbench.bootstrap, f"{group}-.*", group) as swept:
        commit(workbench.bootstrap, group, {TopicPartition(topic, 0): 1 for topic in (left, read)})
        sweep = swept.sweep()
        assert {topic: dict(find_readers(sweep, [topic]).list_groups(0)) for topic in (left, read)} == {
            left: {group: GONE},
            read: {group: GONE},
        }
        with subscription(workbench.bootstrap, group, read, protocol) as consumer:
            workbench.until(lambda: polls_its_topic(consumer))
            sweep = swept.sweep()
            assert dict(find_readers(sweep, [left]).list_groups(0)) == {group: LEFT}
            assert dict(find_readers(sweep, [read]).list_groups(0)) == {group: ASSIGNED}
            topics = f'kafka_consumergroup_assigned{{kafka_cluster="test",consumergroup="{group}",topic='
            assert {f'{topics}"{left}"}} 0', f'{topics}"{read}"}} 1'} <= set(swept.shown().splitlines())


@pytest.fixture(scope="module")
def fresh(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that nobody has asked for a group."""
    with Broker(tmp_path_factory.mktemp("fresh"), jars=kafka_jars) as running:
        yield running


def test_polls_and_sweeps_make_no_topic(fresh: Broker) -> None:
    """A broker without groups has no ``__consumer_offsets``, which a consumer alone would make it have."""
    bench, clock = Workbench(fresh.bootstrap), SystemClock()
    bench.create("orders")
    properties = {"bootstrap.servers": fresh.bootstrap}
    polled = KafkaSource(properties, clock=clock, include=["orders"], worth_batching=1)
    groups = KafkaSource(properties, clock=clock)
    for _ in range(2):
        assert polled.ends(polled.metadata().membership).reason.tolist() == [ANSWERED]
        groups.groups.list_groups()
    time.sleep(2)
    assert OFFSETS not in bench.admin.list_topics(timeout=10).topics
    assert polled.batched.consumer is None
    consumer = groups.client.make_consumer("any")
    consumer.poll(0)
    bench.until(lambda: OFFSETS in bench.admin.list_topics(timeout=10).topics)
    polled.ends(polled.metadata().membership)
    assert polled.batched.consumer is not None, "from when others made it on"
    for each in (consumer, polled, groups):
        each.close()


def test_a_share_group_leaves_open_who_reads_a_topic(fresh: Broker, kafka_jars: Path, cache: Path) -> None:
    """It is live, and no request says what it reads: it is shown, and no topic is called unread."""
    tools = resolve_kafka(cache=cache, progress=print, artifact="kafka-tools")
    workbench = Workbench(fresh.bootstrap)
    for topic in ("shared", "plain"):
        workbench.create(topic)
    workbench.write([("plain", 0, DAY_AGO)] * 2)
    share = ["org.apache.kafka.tools.consumer.ConsoleShareConsumer", "--bootstrap-server", fresh.bootstrap]
    started = [*small_java("128m", kafka_jars, tools), *share, "--topic", "shared", "--group", "shared"]
    with ExitStack() as running:
        process = running.enter_context(subprocess.Popen(started, stdout=subprocess.DEVNULL))
        running.callback(process.kill)
        swept = running.enter_context(sweeping(fresh.bootstrap, "shared|plain", ".*"))
        workbench.until(lambda: set(swept.attempt().others or ()) == {"shared"}, seconds=120)
        running.enter_context(member(fresh.bootstrap, "g", "plain", 1))
        sweep = swept.sweep()
        assert set(sweep.others or ()) == {"shared"}
        assert readers(sweep, "shared", "plain") == {"shared": None, "plain": {"g": ASSIGNED}}
        shown = swept.shown()
        assert 'kafka_topic_consumergroups{kafka_cluster="test",topic="plain"} 1' in shown
        assert 'kafka_topic_consumergroups{kafka_cluster="test",topic="shared"}' not in shown

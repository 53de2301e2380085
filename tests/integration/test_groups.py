"""Consumer groups on real brokers: who reads a topic, what lag means, and that Kafka's own tool prints the same."""

import random
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import kafka
import pytest
from kafka.admin import KafkaAdminClient
from kafka.structs import OffsetAndMetadata

from exporter.clock import SystemClock
from exporter.domain.groups.consumer_groups import GroupState
from exporter.domain.groups.readers import find_readers
from exporter.domain.groups.sweep import GroupRole
from exporter.domain.polls.readings import ANSWERED, Reason, TopicPartition
from exporter.kafka.source import KafkaSource
from tests.demo.broker import Broker, resolve_kafka
from tests.groups import GroupPartition, groups_of, readers
from tests.integration.kafka import DAY_AGO
from tests.integration.kafka_tools import kafka_tool, small_java
from tests.integration.sweeping import Swept, commit, forget, member, subscription, sweeping
from tests.workbench import Workbench

OFFSETS = "__consumer_offsets"
ASSIGNED, LEFT, GONE = GroupRole.ASSIGNED, GroupRole.COMMITTED, GroupRole.GONE
STATES = {"Stable": GroupState.STABLE, "Empty": GroupState.EMPTY}


@pytest.fixture
def swept(workbench: Workbench, name: str) -> Iterator[Swept]:
    with sweeping(workbench.bootstrap, f"{name}.*") as swept:
        yield swept


def test_topics_and_groups_that_are_gone_leave_no_series(workbench: Workbench, swept: Swept, name: str) -> None:
    kept_topic, gone_topic = f"{name}-kept", f"{name}-gone"
    for topic in (kept_topic, gone_topic):
        workbench.create(topic)
        workbench.write([(topic, 0, DAY_AGO)] * 4)
    offsets = {TopicPartition(kept_topic, 0): 1, TopicPartition(gone_topic, 0): 2}
    first, second = f"{name}-first", f"{name}-second"
    for group in (first, second):
        commit(workbench.bootstrap, group, offsets)
    assert {group: len(at) for group, at in swept.positions().items()} == {first: 2, second: 2}
    assert f'consumergroup="{second}",topic="{gone_topic}"}}' in swept.shown()
    workbench.delete(gone_topic)
    assert set(swept.positions()[first]) == {TopicPartition(kept_topic, 0)}
    assert f'"{gone_topic}"' not in swept.shown()
    forget(workbench, first)
    assert list(swept.positions()) == [second]
    assert f'"{first}"' not in swept.shown()
    forget(workbench, second)
    assert swept.positions() == {}
    with sweeping(workbench.bootstrap, f"{name}.*", groups=".*") as everyone:
        everyone.sweep()  # that nobody reads a topic is known where no group on the shared broker is left out
        assert f'kafka_topic_consumergroups{{kafka_cluster="test",topic="{kept_topic}"}} 0' in everyone.shown()
    commit(workbench.bootstrap, first, {TopicPartition(kept_topic, 0): 4})
    assert swept.positions() == {first: {TopicPartition(kept_topic, 0): GroupPartition(4, lag=0, lost=0)}}


def test_a_group_without_a_name_costs_only_itself(workbench: Workbench, name: str) -> None:
    """Kafka takes its offsets for the sake of old clients, librdkafka asks for none: it is counted, others shown."""
    workbench.create(name)
    workbench.write([(name, 0, DAY_AGO)] * 4)
    key = TopicPartition(name, 0)
    old = KafkaAdminClient(bootstrap_servers=workbench.bootstrap)
    try:
        # The coordinator of a name is its partition of __consumer_offsets, which the first commit makes.
        commit(workbench.bootstrap, name, {key: 1})
        old.alter_group_offsets("", {kafka.TopicPartition(*key): OffsetAndMetadata(1, "", -1)})
        with sweeping(workbench.bootstrap, name, groups=f"|{name}") as swept:
            sweep = swept.attempt()
            assert sweep.failures == {Reason.INVALID_REQUEST: 1}
            assert {group: each.partitions for group, each in groups_of(sweep).items()} == {
                name: {key: GroupPartition(1, lag=3, lost=0)}
            }
    finally:
        old.delete_groups([""])
        old.close()


def test_kafkas_own_tool_prints_the_same(
    broker: Broker, workbench: Workbench, swept: Swept, name: str, cache: Path
) -> None:
    rng = random.Random(20261122)
    topics = {f"{name}-{number}": rng.randint(1, 4) for number in range(6)}
    keys = [TopicPartition(topic, number) for topic, count in topics.items() for number in range(count)]
    ends = {key: rng.choice([0, 1, 7, 30]) for key in keys}
    for topic, count in topics.items():
        workbench.create(topic, count)
    workbench.write([(*key, DAY_AGO) for key, end in ends.items() for _ in range(end)])
    groups = [f"{name}-group-{number}" for number in range(12)]
    for group in groups:
        commit(broker.bootstrap, group, {key: rng.randint(0, ends[key]) for key in rng.sample(keys, 4)})
    for key in rng.sample([key for key in keys if ends[key]], 4):
        workbench.delete_records(*key, rng.randint(1, ends[key]))
    producer = workbench.write_transaction(*keys[0], DAY_AGO, name)
    busy = max(topics, key=lambda topic: sum(end for key, end in ends.items() if key.topic == topic))
    classic, new = f"{name}-classic", f"{name}-new"
    with (
        member(broker.bootstrap, classic, busy, 2),
        member(broker.bootstrap, new, busy, 3, "consumer"),
        ThreadPoolExecutor(2) as two,
    ):
        options = ("--bootstrap-server", broker.bootstrap, "--describe", "--all-groups")
        main = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
        printed = [two.submit(kafka_tool, cache, main, *options, option) for option in ("--offsets", "--state")]
        sweep = swept.sweep()
        offsets, states = ([line.split() for line in each.result().stdout.splitlines()] for each in printed)
    producer.abort_transaction(30)
    assert set(groups_of(sweep)) == {*groups, classic, new}
    by_tool = {
        (group, TopicPartition(topic, int(number))): (int(offset), int(end), int(lag))
        for group, topic, number, offset, end, lag, *_ in (line for line in offsets if len(line) == 9)
        if group in groups_of(sweep) and offset != "-"
    }
    assert by_tool == {
        (group, key): (at.committed, at.committed + (at.lag or 0), at.lag)
        for group, known in groups_of(sweep).items()
        for key, at in known.partitions.items()
    }
    assert len(by_tool) >= 4 * len(groups) + 2
    assert {line[0]: (STATES[line[-2]], int(line[-1])) for line in states if line and line[0] in groups_of(sweep)} == {
        group: (known.state, known.members) for group, known in groups_of(sweep).items()
    }


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
            workbench.until(lambda: consumer.poll(0.1) or consumer.assignment())
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

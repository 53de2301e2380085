"""Consumer groups on a real broker, as a sweep sees them (Kafka 4.3.1)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, TopicPartition

from exporter.demo.broker import Broker
from exporter.kafka import GroupWatch, KafkaSource
from exporter.model import Group, GroupPartition, GroupState, GroupSweep
from exporter.model import TopicPartition as Partition
from exporter.parts import SystemClock
from tests.integration.kafka import DAY_AGO
from tests.integration.watch import Watch
from tests.workbench import QUIET, Workbench


class Swept:
    """The groups of one broker whose names a pattern matches, polled and swept as the exporter does it."""

    def __init__(self, broker: Broker, topics: str, groups: str) -> None:
        self.watch = GroupWatch(
            "test",
            SystemClock(),
            KafkaSource({"bootstrap.servers": broker.bootstrap}, clock=SystemClock()),
            interval=60.0,
            include=[groups],
        )
        self._polls = Watch(broker.bootstrap, [topics], sinks=[self.watch])

    def sweep(self) -> GroupSweep:
        """Poll, sweep, and insist that every group was read."""
        self._polls.poll()
        sweep = self.watch.sweep()
        assert sweep.complete, sweep
        return sweep

    def close(self) -> None:
        self.watch.close()
        self._polls.source.close()


@pytest.fixture
def swept(broker: Broker, request: pytest.FixtureRequest) -> Iterator[Swept]:
    """What is called as the test is."""
    name = request.node.name.removeprefix("test_")
    swept = Swept(broker, f"{name}.*", f"{name}.*")
    yield swept
    swept.close()


def commit(workbench: Workbench, group: str, offsets: dict[Partition, int]) -> None:
    """Commit without ever being a member, as a consumer with assign() does."""
    consumer = Consumer({"bootstrap.servers": workbench.bootstrap, "group.id": group, **QUIET})
    consumer.commit(offsets=[TopicPartition(*key, offset) for key, offset in offsets.items()], asynchronous=False)
    consumer.close()


@contextmanager
def member(workbench: Workbench, group: str, protocol: str, topic: str, records: int) -> Iterator[Consumer]:
    """A member of a group that has read and committed so many records."""
    consumer = Consumer(
        {
            "bootstrap.servers": workbench.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **QUIET,
        }
    )
    consumer.subscribe([topic])
    try:
        taken = [message for _ in range(records) if (message := consumer.poll(60)) is not None and not message.error()]
        assert len(taken) == records
        consumer.commit(taken[-1], asynchronous=False)
        yield consumer
    finally:
        consumer.close()


def forget(workbench: Workbench, *groups: str) -> None:
    """Delete groups."""
    for future in workbench.admin.delete_consumer_groups(list(groups)).values():
        future.result(30)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_is_known_by_either_protocol(broker: Broker, workbench: Workbench, protocol: str) -> None:
    """State, members, committed offset and lag of a classic and of a KIP-848 group; without members it is empty."""
    name = f"either-{protocol}"
    workbench.create(name)
    workbench.write([(name, 0, DAY_AGO)] * 5)
    swept = Swept(broker, name, name)
    with member(workbench, name, protocol, name, 3):
        [group] = swept.sweep().groups.values()
    position = {Partition(name, 0): GroupPartition(3, lag=2, lost=0)}
    assert group == Group(GroupState.STABLE, 1, position, frozenset({name}))
    assert swept.sweep().groups == {name: Group(GroupState.EMPTY, 0, position, frozenset({name}))}
    forget(workbench, name)
    assert swept.sweep().groups == {}
    workbench.delete(name)
    swept.close()

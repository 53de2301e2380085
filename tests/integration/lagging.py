"""Time lags as the exporter measures them on a real broker, and the records that they are held against."""

from __future__ import annotations

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError
from confluent_kafka import TopicPartition as Named

from exporter.clock import SystemClock
from exporter.collectors.consumer_groups import GroupWatch
from exporter.collectors.time_lags import TimeLags
from exporter.domain.groups.sweep import GroupSweep
from exporter.domain.polls.readings import TopicPartition
from exporter.kafka.source import KafkaSource
from tests.groups import GroupPartition, TimeLag, groups_of
from tests.integration.watch import Watch
from tests.timelog import Log
from tests.workbench import QUIET, Workbench

TOLERANCE = 1.0


class Exporter:
    """Polls and sweeps one broker as the exporter does."""

    def __init__(self, bootstrap: str, names: str) -> None:
        clock = SystemClock()
        source = KafkaSource({"bootstrap.servers": bootstrap}, clock=clock)
        lags = TimeLags(clock, source, tolerance=TOLERANCE)
        self.groups = GroupWatch("test", clock, source, interval=60.0, include=[names], time_lags=lags)
        self._polls = Watch(bootstrap, [names], sinks=[self.groups])

    def sweep(self) -> GroupSweep:
        """Poll, sweep, and insist that every group was read."""
        self._polls.poll()
        sweep = self.groups.sweep()
        assert sweep.complete, sweep
        return sweep

    def position(self, group: str) -> GroupPartition:
        """Sweep, and return where a group stands in the only partition of the topic of its name."""
        return groups_of(self.sweep())[group].partitions[TopicPartition(group, 0)]

    def lag(self, group: str) -> TimeLag:
        """Sweep, and insist that there is a time lag."""
        position = self.position(group)
        assert position.time_lag is not None, position
        return position.time_lag

    def close(self) -> None:
        self.groups.close()
        self._polls.source.close()


def read(workbench: Workbench, topic: str, partition: int = 0) -> Log:
    """Read every record of a partition, as a group would: what is true of it."""
    consumer = Consumer(
        {"bootstrap.servers": workbench.bootstrap, "group.id": "none", "enable.partition.eof": True, **QUIET}
    )
    low, high = consumer.get_watermark_offsets(Named(topic, partition), timeout=30)
    consumer.assign([Named(topic, partition, OFFSET_BEGINNING)])
    records: list[tuple[int, int]] = []
    while (message := consumer.poll(30)) is not None and not message.error():
        records.append((message.offset() or 0, message.timestamp()[1]))
    consumer.close()
    ended = None if message is None else message.error()
    assert ended is not None and ended.code() == KafkaError._PARTITION_EOF, ended  # noqa: SLF001 - named so
    return Log(records, high, low)

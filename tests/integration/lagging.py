"""Time lags as the exporter measures them on a real broker, and the records that they are held against."""

from __future__ import annotations

import time

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
    """Polls and sweeps one broker as the exporter does, at a clock that a test may set forward."""

    def __init__(self, bootstrap: str, names: str, *, tolerance: float = TOLERANCE, groups: str | None = None) -> None:
        self.ahead = 0.0
        self.source = KafkaSource({"bootstrap.servers": bootstrap}, clock=self)
        lags = TimeLags(self, self.source, tolerance=tolerance)
        self.groups = GroupWatch("test", self, self.source, interval=60.0, include=[groups or names], time_lags=lags)
        self._polls = Watch(bootstrap, [names], sinks=[self.groups])

    def now(self) -> float:
        """Unix seconds."""
        return time.time() + self.ahead

    def monotonic(self) -> float:
        """Seconds."""
        return SystemClock().monotonic()

    def sweep(self) -> GroupSweep:
        """Poll, sweep, and insist that every group was read."""
        self._polls.poll()
        sweep = self.groups.sweep()
        assert sweep.complete, sweep
        return sweep

    def position(self, group: str, topic: str | None = None) -> GroupPartition:
        """Sweep, and return where a group stands in the only partition of the topic of its name."""
        return groups_of(self.sweep())[group].partitions[TopicPartition(topic or group, 0)]

    def lag(self, group: str, topic: str | None = None) -> TimeLag:
        """Sweep, and insist that there is a time lag."""
        position = self.position(group, topic)
        assert position.time_lag is not None, position
        return position.time_lag

    def close(self) -> None:
        """Let go of connections."""
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

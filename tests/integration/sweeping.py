"""Consumer groups as a test makes them, and as a sweep of the exporter sees them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from exporter.clock import SystemClock
from exporter.collectors.consumer_groups import GroupWatch
from exporter.collectors.time_lags import TimeLags
from exporter.domain.groups.sweep import GroupSweep
from exporter.domain.polls.readings import PollFailure
from exporter.domain.polls.readings import TopicPartition as Partition
from exporter.domain.polls.table import Snapshot
from exporter.kafka.source import KafkaSource
from exporter.metrics.catalogue import GROUP_METRICS
from exporter.metrics.groups import GroupSeries
from tests.exposed import exposed
from tests.groups import GroupPartition, groups_of
from tests.integration.watch import Watch
from tests.waiting import until
from tests.workbench import QUIET, Workbench


class Swept:
    """The groups and topics of one cluster whose names match a pattern, polled and swept as the exporter does it."""

    def __init__(
        self,
        bootstrap: str,
        topics: str,
        groups: str | None = None,
        *,
        timeout: float = 10.0,
        missed_sweeps: int = 3,
        tolerance: float | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        """``tolerance``: the seconds to which time lags are measured, where they are."""
        further = properties or {}
        self.source = KafkaSource(
            {"bootstrap.servers": bootstrap, **further}, clock=SystemClock(), request_timeout=timeout
        )
        self.watch = GroupWatch(
            "test",
            SystemClock(),
            self.source,
            interval=60.0,
            include=[topics if groups is None else groups],
            missed_sweeps=missed_sweeps,
            time_lags=None if tolerance is None else TimeLags(SystemClock(), self.source, tolerance=tolerance),
        )
        self.series = GroupSeries("test")
        self._polls = Watch(bootstrap, [topics], timeout=timeout, sinks=[self.watch], **further)

    def attempt(self) -> GroupSweep:
        """Poll, sweep and show it, whatever comes of it."""
        return self._after(self._polls.attempt())

    def sweep(self) -> GroupSweep:
        """Poll and sweep, and insist that the cluster could be asked and every group was read."""
        sweep = self._after(self._polls.poll())
        assert sweep.complete, sweep
        return sweep

    def _after(self, polled: Snapshot | PollFailure) -> GroupSweep:
        sweep = self.watch.sweep()
        if isinstance(polled, Snapshot):
            self.series.update(sweep, polled.metadata.topics)
        return sweep

    def positions(self) -> Mapping[str, Mapping[Partition, GroupPartition]]:
        """Sweep, and return where each group stands."""
        return {name: group.partitions for name, group in groups_of(self.sweep()).items()}

    def shown(self) -> str:
        """What a scrape gets of the last sweep."""
        return exposed({"test": self.series}, 0.0, GROUP_METRICS)

    def close(self) -> None:
        self.source.close()
        self._polls.source.close()


@contextmanager
def sweeping(bootstrap: str, topics: str, groups: str | None = None) -> Iterator[Swept]:
    """Sweep for as long as this lasts, then let go of connections."""
    swept = Swept(bootstrap, topics, groups)
    try:
        yield swept
    finally:
        swept.close()


def commit(bootstrap: str, group: str, offsets: Mapping[str, int] | Mapping[Partition, int]) -> None:
    """Commit without ever being a member; a topic alone stands for its partition 0."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, **QUIET})
    named = {Partition(key, 0) if isinstance(key, str) else key: offset for key, offset in offsets.items()}

    def committed() -> bool:
        try:
            consumer.commit(offsets=[TopicPartition(*key, offset) for key, offset in named.items()], asynchronous=False)
        except KafkaException as error:
            cause: Any = error.args[0]
            if cause.code() != KafkaError.NOT_COORDINATOR:  # what the first commit makes is not led at once
                raise
            return False
        return True

    until(committed, f"a commit of {group}")
    consumer.close()


@contextmanager
def subscription(bootstrap: str, group: str, topic: str, protocol: str = "classic") -> Iterator[Consumer]:
    """A member of a group that wants a topic, until it leaves at the end; it has no partition before it polls."""
    settings: Mapping[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer({**settings, **QUIET})
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        consumer.close()


@contextmanager
def member(bootstrap: str, group: str, topic: str, records: int, protocol: str = "classic") -> Iterator[Consumer]:
    """A member of a group that has read and committed so many records."""
    with subscription(bootstrap, group, topic, protocol) as consumer:
        taken = [message for _ in range(records) if (message := consumer.poll(60)) is not None and not message.error()]
        assert len(taken) == records
        consumer.commit(taken[-1], asynchronous=False)
        yield consumer


def forget(workbench: Workbench, *groups: str) -> None:
    for future in workbench.admin.delete_consumer_groups(list(groups)).values():
        future.result(30)

"""A real cluster watched as the exporter does it, one poll at a time, by a test."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from exporter.clock import SystemClock
from exporter.collectors.poller import Poller
from exporter.domain.polls.readings import PollFailure, Reason, State, TopicPartition
from exporter.domain.polls.table import Snapshot
from exporter.domain.ports import SnapshotSink
from exporter.kafka.msk_iam import AwsIam
from exporter.kafka.source import KafkaSource
from exporter.state.monitor import Monitor
from tests.monitors import monitor_of
from tests.times import end_of
from tests.views import Reading, readings_of
from tests.waiting import until


def watching(**settings: Any) -> Monitor:
    """What the exporter makes metrics and pages of one cluster with, which is called ``test``."""
    return monitor_of(SystemClock(), {"test": {}}, **settings)


class AheadClock(SystemClock):
    """The clock of this machine, some seconds ahead: a test need not wait for them."""

    seconds = 0.0

    def now(self) -> float:
        return super().now() + self.seconds

    def monotonic(self) -> float:
        return super().monotonic() + self.seconds


class Watch:
    """The exporter's own source and poller on the topics a test names."""

    def __init__(  # noqa: PLR0913 - each is one of a source or a poller
        self,
        bootstrap: str,
        include: Sequence[str],
        *,
        timeout: float = 10.0,
        budget: float | None = None,
        sinks: Sequence[SnapshotSink] = (),
        earliest_polls: int = 1,
        metadata_seconds: float = 0.0,
        worth_batching: int | None = None,
        iam: AwsIam | None = None,
        **properties: Any,
    ) -> None:
        self.clock = AheadClock()
        self.source = KafkaSource(
            {"bootstrap.servers": bootstrap, **properties},
            aws_iam=iam,
            clock=self.clock,
            request_timeout=timeout,
            include=include,
            budget=budget,
            worth_batching=worth_batching,
        )
        self._poller = Poller(
            "test",
            self.source,
            sinks,
            self.clock,
            earliest_polls=earliest_polls,
            metadata_seconds=metadata_seconds,
        )

    def poll(self) -> Snapshot:
        """Poll, and insist that the cluster could be asked."""
        outcome = self.attempt()
        assert isinstance(outcome, Snapshot), outcome
        return outcome

    def attempt(self) -> Snapshot | PollFailure:
        """Poll, whatever comes of it."""
        return self._poller.poll()

    def fail(self) -> PollFailure:
        """Poll, and insist that the cluster could not be asked."""
        outcome = self.attempt()
        assert isinstance(outcome, PollFailure), outcome
        return outcome

    def poll_until(self, true: Callable[[Mapping[TopicPartition, Reading]], bool], seconds: float = 90.0) -> Snapshot:
        """Poll until something is so of what a poll read, and return that poll."""
        found: list[Snapshot] = []

        def polled() -> bool:
            found.append(self.poll())
            return true(readings_of(found[-1]))

        until(polled, "what a poll reads", seconds)
        return found[-1]

    def reading(self, topic: str, partition: int = 0) -> Reading:
        """Poll, and return what was learnt of one partition."""
        return readings_of(self.poll())[TopicPartition(topic, partition)]

    def await_latest(self, topic: str, offset: int, seconds: float = 90.0) -> None:
        """Wait until partition 0 ends at ``offset``: a transaction's marker comes after its commit has returned."""
        until(
            lambda: end_of(self.source, TopicPartition(topic, 0)).offset == offset, f"{topic} ends at {offset}", seconds
        )


def seen(reading: Reading) -> tuple[State, int | None, int | None, float | None]:
    """What a reading says of its log: state, earliest, latest, newest."""
    return reading.state, reading.earliest, reading.latest, reading.newest


def advanced(reading: Reading) -> tuple[int, bool]:
    """What a poll saw happen: records gained, and whether offsets started over."""
    return reading.advanced_by, reading.restarted


UNREACHED = {Reason.LEADER_UNREACHABLE, Reason.TIMED_OUT, Reason.NO_LEADER}
"""What a look-up says of a leader that is gone: it depends on how much librdkafka has noticed."""

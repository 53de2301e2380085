"""Inspections: log sizes of partitions, read slowly and independently of polls.

A poll uses the last answer of each broker: a slow or failed answer costs a gauge, never a poll.
"""

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from exporter.collectors.round import MAX_FAILED_ROUNDS, Round
from exporter.domain.polls.inspections import BrokerLogs, Inspections, sizes_of
from exporter.domain.polls.metadata import Metadata
from exporter.domain.polls.readings import GONE
from exporter.domain.polls.table import Snapshot
from exporter.domain.ports import Clock, SnapshotSink, SourceError
from exporter.kafka.process import LOG_DIRS, RemoteClient


class Inspector(SnapshotSink):
    """Keeps the log sizes of one cluster.

    A sink of polls, which know the partitions. One thread polls and one inspects: shared objects are replaced, never
    changed.
    """

    def __init__(self, cluster: str, clock: Clock, *, interval: float, client: Callable[[], RemoteClient]) -> None:
        """``client`` connects the client of one inspection.

        ``interval`` is in seconds, and also the time limit of an inspection.
        """
        self._cluster = cluster
        self._clock = clock
        self._interval = interval
        self._client = client
        self._metadata: Metadata | None = None
        self._brokers: Mapping[int, BrokerLogs] = {}

    def accept(self, snapshot: Snapshot) -> None:
        """Take the partitions and their brokers."""
        self._metadata = snapshot.metadata

    def results(self, metadata: Metadata) -> Inspections:
        """Return all results that are not too old. Sends no request."""
        oldest = self._clock.monotonic() - (MAX_FAILED_ROUNDS + 1) * self._interval
        return sizes_of(metadata, {number: logs for number, logs in self._brokers.items() if logs.at >= oldest})

    def inspect(self, stop: Callable[[], bool] = lambda: False) -> Round:
        """Ask all brokers, for at most one interval or until ``stop``; return cost and failures."""
        metadata, inspection = self._metadata, Round(self._cluster, "log sizes")
        if metadata is None or not len(metadata.membership.layout):
            return inspection
        ends, inspection.at = self._clock.monotonic() + self._interval, self._clock.now()

        def enough() -> bool:
            return stop() or self._clock.monotonic() >= ends

        try:
            with self._client() as client:
                for broker, logs in ask_brokers(client, metadata, self._clock, self._brokers, enough):
                    self._brokers = {**self._brokers, broker: logs}
                    inspection.lookups[LOG_DIRS] += len(logs.layout)
                    inspection.failures[LOG_DIRS, logs.sizes.missing, broker] += int((~logs.sizes.log.known).sum())
        except SourceError as error:
            inspection.problem = error.detail
        inspection.failures = +inspection.failures
        return inspection


def ask_brokers(
    client: RemoteClient,
    metadata: Metadata,
    clock: Clock,
    before: Mapping[int, BrokerLogs],
    enough: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[int, BrokerLogs]]:
    """Ask each broker for the sizes of all its replicas at once, those with the oldest answers first.

    Brokers that gave no answer ``before`` come last, because each costs a whole time limit. A replica that moved since
    the metadata was read has no size: it is asked for where it is in the next one.
    """
    membership = metadata.membership
    row = np.repeat(np.arange(len(membership.layout)), np.diff(membership.first_replica))

    def turn(broker: int) -> tuple[bool, float]:
        last = before.get(broker)
        return (False, -math.inf) if last is None else (last.sizes.missing in GONE, last.at)

    for broker in sorted(np.unique(membership.replicas).tolist(), key=turn):
        if enough():
            return
        layout = membership.layout.part(np.unique(row[membership.replicas == broker]))
        ids = {name: metadata.topics[name].topic_id for name in layout.topics}
        sizes = client.log_sizes(layout, broker)
        yield broker, BrokerLogs(layout, ids, sizes, clock.monotonic())

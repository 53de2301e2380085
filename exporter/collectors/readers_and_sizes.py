"""Reads once who reads the topics of a cluster now, and how many bytes they take."""

import math
from collections import defaultdict

import numpy as np

from exporter.collectors.consumer_groups import GroupWatch
from exporter.collectors.log_sizes import ask_brokers
from exporter.domain.arrays import Floats
from exporter.domain.formatting import list_some
from exporter.domain.judging.audit import TopicRelations
from exporter.domain.polls.inspections import sizes_of
from exporter.domain.polls.metadata import Metadata
from exporter.domain.polls.readings import ANSWERED, Reason
from exporter.domain.polls.table import Snapshot, Table
from exporter.domain.ports import Clock
from exporter.kafka.process import RemoteClient


def read_readers(source: RemoteClient, metadata: Metadata, clock: Clock) -> TopicRelations:
    """Sweep all consumer groups once, for their assignments and committed offsets. Raises no Kafka error."""
    watch = GroupWatch("", clock, source, interval=math.inf)
    # A table without leaders: lags are not wanted, and no end of a log is looked up.
    table = Table.empty(metadata.membership.layout)
    watch.accept(Snapshot("", clock.now(), clock.monotonic(), 0.0, metadata, table, {}, {}))
    sweep = watch.sweep()
    if sweep.reason is not None:
        return TopicRelations(problems=(f"consumer groups are not known: {sweep.problem}",))
    positions, names = sweep.positions, sweep.positions.rows.names
    assigned, committed = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    for name, topics in zip(names, positions.assigned, strict=True):
        for topic in topics:
            assigned[topic].add(name)
    rows, _ = positions.rows.group_by_topic()
    for group, number in zip(rows.group.tolist(), rows.partition.tolist(), strict=True):
        committed[rows.layout.topics[number]].add(names[group])
    failed = {*sweep.failures, *sweep.unlisted}
    if names and not sweep.all_visible:
        failed.add(Reason.UNAUTHORIZED)
    unclear = [names[group] for group in np.flatnonzero(~positions.settled & (positions.undescribed == ANSWERED))]
    others = ["perhaps others"] if sweep.others is None else sorted(sweep.others)
    why = [f"some consumer groups are not known: {', '.join(sorted(failed))}"] if failed else []
    if unclear:
        why.append(f"groups that rebalance do not say what they read: {list_some(unclear)}")
    if others:
        why.append(f"share and streams groups do not say what they read: {list_some(others)}")
    return TopicRelations(
        {topic: tuple(sorted(names)) for topic, names in assigned.items()},
        {topic: tuple(sorted(names - assigned[topic])) for topic, names in committed.items()},
        not why,
        problems=tuple(why),
    )


def read_sizes(client: RemoteClient, metadata: Metadata, clock: Clock) -> tuple[Floats, str | None]:
    """Return the bytes of all replicas of each topic, NaN where not all are known, and why some are unknown.

    Raises SourceError where it cannot connect, or its process ends.
    """
    brokers = dict(ask_brokers(client, metadata, clock, {}))
    disk = sizes_of(metadata, brokers).disk_bytes_of_topics
    reasons = {str(logs.sizes.missing) for logs in brokers.values() if not logs.sizes.log.known.all()}
    return np.where(disk.known, disk.value, np.nan), ", ".join(sorted(reasons)) or None

"""Reads once who reads the topics of a cluster now, and how many bytes they take."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from exporter.collectors.consumer_groups import GROUPS_AT_A_TIME
from exporter.collectors.log_sizes import ask_brokers
from exporter.domain.arrays import Floats
from exporter.domain.formatting import list_some
from exporter.domain.judging.audit import TopicRelations
from exporter.domain.polls.inspections import sizes_of
from exporter.domain.polls.metadata import Metadata
from exporter.domain.polls.readings import Reason
from exporter.domain.ports import Clock, SourceError
from exporter.kafka.process import RemoteClient


def read_readers(source: RemoteClient) -> TopicRelations:
    """Ask for all consumer groups, their assignments and their committed offsets. Raises no Kafka error."""
    assigned, committed = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    failed: set[Reason] = set()
    unclear, others = list[str](), list[str]()
    try:
        listing = source.groups.list_groups()
        failed.update(listing.unlisted)
        others = ["perhaps others"] if listing.others is None else sorted(listing.others)
        if listing.names and not listing.all_visible:
            failed.add(Reason.UNAUTHORIZED)
        names = sorted(listing.names)
        for at in range(0, len(names), GROUPS_AT_A_TIME):
            described = source.groups.describe(names[at : at + GROUPS_AT_A_TIME])
            for name, answer in described.items():
                if isinstance(answer, Reason):
                    failed.add(answer)
                    continue
                if answer.assigned is None:
                    unclear.append(name)
                for topic in answer.assigned or ():
                    assigned[topic].add(name)
            offsets = source.groups.read_committed(
                [name for name, answer in described.items() if not isinstance(answer, Reason)]
            )
            failed.update(offsets.failed.values())
            for number, name in enumerate(offsets.names):
                mine = offsets.topic[offsets.first[number] : offsets.first[number + 1]]
                for topic in np.unique(mine).tolist():
                    committed[offsets.topics[topic]].add(name)
    except SourceError as error:
        return TopicRelations(problems=(f"consumer groups are not known: {error.detail}",))
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
    disk = sizes_of(metadata, brokers).of_topics.disk_bytes
    reasons = {str(logs.sizes.missing) for logs in brokers.values() if not logs.sizes.log.known.all()}
    return np.where(disk.known, disk.value, np.nan), ", ".join(sorted(reasons)) or None

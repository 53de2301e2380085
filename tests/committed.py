"""Committed offsets as a test compares them."""

from __future__ import annotations

from exporter.domain.groups.consumer_groups import Committed
from exporter.domain.polls.readings import Reason, TopicPartition


def by_name(committed: Committed) -> dict[str, dict[TopicPartition, int] | Reason]:
    """What each group has committed, or why it could not be read."""
    found: dict[str, dict[TopicPartition, int] | Reason] = dict(committed.failed)
    columns = zip(committed.topic.tolist(), committed.partition.tolist(), committed.offset.tolist(), strict=True)
    offsets = [(TopicPartition(committed.topics[topic], number), offset) for topic, number, offset in columns]
    for at, name in enumerate(committed.names):
        found[name] = dict(offsets[committed.first[at] : committed.first[at + 1]])
    return found

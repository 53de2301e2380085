"""Committed offsets as a test compares them."""

from __future__ import annotations

from exporter.domain import Reason, TopicPartition
from exporter.domain.consumer_groups import Committed


def by_name(told: Committed) -> dict[str, dict[TopicPartition, int] | Reason]:
    """What each group has committed, or why it could not be read."""
    found: dict[str, dict[TopicPartition, int] | Reason] = dict(told.failed)
    columns = zip(told.topic.tolist(), told.partition.tolist(), told.offset.tolist(), strict=True)
    listed = [(TopicPartition(told.topics[topic], number), offset) for topic, number, offset in columns]
    for at, name in enumerate(told.names):
        found[name] = dict(listed[told.first[at] : told.first[at + 1]])
    return found

"""One ListOffsets call with one future for all of its partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, cast

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient

from exporter.kafka.errors import OffsetResult

OffsetResults = Mapping[TopicPartition, OffsetResult]
"""The result of each partition of a call that ended. A partition may be missing."""

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3

_NAMES = {LATEST: "latest", EARLIEST: "earliest", MAX_TIMESTAMP: "max-timestamp"}

_COMMITTED_OR_NOT = IsolationLevel.READ_UNCOMMITTED


def list_offsets(admin: AdminClient, partitions: Sequence[TopicPartition], timeout: float) -> Future[OffsetResults]:
    """Start a call; the ``offset`` of each partition is its target: a spec (negative) or a time in milliseconds.

    ``AdminClient.list_offsets`` (2.16.1) makes a future for each partition, which is half the CPU of a look-up, around
    a method of its base class that needs one. ``timeout`` is in seconds. The future may raise KafkaException.
    """
    found: Future[OffsetResults] = Future()
    found.set_running_or_notify_cancel()
    cast("Any", super(AdminClient, admin)).list_offsets(
        list(partitions), found, isolation_level_value=_COMMITTED_OR_NOT.value, request_timeout=timeout
    )
    return found


def spec_name(offset: int) -> str:
    """Return the name of a target, which is the ``offset`` of a partition in a call."""
    return _NAMES.get(offset, "by-time")

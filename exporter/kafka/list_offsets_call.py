"""One ListOffsets call with one future for all of its partitions."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, cast

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from exporter.kafka.errors import OffsetResult

OffsetResults = Mapping[TopicPartition, OffsetResult]
"""The result of each partition of a call that ended. A partition may be missing."""

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3

_NAMES = {LATEST: "latest", EARLIEST: "earliest", MAX_TIMESTAMP: "max-timestamp"}

_SPECS: Mapping[int, OffsetSpec] = {
    LATEST: OffsetSpec.latest(),
    EARLIEST: OffsetSpec.earliest(),
    MAX_TIMESTAMP: OffsetSpec.max_timestamp(),
}

_COMMITTED_OR_NOT = IsolationLevel.READ_UNCOMMITTED


def list_offsets(admin: AdminClient, partitions: Sequence[TopicPartition], timeout: float) -> Future[OffsetResults]:
    """Start a call; the ``offset`` of each partition is its target: a spec (negative) or a time in milliseconds.

    ``AdminClient.list_offsets`` (2.16.1) makes a future for each partition, which is half the CPU of a look-up, around
    a method of its base class that needs one. Where another release has no such method, the documented one is used.
    ``timeout`` is in seconds. The future may raise KafkaException.
    """
    found: Future[OffsetResults] = Future()
    found.set_running_or_notify_cancel()
    try:
        cast("Any", super(AdminClient, admin)).list_offsets(
            list(partitions), found, isolation_level_value=_COMMITTED_OR_NOT.value, request_timeout=timeout
        )
    except (AttributeError, TypeError):
        return by_partition(admin, partitions, timeout)
    return found


def by_partition(admin: AdminClient, partitions: Sequence[TopicPartition], timeout: float) -> Future[OffsetResults]:
    """Start the same call through the documented method."""
    specs = {TopicPartition(one.topic, one.partition): _spec(one.offset) for one in partitions}
    futures = admin.list_offsets(specs, isolation_level=_COMMITTED_OR_NOT, request_timeout=timeout)
    found: Future[OffsetResults] = Future()
    left, lock = len(futures), threading.Lock()

    def ended(_: object) -> None:
        nonlocal left
        with lock:
            left -= 1
            last = left == 0
        if last:
            found.set_result({key: _result(future) for key, future in futures.items()})

    for future in futures.values():
        future.add_done_callback(ended)
    return found


def spec_name(offset: int) -> str:
    """Return the name of a target, which is the ``offset`` of a partition in a call."""
    return _NAMES.get(offset, "by-time")


def _spec(offset: int) -> OffsetSpec:
    return _SPECS.get(offset) or OffsetSpec.for_timestamp(offset)


def _result(future: Future[Any]) -> OffsetResult:
    try:
        return cast("OffsetResult", future.result())
    except KafkaException as error:
        cause = error.args[0]
        return cause if isinstance(cause, KafkaError) else KafkaError(KafkaError._FAIL)  # noqa: SLF001 - librdkafka's own

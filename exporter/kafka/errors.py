"""Translates answers and errors of brokers and librdkafka; no sentinel value leaves this module."""

# ruff: noqa: SLF001 - librdkafka's own error codes begin with an underscore
from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException

from exporter.domain.readings import END_OF_TIME, Answer, Reason
from exporter.kafka.error_codes import reason_of_code


class ListedOffset(Protocol):
    """librdkafka's result for one partition of a ListOffsets call."""

    offset: int
    timestamp: int
    """Milliseconds."""
    leader_epoch: int | None


_LOCAL: Mapping[int, Reason] = {
    # A call of which no partition has a usable leader fails as a whole with this code (2.16.1).
    KafkaError._NOENT: Reason.NO_LEADER,
    KafkaError._TRANSPORT: Reason.LEADER_UNREACHABLE,
    KafkaError._ALL_BROKERS_DOWN: Reason.LEADER_UNREACHABLE,
    KafkaError._NODE_UPDATE: Reason.LEADER_UNREACHABLE,
    KafkaError._RESOLVE: Reason.LEADER_UNREACHABLE,
    KafkaError._SSL: Reason.LEADER_UNREACHABLE,
    KafkaError._TIMED_OUT: Reason.TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE: Reason.TIMED_OUT,
    KafkaError._WAIT_COORD: Reason.NO_COORDINATOR,
    KafkaError._AUTHENTICATION: Reason.AUTHENTICATION_FAILED,
    KafkaError._UNKNOWN_TOPIC: Reason.UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION: Reason.UNKNOWN_TOPIC,
    KafkaError._INVALID_ARG: Reason.INVALID_REQUEST,
    KafkaError._UNSUPPORTED_FEATURE: Reason.UNSUPPORTED_VERSION,
}
"""librdkafka's own codes; all others belong to the protocol."""


def reason_of(error: BaseException | KafkaError) -> Reason:
    """Return the Reason of a failed call, or of an error in an answer."""
    told = error.args[0] if isinstance(error, KafkaException) else error
    if isinstance(told, KafkaError):
        return _LOCAL.get(told.code()) or reason_of_code(told.code())
    return Reason.TIMED_OUT if isinstance(error, TimeoutError) else Reason.OTHER


def answer_of(listed: ListedOffset) -> Answer:
    """Return the answer for one partition of a ListOffsets call that raised no error.

    -1 means that no such record exists. -1001 comes from librdkafka, not from the broker: partitions of a dead or slow
    leader get it without an error after the request timeout. No other value below -1 has a meaning.
    """
    if listed.offset < -1:
        return Answer(reason=Reason.LEADER_UNREACHABLE if listed.offset == OFFSET_INVALID else Reason.OTHER)
    return Answer(
        offset=None if listed.offset < 0 else listed.offset,
        timestamp=None if listed.timestamp < 0 else min(listed.timestamp / 1000, END_OF_TIME),
        leader_epoch=listed.leader_epoch,
    )

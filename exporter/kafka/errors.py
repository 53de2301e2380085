"""Translation of what brokers and librdkafka say into our own words; no sentinel passes this door."""

# ruff: noqa: SLF001 - librdkafka's own error codes begin with an underscore
from __future__ import annotations

from typing import Protocol

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException

from exporter.domain import Answer, Reason


class ListedOffset(Protocol):
    """What librdkafka hands back for one partition of a ListOffsets call."""

    offset: int
    timestamp: int
    """Milliseconds."""
    leader_epoch: int | None


GONE = frozenset({Reason.LEADER_UNREACHABLE, Reason.TIMED_OUT})
"""Reasons of a broker that gives no answer."""

END_OF_TIME = 253_402_300_799.0
"""The last second of the year 9999. A producer may write any 64-bit number of milliseconds; later times,
which calendars and table formats cannot hold, are brought down to this one."""

_UNKNOWN_TOPIC_ID = 100  # KIP-516; without a name in the type stubs

_REASONS: dict[int, Reason] = {
    code: reason
    for reason, codes in {
        Reason.NO_LEADER: (
            KafkaError.LEADER_NOT_AVAILABLE,
            KafkaError.REPLICA_NOT_AVAILABLE,
            # A call of which no partition has a usable leader fails as a whole with this code (2.16.1).
            KafkaError._NOENT,
        ),
        Reason.NOT_LEADER: (
            KafkaError.NOT_LEADER_FOR_PARTITION,
            KafkaError.FENCED_LEADER_EPOCH,
            KafkaError.UNKNOWN_LEADER_EPOCH,
        ),
        Reason.LEADER_UNREACHABLE: (
            KafkaError._TRANSPORT,
            KafkaError._ALL_BROKERS_DOWN,
            KafkaError._NODE_UPDATE,
            KafkaError._RESOLVE,
            KafkaError._SSL,
            KafkaError.BROKER_NOT_AVAILABLE,
            KafkaError.NETWORK_EXCEPTION,
        ),
        Reason.TIMED_OUT: (KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE, KafkaError.REQUEST_TIMED_OUT),
        Reason.UNAUTHORIZED: (
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            KafkaError.GROUP_AUTHORIZATION_FAILED,
            KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        ),
        Reason.NO_COORDINATOR: (
            KafkaError.COORDINATOR_NOT_AVAILABLE,
            KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
            KafkaError.NOT_COORDINATOR,
            KafkaError._WAIT_COORD,
        ),
        Reason.AUTHENTICATION_FAILED: (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED),
        Reason.UNKNOWN_TOPIC: (
            KafkaError.UNKNOWN_TOPIC_OR_PART,
            _UNKNOWN_TOPIC_ID,
            KafkaError._UNKNOWN_TOPIC,
            KafkaError._UNKNOWN_PARTITION,
        ),
        Reason.UNSUPPORTED_FORMAT: (KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,),
        Reason.OFFSET_NOT_AVAILABLE: (KafkaError.OFFSET_NOT_AVAILABLE,),
        Reason.STORAGE_ERROR: (KafkaError.KAFKA_STORAGE_ERROR,),
        Reason.INVALID_REQUEST: (KafkaError.INVALID_REQUEST, KafkaError._INVALID_ARG),
        Reason.UNSUPPORTED_VERSION: (KafkaError.UNSUPPORTED_VERSION, KafkaError._UNSUPPORTED_FEATURE),
    }.items()
    for code in codes
}


def reason_of(error: BaseException | KafkaError) -> Reason:
    """Return the reason behind a failed call, or behind an error carried inside an answer."""
    told = error.args[0] if isinstance(error, KafkaException) else error
    if isinstance(told, KafkaError):
        return _REASONS.get(told.code(), Reason.OTHER)
    return Reason.TIMED_OUT if isinstance(error, TimeoutError) else Reason.OTHER


def reason_of_code(code: int | None) -> Reason:
    """Return the reason behind an error code of the Kafka protocol, whoever received it; None is no code."""
    return Reason.OTHER if code is None else _REASONS.get(code, Reason.OTHER)


def answer_of(listed: ListedOffset) -> Answer:
    """Return the answer for one partition of a ListOffsets call that raised no error.

    -1 means that no such record exists. -1001 is librdkafka's, not the broker's: where a leader is dead or
    slow its partitions resolve without an error as that once the request has timed out. Nothing else below
    -1 has a meaning.
    """
    if listed.offset < -1:
        return Answer(reason=Reason.LEADER_UNREACHABLE if listed.offset == OFFSET_INVALID else Reason.OTHER)
    return Answer(
        offset=None if listed.offset < 0 else listed.offset,
        timestamp=None if listed.timestamp < 0 else min(listed.timestamp / 1000, END_OF_TIME),
        leader_epoch=listed.leader_epoch,
    )

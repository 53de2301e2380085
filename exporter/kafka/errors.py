"""Translates answers and errors of brokers and librdkafka; no sentinel value leaves this module."""

# ruff: noqa: SLF001 - librdkafka's own error codes begin with an underscore
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException

from exporter.domain.arrays import Flags
from exporter.domain.polls.readings import ANSWERED, END_OF_TIME, Answers, Reason, reason_code

OffsetResult: TypeAlias = Any
"""The result of one partition: a ``KafkaError``, or a ``ListOffsetsResultInfo``, whose attributes type stubs lack.

Its timestamp is in milliseconds.
"""

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

_OF_PROTOCOL: Mapping[int, Reason] = {
    3: Reason.UNKNOWN_TOPIC,
    5: Reason.NO_LEADER,  # LEADER_NOT_AVAILABLE
    6: Reason.NOT_LEADER,
    7: Reason.TIMED_OUT,
    8: Reason.LEADER_UNREACHABLE,  # BROKER_NOT_AVAILABLE
    9: Reason.NO_LEADER,  # REPLICA_NOT_AVAILABLE
    13: Reason.LEADER_UNREACHABLE,  # NETWORK_EXCEPTION
    14: Reason.NO_COORDINATOR,  # COORDINATOR_LOAD_IN_PROGRESS
    15: Reason.NO_COORDINATOR,  # COORDINATOR_NOT_AVAILABLE
    16: Reason.NO_COORDINATOR,  # NOT_COORDINATOR
    29: Reason.UNAUTHORIZED,  # topic
    30: Reason.UNAUTHORIZED,  # group
    31: Reason.UNAUTHORIZED,  # cluster
    35: Reason.UNSUPPORTED_VERSION,
    42: Reason.INVALID_REQUEST,
    43: Reason.UNSUPPORTED_FORMAT,
    56: Reason.STORAGE_ERROR,
    58: Reason.AUTHENTICATION_FAILED,  # SASL
    74: Reason.NOT_LEADER,  # FENCED_LEADER_EPOCH
    75: Reason.NOT_LEADER,  # UNKNOWN_LEADER_EPOCH
    78: Reason.OFFSET_NOT_AVAILABLE,
    100: Reason.UNKNOWN_TOPIC,  # by id (KIP-516)
}


def reason_of_code(code: int | None) -> Reason:
    """Return the reason behind an error code; None is no code."""
    return Reason.OTHER if code is None else _OF_PROTOCOL.get(code, Reason.OTHER)


def reason_of(error: BaseException | KafkaError) -> Reason:
    """Return the Reason of a failed call, or of an error in an answer."""
    cause = error.args[0] if isinstance(error, KafkaException) else error
    if isinstance(cause, KafkaError):
        return _LOCAL.get(cause.code()) or reason_of_code(cause.code())
    return Reason.TIMED_OUT if isinstance(error, TimeoutError) else Reason.OTHER


def answers_of(results: Sequence[OffsetResult | None]) -> Answers:
    """Return the answers for n partitions of a ListOffsets call, in order; None: the call named no such partition.

    -1 means that no such record exists. -1001 comes from librdkafka, not from the broker: partitions of a dead or slow
    leader get it without an error after the request timeout. No other value below -1 has a meaning.
    """
    answers = Answers.make_blank(len(results))
    good = [one for one in results if one is not None and not isinstance(one, KafkaError)]
    rows: Flags | slice = slice(None)
    if len(good) < len(results):
        bad = np.array([one is None or isinstance(one, KafkaError) for one in results])
        answers.reason[bad] = [
            reason_code(Reason.MISSING_ANSWER if one is None else reason_of(one))
            for one in results
            if one is None or isinstance(one, KafkaError)
        ]
        rows = ~bad
    offset = np.array([one.offset for one in good], np.int64)
    milliseconds = np.array([one.timestamp for one in good], np.float64)
    epoch = np.array([-1 if one.leader_epoch is None else one.leader_epoch for one in good], np.int32)
    odd = np.where(offset == OFFSET_INVALID, reason_code(Reason.LEADER_UNREACHABLE), reason_code(Reason.OTHER))
    found = offset >= 0
    answers.reason[rows] = np.where(offset >= -1, ANSWERED, odd)
    answers.found[rows] = found
    answers.offset[rows] = np.where(found, offset, 0)
    answers.timestamp[rows] = np.where(
        found & (milliseconds >= 0), np.minimum(milliseconds / 1000, END_OF_TIME), np.nan
    )
    answers.epoch[rows] = np.where(offset >= -1, epoch, -1)
    return answers

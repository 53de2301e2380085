"""Error codes of the Kafka protocol and their Reasons, for every client."""

from __future__ import annotations

from collections.abc import Mapping

from exporter.domain.polls.readings import Reason

REASONS: Mapping[int, Reason] = {
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
    return Reason.OTHER if code is None else REASONS.get(code, Reason.OTHER)

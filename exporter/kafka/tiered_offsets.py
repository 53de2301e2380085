"""Looks up the bounds of the tiers of a partition (KIP-405, KIP-1005) through kafka-python, an optional extra.

librdkafka (2.16.1) refuses to send these two ListOffsets specs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from exporter.domain.polls.answers import ANSWERED, Answers, failure_of_all, reason_code
from exporter.domain.polls.metadata import Membership
from exporter.domain.polls.readings import BROKER_FAILED, Reason
from exporter.kafka.credentials import Property
from exporter.kafka.kafka_python import KafkaPythonClient
from exporter.kafka.kafka_python_answers import EARLIEST_LOCAL, LATEST_TIERED, PARTITIONS_PER_CALL
from exporter.kafka.msk_iam import AwsIam
from exporter.kafka.rate_limiter import RateLimiter

_SPECS = {EARLIEST_LOCAL: -4, LATEST_TIERED: -5}

_MISSING = -2
"""For a partition that an answer leaves out; -1 is Kafka's own, where there is no such record."""


class TierClient(KafkaPythonClient):
    """A client of one cluster, for offsets of tiers.

    kafka-python raises an error for a whole call when one partition fails. A failed call is therefore repeated in
    halves, so that a partition that fails costs only itself. Requests go to one leader after another.
    """

    wants = "earliest-local and latest-tiered"

    def __init__(
        self,
        properties: Mapping[str, Property | Path],
        *,
        aws_iam: AwsIam | None = None,
        request_timeout: float,
        lookups_per_second: float | None = None,
    ) -> None:
        """Connect. Raises KafkaPythonError. Each broker gets ``lookups_per_second`` at most; None: no limit."""
        super().__init__(properties, aws_iam=aws_iam, request_timeout=request_timeout)
        self._gone: dict[tuple[str, int], Reason] = {}
        """Leaders that will not answer a spec, and why."""
        self._limiter = None if lookups_per_second is None else RateLimiter(lookups_per_second, time)

    def tier(self, spec: str, membership: Membership) -> Answers:
        """EARLIEST_LOCAL or LATEST_TIERED of partitions, which have leaders.

        An answer of LATEST_TIERED without an offset means that nothing is in the remote tier. For a topic
        without remote storage EARLIEST_LOCAL is EARLIEST.
        """
        partition = self._kafka.TopicPartition
        answers = Answers.none(len(membership.layout))
        for leader in np.unique(membership.leader).tolist():
            led = np.flatnonzero(membership.leader == leader)
            for at in range(0, len(led), PARTITIONS_PER_CALL):
                rows = led[at : at + PARTITIONS_PER_CALL]
                if reason := self._gone.get((spec, leader)):
                    answers.reason[rows] = reason_code(reason)
                    continue
                got = self._ask(spec, leader, [partition(*key) for key in membership.layout.part(rows)])
                answers.put(rows, got)
                if (failure := failure_of_all(got.reason)) in BROKER_FAILED:
                    self._gone[spec, leader] = failure
        return answers

    def _ask(self, spec: str, leader: int, partitions: Sequence[Any]) -> Answers:
        self._counts[spec] += len(partitions)
        if self._limiter is not None:
            time.sleep(self._limiter.wait(leader))
            self._limiter.spend(leader, len(partitions))
        try:
            found = self._admin.list_partition_offsets(
                dict.fromkeys(partitions, _SPECS[spec]), timeout_ms=self._timeout_ms
            )
        except self._kafka.errors.KafkaError as error:
            reason = self._reason(error)
            if len(partitions) == 1 or reason in BROKER_FAILED:
                return Answers.failed(len(partitions), reason)
            middle = len(partitions) // 2
            halves = partitions[:middle], partitions[middle:]
            return Answers.joined([self._ask(spec, leader, half) for half in halves])
        given = (getattr(found.get(partition), "offset", None) for partition in partitions)
        offset = np.array([_MISSING if one is None else one for one in given], dtype=np.int64)
        answers = Answers.none(len(partitions))
        answers.reason[:] = np.where(offset == _MISSING, reason_code(Reason.MISSING_ANSWER), ANSWERED)
        answers.found[:], answers.offset[:] = offset >= 0, np.maximum(offset, 0)
        return answers

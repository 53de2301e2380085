"""Looks up the bounds of the tiers of a partition (KIP-405, KIP-1005) through kafka-python, an optional extra.

librdkafka (2.16.1) refuses to send these two ListOffsets specs.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from exporter.domain import Answer, Reason, TopicPartition
from exporter.domain.polls.readings import BROKER_FAILED
from exporter.kafka.credentials import Property
from exporter.kafka.kafka_python import KafkaPythonClient
from exporter.kafka.kafka_python_answers import EARLIEST_LOCAL, LATEST_TIERED, PARTITIONS_PER_CALL
from exporter.kafka.msk_iam import AwsIam
from exporter.kafka.rate_limiter import RateLimiter

_SPECS = {EARLIEST_LOCAL: -4, LATEST_TIERED: -5}


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

    def tier(self, spec: str, leaders: Mapping[TopicPartition, int]) -> dict[TopicPartition, Answer]:
        """EARLIEST_LOCAL or LATEST_TIERED of each partition; every key of ``leaders`` has an answer.

        An answer of LATEST_TIERED without an offset means that nothing is in the remote tier. For a topic
        without remote storage EARLIEST_LOCAL is EARLIEST.
        """
        by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
        for key, leader in sorted(leaders.items()):
            by_leader[leader].append(key)
        answers: dict[TopicPartition, Answer] = {}
        for leader, keys in by_leader.items():
            for at in range(0, len(keys), PARTITIONS_PER_CALL):
                chunk = keys[at : at + PARTITIONS_PER_CALL]
                if reason := self._gone.get((spec, leader)):
                    answers |= dict.fromkeys(chunk, Answer(reason=reason))
                    continue
                got = self._ask(spec, leader, chunk)
                answers |= got
                reasons = {answer.reason for answer in got.values()}
                if len(reasons) == 1 and reasons <= BROKER_FAILED:
                    self._gone[spec, leader] = next(iter(got.values())).reason or Reason.OTHER
        return answers

    def _ask(self, spec: str, leader: int, keys: Sequence[TopicPartition]) -> dict[TopicPartition, Answer]:
        kafka = self._kafka
        self.counts[spec] += len(keys)
        if self._limiter is not None:
            time.sleep(self._limiter.wait(leader))
            self._limiter.spend(leader, len(keys))
        try:
            found = self._admin.list_partition_offsets(
                {kafka.TopicPartition(*key): _SPECS[spec] for key in keys}, timeout_ms=self._timeout_ms
            )
        except kafka.errors.KafkaError as error:
            reason = self._reason(error)
            if len(keys) == 1 or reason in BROKER_FAILED:
                return dict.fromkeys(keys, Answer(reason=reason))
            middle = len(keys) // 2
            return self._ask(spec, leader, keys[:middle]) | self._ask(spec, leader, keys[middle:])
        return {key: _answer(found.get(kafka.TopicPartition(*key))) for key in keys}


def _answer(found: object) -> Answer:
    offset = getattr(found, "offset", None)
    if offset is None:
        return Answer(reason=Reason.MISSING_ANSWER)
    return Answer(offset if offset >= 0 else None)

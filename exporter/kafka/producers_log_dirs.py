"""Reads the producers (KIP-664) and the log sizes (KIP-113) of partitions.

librdkafka (2.16.1) has neither request, so both are sent through kafka-python. Its own functions raise an error for the
whole call when one partition fails; here responses are read directly, so that each partition has its own result.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from exporter.domain.metadata import PartitionInfo
from exporter.domain.readings import END_OF_TIME, Reason, TopicPartition
from exporter.kafka.credentials import Property
from exporter.kafka.error_codes import reason_of_code
from exporter.kafka.kafka_python import KafkaPythonClient
from exporter.kafka.kafka_python_answers import LOG_DIRS, PRODUCERS, Producer, Sizes
from exporter.kafka.msk_iam import AwsIam
from exporter.kafka.rate_limiter import RateLimiter


class InspectionClient(KafkaPythonClient):
    """A client of one cluster, for producers and log directories. Requests go to one broker after another."""

    wants = "active producers and log sizes"

    def __init__(
        self,
        properties: Mapping[str, Property | Path],
        *,
        aws_iam: AwsIam | None = None,
        request_timeout: float,
        lookups_per_second: float,
    ) -> None:
        """Connect. Raises KafkaPythonError. Each broker gets ``lookups_per_second`` look-ups of producers at most."""
        super().__init__(properties, aws_iam=aws_iam, request_timeout=request_timeout)
        self._limiter = RateLimiter(lookups_per_second, time)

    def partitions(self, keys: Collection[TopicPartition]) -> dict[TopicPartition, PartitionInfo]:
        """Return leaders and replicas of the partitions that a broker knows now.

        Raises nothing.
        """
        try:
            topics = self._admin.describe_topics(sorted({key.topic for key in keys}))
        except self._kafka.errors.KafkaError:
            return {}
        found = {
            TopicPartition(topic["name"], one["partition_index"]): PartitionInfo(
                None if one["leader_id"] < 0 else one["leader_id"], tuple(one["replica_nodes"]), tuple(one["isr_nodes"])
            )
            for topic in topics
            for one in topic["partitions"]
        }
        return {key: found[key] for key in keys if key in found}

    def producers(
        self, keys: Sequence[TopicPartition], broker: int
    ) -> Mapping[TopicPartition, list[Producer] | Reason]:
        """Return the producers of each partition that one broker remembers, or the reason of a failure.

        Sends one request, after the rate limit of the broker allows it; PARTITIONS_PER_CALL is a good size. Every key
        has an answer. Raises nothing.
        """
        time.sleep(self._limiter.wait(broker))
        self._limiter.spend(broker, len(keys))
        request = self._kafka.protocol.admin.DescribeProducersRequest
        topics = [
            request.TopicRequest(name=name, partition_indexes=partitions)
            for name, partitions in _by_topic(keys).items()
        ]
        answer = self._ask(PRODUCERS, request(topics=topics), broker, len(keys))
        if isinstance(answer, Reason):
            return dict.fromkeys(keys, answer)
        results: dict[TopicPartition, list[Producer] | Reason] = dict.fromkeys(keys, Reason.MISSING_ANSWER)
        for topic in answer.topics:
            for one in topic.partitions:
                key = TopicPartition(topic.name, one.partition_index)
                if key in results:
                    code = one.error_code
                    results[key] = (
                        reason_of_code(code) if code else [_producer(found) for found in one.active_producers]
                    )
        return results

    def log_sizes(self, keys: Sequence[TopicPartition], broker: int) -> Sizes | Reason:
        """Return the log sizes of these partitions on one broker, or the reason of a failure. Raises nothing."""
        request = self._kafka.protocol.admin.DescribeLogDirsRequest
        topics = [
            request.DescribableLogDirTopic(topic=name, partitions=partitions)
            for name, partitions in _by_topic(keys).items()
        ]
        answer = self._ask(LOG_DIRS, request(topics=topics), broker, len(keys))
        if isinstance(answer, Reason):
            return answer
        if answer.error_code:  # from 3.2 on
            return reason_of_code(answer.error_code)
        if not answer.results:
            # Every broker has a log directory. One without a right for us shows none, and before 3.2 says no more.
            return Reason.UNAUTHORIZED
        logs: Counter[TopicPartition] = Counter()
        moving: Counter[TopicPartition] = Counter()
        wanted, offline = set(keys), False
        for folder in answer.results:
            offline |= bool(folder.error_code)
            for topic in folder.topics:
                for one in topic.partitions:
                    key = TopicPartition(topic.name, one.partition_index)
                    if key in wanted:
                        (moving if one.is_future_key else logs)[key] += one.partition_size
        return Sizes(logs, moving, Reason.STORAGE_ERROR if offline else Reason.MISSING_ANSWER)

    def _ask(self, what: str, request: object, broker: int, partitions: int) -> Any:
        """Return the answer to one request, or the reason why there is none."""
        self.counts[what] += partitions
        try:
            return self._send(request, broker)
        except self._kafka.errors.KafkaError as error:
            return self._reason(error)


def _by_topic(keys: Iterable[TopicPartition]) -> Mapping[str, list[int]]:
    topics: dict[str, list[int]] = defaultdict(list)
    for key in keys:
        topics[key.topic].append(key.partition)
    return topics


def _producer(found: Any) -> Producer:
    written, began = found.last_timestamp, found.current_txn_start_offset
    return Producer(
        found.producer_id,
        None if written < 0 else min(written / 1000, END_OF_TIME),
        None if began < 0 else began,
    )

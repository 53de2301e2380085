"""Reads the producers (KIP-664) and the log sizes (KIP-113) of partitions.

librdkafka (2.16.1) has neither request, so both are sent through kafka-python. Its own functions raise an error for the
whole call when one partition fails; here responses are read directly, so that each partition has its own result.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from exporter.domain.arrays import Counts, Rows
from exporter.domain.polls.answers import ANSWERED, reason_code
from exporter.domain.polls.layout import NO_LEADER, Layout
from exporter.domain.polls.log_sizes import LogSizes
from exporter.domain.polls.metadata import Membership, ragged
from exporter.domain.polls.producer_answers import FoundProducers, ProducerAnswers
from exporter.domain.polls.readings import END_OF_TIME, Reason
from exporter.kafka.credentials import Property
from exporter.kafka.error_codes import reason_of_code
from exporter.kafka.kafka_python import KafkaPythonClient
from exporter.kafka.kafka_python_answers import LOG_DIRS, PRODUCERS
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

    def partitions(self, wanted: Layout) -> Membership:
        """Return the partitions that a broker knows now, with their leaders and replicas.

        Raises nothing.
        """
        try:
            topics = self._admin.describe_topics(list(wanted.topics))
        except self._kafka.errors.KafkaError:
            return Membership.of({})
        found = _AnsweredPartitions(wanted)
        infos: list[Any] = []
        for topic in topics:
            found.add(topic["name"], [one["partition_index"] for one in topic["partitions"]])
            infos.extend(topic["partitions"])
        at = found.rows()
        rows, first = np.unique(at, return_index=True)
        known = [infos[place] for place in first[rows >= 0].tolist()]
        return Membership(
            wanted.part(rows[rows >= 0]),
            np.array([max(one["leader_id"], NO_LEADER) for one in known], dtype=np.int32),
            ragged([one["replica_nodes"] for one in known]),
            ragged([one["isr_nodes"] for one in known]),
        )

    def producers(self, wanted: Layout, broker: int) -> ProducerAnswers:
        """Return the producers of partitions that one broker remembers, by row of ``wanted``, or why not.

        Sends one request, after the rate limit of the broker allows it; PARTITIONS_PER_CALL is a good size. Raises
        nothing.
        """
        time.sleep(self._limiter.wait(broker))
        self._limiter.spend(broker, len(wanted))
        request = self._kafka.protocol.admin.DescribeProducersRequest
        topics = [
            request.TopicRequest(name=name, partition_indexes=partitions) for name, partitions in _by_topic(wanted)
        ]
        answer = self._ask(PRODUCERS, request(topics=topics), broker, len(wanted))
        if isinstance(answer, Reason):
            return ProducerAnswers.failed(len(wanted), answer)
        found = _AnsweredPartitions(wanted)
        reasons: list[int] = []
        counts: list[int] = []
        producers: list[Any] = []
        for topic in answer.topics:
            found.add(topic.name, [one.partition_index for one in topic.partitions])
            for one in topic.partitions:
                remembered = () if one.error_code else one.active_producers
                reasons.append(reason_code(reason_of_code(one.error_code)) if one.error_code else ANSWERED)
                counts.append(len(remembered))
                producers.extend(remembered)
        rows = found.rows()
        reason = np.full(len(wanted), reason_code(Reason.MISSING_ANSWER), dtype=np.int8)
        reason[rows[rows >= 0]] = np.array(reasons, dtype=np.int8)[rows >= 0]
        written = np.array([one.last_timestamp for one in producers], dtype=np.int64)
        columns = FoundProducers(
            np.repeat(rows, np.array(counts, dtype=np.intp)),
            np.array([one.producer_id for one in producers], dtype=np.int64),
            np.where(written < 0, np.nan, np.minimum(written / 1000, END_OF_TIME)),
            np.maximum(np.array([one.current_txn_start_offset for one in producers], dtype=np.int64), -1),
        )
        return ProducerAnswers(reason, columns[columns.row >= 0])

    def log_sizes(self, wanted: Layout, broker: int) -> LogSizes | Reason:
        """Return the log sizes of partitions on one broker, by row of ``wanted``, or the reason of a failure.

        Raises nothing.
        """
        request = self._kafka.protocol.admin.DescribeLogDirsRequest
        topics = [
            request.DescribableLogDirTopic(topic=name, partitions=partitions) for name, partitions in _by_topic(wanted)
        ]
        answer = self._ask(LOG_DIRS, request(topics=topics), broker, len(wanted))
        if isinstance(answer, Reason):
            return answer
        if answer.error_code:  # from 3.2 on
            return reason_of_code(answer.error_code)
        if not answer.results:
            # Every broker has a log directory. One without a right for us shows none, and before 3.2 says no more.
            return Reason.UNAUTHORIZED
        found = _AnsweredPartitions(wanted)
        logs: list[Any] = []
        for topic in (topic for folder in answer.results for topic in folder.topics):
            found.add(topic.name, [one.partition_index for one in topic.partitions])
            logs.extend(topic.partitions)
        rows = found.rows()
        size = np.array([one.partition_size for one in logs], dtype=np.int64)
        future = np.array([one.is_future_key for one in logs], dtype=np.bool_)
        log, moving = np.zeros((2, len(wanted)), dtype=np.int64)
        there = np.zeros(len(wanted), dtype=np.bool_)
        present, copied = (rows >= 0) & ~future, (rows >= 0) & future
        np.add.at(log, rows[present], size[present])
        np.add.at(moving, rows[copied], size[copied])
        there[rows[present]] = True
        offline = any(folder.error_code for folder in answer.results)
        return LogSizes(Counts(log, there), moving, Reason.STORAGE_ERROR if offline else Reason.MISSING_ANSWER)

    def _ask(self, what: str, request: object, broker: int, partitions: int) -> Any:
        """Return the answer to one request, or the reason why there is none."""
        self._counts[what] += partitions
        try:
            return self._send(request, broker)
        except self._kafka.errors.KafkaError as error:
            return self._reason(error)


class _AnsweredPartitions:
    """Partitions in the order of an answer, and their rows in the request."""

    def __init__(self, wanted: Layout) -> None:
        self._wanted = wanted
        self._topics: list[str] = []
        self._counts: list[int] = []
        self._partitions: list[int] = []

    def add(self, topic: str, partitions: Sequence[int]) -> None:
        """Add partitions of one topic."""
        self._topics.append(topic)
        self._counts.append(len(partitions))
        self._partitions.extend(partitions)

    def rows(self) -> Rows:
        """Return the row of each, -1 where it was not wanted."""
        topic = np.repeat(np.arange(len(self._topics)), np.array(self._counts, dtype=np.intp))
        return self._wanted.find(self._topics, topic, np.array(self._partitions, dtype=np.int32))


def _by_topic(partitions: Layout) -> Iterator[tuple[str, list[int]]]:
    for name, start, end in zip(partitions.topics, partitions.first, partitions.first[1:], strict=False):
        yield name, partitions.partition[start:end].tolist()

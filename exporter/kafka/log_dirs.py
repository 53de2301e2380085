"""Reads the log sizes of partitions (KIP-113).

librdkafka (2.16.1) has no such request, so it is sent through kafka-python. The answer is read directly, so that each
partition has its own result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from exporter.domain.arrays import Counts, Rows
from exporter.domain.polls.inspections import LogSizes
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.readings import Reason
from exporter.kafka.error_codes import reason_of_code
from exporter.kafka.kafka_python import KafkaPythonClient


class LogDirsClient(KafkaPythonClient):
    """A client of one cluster, for log directories. Requests go to one broker after another."""

    wants = "log sizes"

    def log_sizes(self, wanted: Layout, broker: int) -> LogSizes:
        """Return the log sizes of partitions on one broker, by row of ``wanted``. Raises nothing."""
        request = self._kafka.protocol.admin.DescribeLogDirsRequest
        topics = [
            request.DescribableLogDirTopic(topic=name, partitions=partitions)
            for name, partitions in partitions_by_topic(wanted)
        ]
        try:
            answer: Any = self._send(request(topics=topics), broker)
        except self._kafka.errors.KafkaError as error:
            return LogSizes.make_failed(len(wanted), self._reason(error))
        if answer.error_code:  # from 3.2 on
            return LogSizes.make_failed(len(wanted), reason_of_code(answer.error_code))
        if not answer.results:
            # Every broker has a log directory. One without a right for us shows none, and before 3.2 says no more.
            return LogSizes.make_failed(len(wanted), Reason.UNAUTHORIZED)
        found = AnsweredPartitions(wanted)
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


class AnsweredPartitions:
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


def partitions_by_topic(partitions: Layout) -> Iterator[tuple[str, list[int]]]:
    """Yield the name and the partition numbers of each topic, as requests have them."""
    for name, start, end in zip(partitions.topics, partitions.first, partitions.first[1:], strict=False):
        yield name, partitions.partition[start:end].tolist()

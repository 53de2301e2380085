"""Reads the log sizes of partitions (KIP-113).

librdkafka (2.16.1) has no such request, so it is sent through kafka-python. The answer is read directly, so that each
partition has its own result.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from exporter.domain.arrays import Counts, Rows
from exporter.domain.polls.inspections import LogSizes
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.readings import Reason
from exporter.kafka.errors import reason_of_code
from exporter.kafka.kafka_python import KafkaPythonClient


class LogDirsClient(KafkaPythonClient):
    """A client of one cluster, for log directories. Requests go to one broker after another."""

    wants = "log sizes"

    def log_sizes(self, wanted: Layout, broker: int) -> LogSizes:
        """Return the log sizes of partitions on one broker, by row of ``wanted``. Raises nothing."""
        request = self._kafka.protocol.admin.DescribeLogDirsRequest
        asked = [
            request.DescribableLogDirTopic(topic=name, partitions=partitions)
            for name, partitions in partitions_by_topic(wanted)
        ]
        try:
            answer: Any = self._send(request(topics=asked), broker)
        except self._kafka.errors.KafkaError as error:
            return LogSizes.make_failed(len(wanted), self._reason(error))
        if answer.error_code:  # from 3.2 on
            return LogSizes.make_failed(len(wanted), reason_of_code(answer.error_code))
        if not answer.results:
            # Every broker has a log directory. One without a right for us shows none, and before 3.2 says no more.
            return LogSizes.make_failed(len(wanted), Reason.UNAUTHORIZED)
        topics = [topic for folder in answer.results for topic in folder.topics]
        logs = [log for topic in topics for log in topic.partitions]
        rows = rows_in(wanted, [(topic.name, [log.partition_index for log in topic.partitions]) for topic in topics])
        # A copy that is on its way to another disk is no log yet.
        present = (rows >= 0) & ~np.array([one.is_future_key for one in logs], dtype=np.bool_)
        sizes = Counts.unknown(len(wanted))
        np.add.at(sizes.value, rows[present], np.array([one.partition_size for one in logs], dtype=np.int64)[present])
        sizes.known[rows[present]] = True
        offline = any(folder.error_code for folder in answer.results)
        return LogSizes(sizes, Reason.STORAGE_ERROR if offline else Reason.MISSING_ANSWER)


def rows_in(wanted: Layout, answered: Sequence[tuple[str, Sequence[int]]]) -> Rows:
    """Return the row of each partition in an answer, which has topics and numbers; -1 where it was not wanted."""
    topic = np.repeat(np.arange(len(answered)), np.array([len(numbers) for _, numbers in answered], dtype=np.intp))
    every = [number for _, numbers in answered for number in numbers]
    return wanted.find([name for name, _ in answered], topic, np.array(every, dtype=np.int32))


def partitions_by_topic(partitions: Layout) -> Iterator[tuple[str, list[int]]]:
    """Yield the name and the partition numbers of each topic, as requests have them."""
    for name, start, end in zip(partitions.topics, partitions.first, partitions.first[1:], strict=False):
        yield name, partitions.partition[start:end].tolist()

"""Reads log sizes (KIP-113), and the bounds of tiers (KIP-405, KIP-1005), through kafka-python, an optional extra.

librdkafka (2.16.1) has no request for the former, and refuses to send the ListOffsets specs of the latter. Answers are
read directly, so that each partition has its own result.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from exporter.domain.arrays import Counts, Rows
from exporter.domain.polls.inspections import LogSizes
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.metadata import Membership
from exporter.domain.polls.readings import ANSWERED, BROKER_FAILED, Answers, Reason, reason_code
from exporter.kafka.errors import reason_of_code
from exporter.kafka.kafka_python import KafkaPythonClient
from exporter.kafka.process import EARLIEST_LOCAL, LATEST_TIERED


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


_SPECS = {EARLIEST_LOCAL: (-4, 8), LATEST_TIERED: (-5, 9)}
"""The time that stands for each, and the first version of ListOffsets that knows it."""


class TierClient(KafkaPythonClient):
    """A client of one cluster, for offsets of tiers. Requests go to one leader after another."""

    wants = "earliest-local and latest-tiered"

    def __init__(self, *given: Any, **settings: Any) -> None:
        """Connect as any client."""
        super().__init__(*given, **settings)
        self._failed: dict[tuple[str, int], Reason] = {}
        """Leaders that will not answer a spec, and why."""

    def tier(self, spec: str, membership: Membership) -> Answers:
        """EARLIEST_LOCAL or LATEST_TIERED of partitions, which have leaders.

        An answer of LATEST_TIERED without an offset means that nothing is in the remote tier. For a topic
        without remote storage EARLIEST_LOCAL is EARLIEST.
        """
        answers = Answers.make_blank(len(membership.layout))
        for leader in np.unique(membership.leader).tolist():
            led = np.flatnonzero(membership.leader == leader)
            got = self._failed.get((spec, leader)) or self._ask(spec, leader, membership.layout.part(led))
            if isinstance(got, Reason):
                if got in BROKER_FAILED:
                    self._failed[spec, leader] = got
                got = Answers.make_failed(len(led), got)
            answers.put(led, got)
        return answers

    def _ask(self, spec: str, leader: int, wanted: Layout) -> Answers | Reason:
        target, version = _SPECS[spec]
        request = self._kafka.protocol.consumer.ListOffsetsRequest
        partition = request.ListOffsetsTopic.ListOffsetsPartition
        topics = [
            request.ListOffsetsTopic(
                name=name, partitions=[partition(partition_index=number, timestamp=target) for number in numbers]
            )
            for name, numbers in partitions_by_topic(wanted)
        ]
        try:
            answer: Any = self._send(request(isolation_level=0, topics=topics, min_version=version), leader)
        except self._kafka.errors.KafkaError as error:
            return self._reason(error)
        offsets = [one for topic in answer.topics for one in topic.partitions]
        found = [(topic.name, [one.partition_index for one in topic.partitions]) for topic in answer.topics]
        answers = Answers.make_failed(len(wanted), Reason.MISSING_ANSWER)
        for row, one in zip(rows_in(wanted, found).tolist(), offsets, strict=True):
            if row >= 0:
                answers.reason[row] = reason_code(reason_of_code(one.error_code)) if one.error_code else ANSWERED
                # -1 is Kafka's own, where there is no such record.
                answers.found[row], answers.offset[row] = not one.error_code and one.offset >= 0, max(one.offset, 0)
        return answers

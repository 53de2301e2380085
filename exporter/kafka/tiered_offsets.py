"""Looks up the bounds of the tiers of a partition (KIP-405, KIP-1005) through kafka-python, an optional extra.

librdkafka (2.16.1) refuses to send these two ListOffsets specs.
"""

from typing import Any

import numpy as np

from exporter.domain.polls.layout import Layout
from exporter.domain.polls.metadata import Membership
from exporter.domain.polls.readings import ANSWERED, BROKER_FAILED, Answers, Reason, reason_code
from exporter.kafka.errors import reason_of_code
from exporter.kafka.kafka_python import KafkaPythonClient
from exporter.kafka.log_dirs import partitions_by_topic, rows_in
from exporter.kafka.process import EARLIEST_LOCAL, LATEST_TIERED

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

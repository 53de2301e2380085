"""The check of batched look-ups against the documented call, where a batch leaves partitions without an answer."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from exporter.domain.arrays import Rows
from exporter.domain.polls.metadata import Membership, Metadata, PartitionInfo, TopicInfo
from exporter.domain.polls.readings import Answers, Reason
from exporter.kafka.poll_source import COMPARED, BrokerPollSource
from exporter.kafka.source import KafkaSource
from tests.lookup_answers import Answer, answers_of
from tests.unit.readings import ManualClock

PARTITIONS = 5 * COMPARED


class Both:
    """A connection and its consumer: every end offset is 10, but for partitions of which one call or both fail."""

    reader = SimpleNamespace(has_offsets_topic=True)
    client = SimpleNamespace(bootstrap="broker:9092", connections=1)
    probe = SimpleNamespace(recheck=lambda *_: None)

    def __init__(self, unanswered: int, reason: Reason, *, by_both: bool) -> None:
        self.reasons = {unanswered: reason}
        self.by_both = by_both
        self.unreachable: set[int] = set()
        self.counts: Counter[str] = Counter()
        self.documented = 0

    def metadata(self, _: Any) -> Metadata:
        infos = {number: PartitionInfo(1, (1,), (1,)) for number in range(PARTITIONS)}
        return Metadata({1: "broker:9092"}, {"orders": TopicInfo("id-1", infos)})

    def batched(self, *_: int) -> Both:
        return self

    def ask(self, _: int, __: Membership, rows: Rows) -> tuple[Answers, Rows]:
        return self.answers(rows, self.reasons), np.zeros(0, dtype=np.intp)

    def by_row(self, _: int, __: Membership, rows: Rows) -> Answers:
        self.documented += len(rows)
        return self.answers(rows, self.reasons if self.by_both else {})

    def answers(self, rows: Rows, reasons: dict[int, Reason]) -> Answers:
        failed = [reasons.get(row) for row in rows.tolist()]
        return answers_of(Answer(10) if reason is None else Answer(reason=reason) for reason in failed)

    def is_denied(self) -> bool:
        return False

    def refresh(self) -> None:
        pass

    def close(self) -> None:
        pass


def first_poll(connection: Both) -> tuple[BrokerPollSource, Answers]:
    """The source after one poll, and its LATEST."""
    source = BrokerPollSource(cast("KafkaSource", connection), ManualClock(0.0), worth_batching=1)
    source.metadata(fresh=True)
    return source, source.latest(np.arange(PARTITIONS))


@pytest.mark.parametrize("partition", [0, PARTITIONS - 1])
def test_an_answer_that_the_batch_alone_leaves_out_is_asked_for_by_the_documented_call(partition: int) -> None:
    """Wherever the partition stands: all is answered."""
    source, answers = first_poll(Both(partition, Reason.MISSING_ANSWER, by_both=False))
    assert source.batching
    assert (answers.offset == 10).all()


@pytest.mark.parametrize("reason", [Reason.LEADER_UNREACHABLE, Reason.NOT_LEADER, Reason.OFFSET_NOT_AVAILABLE])
def test_a_passing_failure_of_the_batch_is_no_difference(reason: Reason) -> None:
    """The documented call may succeed a moment later."""
    source, _ = first_poll(Both(0, reason, by_both=False))
    assert source.batching

"""When the cheap look-up has a consumer, and which brokers it asks: those whose answers were compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import confluent_kafka
import numpy as np
import pytest

from exporter.domain.polls.metadata import Membership
from exporter.domain.polls.readings import ANSWERED, Answers
from exporter.kafka.list_offsets import EARLIEST, LATEST, Lookups
from exporter.kafka.offsets_for_times import OffsetsForTimes
from tests.memberships import Partition, membership_of


class Cluster:
    """The client, its documented look-ups and its consumers; every offset is 7."""

    bootstrap, connections, request_timeout = "c", 1, 1.0

    def __init__(self) -> None:
        self.client = self
        self.unreachable: set[int] = set()
        self.made = 0
        """Consumers so far."""
        self.asked: set[int] = set()
        """Partitions that consumers were asked about."""

    def make_consumer(self, _group: str) -> Cluster:
        self.made += 1
        return self

    def count(self, spec: str, lookups: int) -> None:
        pass

    def look_up(self, _spec: int, membership: Membership) -> Answers:
        answers = Answers.make_blank(len(membership.layout))
        answers.found[:], answers.offset[:], answers.reason[:] = True, 7, ANSWERED
        return answers

    def offsets_for_times(
        self, partitions: Sequence[confluent_kafka.TopicPartition], *, timeout: float
    ) -> list[confluent_kafka.TopicPartition]:
        assert timeout == self.request_timeout
        self.asked |= {each.partition for each in partitions}
        return [confluent_kafka.TopicPartition(each.topic, each.partition, 7) for each in partitions]

    def poll(self, _seconds: float) -> None:
        pass

    def close(self) -> None:
        pass


def led_by(*leaders: int) -> Membership:
    return membership_of({"t": {number: Partition(leader, (), ()) for number, leader in enumerate(leaders)}})


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def batched(cluster: Cluster) -> OffsetsForTimes:
    return OffsetsForTimes(cast("Lookups", cluster))


def test_a_broker_that_leads_first_later_is_compared(cluster: Cluster, batched: OffsetsForTimes) -> None:
    """Another consumer is made for it, also where all earlier partitions kept their leaders."""
    for _ in range(2):
        batched.follow(led_by(1, 2), wanted=True)
    assert cluster.made == 1
    batched.follow(led_by(1, 2, 3), wanted=True)
    assert cluster.made == 2
    batched.follow(led_by(1, 2), wanted=True)
    assert cluster.made == 2


def test_a_silent_leader_is_left_out_and_compared_once_it_answers(cluster: Cluster, batched: OffsetsForTimes) -> None:
    """While it is silent the others stay with the same consumer, and its own partitions are for the documented call."""
    membership = led_by(1, 2, 1)
    batched.follow(membership, wanted=True)
    for _ in range(2):
        batched.follow(membership, wanted=True, silent={2})
        cluster.asked.clear()
        for spec in (LATEST, EARLIEST):
            assert np.flatnonzero(batched.ask(spec, membership).reason == ANSWERED).tolist() == [0, 2]
        assert (cluster.made, cluster.asked) == (1, {0, 2})
    batched.follow(membership, wanted=True)
    assert (batched.ask(LATEST, membership).reason == ANSWERED).all()
    assert cluster.made == 2

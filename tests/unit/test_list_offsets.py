"""How look-ups are cut into calls, and what is made of each kind of answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

import confluent_kafka
import numpy as np
import pytest
from confluent_kafka import KafkaError

import exporter.kafka.client
from exporter.domain.polls.readings import END_OF_TIME, Reason, TopicPartition
from exporter.kafka.errors import answers_of
from exporter.kafka.list_offsets import LATEST, Lookups
from tests.lookup_answers import Answer, answer_at
from tests.times import led, objects

RESULT = SimpleNamespace(offset=7, timestamp=1500, leader_epoch=3)
UNREACHED = SimpleNamespace(offset=-1001, timestamp=-1, leader_epoch=None)
DEAD, ALIVE = 1, 2


@dataclass
class Client:
    """A connection whose calls are answered at once; leader ``DEAD`` answers as librdkafka does for it."""

    leaders: Mapping[TopicPartition, int]
    calls: list[list[TopicPartition]] = field(default_factory=list)
    request_timeout: float = 1.0
    patience: float = 7.0

    @property
    def admin(self) -> Client:
        return self

    def serve(self) -> None:
        pass

    def ask(self, wanted: Sequence[confluent_kafka.TopicPartition]) -> Future[Mapping[object, object]]:
        keys = [TopicPartition(key.topic, key.partition) for key in wanted]
        self.calls.append(keys)
        found: Future[Mapping[object, object]] = Future()
        answers = [UNREACHED if self.leaders[key] == DEAD else RESULT for key in keys]
        found.set_result(dict(zip(wanted, answers, strict=True)))
        return found


@pytest.fixture(autouse=True)
def answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exporter.kafka.list_offsets.CHUNK_SIZE", 4)
    monkeypatch.setattr("exporter.kafka.list_offsets.list_offsets", lambda client, wanted, _: client.ask(wanted))


def lookups_of(client: Client) -> Lookups:
    return Lookups(cast("exporter.kafka.client.Client", client))


def partitions(count: int, topic: str = "t") -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(count)]


def test_a_dead_leader_is_asked_once_and_costs_only_its_own() -> None:
    dead, alive = partitions(100, "dead"), partitions(100, "alive")
    leaders = dict.fromkeys(dead, DEAD) | dict.fromkeys(alive, ALIVE)
    client = Client(leaders)
    lookups = lookups_of(client)
    membership = led(leaders)
    answers = dict(zip(membership.layout, objects(lookups.look_up(LATEST, membership, np.arange(200))), strict=True))
    assert {answers[key].reason for key in dead} == {Reason.LEADER_UNREACHABLE}
    assert {answers[key].offset for key in alive} == {7}
    assert sum(call[0].topic == "dead" for call in client.calls) <= 2
    assert sum(call[0].topic == "alive" for call in client.calls) == 25
    assert lookups.unreachable == {DEAD}


def test_no_call_spans_two_leaders_or_names_a_partition_twice() -> None:
    """Several times for one partition go to several calls: brokers refuse duplicates (error 42)."""
    keys = partitions(10)
    leaders = {key: 1 + key.partition % 2 + 1 for key in keys}
    client = Client(leaders)
    lookups = lookups_of(client)
    rows, times = np.repeat(np.arange(10), 3), np.tile(np.array([1, 2, 3]), 10)
    assert lookups.look_up(times, led(leaders), rows).offset.tolist() == [7] * 30
    asked = Counter(key for call in client.calls for key in call)
    assert asked == dict.fromkeys(keys, 3)
    for call in client.calls:
        assert len(set(call)) == len(call) <= 4
        assert len({leaders[key] for key in call}) == 1
    assert lookups.counts == {"by-time": 30}


@pytest.mark.parametrize(
    ("result", "answer"),
    [
        ((7, 1500, 3), Answer(7, 1.5, 3)),
        ((0, 0, None), Answer(0, 0.0)),
        ((7, -1, None), Answer(7)),
        ((-1, -1, None), Answer()),
        ((-1001, -1, None), Answer(reason=Reason.LEADER_UNREACHABLE)),
        ((-(2**63), -1, None), Answer(reason=Reason.OTHER)),
        ((7, -9, None), Answer(7)),
        ((7, 2**63 - 1, None), Answer(7, END_OF_TIME)),
    ],
)
def test_no_sentinel_leaves_the_kafka_rooms(result: tuple[int, int, int | None], answer: Answer) -> None:
    offset, timestamp, epoch = result
    one = SimpleNamespace(offset=offset, timestamp=timestamp, leader_epoch=epoch)
    assert answer_at(answers_of([one]), 0) == answer
    assert [answer_at(answers_of([None, one, KafkaError(3)]), place) for place in range(3)] == [
        Answer(reason=Reason.MISSING_ANSWER), answer, Answer(reason=Reason.UNKNOWN_TOPIC)
    ]  # fmt: skip

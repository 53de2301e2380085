"""Settings of topics, read beside the polls; the client is one whose answers the test gives."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource

from exporter.domain.polls.metadata import TopicConfig
from exporter.domain.polls.readings import Reason
from exporter.kafka.client import Client
from exporter.kafka.topic_configs import ConfigReader
from tests.unit.readings import ManualClock
from tests.waiting import until

HOUR = 3600.0
REFUSED = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
SLOW = KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001 - librdkafka's own codes


@dataclass
class Broker:
    """Takes describe_configs calls, and answers them when told to or, with ``at_once``, right away."""

    at_once: bool = True
    broken: Exception | None = None
    """What a call raises."""
    answer: Mapping[str, str] | KafkaException = field(default_factory=lambda: {"retention.ms": "1000"})
    answers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Those of topics that get another one."""
    request_timeout: float = 0.1
    calls: list[dict[str, Future[Any]]] = field(default_factory=list)

    @property
    def admin(self) -> Broker:
        return self

    def describe_configs(
        self, resources: Sequence[ConfigResource], *, request_timeout: float
    ) -> Mapping[ConfigResource, Future[Any]]:
        assert request_timeout == self.request_timeout
        if self.broken is not None:
            raise self.broken
        futures = {resource: Future[Any]() for resource in resources}
        self.calls.append({resource.name: future for resource, future in futures.items()})
        if self.at_once:
            self.reply()
        return futures

    def reply(self) -> None:
        for call in self.calls:
            for name, future in call.items():
                answer = self.answers.get(name, self.answer)
                if future.done():
                    continue
                if isinstance(answer, KafkaException):
                    future.set_exception(answer)
                else:
                    future.set_result({key: SimpleNamespace(value=value) for key, value in answer.items()})


class Reader:
    """A reader, its broker and its clock."""

    def __init__(self, broker: Broker | None = None) -> None:
        self.broker, self.clock = broker or Broker(), ManualClock()
        self.reader = ConfigReader(cast("Client", self.broker), self.clock)

    def read(self, ids: Mapping[str, str | None]) -> Mapping[str, TopicConfig]:
        """Read, and once more where that has begun to ask the broker."""
        self.reader.read(ids)
        self.wait()
        return self.reader.read(ids)

    def wait(self) -> None:
        until(lambda: not any(each.name == "topic settings" for each in threading.enumerate()), "all is read")


def ids(count: int) -> dict[str, str | None]:
    return {f"t-{number:03}": "id-1" for number in range(count)}


def test_the_first_read_has_all_and_a_later_one_never_waits() -> None:
    tested = Reader(Broker(request_timeout=5.0))
    assert len(tested.reader.read(ids(900))) == 900
    assert [len(call) for call in tested.broker.calls] == [200, 200, 200, 200, 100]
    tested.broker.at_once = False
    later = {**ids(900), "late": "id-1"}
    assert "late" not in tested.reader.read(later)
    assert "late" not in tested.reader.read(later)
    until(lambda: len(tested.broker.calls) == 6, "the call is made")
    tested.broker.reply()
    assert tested.read(later)["late"].retention_seconds == 1.0
    assert len(tested.broker.calls) == 6


def test_a_refresh_that_fails_keeps_what_was_known() -> None:
    tested = Reader()
    assert len(tested.read(ids(2))) == 2
    for answer, known in ((SLOW, 2), (REFUSED, 0)):
        tested.broker.answer = answer
        tested.clock.time += HOUR
        assert len(tested.read(ids(2))) == known
        assert len(tested.reader.unread()) == 2


def test_a_call_that_cannot_be_made_costs_its_topics() -> None:
    tested = Reader(Broker(broken=KafkaException(KafkaError(KafkaError._FAIL))))  # noqa: SLF001 - librdkafka's own
    assert tested.read(ids(2)) == {}
    assert tested.reader.unread() == dict.fromkeys(ids(2), Reason.OTHER)
    tested.broker.broken = None
    assert tested.read(ids(2)) == {}
    tested.clock.time += 60
    assert len(tested.read(ids(2))) == 2


def test_a_missing_right_is_a_reason_and_not_asked_about_at_each_poll() -> None:
    tested = Reader(Broker(answer=REFUSED))
    for _ in range(10):
        assert tested.read(ids(3)) == {}
        tested.clock.time += 300
    assert tested.reader.unread() == dict.fromkeys(ids(3), Reason.UNAUTHORIZED)
    assert len(tested.broker.calls) == 1
    tested.broker.answer = {}
    tested.clock.time += HOUR
    assert len(tested.read(ids(3))) == 3
    assert tested.reader.unread() == {}


def test_a_setting_that_is_no_number_costs_its_topic_alone() -> None:
    """A compatible broker may say so; the other topics of that call are read."""
    odd, good = sorted(ids(2))
    tested = Reader(Broker(answers={odd: {"retention.ms": ""}, good: {"retention.ms": "5000"}}))
    found = tested.read(ids(2))
    assert {name: config.retention_seconds for name, config in found.items()} == {good: 5.0}
    assert tested.reader.unread() == {odd: Reason.OTHER}


def test_a_topic_made_again_is_asked_for_again() -> None:
    """Its settings are those of another topic: until the answer nothing is known, and a late answer is none."""
    tested = Reader()
    assert tested.read({"t": "id-1"})["t"].retention_seconds == 1.0
    tested.broker.at_once = False
    for topic_id in ("id-2", "id-3"):
        assert tested.reader.read({"t": topic_id}) == {}
        until(lambda: any(not each.done() for each in tested.broker.calls[-1].values()), "it is asked for")
        tested.broker.reply()
        tested.wait()
    assert tested.reader.read({"t": "id-3"})["t"].retention_seconds == 1.0

"""Questions about consumer groups: how many at a time, and what is made of each kind of answer."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Raw

from exporter.domain.groups.consumer_groups import Description, GroupState
from exporter.domain.polls.readings import Reason
from exporter.kafka.client import Client
from exporter.kafka.consumer_groups import NOBODYS, GroupReader

CLASSIC, CONSUMER = SimpleNamespace(name="CLASSIC"), SimpleNamespace(name="CONSUMER")


def described(state: ConsumerGroupState, kind: object = CLASSIC, *assigned: str) -> object:
    given = [SimpleNamespace(topic_partitions=[Raw(topic, 0)]) for topic in assigned]
    members = [SimpleNamespace(assignment=each, target_assignment=None) for each in given]
    return SimpleNamespace(state=state, type=kind, members=members)


def failed(code: int) -> KafkaException:
    return KafkaException(KafkaError(code))


@dataclass
class Connection:
    """A connection whose answers are set by the test; a group that has none is not there."""

    answers: dict[str, object] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    hanging: dict[str, Future[Any]] = field(default_factory=dict)
    """Requests about silent groups, which the test may answer."""
    left_out: set[str] = field(default_factory=set)
    """Groups without a future in the answer to a request."""
    listing: object = None
    older: dict[str, str] | Exception = field(default_factory=dict)
    """What the older request lists: names and states."""
    leaders: tuple[int, ...] = (1, 2)
    """Of the partitions of __consumer_offsets."""
    described: list[str] = field(default_factory=list)
    """Groups that were asked for their description."""
    reconnected: int = 0
    unexplained_answers: list[tuple[str, int | BaseException]] = field(default_factory=list)
    request_timeout: float = 1.0
    patience: float = 0.2
    overdue: bool = False
    connections: int = 1

    @property
    def admin(self) -> Connection:
        return self

    def begin(self) -> None:
        pass

    def serve(self) -> None:
        pass

    def close(self) -> None:
        self.reconnected += 1

    def log_unexplained(self, request: str, answer: BaseException) -> None:
        cause = answer.args[0]
        self.unexplained_answers.append((request, cause.code() if isinstance(cause, KafkaError) else answer))

    def topics(self, only: str | None = None) -> object:  # noqa: ARG002 - as the client calls it
        self.connections = self.reconnected + 1
        partitions = {number: SimpleNamespace(leader=leader) for number, leader in enumerate(self.leaders)}
        offsets = {"__consumer_offsets": SimpleNamespace(partitions=partitions, error=None)} if partitions else {}
        return SimpleNamespace(brokers={1: None, 2: None}, topics=offsets)

    def list_consumer_groups(self, **_: object) -> Future[Any]:
        return self._answer(self.listing)

    def list_groups(self, **_: object) -> list[Any]:
        if isinstance(self.older, Exception):
            raise self.older
        return [SimpleNamespace(id=name, state=state) for name, state in self.older.items()]

    def describe_consumer_groups(self, names: list[str], **_: object) -> dict[str, Future[Any]]:
        self.described += names
        return {name: self._future(name) for name in names if name not in self.left_out}

    def _future(self, name: str) -> Future[Any]:
        if name in self.silent:
            return self.hanging.setdefault(name, Future())
        return self._answer(self.answers.get(name, failed(KafkaError.GROUP_ID_NOT_FOUND)))

    def _answer(self, what: object) -> Future[Any]:
        future: Future[Any] = Future()
        if isinstance(what, Exception):
            future.set_exception(what)
        else:
            future.set_result(what)
        return future


def reader_of(connection: Connection) -> GroupReader:
    return GroupReader(cast("Client", connection))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (described(ConsumerGroupState.STABLE, CLASSIC, "a", "b"), Description(GroupState.STABLE, 2, frozenset("ab"))),
        (described(ConsumerGroupState.PREPARING_REBALANCING), Description(GroupState.PREPARING_REBALANCE, 0, None)),
        (described(ConsumerGroupState.EMPTY), Description(GroupState.EMPTY, 0, frozenset())),
        (described(ConsumerGroupState.UNKNOWN, CONSUMER), Description(GroupState.REBALANCING, 0, frozenset())),
        (described(ConsumerGroupState.UNKNOWN, CLASSIC), Description(None, 0, None)),
        (described(ConsumerGroupState.DEAD), None),
        (failed(KafkaError.GROUP_ID_NOT_FOUND), None),
        (failed(KafkaError.GROUP_AUTHORIZATION_FAILED), Reason.UNAUTHORIZED),
        (failed(KafkaError.NOT_COORDINATOR), Reason.NO_COORDINATOR),
        (failed(KafkaError.COORDINATOR_LOAD_IN_PROGRESS), Reason.NO_COORDINATOR),
        (failed(KafkaError.COORDINATOR_NOT_AVAILABLE), Reason.NO_COORDINATOR),
        (failed(KafkaError._TIMED_OUT), Reason.TIMED_OUT),  # noqa: SLF001 - its name
    ],
)
def test_each_answer_about_a_group_is_a_description_a_reason_or_nothing(
    answer: object, expected: Description | Reason | None
) -> None:
    assert reader_of(Connection({"g": answer})).describe(["g"]) == ({} if expected is None else {"g": expected})


def test_a_group_that_fails_as_nobody_foresaw_costs_itself() -> None:
    error, stable = RuntimeError("unforeseen"), described(ConsumerGroupState.STABLE)
    connection = Connection({"a": stable, "bad": error, "odd": SimpleNamespace(), "z": stable}, left_out={"gone"})
    answers = reader_of(connection).describe(["a", "bad", "odd", "gone", "z"])
    assert {name: answer for name, answer in answers.items() if isinstance(answer, Reason)} == dict.fromkeys(
        ("bad", "odd", "gone"), Reason.OTHER
    )
    assert sum(isinstance(answer, Description) for answer in answers.values()) == 2
    requests = connection.unexplained_answers
    logged = [answer for request, answer in requests if request == "consumer groups, request describe"]
    assert error in logged and len(logged) == 3


def test_a_group_that_never_answers_costs_itself_and_one_reconnection() -> None:
    names = [f"g{number}" for number in range(10)]
    connection = Connection(
        {name: described(ConsumerGroupState.STABLE) for name in names},
        silent={"g3"},
        listing=SimpleNamespace(valid=[], errors=[]),
    )
    reader = reader_of(connection)
    answers = reader.describe(names)
    assert answers["g3"] is Reason.TIMED_OUT
    assert sum(isinstance(answer, Description) for answer in answers.values()) == 9
    for _ in range(2):
        reader.list_groups()
    assert connection.reconnected == 1


LISTED = SimpleNamespace(
    valid=[SimpleNamespace(group_id="g")],
    errors=[failed(KafkaError._TRANSPORT)],  # noqa: SLF001 - its name
)
NONE_LISTED = SimpleNamespace(valid=[], errors=[])
LATE = failed(KafkaError._TIMED_OUT)  # noqa: SLF001 - its name
UNREACHED = {Reason.LEADER_UNREACHABLE: 1}
NOT_THERE = failed(KafkaError.GROUP_ID_NOT_FOUND)


@pytest.mark.parametrize(
    ("listing", "leaders", "probe", "unlisted", "visible"),
    [
        (LISTED, (1, 2), NOT_THERE, UNREACHED, True),
        (LISTED, (1, 2), described(ConsumerGroupState.DEAD), UNREACHED, True),
        (LISTED, (1, 2), failed(KafkaError.GROUP_AUTHORIZATION_FAILED), UNREACHED, False),
        (LISTED, (1, 2), failed(KafkaError.NOT_COORDINATOR), UNREACHED, None),
        (LATE, (1, 2), NOT_THERE, {Reason.TIMED_OUT: 2}, None),
        (NONE_LISTED, (1, -1, 2, -1), NOT_THERE, {Reason.NO_COORDINATOR: 2}, True),
    ],
)
def test_a_list_of_groups_says_what_may_be_missing_in_it(
    listing: object, leaders: tuple[int, ...], probe: object, unlisted: dict[Reason, int], visible: bool | None
) -> None:
    """A client that is refused to describe a group that nobody has may not see all.

    None is taken for gone: every broker without a list is counted, and every partition whose coordinator died.
    """
    groups = reader_of(Connection({NOBODYS: probe}, listing=listing, leaders=leaders)).list_groups()
    assert groups.names == ({"g"} if listing is LISTED else set())
    assert (groups.unlisted, groups.all_visible) == (unlisted, visible)

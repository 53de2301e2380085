"""Topics described in calls of many, by a broker that is named: what one that hangs costs."""

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection

from exporter.domain.polls.readings import Reason
from exporter.kafka.client import Client
from exporter.kafka.metadata import TOPICS_PER_CALL, MetadataReader, Scope
from tests.unit.readings import ManualClock

CALLS = 25
IN_FLIGHT = 4


class Cluster:
    """Two brokers; the one that is named first describes topics unless it hangs, and the other one if not."""

    def __init__(self, hanging: Collection[int]) -> None:
        self.brokers: dict[int, SimpleNamespace] = {}
        self.names = [f"t{number:05}" for number in range(CALLS * TOPICS_PER_CALL)]
        self.hanging = hanging
        self.calls: list[int] = []
        self.answers: dict[str, object] = {}
        self.logged: list[BaseException] = []
        self.request_timeout = 10.0
        self.admin = self
        self.own_id = "c"
        self.partitions: dict[int, SimpleNamespace] = {}
        self._named = 1

    def topics(self, avoid: Collection[int] = ()) -> SimpleNamespace:
        """The metadata, with a controller that is not among those to avoid."""
        self._named = next(broker for broker in (1, 2) if broker not in avoid)
        topic = SimpleNamespace(partitions=self.partitions, error=None)
        return SimpleNamespace(
            topics=dict.fromkeys(self.names, topic), brokers=self.brokers, controller_id=self._named, cluster_id="c"
        )

    def cluster_id(self) -> str:
        return self.own_id

    def describe_topics(self, topics: TopicCollection, **_: Any) -> Mapping[str, Future[Any]]:
        """A call to the broker that was named last."""
        self.calls.append(self._named)
        found = {name: self._future(name) for name in cast("Any", topics).topic_names}
        for name in found.keys() & self.answers.keys():
            found[name] = Future()
            answer = self.answers[name]
            if isinstance(answer, Exception):
                found[name].set_exception(answer)
            else:
                found[name].set_result(answer)
        return found

    def describe_configs(self, resources: Sequence[Any], **_: Any) -> Mapping[Any, Future[Any]]:
        return {resource: self._future(resource.name) for resource in resources}

    def log_unexplained(self, _: str, answer: BaseException) -> None:
        self.logged.append(answer)

    def _future(self, name: str) -> Future[Any]:
        future: Future[Any] = Future()
        if self._named in self.hanging:
            future.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))  # noqa: SLF001 - librdkafka's name
        else:
            future.set_result(
                SimpleNamespace(
                    topic_id=f"{'' if self.own_id == 'c' else 'other '}id of {name}", is_internal=False, items=dict
                )
            )
        return future


def reader_of(cluster: Cluster, clock: ManualClock | None = None) -> MetadataReader:
    return MetadataReader(cast("Client", cluster), Scope(), clock or ManualClock())


@pytest.mark.parametrize("hanging", [[1], [1, 2]], ids=["one", "both"])
def test_a_broker_that_hangs_is_waited_for_once(hanging: list[int]) -> None:
    cluster = Cluster(hanging)
    metadata = reader_of(cluster).read()
    if hanging == [1]:
        assert cluster.calls == [1] * IN_FLIGHT + [2] * CALLS
        assert {topic.topic_id for topic in metadata.topics.values()} == {f"id of {name}" for name in cluster.names}
        assert not metadata.unidentified
    else:
        assert cluster.calls == [1] * IN_FLIGHT + [2] * IN_FLIGHT
        assert metadata.unidentified == dict.fromkeys(cluster.names, Reason.TIMED_OUT)


def test_another_cluster_behind_the_name_has_its_own_topic_ids_at_once() -> None:
    """Else topics of the same names would have the ids of the earlier cluster, each until its turn comes."""
    cluster = Cluster(hanging=[])
    cluster.partitions = {number: SimpleNamespace(leader=1, replicas=[1], isrs=[1]) for number in range(10)}
    reader = reader_of(cluster)
    reader.read()
    cluster.own_id = "d"
    assert reader.cluster_id() == "d"
    ids = {name: topic.topic_id for name, topic in reader.read().topics.items()}
    assert ids == {name: f"other id of {name}" for name in cluster.names}


def test_a_topic_that_fails_as_nobody_foresaw_costs_itself() -> None:
    cluster = Cluster(hanging=[])
    bad, odd, *good = cluster.names = cluster.names[: 2 * TOPICS_PER_CALL]
    error = RuntimeError("unforeseen")
    cluster.answers = {bad: error, odd: SimpleNamespace()}
    metadata = reader_of(cluster).read()
    assert metadata.unidentified == {bad: Reason.OTHER, odd: Reason.OTHER}
    assert {name: metadata.topics[name].topic_id for name in good} == {name: f"id of {name}" for name in good}
    assert cluster.logged[0] is error and len(cluster.logged) == 2


def test_an_address_of_ipv6_has_brackets() -> None:
    """Without them no client could tell its port, and `doctor` would not reach a broker that is well."""
    cluster = Cluster(hanging=[])
    cluster.names = []
    hosts = {1: "::1", 2: "kafka-2.example.org", 3: "10.0.0.3"}
    cluster.brokers = {each: SimpleNamespace(id=each, host=host, port=9092) for each, host in hosts.items()}
    assert reader_of(cluster).read().brokers == {1: "[::1]:9092", 2: "kafka-2.example.org:9092", 3: "10.0.0.3:9092"}


def test_topics_are_chosen_by_whole_names() -> None:
    there, state = ["pick-a", "pick-b", "pick-b2", "__transaction_state"], "__transaction_state"
    chosen = Scope(["pick-.", "pick-b2", "misspelt", state], ["pick-a"])
    assert chosen.select(there) == (["pick-b", "pick-b2"], ("misspelt", state))
    assert replace(chosen, internal=True).select(there) == ([state, "pick-b", "pick-b2"], ("misspelt",))

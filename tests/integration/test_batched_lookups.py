"""The cheap call for offsets against real brokers: it answers as the documented one, and leaves no trace."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, cast

import confluent_kafka
import numpy as np
import pytest
from confluent_kafka import ElectionType, KafkaError  # type: ignore[attr-defined]
from confluent_kafka.admin import AclOperation, AdminClient

from exporter.clock import SystemClock
from exporter.collectors.consumer_groups import GroupWatch
from exporter.domain.polls.answers import ANSWERED, reason_of_code
from exporter.domain.polls.readings import Reason, TopicPartition
from exporter.factory.clusters import make_group_watch
from exporter.kafka import list_offsets_call
from exporter.kafka.list_offsets_call import EARLIEST, LATEST, MAX_TIMESTAMP
from exporter.kafka.poll_source import PollSource
from exporter.kafka.source import KafkaSource
from exporter.settings.schema import Settings
from tests.demo.broker import Broker
from tests.groups import groups_of
from tests.integration.kafka import DAY_AGO, Kafka
from tests.integration.mirroring import PairTest
from tests.integration.secured import Properties, Secured, documented_group_rights, documented_rights
from tests.integration.sweeping import commit as commit_at
from tests.times import first_since, objects
from tests.trio import THIRD, Trio
from tests.workbench import Workbench

TOPIC = "asked-both-ways"
OFFSETS = "__consumer_offsets"

Call = Callable[[AdminClient, Sequence[confluent_kafka.TopicPartition], float], Future[list_offsets_call.OffsetResults]]


def commit(bootstrap: str, topic: str) -> None:
    """Have a group that has committed in a topic, and so the topic that holds its offsets."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "a-group", "log_level": 0})
    consumer.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, 0)], asynchronous=False)
    consumer.close()


def test_both_calls_answer_alike(kafka: Kafka) -> None:
    """Empty, full, shortened, back-dated, and with an open transaction, which a committed read would stop at."""
    kafka.create(TOPIC, 6)
    kafka.write([(TOPIC, number, DAY_AGO + at) for number in (1, 2, 3, 4) for at in range(5)])
    kafka.delete_records(TOPIC, 2, 3)
    kafka.delete_records(TOPIC, 3, 5)
    transaction = kafka.write_transaction(TOPIC, 4, DAY_AGO, "both-ways")
    compare_both_calls({"bootstrap.servers": kafka.bootstrap}, latest=[0, 5, 5, 5, 6, 0], earliest=[0, 0, 3, 5, 0, 0])
    transaction.abort_transaction(30)
    kafka.delete(TOPIC)


@pytest.mark.parametrize("way", ["password", "certificate"])
def test_both_calls_answer_alike_on_a_secured_broker(secured: Secured, way: str) -> None:
    """With the documented rights alone: empty, full, shortened and emptied partitions."""
    secured.bench.create(TOPIC, 4)
    secured.bench.write([(TOPIC, number, DAY_AGO + at) for number in (1, 2, 3) for at in range(5)])
    secured.bench.delete_records(TOPIC, 2, 3)
    secured.bench.delete_records(TOPIC, 3, 5)
    commit(secured.broker.bootstrap, TOPIC)
    properties = secured.by_password() if way == "password" else secured.by_certificate()
    compare_both_calls(properties, latest=[0, 5, 5, 5], earliest=[0, 0, 3, 5])


def compare_both_calls(properties: Properties, *, latest: list[int], earliest: list[int]) -> None:
    """Assert that both calls give these offsets of the partitions of the topic, and all else alike."""
    source = KafkaSource(properties, clock=SystemClock(), include=[TOPIC])
    membership = source.metadata().membership
    rows = np.arange(len(membership.layout))
    batched = source.batched()
    for spec, offsets in ((LATEST, latest), (EARLIEST, earliest)):
        answers, refused = batched.ask(spec, membership, rows)
        assert not len(refused)
        assert answers.offset.tolist() == offsets
        assert objects(answers) == objects(source.by_row(spec, membership, rows))
    batched.close()
    source.close()


def answers_by(call: Call, admin: AdminClient, names: Sequence[tuple[str, int]], spec: int) -> list[Any]:
    """The offset, time and epoch of each partition, or the code of its error or of that of the whole call."""
    partitions = [confluent_kafka.TopicPartition(*name, spec) for name in names]
    try:
        found: Mapping[Any, Any] = call(admin, partitions, 30.0).result(60)
    except confluent_kafka.KafkaException as error:
        return [cast("KafkaError", error.args[0]).code()]
    answers = [found.get(each) for each in partitions]
    return [
        each.code() if isinstance(each, KafkaError) else each and (each.offset, each.timestamp, each.leader_epoch)
        for each in answers
    ]


def test_one_future_for_a_call_gives_what_one_for_each_partition_does(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each spec and a time, of empty and full partitions and of one that there is not; and it is the quick way."""
    topic = f"{TOPIC}-by-call"
    kafka.create(topic, 3)
    kafka.write([(topic, number, DAY_AGO + at) for number in (1, 2) for at in range(5)])
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    documented = list_offsets_call.by_partition
    monkeypatch.delattr(list_offsets_call, "by_partition")
    names = [(topic, number) for number in range(4)]
    for spec in (LATEST, EARLIEST, MAX_TIMESTAMP, int(DAY_AGO) + 3):
        quick = answers_by(list_offsets_call.list_offsets, admin, names, spec)
        assert quick == answers_by(documented, admin, names, spec)
        if spec == LATEST:
            assert [each[0] for each in quick[:3]] == [0, 5, 5] and isinstance(quick[3], int)
    kafka.delete(topic)


def batching_source(properties: Properties, *include: str) -> PollSource:
    """A source to which every cluster is worth a consumer."""
    clock = SystemClock()
    source = KafkaSource(properties, clock=clock, include=include)
    return PollSource(source, clock, worth_batching=1)


def test_polls_and_sweeps_make_no_topic(kafka_jars: Path, tmp_path: Path) -> None:
    """A broker without groups has no ``__consumer_offsets``, which a consumer alone would make it have."""
    with Broker(tmp_path / "fresh", jars=kafka_jars) as broker:
        bench = Workbench(broker.bootstrap)
        bench.create("orders")
        polled = batching_source({"bootstrap.servers": broker.bootstrap}, "orders")
        groups = KafkaSource({"bootstrap.servers": broker.bootstrap}, clock=SystemClock())
        for _ in range(2):
            polled.metadata(fresh=True)
            assert polled.latest(np.array([0])).reason.tolist() == [ANSWERED]
            groups.groups.list_groups()
        time.sleep(2)
        assert OFFSETS not in bench.admin.list_topics(timeout=10).topics
        assert not polled.batching
        consumer = groups.batched()
        bench.until(lambda: OFFSETS in bench.admin.list_topics(timeout=10).topics)
        polled.metadata(fresh=True)
        polled.latest(np.array([0]))
        assert polled.batching, "from when others made it on"
        consumer.close()
        polled.close()
        groups.close()


def test_the_documented_rights_are_enough(secured: Secured) -> None:
    """With DESCRIBE on topics and groups the cheap call is used, and held to be right."""
    secured.bench.create(TOPIC)
    commit(secured.broker.bootstrap, TOPIC)
    polled = batching_source(secured.by_password(), TOPIC)
    polled.metadata(fresh=True)
    assert polled.latest(np.array([0])).offset.tolist() == [0]
    assert polled.batching
    polled.close()


def test_without_the_right_to_groups_the_authorizer_is_not_flooded(secured: Secured) -> None:
    """The documented call is asked from then on: an authorizer writes a line for each of the consumer's questions."""
    user = "no-groups"
    secured.add_user(user)
    secured.grant(user, documented_rights())
    assert documented_group_rights() == [(AclOperation.DESCRIBE, "*")]
    commit(secured.broker.bootstrap, "orders")
    polled = batching_source(secured.by_password(user=user), "orders")

    def seen() -> bool:
        return "orders" in polled.metadata(fresh=True).topics

    secured.bench.until(seen)
    assert polled.latest(np.array([0])).reason.tolist() == [ANSWERED]

    def stopped() -> bool:
        assert polled.latest(np.array([0])).reason.tolist() == [ANSWERED]
        return not polled.batching

    secured.bench.until(stopped)
    before = denials(secured, user)
    time.sleep(3)
    assert not polled.batching
    assert 1 <= denials(secured, user) == before
    polled.close()


def denials(secured: Secured, user: str) -> int:
    """How often a broker has refused a user something about groups, by its log."""
    lines = secured.broker.log.read_text(errors="replace").splitlines()
    return sum(f"User:{user}" in line and "enied" in line and "Group" in line for line in lines)


@pytest.fixture(scope="module")
def trio(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    """Three brokers; a test takes the third away for a while and gives it back."""
    with Trio(tmp_path_factory.mktemp("trio"), kafka_jars) as running:
        running.create(TOPIC, 2)
        running.workbench.write([(TOPIC, number, DAY_AGO) for number in range(6)])
        # On a broker that stays: a coordinator that is gone is not what is looked at.
        running.workbench.create_on(OFFSETS, [[1]] * 4, {"cleanup.policy": "compact"})
        yield running


def test_look_ups_by_time_follow_a_leader_that_moves(trio: Trio) -> None:
    """A connection that never reads metadata is answered, though both brokers live and the old leader refuses."""
    trio.workbench.create_on("moves", [[THIRD, 1]] * 6)
    key = TopicPartition("moves", 0)
    with closing(KafkaSource({"bootstrap.servers": trio.bootstrap}, clock=SystemClock(), include=["moves"])) as source:

        def answered() -> bool:
            return first_since(source, key, 0.0).reason is None

        with trio.dead():
            trio.workbench.until(lambda: leads(trio.workbench, "moves") == {1}, 60)
            # A broker that is asked may hear a moment later than the first who leads.
            trio.workbench.until(lambda: key in source.metadata().membership.layout and answered(), 60)
        trio.workbench.until(lambda: prefer(trio.workbench, "moves"), 60)
        trio.workbench.until(answered, 60)


def test_sweeps_follow_a_leader_that_moves(trio: Trio) -> None:
    """Through its client process: all is known again, though all brokers live and the old leader refuses."""
    bench, topic = trio.workbench, "travels"
    bench.create_on(topic, [[THIRD, 1]] * 6)
    began = float(int(time.time())) - 100
    bench.write([(topic, number, began) for number in range(6)])
    keys = [TopicPartition(topic, number) for number in range(6)]
    bench.until(lambda: committed(bench, dict.fromkeys(keys, 0)), 60)
    pair = PairTest(trio.bootstrap, trio.bootstrap, topics=topic)
    groups = sweeping(trio.bootstrap, topic, "traveller")

    def exact(records: int) -> bool:
        """Sweep; return whether all is known and right."""
        groups.accept(pair.poll()["east"])
        sweep = groups.sweep()
        positions = groups_of(sweep)["traveller"].partitions.values() if sweep.complete else []
        at_end = all(position.committed + (position.lag or 0) == records for position in positions)
        return at_end and len([position for position in positions if position.time_lag is not None]) == 6

    bench.until(lambda: exact(1), 60)
    with trio.dead():
        bench.until(lambda: leads(bench, topic) == {1}, 60)
        bench.write([(topic, number, began + at) for number in range(6) for at in (10, 20)])
        bench.until(lambda: committed(bench, dict.fromkeys(keys, 1)), 60)
        exact(3)  # now every client knows the new leader, or waits for the old one
    # Both brokers live from here on, and the old leader refuses.
    bench.until(lambda: prefer(bench, topic), 60)
    bench.write([(topic, number, began + at) for number in range(6) for at in (30, 40)])
    bench.until(lambda: committed(bench, dict.fromkeys(keys, 2)), 60)
    bench.until(lambda: exact(5), 120)
    groups.close()
    pair.close()


def committed(workbench: Workbench, offsets: Mapping[TopicPartition, int]) -> bool:
    """Commit for the group of the test above, and return whether its coordinator was there already."""
    with suppress(confluent_kafka.KafkaException):
        commit_at(workbench.bootstrap, "traveller", offsets)
        return True
    return False


def sweeping(bootstrap: str, topic: str, group: str) -> GroupWatch:
    """The collector of this group as `serve` builds it, which asks through a client process."""
    settings = Settings.model_validate(
        {
            "clusters": [
                {"name": "east", "kafka": {"bootstrap.servers": bootstrap}, "topics": {"include": [topic]}},
            ],
            "groups": {"include": [group]},
        }
    )
    watch = make_group_watch(settings.clusters[0], settings, SystemClock())
    assert watch is not None
    return watch


def leads(workbench: Workbench, topic: str) -> set[int]:
    """Who leads the partitions of a topic that moves; nobody where no broker answers in time, as after a kill."""
    try:
        topics = workbench.admin.list_topics(timeout=10).topics
    except confluent_kafka.KafkaException:
        return set()
    return {partition.leader for partition in topics[topic].partitions.values()}


def prefer(workbench: Workbench, topic: str) -> bool:
    """Have the preferred leaders elected, and return whether they lead."""
    partitions = [confluent_kafka.TopicPartition(topic, number) for number in range(6)]
    admin: Any = workbench.admin  # the stubs know no elections
    with suppress(confluent_kafka.KafkaException):  # as long as that broker is not in sync
        admin.elect_leaders(ElectionType.PREFERRED, partitions).result(30)
    return leads(workbench, topic) == {THIRD}


@pytest.mark.parametrize("how", ["cut_off", "paused", "dead"])
def test_a_broker_that_is_gone_costs_its_own_partitions_and_one_timeout(trio: Trio, how: str) -> None:
    """As with the documented call: all others are exact at each poll, within the budget; then it is back."""
    clock = SystemClock()
    connection = KafkaSource(
        {"bootstrap.servers": trio.bootstrap}, clock=clock, include=[TOPIC], request_timeout=3.0, budget=12.0
    )
    source = PollSource(connection, clock, worth_batching=1)

    def poll() -> tuple[list[int], set[Reason | None], float]:
        began = time.monotonic()
        membership = source.metadata(fresh=True).membership
        rows = np.flatnonzero(membership.leader >= 0)
        answers = source.latest(rows)
        read = answers.reason == ANSWERED
        assert (answers.offset[read] == 1).all()
        reasons = {reason_of_code(code) for code in np.unique(answers.reason[~read]).tolist()}
        return membership.layout.partition[rows[read]].tolist(), reasons, time.monotonic() - began

    assert poll()[:2] == ([0, 1, 2, 3, 4, 5], set())
    assert source.batching
    expected: set[Reason | None] = {Reason.LEADER_UNREACHABLE, Reason.TIMED_OUT}
    if how != "cut_off":  # the controller, which no longer hears from it, takes its partitions, perhaps within a poll
        expected.add(Reason.NO_LEADER)
    with getattr(trio, how)():
        for _ in range(3):
            read, reasons, seconds = poll()
            assert read == [0, 1, 3, 4]
            assert reasons <= expected
            assert seconds < 12.0 + 5.0
    trio.workbench.until(lambda: poll()[0] == [0, 1, 2, 3, 4, 5], 60)
    assert source.batching
    source.close()

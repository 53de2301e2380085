"""The cheap call for offsets against real brokers: it answers as the documented one, and leaves no trace."""

import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AclOperation, AdminClient, OffsetSpec

from exporter.domain.polls.readings import ANSWERED
from exporter.kafka.list_offsets import EARLIEST, LATEST, MAX_TIMESTAMP, list_offsets
from exporter.kafka.source import KafkaSource
from tests.integration.kafka import DAY_AGO, Kafka
from tests.integration.secured import Secured, documented_group_rights, documented_rights
from tests.integration.sweeping import commit
from tests.times import objects

TOPIC = "asked-both-ways"


def facts(answer: Any) -> object:
    """The offset, time and epoch of an answer, or the code of its error."""
    return answer.code() if isinstance(answer, KafkaError) else (answer.offset, answer.timestamp, answer.leader_epoch)


def documented(admin: AdminClient, names: Sequence[tuple[str, int]], spec: int) -> list[object]:
    specs = {LATEST: OffsetSpec.latest(), EARLIEST: OffsetSpec.earliest(), MAX_TIMESTAMP: OffsetSpec.max_timestamp()}
    asked = {TopicPartition(*name): specs.get(spec) or OffsetSpec.for_timestamp(spec) for name in names}
    futures = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=30.0)
    found = [futures[key].exception(60) or futures[key].result() for key in asked]
    return [facts(one.args[0] if isinstance(one, KafkaException) else one) for one in found]


def test_all_calls_answer_alike(kafka: Kafka) -> None:
    """Empty, full, shortened, back-dated, and with an open transaction, which a committed read would stop at.

    The cheap call, and one future for a call in place of one for each partition, give what the documented one does.
    """
    kafka.create(TOPIC, 6)
    kafka.write([(TOPIC, number, DAY_AGO + at) for number in (1, 2, 3, 4) for at in range(5)])
    kafka.delete_records(TOPIC, 2, 3)
    kafka.delete_records(TOPIC, 3, 5)
    transaction = kafka.write_transaction(TOPIC, 4, DAY_AGO, "both-ways")
    source = KafkaSource({"bootstrap.servers": kafka.bootstrap}, include=[TOPIC])
    membership = source.metadata().membership
    by_call = source.ends(membership), source.starts(membership)
    source.batched.follow(membership, wanted=True)
    assert source.batched.consumer is not None, "both calls agree"
    expected = [0, 5, 5, 5, 6, 0], [0, 0, 3, 5, 0, 0]
    for spec, offsets, documented_one in zip((LATEST, EARLIEST), expected, by_call, strict=True):
        answers = source.batched.ask(spec, membership)
        assert answers.offset.tolist() == offsets
        assert objects(answers) == objects(documented_one)
    source.close()
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    names = [(TOPIC, number) for number in range(7)]
    for spec in (LATEST, EARLIEST, MAX_TIMESTAMP, int(DAY_AGO) + 3):
        asked = [TopicPartition(*name, spec) for name in names]
        found = list_offsets(admin, asked, 30.0).result(60)
        quick = [facts(found[each]) for each in asked]
        assert quick == documented(admin, names, spec)
        if spec == LATEST:
            assert isinstance(quick[6], int), "the last partition is not there"
    transaction.abort_transaction(30)
    kafka.delete(TOPIC)


def test_the_documented_rights_are_enough(secured: Secured) -> None:
    secured.bench.create(TOPIC)
    commit(secured.broker.bootstrap, "a-group", {TOPIC: 0})
    polled = KafkaSource(secured.by_password(), include=[TOPIC], worth_batching=1)
    assert polled.ends(polled.metadata().membership).offset.tolist() == [0]
    assert polled.batched.consumer is not None
    polled.close()


def test_without_the_right_to_groups_the_authorizer_is_not_flooded(secured: Secured) -> None:
    """The documented call is asked from then on: an authorizer writes a line for each of the consumer's questions."""
    user = "no-groups"
    secured.add_user(user)
    secured.grant(user, documented_rights())
    assert documented_group_rights() == [(AclOperation.DESCRIBE, "*")]
    commit(secured.broker.bootstrap, "a-group", {"orders": 0})
    polled = KafkaSource(secured.by_password(user=user), include=["orders"], worth_batching=1)
    secured.bench.until(lambda: "orders" in polled.metadata().topics)
    membership = polled.metadata().membership

    def stopped() -> bool:
        assert polled.ends(membership).reason.tolist() == [ANSWERED]
        return polled.batched.consumer is None

    secured.bench.until(stopped)
    before = denials(secured, user)
    time.sleep(3)
    assert polled.batched.consumer is None
    assert 1 <= denials(secured, user) == before
    polled.close()


def denials(secured: Secured, user: str) -> int:
    """How often a broker has refused a user something about groups, by its log."""
    lines = secured.broker.log.read_text(errors="replace").splitlines()
    return sum(f"User:{user}" in line and "enied" in line and "Group" in line for line in lines)

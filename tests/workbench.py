"""Hands on a real cluster for tests: make topics, write records at chosen times, take them away again."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AclBinding, AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from tests.waiting import until

EVERLASTING = {
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.before.max.ms": str(2**63 - 1),
    "message.timestamp.after.max.ms": str(2**63 - 1),
}
"""Topic settings under which records of any timestamp are taken and kept."""

QUIET = {"log_level": 0}
"""What librdkafka has to say on standard error is not what a failed test is about."""


class Workbench:
    """Makes and unmakes topics and records on the cluster at ``bootstrap``; every call waits for its effect."""

    def __init__(self, bootstrap: str, *, everlasting: Mapping[str, str] = EVERLASTING) -> None:
        """``everlasting`` is what ``create`` sets where nothing else is said; old brokers know fewer settings."""
        self.bootstrap = bootstrap
        self.everlasting = everlasting
        self.admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})

    def create(self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Make a topic and wait until every partition has a leader."""
        settings = dict(self.everlasting if config is None else config)
        self.admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(30)
        self.await_leaders(topic, partitions)

    def create_on(self, topic: str, replicas: Sequence[Sequence[int]], config: Mapping[str, str] | None = None) -> None:
        """Make a topic with one partition for each of ``replicas``: broker ids, the leader's first."""
        assigned: Any = list(map(list, replicas))  # the stubs say texts
        settings = dict(self.everlasting if config is None else config)
        new = NewTopic(topic, len(assigned), replica_assignment=assigned, config=settings)
        self.admin.create_topics([new])[topic].result(30)
        self.await_leaders(topic, len(assigned))

    def await_leaders(self, topic: str, partitions: int) -> None:
        """Wait until this many partitions of a topic have a leader."""
        self.until(lambda: self._led(topic) == partitions)

    def alter(self, topic: str, settings: Mapping[str, str]) -> None:
        """Change settings of a topic, and wait until the broker tells them."""
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
        self.admin.incremental_alter_configs([resource])[resource].result(30)

        def in_force() -> bool:
            described = self.admin.describe_configs([resource])[resource].result(30)
            return all(described[name].value == value for name, value in settings.items())

        self.until(in_force)

    def delete(self, topic: str) -> None:
        """Delete a topic and wait until the metadata no longer shows it."""
        self.admin.delete_topics([topic])[topic].result(30)
        self.until(lambda: topic not in self.admin.list_topics(timeout=10).topics)

    def write(self, records: Iterable[tuple[str, int, float]], value: bytes = b"x", **properties: str) -> None:
        """Write one record per (topic, partition, Unix seconds) and wait until all are taken.

        Idempotent, because a producer that retries without it may change the order (seen on a busy broker).
        """
        failed: list[str] = []
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "linger.ms": 20, "enable.idempotence": True, **QUIET, **properties}
        )
        for topic, partition, seconds in records:
            while True:
                try:
                    producer.produce(
                        topic,
                        value,
                        partition=partition,
                        timestamp=round(seconds * 1000),
                        on_delivery=lambda error, _: failed.append(str(error)) if error else None,
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
        left = producer.flush(60)
        assert not failed and not left, f"{len(failed)} records refused ({failed[:1]}), {left} not delivered"

    def write_transaction(self, topic: str, partition: int, seconds: float, transactional_id: str) -> Producer:
        """Write one record in a transaction that is left open; the caller commits or aborts it."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": transactional_id, **QUIET})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topic, b"x", partition=partition, timestamp=round(seconds * 1000))
        assert producer.flush(30) == 0
        return producer

    def grant(self, rules: Iterable[AclBinding]) -> None:
        """Make these rules of who may do what."""
        for future in self.admin.create_acls(list(rules)).values():
            future.result(30)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Move the log start of a partition to offset ``before`` (KIP-107)."""
        target = TopicPartition(topic, partition, before)
        for future in self.admin.delete_records([target]).values():
            future.result(30)

    def _led(self, topic: str) -> int:
        known = self.admin.list_topics(timeout=10).topics.get(topic)
        return 0 if known is None else sum(partition.leader >= 0 for partition in known.partitions.values())

    until = staticmethod(until)

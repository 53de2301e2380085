"""The Kafka versions that tests run on, and what is known of each."""

import math
import time
from collections.abc import Iterable, Mapping
from typing import Any, cast

import confluent_kafka
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Producer
from confluent_kafka.admin import OffsetSpec

from exporter.domain.polls.readings import State, TopicPartition
from tests.demo.broker import KAFKA_VERSION
from tests.workbench import EVERLASTING, QUIET, Workbench

VERSIONS = ("2.8.2", "3.7.2", "3.9.2", KAFKA_VERSION)
"""The last before MAX_TIMESTAMP (ZooKeeper), the last whose MAX_TIMESTAMP has a wrong offset (KAFKA-16310), the last
that can do without KRaft, and today's."""

DAY_AGO = math.floor(time.time()) - 86400.0


class Kafka(Workbench):
    """A broker of one version, and hands on it."""

    def __init__(self, version: str, bootstrap: str) -> None:
        self.version = version
        self.number = tuple(map(int, version.split(".")))
        # The bounds in two directions are from 3.6 on (KIP-937); before, there is no bound by default.
        old = {name: value for name, value in EVERLASTING.items() if name.startswith("retention")}
        super().__init__(bootstrap, everlasting=EVERLASTING if self.number >= (3, 6) else old)

    @property
    def knows_max_timestamp(self) -> bool:
        """Whether the broker has KIP-734."""
        return self.number >= (3, 0)

    def create(self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Make a topic; ZooKeeper still knows one that was just deleted for a moment after brokers forgot it."""
        deadline = time.monotonic() + 30
        while True:
            try:
                return super().create(topic, partitions, config)
            except KafkaException as error:
                cause = error.args[0]
                taken = isinstance(cause, KafkaError) and cause.code() == KafkaError.TOPIC_ALREADY_EXISTS
                if not taken or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def write_keyed(self, topic: str, records: Iterable[tuple[str, float]], value: bytes = b"x") -> None:
        """Write one record per (record key, Unix seconds) into partition 0, each in a batch of its own."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True, **QUIET})
        for name, seconds in records:
            producer.produce(topic, value, key=name, partition=0, timestamp=round(seconds * 1000))
            assert producer.flush(30) == 0

    def raw_max_timestamp(self, key: TopicPartition) -> tuple[int, float]:
        """Offset and Unix seconds as the broker answers MAX_TIMESTAMP, unjudged."""
        partition = confluent_kafka.TopicPartition(*key)
        future = self.admin.list_offsets(
            {partition: OffsetSpec.max_timestamp()}, isolation_level=IsolationLevel.READ_UNCOMMITTED
        )[partition]
        answer = cast("Any", future.result(30))
        return answer.offset, answer.timestamp / 1000

    def observed(
        self, earliest: int, latest: int, newest: float, state: State = State.OBSERVED
    ) -> tuple[State, int, int, float | None]:
        """What ``watch.seen`` returns of a partition with several records of which ``newest`` is the largest time."""
        if self.knows_max_timestamp:
            return state, earliest, latest, newest
        return State.UNSUPPORTED, earliest, latest, None

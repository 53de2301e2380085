"""Writes the scenario to a real broker through real clients: four weeks at once, then live."""

import json
import threading
import time
from collections.abc import Callable

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.demo.jars import DemoError
from tests.demo.scenario import GROUPS, TOPICS, Topic, partitions
from tests.workbench import Workbench

TIMEOUT = 30.0
HISTORY_TIMEOUT = 180.0
TRANSACTION_SECONDS = 3.0
TICK_SECONDS = 0.5

_KEEP_FOREVER = {"retention.ms": "-1", "retention.bytes": "-1"}
"""With the default retention a broker deletes back-dated records within minutes (Kafka 4.3.1)."""


def make_topics(bootstrap: str) -> None:
    workbench = Workbench(bootstrap)
    for topic in TOPICS:
        workbench.create(topic.name, topic.partitions, {**_KEEP_FOREVER, **topic.settings})


def commit_groups(bootstrap: str) -> None:
    """Commit the offsets of every consumer group of the scenario: a share of what each partition holds."""
    for group in GROUPS:
        reader = Consumer({"bootstrap.servers": bootstrap, "group.id": group.name, "log_level": 0})
        read = []
        for topic, partition in partitions():
            if topic.name == group.topic:
                place = TopicPartition(topic.name, partition)
                _, end = reader.get_watermark_offsets(place, timeout=TIMEOUT) or (0, 0)
                read.append(TopicPartition(topic.name, partition, int(end * group.read)))
        reader.commit(offsets=read, asynchronous=False)
        reader.close()


def write_history(bootstrap: str, started: float) -> int:
    """Write the four weeks before ``started`` (Unix seconds), and delete the records of the emptied topic.

    Returns the number of records. Raises DemoError where the broker refused one, or did not take all in time.
    """
    producer, refusals, written = _producer(bootstrap), list[str](), 0

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            refusals.append(f"{message.topic()}/{message.partition()}: {error.str()}")

    for topic, partition in partitions():
        for moment in topic.history(partition, started):
            _produce(producer, topic, partition, moment, started, delivered)
            written += 1
    deadline = time.monotonic() + HISTORY_TIMEOUT
    # Short waits, so that Ctrl-C works.
    while (left := producer.flush(0.2)) > 0 and not refusals and time.monotonic() < deadline:
        pass
    if refusals or left:
        raise DemoError(
            f"the broker refused {len(refusals)} records ({refusals[:1]}) and did not take {left} in time; "
            "next step: see logs/broker.log of the demo"
        )
    workbench = Workbench(bootstrap)
    for topic, partition in partitions():
        if topic.emptied:
            workbench.delete_records(topic.name, partition, OFFSET_END)
    return written


def _producer(bootstrap: str, **more: str) -> Producer:
    # Small batches, as in real life: a batch of four weeks would never roll a segment.
    small = {"linger.ms": 20, "batch.num.messages": 100}
    return Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0, **small, **more})


def _ignore(_error: KafkaError | None, _message: Message) -> None:
    """What a live record met does not matter."""


def _produce(
    producer: Producer,
    topic: Topic,
    partition: int,
    moment: float,
    started: float,
    delivered: Callable[[KafkaError | None, Message], None] = _ignore,
) -> None:
    written = round(moment, 3)
    value = json.dumps({"topic": topic.name, "partition": partition, "written": written})
    key = f"{topic.name}-{int(written) % 50}"
    stamp = round(topic.stamp(moment, started) * 1000)
    while True:
        try:
            producer.produce(topic.name, value, key, partition, on_delivery=delivered, timestamp=stamp)
        except BufferError:
            producer.poll(0.1)
        else:
            producer.poll(0)
            return


class LiveTraffic:
    """Writes to the live topics in a thread until ``stop``; the demo began at ``started`` (Unix seconds)."""

    def __init__(self, bootstrap: str, started: float) -> None:
        self._bootstrap = bootstrap
        self._started = started
        self._failure: str | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="trickle", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(10.0)

    def check(self) -> None:
        if self._failure is not None:
            raise DemoError(self._failure)

    def _run(self) -> None:
        try:
            self._write()
        except (KafkaException, OSError) as problem:
            self._failure = f"the live producers stopped: {problem}; next step: see logs/broker.log of the demo"

    def _write(self) -> None:
        producer = _producer(self._bootstrap)
        transactional = _producer(self._bootstrap, **{"transactional.id": "demo-transfers"})
        transactional.init_transactions(TIMEOUT)
        since = transfers_since = self._started
        count = 0
        while not self._stopping.wait(TICK_SECONDS):
            until = time.time()
            for topic, partition in partitions():
                if not topic.transactional:
                    for moment in topic.live(partition, since, until, self._started):
                        _produce(producer, topic, partition, moment, self._started)
            since = until
            if until - transfers_since >= TRANSACTION_SECONDS:
                self._transact(transactional, until, committed=count % 3 != 2)
                transfers_since, count = until, count + 1
        # Records that are not acknowledged by now do not matter.
        producer.flush(2.0)

    def _transact(self, transactional: Producer, moment: float, *, committed: bool) -> None:
        transactional.begin_transaction()
        for topic, partition in partitions():
            if topic.transactional:
                _produce(transactional, topic, partition, moment, self._started)
        if committed:
            transactional.commit_transaction(TIMEOUT)
        else:
            transactional.flush(TIMEOUT)  # An abort would drop records that are not sent yet.
            transactional.abort_transaction(TIMEOUT)

"""Writes the scenario to a real broker through real clients: four weeks at once, then live."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.demo.jars import DemoError
from tests.demo.scenario import GROUPS, TOPICS, Group, Topic, partitions

ADMIN_TIMEOUT = 30.0
HISTORY_TIMEOUT = 180.0
TRANSACTION_SECONDS = 3.0
TICK_SECONDS = 0.5

_KEEP_FOREVER = {"retention.ms": "-1", "retention.bytes": "-1"}
"""With the default retention a broker deletes back-dated records within minutes (Kafka 4.3.1)."""


def make_topics(bootstrap: str) -> None:
    """Create every topic of the scenario. Raises DemoError naming the topic that could not be created."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    wanted = [
        NewTopic(
            topic.name,
            num_partitions=topic.partitions,
            replication_factor=1,
            config={**_KEEP_FOREVER, **topic.settings},
        )
        for topic in TOPICS
    ]
    for name, made in admin.create_topics(wanted, request_timeout=ADMIN_TIMEOUT).items():
        try:
            made.result(2 * ADMIN_TIMEOUT)
        except (KafkaException, TimeoutError) as problem:
            raise DemoError(
                f"topic {name} could not be created on {bootstrap}: {problem}; "
                "next step: see logs/broker.log of the demo"
            ) from None


def commit_groups(bootstrap: str) -> None:
    """Commit the offsets of every consumer group of the scenario. Raises DemoError naming the group that could not."""
    for group in GROUPS:
        reader = Consumer({"bootstrap.servers": bootstrap, "group.id": group.name, "log_level": 0})
        try:
            reader.commit(offsets=_read_by(group, reader), asynchronous=False)
        except KafkaException as problem:
            raise DemoError(
                f"group {group.name} could not commit on {bootstrap}: {problem}; "
                "next step: see logs/broker.log of the demo"
            ) from None
        finally:
            reader.close()


def _read_by(group: Group, reader: Consumer) -> list[TopicPartition]:
    """Return the offsets that a group has read up to."""
    offsets = []
    for topic, partition in partitions():
        if topic.name == group.topic:
            ends = reader.get_watermark_offsets(TopicPartition(topic.name, partition), timeout=ADMIN_TIMEOUT)
            if ends is None:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001 - librdkafka's own name
            offsets.append(TopicPartition(topic.name, partition, int(ends[1] * group.read)))
    return offsets


class _Deliveries:
    """Counts acknowledged records, and keeps the first error."""

    def __init__(self) -> None:
        self.delivered = 0
        self.refusal: str | None = None

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.delivered += 1
        elif self.refusal is None:
            self.refusal = f"{message.topic()}/{message.partition()}: {error.str()}"


def write_history(bootstrap: str, started: float, *, progress: Callable[[str], None]) -> int:
    """Write the four weeks before ``started`` (Unix seconds), and delete the records of the emptied topic.

    Returns the number of acknowledged records. Raises DemoError where the broker refused one, or did not acknowledge
    all within HISTORY_TIMEOUT seconds.
    """
    deliveries = _Deliveries()
    producer = _producer(bootstrap)
    wanted = 0
    for topic, partition in partitions():
        moments = topic.history(partition, started)
        for moment in moments:
            _produce(producer, topic, partition, moment, started, deliveries)
        wanted += len(moments)
    _flush(producer, deliveries, wanted, progress)
    for topic in TOPICS:
        if topic.emptied:
            _empty(bootstrap, topic)
    return deliveries.delivered


def _producer(bootstrap: str, **more: str) -> Producer:
    # Small batches, as in real life: a batch of four weeks would never roll a segment.
    small = {"linger.ms": 20, "batch.num.messages": 100}
    return Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0, **small, **more})


def _produce(
    producer: Producer,
    topic: Topic,
    partition: int,
    moment: float,
    started: float,
    on_delivery: Callable[[KafkaError | None, Message], None] | None = None,
) -> None:
    written = round(moment, 3)
    value = json.dumps({"topic": topic.name, "partition": partition, "written": written})
    key = f"{topic.name}-{int(written) % 50}"
    stamp = round(topic.stamp(moment, started) * 1000)
    while True:
        try:
            producer.produce(topic.name, value, key, partition, on_delivery=on_delivery, timestamp=stamp)
        except BufferError:
            producer.poll(0.1)
        else:
            producer.poll(0)
            return


def _flush(producer: Producer, deliveries: _Deliveries, wanted: int, progress: Callable[[str], None]) -> None:
    deadline = time.monotonic() + HISTORY_TIMEOUT
    shown_at = time.monotonic()
    # Short waits, so that Ctrl-C works.
    while producer.flush(0.2) > 0 and deliveries.refusal is None and time.monotonic() < deadline:
        if time.monotonic() - shown_at >= 2.0:
            shown_at = time.monotonic()
            progress(f"{deliveries.delivered} of {wanted} records")
    if deliveries.refusal is not None:
        raise DemoError(
            f"the broker refused a record of {deliveries.refusal}; next step: see logs/broker.log of the demo"
        )
    if deliveries.delivered < wanted:
        taken = f"{deliveries.delivered} of {wanted} records in {HISTORY_TIMEOUT:.0f} s"
        raise DemoError(f"the broker took only {taken}; next step: see logs/broker.log of the demo")


def _empty(bootstrap: str, topic: Topic) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    ends = [TopicPartition(topic.name, partition, OFFSET_END) for partition in range(topic.partitions)]
    try:
        for done in admin.delete_records(ends, request_timeout=ADMIN_TIMEOUT).values():
            done.result(2 * ADMIN_TIMEOUT)
    except (KafkaException, TimeoutError) as problem:
        raise DemoError(
            f"topic {topic.name} could not be emptied: {problem}; next step: see logs/broker.log of the demo"
        ) from None


class LiveTraffic:
    """Writes to the live topics in a thread, from ``start`` to ``stop``.

    ``started`` and ``since`` are Unix seconds: the start of the demo, and the time up to which records are written
    already.
    """

    def __init__(self, bootstrap: str, started: float, since: float, *, now: Callable[[], float]) -> None:
        self._bootstrap = bootstrap
        self._started = started
        self._since = since
        self._now = now
        self._failure: str | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="trickle", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; may be called at any time."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(10.0)

    def check(self) -> None:
        """Raise DemoError where writing has failed."""
        if self._failure is not None:
            raise DemoError(self._failure)

    def _run(self) -> None:
        try:
            self._write()
        except (KafkaException, OSError) as problem:
            self._failure = f"the live producers stopped: {problem}; next step: see logs/broker.log of the demo"

    def _write(self) -> None:
        plain = [topic for topic in TOPICS if not topic.transactional]
        with_transactions = [topic for topic in TOPICS if topic.transactional]
        producer = _producer(self._bootstrap)
        transactional = _producer(self._bootstrap, **{"transactional.id": "demo-transfers"})
        transactional.init_transactions(ADMIN_TIMEOUT)
        since, transfers_since, count = self._since, self._since, 0
        while not self._stopping.wait(TICK_SECONDS):
            until = self._now()
            self._produce_all(producer, plain, since, until)
            since = until
            if until - transfers_since >= TRANSACTION_SECONDS:
                self._transact(transactional, with_transactions, until, committed=count % 3 != 2)
                transfers_since, count = until, count + 1
        # Records that are not acknowledged by now do not matter.
        producer.flush(2.0)

    def _produce_all(self, producer: Producer, topics: Iterable[Topic], since: float, until: float) -> None:
        for topic in topics:
            for partition in range(topic.partitions):
                for moment in topic.live(partition, since, until, self._started):
                    _produce(producer, topic, partition, moment, self._started)

    def _transact(self, transactional: Producer, topics: Iterable[Topic], moment: float, *, committed: bool) -> None:
        transactional.begin_transaction()
        for topic in topics:
            for partition in range(topic.partitions):
                _produce(transactional, topic, partition, moment, self._started)
        if committed:
            transactional.commit_transaction(ADMIN_TIMEOUT)
        else:
            transactional.flush(ADMIN_TIMEOUT)  # An abort would drop records that are not sent yet.
            transactional.abort_transaction(ADMIN_TIMEOUT)

"""The traps of ListOffsets that differ by version, and how each is recognised (real brokers, from 2.8 on)."""

from contextlib import closing

import pytest
from confluent_kafka import Producer

from exporter.domain.polls.readings import Reason, State, TopicPartition
from exporter.kafka.process import EARLIEST_LOCAL, LATEST_TIERED
from exporter.kafka.tiered_offsets import TierClient
from tests.integration.kafka import DAY_AGO, Kafka
from tests.integration.watch import Watch, advanced, seen, watching
from tests.lookup_answers import Answer
from tests.times import tier_of
from tests.views import readings_of
from tests.workbench import QUIET


def test_a_broker_that_does_not_know_max_timestamp_exports_no_time(
    kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    """Its advances are counted, no time is shown, and a metric and one line say so; of newer ones the time is shown."""
    kafka.create("aged")
    kafka.write([("aged", 0, DAY_AGO)] * 2 + [("aged", 0, DAY_AGO + 5)])
    monitor = watching(metrics={})
    watch = Watch(kafka.bootstrap, ["aged"], sinks=[monitor])
    assert seen(watch.reading("aged")) == kafka.observed(0, 3, DAY_AGO + 5)
    kafka.write([("aged", 0, DAY_AGO + 9)])
    snapshot = watch.poll()
    reading = readings_of(snapshot)[TopicPartition("aged", 0)]
    assert seen(reading) == kafka.observed(0, 4, DAY_AGO + 9, State.PRESERVED)
    assert advanced(reading) == (1, False)
    assert reading.last_advance == snapshot.taken_at
    text = monitor.metrics().decode()
    assert ("staleness_seconds{" in text) == ("last_record_timestamp_seconds{" in text) == kafka.knows_max_timestamp
    partition = 'kafka_cluster="test",topic="aged",partition="0"'
    assert (f'kafka_topic_partition_state{{{partition},state="unsupported"}} 1' in text) != kafka.knows_max_timestamp
    assert f"kafka_topic_partition_last_advance_timestamp_seconds{{{partition}}}" in text
    warnings = [line for line in caplog.messages if "do not support MAX_TIMESTAMP" in line]
    assert len(warnings) == (0 if kafka.knows_max_timestamp else 1)


def test_records_without_a_time_have_none_and_hide_no_later_one(kafka: Kafka) -> None:
    """Producers from before 0.10 write none. Before 3.0 the oldest record is answered: that is none for the others."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, **QUIET})
    for topic, records in (("timeless", 2), ("half-timeless", 1)):
        kafka.create(topic)
        for _ in range(records):
            producer.produce(topic, b"x", partition=0, timestamp=-1)
        assert producer.flush(30) == 0
    kafka.write([("half-timeless", 0, DAY_AGO)] * 2)
    # Each alone: what one of them proves of the broker would count for the other.
    assert seen(Watch(kafka.bootstrap, ["timeless"]).reading("timeless")) == (State.NO_TIMESTAMP, 0, 2, None)
    assert seen(Watch(kafka.bootstrap, ["half-timeless"]).reading("half-timeless")) == kafka.observed(0, 3, DAY_AGO)


def test_what_a_broker_is_too_old_for_is_a_reason_of_the_tiers(kafka: Kafka) -> None:
    """earliest-local is answered from 3.5 on, latest-tiered from 3.9 on; before, the reason is unsupported-version."""
    kafka.create("tiers")
    kafka.write([("tiers", 0, DAY_AGO)])
    key = TopicPartition("tiers", 0)
    old = Answer(reason=Reason.UNSUPPORTED_VERSION)
    with closing(TierClient({"bootstrap.servers": kafka.bootstrap}, request_timeout=10)) as client:
        assert tier_of(client, EARLIEST_LOCAL, key) == (Answer(0) if kafka.number >= (3, 5) else old)
        assert tier_of(client, LATEST_TIERED, key) == (Answer() if kafka.number >= (3, 9) else old)

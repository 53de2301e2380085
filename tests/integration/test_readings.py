"""What one poll learns of partitions on real brokers of every kind of version, state by state."""

import math
import re
import time
from contextlib import closing

import pytest
from confluent_kafka import Producer

from exporter.domain.polls.metadata import TopicConfig
from exporter.domain.polls.readings import END_OF_TIME, Reason, State, TopicPartition
from exporter.domain.ports import METADATA_SECONDS
from exporter.kafka.process import EARLIEST_LOCAL, LATEST_TIERED
from exporter.kafka.tiers_and_sizes import TierClient
from tests.integration.kafka import DAY_AGO, Kafka
from tests.integration.watch import Watch, advanced, seen, watching
from tests.lookup_answers import Answer
from tests.times import objects, tier_of
from tests.views import readings_of
from tests.workbench import QUIET, Workbench


def test_the_newest_record_is_the_one_with_the_largest_time(kafka: Kafka) -> None:
    """Records at +100, +400, +200: the newest is +400, the offsets run from 0 to 3, and the broker is proved.

    From 3.0 to 3.7 the broker's offset of it is wrong (KAFKA-16310); before 3.0 offset and time are of the oldest.
    """
    kafka.create("three")
    kafka.write([("three", 0, DAY_AGO + 100), ("three", 0, DAY_AGO + 400), ("three", 0, DAY_AGO + 200)])
    wrong = (2, DAY_AGO + 400) if kafka.knows_max_timestamp else (0, DAY_AGO + 100)
    raw = kafka.raw_max_timestamp(TopicPartition("three", 0))
    assert raw == (wrong if kafka.number < (3, 8) else (1, DAY_AGO + 400))
    snapshot = Watch(kafka.bootstrap, ["three"]).poll()
    reading = readings_of(snapshot)[TopicPartition("three", 0)]
    assert seen(reading) == kafka.observed(0, 3, DAY_AGO + 400)
    assert snapshot.max_timestamp_supported == {1: kafka.knows_max_timestamp}
    assert snapshot.metadata.brokers == {1: kafka.bootstrap}
    assert snapshot.lookups == {"earliest": 1, "latest": 1, "max-timestamp": 1, "by-time": 2}


def test_a_partition_that_rests_is_not_asked_again(kafka: Kafka) -> None:
    kafka.create("rests", 2)
    kafka.write([("rests", 0, DAY_AGO), ("rests", 1, DAY_AGO)])
    watch = Watch(kafka.bootstrap, ["rests"])
    watch.poll()
    kafka.write([("rests", 1, DAY_AGO + 7)])
    snapshot = watch.poll()
    assert snapshot.lookups["max-timestamp"] == 1
    if not kafka.knows_max_timestamp:
        assert {reading.state for reading in readings_of(snapshot).values()} == {State.UNSUPPORTED}
        assert watch.poll().lookups["max-timestamp"] == 1, "as an upgrade would show in it"
        return
    resting, moving = (readings_of(snapshot)[TopicPartition("rests", number)] for number in (0, 1))
    assert (resting.newest, advanced(resting)) == (DAY_AGO, (0, False))
    assert (moving.newest, advanced(moving)) == (DAY_AGO + 7, (1, False))


def test_never_written_and_emptied_differ(kafka: Kafka) -> None:
    kafka.create("hollow", 2)
    kafka.write([("hollow", 1, DAY_AGO)] * 3)
    kafka.delete_records("hollow", 1, 3)
    watch = Watch(kafka.bootstrap, ["hollow"])
    snapshot = watch.poll()
    assert seen(readings_of(snapshot)[TopicPartition("hollow", 0)]) == (State.NEVER_WRITTEN, 0, 0, None)
    assert seen(readings_of(snapshot)[TopicPartition("hollow", 1)]) == (State.EMPTY, 3, 3, None)
    assert "max-timestamp" not in snapshot.lookups


def test_deleting_records_takes_the_newest_time_with_them(kafka: Kafka) -> None:
    kafka.create("shortened")
    kafka.write([("shortened", 0, DAY_AGO + 400), ("shortened", 0, DAY_AGO + 100)])
    watch = Watch(kafka.bootstrap, ["shortened"])
    assert watch.reading("shortened").newest == DAY_AGO + 400
    kafka.delete_records("shortened", 0, 1)
    reading = watch.reading("shortened")
    assert (reading.state, reading.earliest, reading.latest) == (State.OBSERVED, 1, 2)
    # Brokers 3.0 to 3.7 return the last offset of its batch (KAFKA-16310), where another record is left.
    assert reading.newest == DAY_AGO + 100
    assert advanced(reading) == (0, False)


def test_with_the_metadata_of_a_running_exporter_a_topic_made_again_is_noticed_within_a_minute(kafka: Kafka) -> None:
    """Offsets carry no topic id: until metadata is read again the new topic counts as an advance of the old one.

    Then nothing of the old one is left, neither its first offset nor its records.
    """
    kafka.create("swapped-soon")
    kafka.write([("swapped-soon", 0, DAY_AGO)] * 4)
    kafka.delete_records("swapped-soon", 0, 3)
    watch = Watch(kafka.bootstrap, ["swapped-soon"], metadata_seconds=METADATA_SECONDS, earliest_polls=10)
    assert seen(watch.reading("swapped-soon"))[1:3] == (3, 4)
    kafka.delete("swapped-soon")
    kafka.create("swapped-soon")
    kafka.write([("swapped-soon", 0, DAY_AGO + 9)] * 9)
    assert advanced(watch.reading("swapped-soon")) == (5, False)
    watch.clock.seconds = 60.0
    reading = watch.reading("swapped-soon")
    assert seen(reading) == (State.PRESERVED, 0, 9, DAY_AGO + 9)
    assert advanced(reading) == (9, True)


def test_watching_a_deleted_topic_does_not_bring_it_back(kafka: Kafka) -> None:
    kafka.create("gone-for-good")
    kafka.write([("gone-for-good", 0, DAY_AGO)])
    watch = Watch(kafka.bootstrap, ["gone-for-good"])
    membership = watch.source.metadata().membership
    kafka.delete("gone-for-good")
    reasons: list[Reason | None] = []

    def refused() -> bool:
        reasons.extend(answer.reason for answer in objects(watch.source.ends(membership)))
        return reasons[-1] is not None

    kafka.until(refused)  # before KRaft a broker still answers for a moment
    assert reasons[-1] in (Reason.UNKNOWN_TOPIC, Reason.NO_LEADER)
    assert "gone-for-good" not in kafka.admin.list_topics(timeout=10).topics


def test_an_open_transaction_does_not_hide_its_records(kafka: Kafka) -> None:
    """Open, committed, then aborted: each record and each marker is an advance; a marker carries the wall clock."""
    kafka.create("ledger")
    watch = Watch(kafka.bootstrap, ["ledger"])
    watch.poll()
    began = time.time()
    first = kafka.write_transaction("ledger", 0, DAY_AGO, "ledger-1")
    assert seen(watch.reading("ledger")) == (State.PRESERVED, 0, 1, DAY_AGO)
    first.commit_transaction(30)
    watch.await_latest("ledger", 2)
    committed = watch.reading("ledger")
    assert (committed.latest, advanced(committed)) == (2, (1, False))
    assert (committed.newest is not None) == (committed.state is State.OBSERVED) == kafka.knows_max_timestamp
    assert began - 1 <= (committed.newest or began) <= time.time() + 1
    second = kafka.write_transaction("ledger", 0, DAY_AGO, "ledger-2")
    second.abort_transaction(30)
    watch.await_latest("ledger", 4)
    aborted = watch.reading("ledger")
    assert (aborted.latest, advanced(aborted)) == (4, (2, False))


def test_a_record_from_the_future_is_named_so(kafka: Kafka) -> None:
    """A time past now says nothing of liveness; one past the year 9999 is brought down to its end."""
    kafka.create("ahead", 3)
    tomorrow, soon = math.floor(time.time()) + 86400.0, math.floor(time.time()) + 300.0
    kafka.write([("ahead", 0, tomorrow), ("ahead", 1, 9e14), ("ahead", 2, soon)])
    watch = Watch(kafka.bootstrap, ["ahead"])
    snapshot = watch.poll()
    assert seen(readings_of(snapshot)[TopicPartition("ahead", 2)]) == (State.FUTURE, 0, 1, soon)
    watch.clock.seconds = 600.0
    assert seen(watch.reading("ahead", 2)) == (State.CONTRADICTORY, 0, 1, soon), "its time has come, nothing else"
    assert seen(readings_of(snapshot)[TopicPartition("ahead", 0)]) == (State.FUTURE, 0, 1, tomorrow)
    assert seen(readings_of(snapshot)[TopicPartition("ahead", 1)]) == (State.FUTURE, 0, 1, END_OF_TIME)


def test_log_append_time_is_the_brokers_own(kafka: Kafka) -> None:
    settings = {"message.timestamp.type": "LogAppendTime", "cleanup.policy": "compact,delete", "retention.ms": "90000"}
    kafka.create("stamped", config=settings)
    began = time.time()
    kafka.write_keyed("stamped", [("k", DAY_AGO)])
    snapshot = Watch(kafka.bootstrap, ["stamped"]).poll()
    newest = readings_of(snapshot)[TopicPartition("stamped", 0)].newest
    assert newest is not None
    assert began - 1 <= newest <= time.time() + 1
    expected = TopicConfig("LogAppendTime", "compact,delete", 90.0, remote_storage=False)
    assert snapshot.metadata.topics["stamped"].config == expected


def test_a_real_broker_is_shown_without_its_deleted_topics(workbench: Workbench) -> None:
    """A topic is made and another deleted before each of six polls; it is shown no more one poll later."""
    monitor, there = watching(metrics={"partition": ["current_offset"]}), ["churned-a", "churned-b"]
    seen = Watch(workbench.bootstrap, ["churned-.*"], sinks=[monitor], metadata_seconds=METADATA_SECONDS)

    def shown() -> set[str]:
        return set(re.findall(r'topic="([^"]+)"', monitor.metrics().decode()))

    for topic in there:
        workbench.create(topic, 2)
    seen.poll()
    gone: list[str] = []
    for number in range(6):
        there.append(f"churned-{number:02d}")
        workbench.create(there[-1], 2)
        workbench.delete(deleted := there.pop(number % 2))
        polled = {key.topic for key in readings_of(seen.poll())}
        assert not polled & set(gone)
        assert not shown() & set(gone)
        # A broker may drop the log a moment after the metadata.
        gone.append(deleted)
    assert {key.topic for key in readings_of(seen.poll())} == set(there)
    assert shown() - {""} == set(there)
    for topic in there:
        workbench.delete(topic)
    seen.source.close()


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

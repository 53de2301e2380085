"""What one poll learns of partitions on a real broker, state by state (Kafka 4.3.1)."""

from __future__ import annotations

import math
import time

import pytest

from exporter.app import SystemClock
from exporter.demo.broker import Broker
from exporter.kafka import KafkaSource
from exporter.kafka.answers import END_OF_TIME
from exporter.model import State, TopicPartition
from tests.integration.watch import Watch, advanced, exactly, seen
from tests.workbench import EVERLASTING, Workbench

DAY_AGO = math.floor(time.time()) - 86400.0


def test_the_newest_record_is_the_one_with_the_largest_time(broker: Broker, workbench: Workbench) -> None:
    """Records at +100, +400, +200: the newest is +400, the offsets run from 0 to 3, and the broker is proved."""
    workbench.create("three")
    workbench.write([("three", 0, DAY_AGO + 100), ("three", 0, DAY_AGO + 400), ("three", 0, DAY_AGO + 200)])
    snapshot = Watch(broker.bootstrap, ["three"]).poll()
    reading = snapshot.readings[TopicPartition("three", 0)]
    assert seen(reading) == (State.OBSERVED, 0, 3, DAY_AGO + 400)
    assert snapshot.max_timestamp_supported == {1: True}
    assert snapshot.metadata.brokers == {1: broker.bootstrap}
    assert snapshot.lookups == {"earliest": 1, "latest": 1, "max-timestamp": 1, "by-time": 2}


def test_a_partition_that_rests_is_not_asked_again(broker: Broker, workbench: Workbench) -> None:
    """MAX_TIMESTAMP is asked only after a move; in between the known time is kept."""
    workbench.create("rests", 2)
    workbench.write([("rests", 0, DAY_AGO), ("rests", 1, DAY_AGO)])
    watch = Watch(broker.bootstrap, ["rests"])
    watch.poll()
    workbench.write([("rests", 1, DAY_AGO + 7)])
    snapshot = watch.poll()
    assert (snapshot.lookups["max-timestamp"], snapshot.lookups_saved) == (1, 1)
    resting, moving = (snapshot.readings[TopicPartition("rests", number)] for number in (0, 1))
    assert (resting.newest, advanced(resting.activity)) == (DAY_AGO, (0, False))
    assert (moving.newest, advanced(moving.activity)) == (DAY_AGO + 7, (1, False))


def test_never_written_and_emptied_differ(broker: Broker, workbench: Workbench) -> None:
    """Both hold nothing: one was never written, the other once was."""
    workbench.create("hollow", 2)
    workbench.write([("hollow", 1, DAY_AGO)] * 3)
    workbench.delete_records("hollow", 1, 3)
    watch = Watch(broker.bootstrap, ["hollow"])
    snapshot = watch.poll()
    assert seen(snapshot.readings[TopicPartition("hollow", 0)]) == (State.NEVER_WRITTEN, 0, 0, None)
    assert seen(snapshot.readings[TopicPartition("hollow", 1)]) == (State.EMPTY, 3, 3, None)
    assert "max-timestamp" not in snapshot.lookups


def test_deleting_records_takes_the_newest_time_with_them(broker: Broker, workbench: Workbench) -> None:
    """DeleteRecords up to the largest time: the log start moves, no advance is seen, and no later time appears."""
    workbench.create("shortened")
    workbench.write([("shortened", 0, DAY_AGO + 400), ("shortened", 0, DAY_AGO + 100)])
    watch = Watch(broker.bootstrap, ["shortened"])
    assert watch.reading("shortened").newest == DAY_AGO + 400
    workbench.delete_records("shortened", 0, 1)
    reading = watch.reading("shortened")
    assert (reading.state, reading.earliest, reading.latest) == (State.OBSERVED, 1, 2)
    # The segment still holds the record below the log start, and a broker 4.3.1 answers from the segment.
    assert reading.newest == DAY_AGO + 400
    assert advanced(reading.activity) == (0, False)


def test_a_topic_made_again_is_another_topic(broker: Broker, workbench: Workbench) -> None:
    """Deleted and made again, with more records than before: the id tells that offsets started over."""
    workbench.create("phoenix")
    workbench.write([("phoenix", 0, DAY_AGO)] * 2)
    watch = Watch(broker.bootstrap, ["phoenix"])
    before = watch.poll()
    workbench.delete("phoenix")
    gone = watch.poll()
    assert (gone.readings, gone.metadata.unmatched) == ({}, ("phoenix",))
    workbench.create("phoenix")
    again = watch.poll()
    assert before.metadata.topics["phoenix"].topic_id not in (None, again.metadata.topics["phoenix"].topic_id)
    assert seen(again.readings[TopicPartition("phoenix", 0)]) == (State.NEVER_WRITTEN, 0, 0, None)


def test_a_topic_made_again_between_two_polls_is_noticed(broker: Broker, workbench: Workbench) -> None:
    """The new topic is past the old end offset at the next poll, and still counts as a restart, not an advance."""
    workbench.create("swapped")
    workbench.write([("swapped", 0, DAY_AGO)] * 2)
    watch = Watch(broker.bootstrap, ["swapped"])
    watch.poll()
    workbench.delete("swapped")
    workbench.create("swapped")
    workbench.write([("swapped", 0, DAY_AGO + 9)] * 5)
    reading = watch.reading("swapped")
    assert seen(reading) == (State.OBSERVED, 0, 5, DAY_AGO + 9)
    assert reading.activity.restarted


def test_watching_a_deleted_topic_does_not_bring_it_back(broker: Broker, workbench: Workbench) -> None:
    """Asking for offsets of a topic that is gone answers unknown-topic, and leaves it gone."""
    workbench.create("gone-for-good")
    workbench.write([("gone-for-good", 0, DAY_AGO)])
    watch = Watch(broker.bootstrap, ["gone-for-good"])
    leaders = watch.leaders(watch.poll())
    workbench.delete("gone-for-good")
    (answer,) = watch.source.latest(leaders).values()
    assert answer.reason in ("unknown-topic", "no-leader")
    assert "gone-for-good" not in workbench.admin.list_topics(timeout=10).topics


def test_an_open_transaction_does_not_hide_its_records(broker: Broker, workbench: Workbench) -> None:
    """Open, committed, then aborted: each record and each marker is an advance; a marker carries the wall clock."""
    workbench.create("ledger")
    watch = Watch(broker.bootstrap, ["ledger"])
    watch.poll()
    began = time.time()
    first = workbench.write_transaction("ledger", 0, DAY_AGO, "ledger-1")
    assert seen(watch.reading("ledger")) == (State.OBSERVED, 0, 1, DAY_AGO)
    first.commit_transaction(30)
    watch.await_latest("ledger", 2)
    committed = watch.reading("ledger")
    assert (committed.state, committed.latest, advanced(committed.activity)) == (State.OBSERVED, 2, (1, False))
    assert committed.newest is not None
    assert began - 1 <= committed.newest <= time.time() + 1
    second = workbench.write_transaction("ledger", 0, DAY_AGO, "ledger-2")
    second.abort_transaction(30)
    watch.await_latest("ledger", 4)
    aborted = watch.reading("ledger")
    assert (aborted.latest, advanced(aborted.activity)) == (4, (2, False))


def test_a_record_from_the_future_is_named_so(broker: Broker, workbench: Workbench) -> None:
    """A time past now says nothing of liveness; one past the year 9999 is brought down to its end."""
    workbench.create("ahead", 2)
    tomorrow = math.floor(time.time()) + 86400.0
    workbench.write([("ahead", 0, tomorrow), ("ahead", 1, 9e14)])
    snapshot = Watch(broker.bootstrap, ["ahead"]).poll()
    assert seen(snapshot.readings[TopicPartition("ahead", 0)]) == (State.FUTURE, 0, 1, tomorrow)
    assert seen(snapshot.readings[TopicPartition("ahead", 1)]) == (State.FUTURE, 0, 1, END_OF_TIME)


def test_log_append_time_is_the_brokers_own(broker: Broker, workbench: Workbench) -> None:
    """With LogAppendTime the producer's time is ignored, and the topic's settings say so."""
    workbench.create("stamped", config={**EVERLASTING, "message.timestamp.type": "LogAppendTime"})
    began = time.time()
    workbench.write([("stamped", 0, DAY_AGO)])
    snapshot = Watch(broker.bootstrap, ["stamped"]).poll()
    newest = snapshot.readings[TopicPartition("stamped", 0)].newest
    assert newest is not None
    assert began - 1 <= newest <= time.time() + 1
    config = snapshot.metadata.topics["stamped"].config
    assert config is not None
    assert (config.timestamp_type, config.retention_seconds) == ("LogAppendTime", math.inf)


def test_settings_that_change_what_offsets_mean_are_read(broker: Broker, workbench: Workbench) -> None:
    """Cleanup policy and retention come with the metadata, in seconds."""
    workbench.create("settled", config={"cleanup.policy": "compact,delete", "retention.ms": "90000"})
    config = Watch(broker.bootstrap, ["settled"]).source.metadata().topics["settled"].config
    assert config is not None
    assert (config.timestamp_type, config.cleanup_policy, config.retention_seconds, config.remote_storage) == (
        "CreateTime",
        "compact,delete",
        90.0,
        False,
    )


def test_topics_are_chosen_by_whole_names(broker: Broker, workbench: Workbench) -> None:
    """Include and exclude match whole names; an include that names nothing, or internal topics only, is said."""
    for topic in ("pick-a", "pick-b", "pick-b2"):
        workbench.create(topic)
    workbench.write_transaction("pick-a", 0, DAY_AGO, "makes-the-internal-topic").abort_transaction(30)
    include, exclude = ["pick-.", "pick-b2", "misspelt", "__transaction_state"], ["pick-a"]

    def chosen(*, internal: bool) -> tuple[list[str], tuple[str, ...], tuple[str, ...]]:
        source = KafkaSource(
            {"bootstrap.servers": broker.bootstrap},
            clock=SystemClock(),
            include=include,
            exclude=exclude,
            internal=internal,
        )
        metadata = source.metadata()
        return list(metadata.topics), metadata.unmatched, metadata.only_internal

    state = "__transaction_state"
    assert chosen(internal=False) == (["pick-b", "pick-b2"], ("misspelt", state), (state,))
    assert chosen(internal=True) == ([state, "pick-b", "pick-b2"], ("misspelt",), ())


def test_many_partitions_take_several_calls(broker: Broker, workbench: Workbench) -> None:
    """With chunks of 7 every one of 40 partitions has its own answer, and each look-up is counted once."""
    workbench.create("wide", 40)
    workbench.write([("wide", number, DAY_AGO + number) for number in range(40) for _ in range(number)])
    source = KafkaSource(
        {"bootstrap.servers": broker.bootstrap}, clock=SystemClock(), include=["wide"], chunk_size=7, calls_in_flight=3
    )
    source.metadata()
    leaders = {TopicPartition("wide", number): 1 for number in range(40)}
    assert {key.partition: answer.offset for key, answer in source.latest(leaders).items()} == {
        number: number for number in range(40)
    }
    times = [(key, DAY_AGO + extra) for key in leaders for extra in (0.0, 39.5)]
    found = source.by_time(times, leaders)
    assert [found[key, DAY_AGO].timestamp for key in leaders] == [None, *(DAY_AGO + n for n in range(1, 40))]
    assert all(found[key, DAY_AGO + 39.5].offset is None for key in leaders)
    assert source.lookups() == {"latest": 40, "by-time": 80}


def test_senseless_times_are_refused_before_the_broker_sees_them(broker: Broker) -> None:
    """A negative time and a time asked twice are named; the client would take the first for a spec."""
    source = Watch(broker.bootstrap, [exactly("any")]).source
    key = TopicPartition("any", 3)
    with pytest.raises(ValueError, match=r"any-3: time -1\.0 is before 1970"):
        source.by_time([(key, -1.0)], {key: 1})
    with pytest.raises(ValueError, match=r"any-3: time 5\.0 is asked for twice"):
        source.by_time([(key, 5.0), (key, 5.0)], {key: 1})

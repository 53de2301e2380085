"""The traps of ListOffsets that differ by version, and how each is recognised (real brokers, from 2.8 on)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from exporter.domain.polls.readings import Reason, State, TopicPartition
from exporter.domain.polls.table import Snapshot
from exporter.kafka.kafka_python_answers import EARLIEST_LOCAL, LATEST_TIERED
from exporter.kafka.tiered_offsets import TierClient
from exporter.metrics.catalogue import DEFAULT_PARTITION_SWITCHES
from tests.demo.broker import Broker, resolve_kafka
from tests.integration.kafka import DAY_AGO, Kafka
from tests.integration.watch import Watch, advanced, seen, watching
from tests.integration.zookeeper import ZookeeperBroker
from tests.lookup_answers import Answer
from tests.times import first_since, led, objects, tier_of
from tests.views import readings_of
from tests.workbench import QUIET


def test_a_broker_that_does_not_know_max_timestamp_exports_no_time(
    kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    """Its advances are counted, no time is shown, and a metric and one line say so; of newer ones the time is shown."""
    kafka.create("aged")
    kafka.write([("aged", 0, DAY_AGO)] * 2 + [("aged", 0, DAY_AGO + 5)])
    monitor = watching(partition_switches=DEFAULT_PARTITION_SWITCHES)
    watch = Watch(kafka.bootstrap, ["aged"], sinks=[monitor])
    assert seen(watch.reading("aged")) == kafka.observed(0, 3, DAY_AGO + 5)
    kafka.write([("aged", 0, DAY_AGO + 9)])
    snapshot = watch.poll()
    reading = readings_of(snapshot)[TopicPartition("aged", 0)]
    assert seen(reading) == kafka.observed(0, 4, DAY_AGO + 9, State.PRESERVED)
    assert advanced(reading.activity) == (1, False)
    assert reading.activity.last_advance == snapshot.taken_at
    text = monitor.metrics().decode()
    assert ("staleness_seconds{" in text) == ("last_record_timestamp_seconds{" in text) == kafka.knows_max_timestamp
    partition = 'kafka_cluster="test",topic="aged",partition="0"'
    assert (f'kafka_topic_partition_state{{{partition},state="unsupported"}} 1' in text) != kafka.knows_max_timestamp
    assert f"kafka_topic_partition_last_advance_timestamp_seconds{{{partition}}}" in text
    warnings = [line for line in caplog.messages if "do not support MAX_TIMESTAMP" in line]
    assert len(warnings) == (0 if kafka.knows_max_timestamp else 1)


def test_without_the_right_to_see_settings_an_old_broker_is_found_out_all_the_same(
    brokers: Mapping[str, Broker],
) -> None:
    """Every topic may have remote storage then; 2.8 answers with the first record of the log, which shows it."""
    kafka = Kafka("2.8.2", brokers["2.8.2"].bootstrap)
    kafka.create("closed")
    topic = ("closed", ResourcePatternType.LITERAL, "User:ANONYMOUS", "*")
    rules = [
        AclBinding(ResourceType.TOPIC, *topic, AclOperation.ALL, AclPermissionType.ALLOW),
        AclBinding(ResourceType.TOPIC, *topic, AclOperation.DESCRIBE_CONFIGS, AclPermissionType.DENY),
    ]
    kafka.grant(rules)
    kafka.write([("closed", 0, DAY_AGO)])
    monitor = watching(partition_switches=DEFAULT_PARTITION_SWITCHES)
    watch = Watch(kafka.bootstrap, ["closed"], sinks=[monitor])
    snapshot = watch.poll()
    assert snapshot.metadata.unconfigured == {"closed": Reason.UNAUTHORIZED}
    assert states(snapshot) == {TopicPartition("closed", 0): (State.OBSERVED, 0, 1, DAY_AGO)}, "its only record"
    kafka.write([("closed", 0, DAY_AGO + 5)])
    assert seen(watch.reading("closed")) == (State.UNSUPPORTED, 0, 2, None)
    text = monitor.metrics().decode()
    assert 'last_record_timestamp_seconds{kafka_cluster="test",topic="closed"' not in text
    everything = AclBindingFilter(ResourceType.TOPIC, *topic, AclOperation.ANY, AclPermissionType.ANY)
    [taken] = kafka.admin.delete_acls([everything]).values()
    assert len(taken.result(30)) == 2
    kafka.delete("closed")


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


def test_a_format_from_before_times_has_none(kafka: Kafka) -> None:
    """Error 43: a topic kept in the format of 0.9 has offsets and advances; 3.0 ended that format (KIP-724)."""
    if kafka.number >= (3, 0):
        kafka.create("formatted", config={**kafka.everlasting})
        kafka.write([("formatted", 0, DAY_AGO)])
        assert seen(Watch(kafka.bootstrap, ["formatted"]).reading("formatted")) == kafka.observed(0, 1, DAY_AGO)
        return
    kafka.create("formatted", config={**kafka.everlasting, "message.format.version": "0.9.0"})
    kafka.write([("formatted", 0, DAY_AGO)] * 2, b"x", **{"enable.idempotence": "false"})
    watch = Watch(kafka.bootstrap, ["formatted"])
    reading = watch.reading("formatted")
    assert (reading.reason, *seen(reading)) == (None, State.NO_TIMESTAMP, 0, 2, None)
    found = first_since(watch.source, TopicPartition("formatted", 0), DAY_AGO)
    assert found.reason is Reason.UNSUPPORTED_FORMAT
    kafka.write([("formatted", 0, DAY_AGO)], b"x", **{"enable.idempotence": "false"})
    assert advanced(watch.reading("formatted").activity) == (1, False)


def test_compaction_moves_no_offset(kafka: Kafka) -> None:
    """The record with the newest time is compacted away: the end stays, nothing advances, a fresh look finds less."""
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001"}
    kafka.create("compacted", config={**kafka.everlasting, **settings})
    key = TopicPartition("compacted", 0)
    kafka.write_keyed(key, [(b"-", None), (b"a", DAY_AGO + 400), (b"a", DAY_AGO + 100)])
    # A segment that begins without a time is as old as its file: it is closed now. Without any time in it, it would
    # hide from look-ups by time what comes after it.
    kafka.alter("compacted", {"segment.ms": "1000"})
    watch = Watch(kafka.bootstrap, ["compacted"])
    assert seen(watch.reading("compacted")) == kafka.observed(0, 3, DAY_AGO + 400)
    end = 3

    def compacted() -> bool:
        nonlocal end
        kafka.write_keyed(key, [(b"b", DAY_AGO + 200)])
        end += 1
        return first_since(watch.source, key, DAY_AGO + 400) == Answer()

    kafka.until(compacted)
    before, again = watch.reading("compacted"), watch.reading("compacted")
    assert (before.earliest, before.latest, advanced(before.activity)) == (0, end, (end - 3, False))
    assert (again.latest, advanced(again.activity)) == (end, (0, False))
    fresh = Watch(kafka.bootstrap, ["compacted"])

    def found() -> bool:
        nonlocal end
        if seen(fresh.reading("compacted")) == kafka.observed(0, end, DAY_AGO + 200):
            return True
        # After a compaction a broker may tell of no newest record, until something is written: that is pending.
        kafka.write_keyed(key, [(b"b", DAY_AGO + 200)])
        end += 1
        return False

    kafka.until(found)


def test_a_partition_emptied_by_retention_is_empty(kafka: Kafka) -> None:
    """All records are past retention: earliest reaches latest, nothing is asked, and no advance is seen."""
    kafka.create("emptied", config={"retention.ms": "3600000"})
    kafka.write([("emptied", 0, DAY_AGO)] * 3)
    watch = Watch(kafka.bootstrap, ["emptied"])
    watch.poll()
    # Brokers before 3.8 first look at retention 30 s after their start.
    key = TopicPartition("emptied", 0)
    kafka.until(lambda: objects(watch.source.starts(led({key: 1})))[0].offset == 3)
    snapshot = watch.poll()
    reading = readings_of(snapshot)[key]
    assert seen(reading) == (State.EMPTY, 3, 3, None)
    assert advanced(reading.activity) == (0, False)
    assert "max-timestamp" not in snapshot.lookups


def test_how_far_ahead_a_record_may_be_is_the_topics_own_setting(kafka: Kafka) -> None:
    """By default 4.x refuses more than an hour (INVALID_TIMESTAMP); older ones take it, and it is shown as future."""
    kafka.create("tomorrow", config={"retention.ms": "-1"})
    tomorrow = float(round(time.time())) + 86400
    if kafka.number >= (4, 0):
        with pytest.raises(AssertionError, match=r"out of acceptable range|INVALID_TIMESTAMP|nvalid timestamp"):
            kafka.write([("tomorrow", 0, tomorrow)])
        assert seen(Watch(kafka.bootstrap, ["tomorrow"]).reading("tomorrow")) == (State.NEVER_WRITTEN, 0, 0, None)
        return
    kafka.write([("tomorrow", 0, tomorrow)])
    assert seen(Watch(kafka.bootstrap, ["tomorrow"]).reading("tomorrow")) == (State.FUTURE, 0, 1, tomorrow)


def test_what_a_broker_is_too_old_for_is_a_reason_of_the_tiers(kafka: Kafka) -> None:
    """earliest-local is answered from 3.5 on, latest-tiered from 3.9 on; before, the reason is unsupported-version."""
    kafka.create("tiers")
    kafka.write([("tiers", 0, DAY_AGO)])
    key = TopicPartition("tiers", 0)
    old = Answer(reason=Reason.UNSUPPORTED_VERSION)
    with closing(TierClient({"bootstrap.servers": kafka.bootstrap}, request_timeout=10)) as client:
        assert tier_of(client, EARLIEST_LOCAL, key) == (Answer(0) if kafka.number >= (3, 5) else old)
        assert tier_of(client, LATEST_TIERED, key) == (Answer() if kafka.number >= (3, 9) else old)


def test_a_rolling_upgrade_changes_the_answer_broker_by_broker(cache: Path, tmp_path: Path) -> None:
    """2.8.2 becomes 3.9.2 under one exporter that polls all the while: a broker's partitions get their time with it.

    What is shown of the other broker's stays the same throughout, no wrong time is ever shown, and silence goes on.
    """
    old, new = (resolve_kafka(version, cache=cache, progress=print) for version in ("2.8.2", "3.9.2"))
    mixed = {"inter.broker.protocol.version": "2.8"}
    first = ZookeeperBroker(tmp_path / "1", jars=old, properties=mixed)
    second = ZookeeperBroker(tmp_path / "2", jars=old, properties=mixed | {"node.id": "2"}, beside=first)
    of_first, of_second = TopicPartition("upgraded", 0), TopicPartition("upgraded", 1)
    aged, dated = (State.UNSUPPORTED, 0, 2, None), (State.OBSERVED, 0, 2, DAY_AGO + 5)
    # The leader may change between the two questions of a poll: offsets without the newest record.
    undated = (State.UNREADABLE, 0, 2, None)
    with first, second, ThreadPoolExecutor(1) as aside:
        kafka = Kafka("2.8.2", f"{first.bootstrap},{second.bootstrap}")
        kafka.create_on("upgraded", [[1], [2]])
        kafka.write([(*key, DAY_AGO + later) for later in (0, 5) for key in (of_first, of_second)])
        watch = Watch(kafka.bootstrap, ["upgraded"], timeout=3.0)

        def poll() -> Snapshot:
            """One more poll that misses nothing."""
            return watch.poll_until(lambda readings: all(each.reason is None for each in readings.values()))

        def roll(broker: ZookeeperBroker) -> list[Snapshot]:
            """Upgrade a broker; return all polls meanwhile, the last one of which could read every partition again."""
            upgrade, polls = aside.submit(broker.upgrade, new), [watch.poll()]
            deadline = time.monotonic() + 240
            while not upgrade.done() or any(each.reason is not None for each in readings_of(polls[-1]).values()):
                assert time.monotonic() < deadline
                wait([upgrade], 0.1)
                polls.append(watch.poll())
            upgrade.result()
            return polls

        before = poll()
        assert before.max_timestamp_supported == {1: False, 2: False}
        assert states(before) == {of_first: aged, of_second: aged}
        rolled = roll(second)
        assert all(states(snapshot).get(of_first, aged) == aged for snapshot in rolled)
        halfway = poll()
        assert halfway.max_timestamp_supported == {1: False, 2: True}
        assert states(halfway) == {of_first: aged, of_second: dated}
        rolled += (back := roll(first))
        assert all(states(snapshot).get(of_second, dated) == dated for snapshot in back)
        after = poll()
        assert after.max_timestamp_supported == {1: True, 2: True}
        assert states(after) == {of_first: dated, of_second: dated}
        for key, reading in readings_of(before).items():
            activities = [readings_of(snapshot)[key].activity for snapshot in (*rolled, after)]
            assert {each.silent_since for each in activities} == {reading.activity.silent_since}
            assert {advanced(each) for each in activities} == {(0, False)}
            assert {states(snapshot).get(key, aged) for snapshot in rolled} - {undated} == {aged, dated}
        watch.source.close()


def states(snapshot: Snapshot) -> dict[TopicPartition, tuple[State, int | None, int | None, float | None]]:
    """What a poll knows of the partitions that it could read."""
    return {key: seen(reading) for key, reading in readings_of(snapshot).items() if reading.latest is not None}

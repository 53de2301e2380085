"""Series rendered from snapshots: right for the client's parser, absent where nothing is known."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from exporter.collectors.poller import Poller
from exporter.domain import Answer, Inspected, Producers, Reason, TopicPartition
from exporter.domain.detection import assess
from exporter.domain.expectations import Promises
from exporter.metrics.catalogue import (
    CATALOGUE,
    DEFAULT_PARTITION_SWITCHES,
    INSPECTED,
    PARTITION_METRICS,
    TOPIC_METRICS,
)
from exporter.metrics.series import ClusterSeries, render
from tests.unit.readings import Collected, ManualClock, TableSource

ALL = [metric.switch for metric in PARTITION_METRICS if metric.switch is not None]
A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Parse an exposition; a sample that stands twice is an error."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found
            found[key] = sample.value
    return found


def shown(
    source: TableSource, clock: ManualClock, switches: list[str] | tuple[str, ...] = ALL
) -> tuple[str, Collected]:
    """Poll once and render, ten seconds later."""
    collected = Collected()
    Poller("prod", source, [collected], clock).poll()
    series = ClusterSeries("prod", partition_switches=switches)
    snapshot = collected.snapshots[-1]
    series.update(snapshot, assess(snapshot, Promises(), clock.now()))
    return render({"prod": series}, clock.now() + 10), collected


def test_what_is_not_known_has_no_sample() -> None:
    """An empty partition has offsets but no timestamp, and an unreadable one only its state."""
    source = TableSource({A: (0, 0, None), B: (0, 5, 900_000.0)}, failures={B: Answer(reason=Reason.NOT_LEADER)})
    text, _ = shown(source, ManualClock())
    names = {name for (name, labels), _ in samples(text).items() if ("topic", "b") in labels}
    assert "kafka_topic_partition_current_offset" not in names
    assert 'kafka_topic_partition_state{kafka_cluster="prod",topic="b",partition="0",state="unreadable"} 1' in text
    assert 'kafka_topic_partition_current_offset{kafka_cluster="prod",topic="a",partition="0"} 0' in text
    assert 'kafka_topic_partition_last_record_timestamp_seconds{kafka_cluster="prod",topic="a"' not in text
    assert "-1" not in text
    assert "NaN" not in text


def test_staleness_rises_between_polls_and_is_never_negative() -> None:
    """Ages are computed when served; a timestamp in the future is 0 old and named by its state."""
    source = TableSource({A: (0, 5, 999_900.0), B: (0, 5, 2_000_000.0)})
    text, _ = shown(source, ManualClock())
    assert 'staleness_seconds{kafka_cluster="prod",topic="a",partition="0"} 110.000' in text
    assert 'staleness_seconds{kafka_cluster="prod",topic="b",partition="0"} 0.000' in text
    assert 'kafka_topic_partition_state{kafka_cluster="prod",topic="b",partition="0",state="future"} 1' in text


def test_by_default_a_partition_has_at_most_six_series() -> None:
    """The series budget holds for a partition that is observed and live."""
    source = TableSource({A: (0, 5, 999_900.0)})
    text, _ = shown(source, ManualClock(), DEFAULT_PARTITION_SWITCHES)
    assert len([line for line in text.splitlines() if line.startswith("kafka_topic_partition_")]) <= 6


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.integers(0, 2**63 - 1), st.floats(0, 4e9))
def test_any_name_and_value_survives_the_text_format(topic: str, offset: int, timestamp: float) -> None:
    """What the client's parser reads back is what was rendered, whatever the topic is called."""
    key = TopicPartition(topic, 0)
    text, _ = shown(TableSource({key: (0, offset + 1, timestamp)}), ManualClock())
    found = samples(text)
    labels = (("kafka_cluster", "prod"), ("partition", "0"), ("topic", topic))
    assert found["kafka_topic_partition_current_offset", labels] == offset + 1
    assert found["kafka_topic_partition_last_record_timestamp_seconds", labels] == timestamp
    age = found["kafka_topic_partition_staleness_seconds", labels]
    assert math.isclose(age, max(0.0, 1_000_010.0 - timestamp), abs_tol=0.001)


def test_deleted_topics_leave_at_the_next_good_poll() -> None:
    """A topic that is gone has no series after the poll that no longer lists it."""
    clock, collected = ManualClock(), Collected()
    source = TableSource({A: (0, 5, 1.0), B: (0, 5, 1.0)})
    poller = Poller("prod", source, [collected], clock)
    series = ClusterSeries("prod", partition_switches=ALL)
    for gone in (None, B):
        if gone is not None:
            del source.offsets[gone]
        poller.poll()
        series.update(collected.snapshots[-1], assess(collected.snapshots[-1], Promises(), clock.now()))
    assert 'topic="b"' not in render({"prod": series}, clock.now())
    series.withdraw()
    assert render({"prod": series}, clock.now()) == ""


def test_the_catalogue_names_every_metric_once() -> None:
    """Names are unique, and counters end in _total."""
    names = [metric.name for metric in CATALOGUE]
    assert len(names) == len(set(names))
    assert all(metric.name.endswith("_total") == (metric.type == "counter") for metric in CATALOGUE)


def test_of_a_topic_only_what_all_its_partitions_tell_is_summed_up() -> None:
    """A producer of two partitions is one; what one partition keeps back is unknown of the whole topic."""
    inspected = {
        TopicPartition("whole", 0): Inspected(Producers(frozenset({1, 2}), 900.0, frozenset({1}), 500.0), 10, 30),
        TopicPartition("whole", 1): Inspected(Producers(frozenset({2}), 950.0, frozenset({2}), 400.0), 5, 15),
        TopicPartition("part", 0): Inspected(Producers(frozenset({1}), 900.0, frozenset({1}), 500.0), 10, 30),
        TopicPartition("part", 1): Inspected(None, 5, None),
        TopicPartition("quiet", 0): Inspected(Producers(), 0, 0),
    }
    clock, collected = ManualClock(), Collected()
    source = TableSource(dict.fromkeys(inspected, (0, 5, 900000.0)))
    Poller("prod", source, [collected], clock, inspections=Table(inspected)).poll()
    series = ClusterSeries("prod", partition_switches=["log_size_bytes"])
    snapshot = collected.snapshots[-1]
    series.update(snapshot, assess(snapshot, Promises(), clock.now()))
    found: dict[str, dict[str, float]] = {}
    for (name, labels), value in samples(render({"prod": series}, clock.now())).items():
        found.setdefault(dict(labels).get("topic", ""), {})[name] = value
    names = {metric.name for metric in TOPIC_METRICS if metric.help.endswith(INSPECTED)}
    told = {topic: {name: row[name] for name in sorted(names & row.keys())} for topic, row in found.items() if topic}
    opened = "kafka_topic_open_transaction_timestamp_seconds"
    assert told == {
        "whole": {
            "kafka_topic_disk_size_bytes": 45,
            "kafka_topic_log_size_bytes": 15,
            opened: 400,
            "kafka_topic_open_transactions": 2,
            "kafka_topic_producers": 2,
            "kafka_topic_producers_last_write_timestamp_seconds": 950,
        },
        "part": {"kafka_topic_log_size_bytes": 15},
        "quiet": {
            "kafka_topic_disk_size_bytes": 0,
            "kafka_topic_log_size_bytes": 0,
            "kafka_topic_open_transactions": 0,
            "kafka_topic_producers": 0,
        },
    }
    assert found["part"]["kafka_topic_partition_log_size_bytes"] == 5


class Table(dict[TopicPartition, Inspected]):
    """What inspections know, from a table."""

    def of(self, partition: TopicPartition, topic_id: str | None) -> Inspected | None:
        assert topic_id == "id-1"
        return self[partition]

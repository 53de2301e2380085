"""What the exporter shows: the whole exposition as a golden file, freshness, and what history promised."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from exporter.collectors.poller import Poller
from exporter.domain.groups.consumer_groups import GroupState
from exporter.domain.judging.queries import Query, topics
from exporter.domain.polls.metadata import Metadata, TopicConfig
from exporter.domain.polls.readings import Reason, TopicPartition
from exporter.domain.ports import SourceError
from exporter.domain.scoring.thresholds import PastAlarms
from exporter.domain.verdicts import Expectation
from exporter.history.published import Publication
from exporter.metrics.catalogue import CATALOGUE
from exporter.state.monitor import Monitor
from tests.groups import Group, GroupPartition, sweep_of
from tests.judging import table_of
from tests.lookup_answers import Answer
from tests.monitors import monitor_of
from tests.unit.expectations import MONDAY, by_wall
from tests.unit.readings import ManualClock, TableSource

NOW = 1_772_539_200.0
HOUR = 3600.0


SWEEP = sweep_of(
    "prod",
    {
        "billing": Group(
            GroupState.STABLE,
            2,
            {
                TopicPartition("orders", 0): GroupPartition(38, 7, 0),
                TopicPartition("orders", 1): GroupPartition(1, 39, 4),
            },
            frozenset({"orders"}),
        )
    },
    taken_at=NOW + 31,
    duration_seconds=0.25,
    lookups={"earliest": 2, "latest": 2},
    read=1,
)


def promise(topic: str, partition: int | None, limit: float | None, last_advance: float | None) -> Expectation:
    """Return what the rollup published an hour before the first poll: dead where it was so then."""
    dead = limit is not None and last_advance is not None and NOW - HOUR - last_advance > limit
    return by_wall(
        topic=topic,
        partition=partition,
        as_of=NOW - HOUR,
        end_offset=40,
        last_advance=last_advance,
        verdict="dead" if dead else "live",
        max_silence_seconds=limit,
        suspect_silence_seconds=None if limit is None else 0.8 * limit,
    )


def publish(*rows: Expectation) -> Publication:
    return Publication(
        NOW - HOUR,
        NOW - HOUR + 60,
        {"topic": 2.0, "partition": 2.0},
        table_of(rows),
        {"topic": PastAlarms(6, 24_000, 40, 25, 900, 0.5), "partition": PastAlarms(0, 0)},
    )


class ConfiguredSource(TableSource):
    """A source that also knows one topic's settings."""

    def described(self) -> Metadata:
        found = super().described()
        topics = dict(found.topics)
        if "orders" in topics:
            config = TopicConfig("CreateTime", "delete", 604_800.0, False)
            topics["orders"] = replace(topics["orders"], config=config)
        return replace(found, topics=topics, unmatched=("ordres",), cluster_id="4L6g3nShT-eMCtK--X86sw")


def promised() -> Publication:
    return publish(
        promise("orders", 0, 5 * HOUR, NOW - 2 * HOUR),
        promise("orders", 1, 5 * HOUR, NOW - 90 * HOUR),
        promise("orders", None, 3 * HOUR, NOW - 2 * HOUR),
    )


def scene(granularity: str = "partition") -> tuple[Monitor, Poller, ConfiguredSource, ManualClock]:
    """Return a monitor of one cluster with a live, a dead, a new, an empty, a future and an unreadable partition."""
    clock = ManualClock(NOW)
    source = ConfiguredSource(
        {
            TopicPartition("orders", 0): (0, 40, NOW - 2 * HOUR),
            TopicPartition("orders", 1): (0, 40, NOW - 90 * HOUR),
            TopicPartition("new", 0): (0, 0, None),
            TopicPartition("cleared", 0): (9, 9, None),
            TopicPartition("ahead", 0): (0, 3, NOW + 9e8),
            TopicPartition("lost", 0): (0, 3, NOW),
        },
        failures={TopicPartition("lost", 0): Answer(reason=Reason.LEADER_UNREACHABLE)},
    )
    switches = ["current_offset", "oldest_offset", "last_record_timestamp", "staleness", "expected_by"]
    monitor = monitor_of(clock, metrics={"partition": switches, "granularity": granularity}, version="0.0.0-test")
    monitor.take_expectations(promised(), None)
    return monitor, Poller("prod", source, [monitor], clock), source, clock


def test_the_whole_exposition_is_a_golden_file(golden: Callable[[str, str], None]) -> None:
    """A renamed metric, a lost label or a changed help text is seen in review; nothing is outside the catalogue."""
    monitor, poller, source, clock = scene()
    poller.poll()
    clock.time += 30
    source.offsets[TopicPartition("orders", 0)] = (0, 45, NOW + 25)
    poller.poll()
    monitor.take_sweep(SWEEP)
    text = monitor.metrics().decode()
    lines = [line for line in text.splitlines() if not re.match(r"(# (HELP|TYPE) )?(process_|python_)", line)]
    assert set(re.findall(r"^# TYPE (\S+)", "\n".join(lines), re.MULTILINE)) <= {metric.name for metric in CATALOGUE}
    golden("exposition.txt", "\n".join(lines) + "\n")


def test_what_was_never_published_has_no_time() -> None:
    text = monitor_of(ManualClock(NOW)).metrics().decode()
    assert "topic_liveness_expectations_stale 1.0" in text
    assert "topic_liveness_expectations_timestamp_seconds" not in text
    assert "topic_liveness_rollup_last_success_timestamp_seconds" not in text
    assert "topic_liveness_last_successful_poll_timestamp_seconds{" not in text


def test_a_hung_poller_is_shown_as_down_and_a_poll_that_ends_is_shown() -> None:
    """The age of the last poll takes the cluster down. The first good poll after it has its series at once."""
    monitor, poller, _, clock = scene()
    poller.poll()
    clock.time += 1000
    text = monitor.metrics().decode()
    assert 'topic_liveness_cluster_up{kafka_cluster="prod"} 0.0' in text
    assert "kafka_topic" not in text
    poller.poll()
    text = monitor.metrics().decode()
    assert 'topic_liveness_cluster_up{kafka_cluster="prod"} 1.0' in text
    assert "kafka_topic_verdict{" in text


def test_the_last_good_expectations_are_judged_by_until_they_are_too_old() -> None:
    """While a newer set cannot be read the problem is shown, and a dead partition stays dead; then all is learning."""
    monitor, poller, _, clock = scene()
    monitor.take_expectations(promised(), "current.json cannot be read")
    poller.poll()
    text = monitor.metrics().decode()
    assert "topic_liveness_expectations_stale 1.0" in text
    assert 'topic="orders",partition="1",verdict="dead"} 1' in text
    assert monitor.status().expectations_problem == "current.json cannot be read"
    monitor.take_expectations(promised(), None)
    clock.time += 9 * 24 * HOUR
    poller.poll()
    text = monitor.metrics().decode()
    assert "topic_liveness_expectations_stale 1.0" in text
    assert 'verdict="dead"' not in text
    assert 'kafka_topic_verdict{kafka_cluster="prod",topic="orders",verdict="learning",' in text


def test_a_topic_that_cannot_be_described_keeps_its_verdict_and_is_counted() -> None:
    """Its partitions are counted by the reason, or the topic itself as one where they were never seen."""
    monitor, poller, source, _ = scene()
    poller.poll()
    source.topic_errors = {"orders": Reason.STORAGE_ERROR, "unseen": Reason.UNKNOWN_TOPIC}
    source.offsets[TopicPartition("unseen", 0)] = (0, 1, NOW)
    poller.poll()
    text = monitor.metrics().decode()
    assert 'topic_liveness_partitions{kafka_cluster="prod",outcome="storage-error"} 2.0' in text
    assert 'topic_liveness_partitions{kafka_cluster="prod",outcome="unknown-topic"} 1.0' in text
    assert 'topic="orders",partition="1",verdict="dead"} 1' in text
    assert 'kafka_topic_partitions{kafka_cluster="prod",topic="orders"} 2' in text
    assert 'kafka_topic_partitions{kafka_cluster="prod",topic="unseen"}' not in text


def test_what_cannot_be_read_is_named(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(NOW)
    unread = dict.fromkeys(("e", "d", "c", "b"), Reason.NO_LEADER) | {"away": Reason.TIMED_OUT}
    source = TableSource(
        {TopicPartition(name, number): (0, 9, NOW) for name in (*unread, "secret", "good") for number in (0, 1)},
        failures={TopicPartition(name, number): Answer(reason=unread[name]) for name in unread for number in (0, 1)},
        topic_errors={"secret": Reason.UNAUTHORIZED},
    )
    monitor = monitor_of(clock, max_age=HOUR)
    poller = Poller("prod", source, [monitor], clock)
    poller.poll()
    warning = (
        "unreadable: leader-unreachable or timed-out at broker 1, no-leader 8 at broker 1 (b, c, d and 1 more), "
        "unauthorized 1 (secret); next step: grant DESCRIBE on these topics"
    )
    assert [record.getMessage() for record in caplog.records] == [f"cluster prod: {warning}"]
    assert monitor.ready()[1] == f"ready\nprod: up; {warning}"
    assert monitor.status().clusters[0].warning == warning

    source.failures[TopicPartition("away", 0)] = Answer(reason=Reason.LEADER_UNREACHABLE)
    source.failures[TopicPartition("good", 1)] = Answer(reason=Reason.TIMED_OUT)
    poller.poll()
    assert len(caplog.records) == 1, "which partitions of a broker time out changes at every poll"


NOT_READY = "not ready: no cluster has a recent good poll"


def test_it_is_ready_while_a_good_poll_is_recent() -> None:
    monitor, poller, source, clock = scene()
    assert monitor.ready() == (False, f"{NOT_READY}\nprod: waiting for the first poll")
    poller.poll()
    assert monitor.ready()[0]
    source.error = SourceError(Reason.CLUSTER_UNREACHABLE, "no broker answers")
    poller.poll()
    assert monitor.ready()[0]
    clock.time += 121.0
    ready, lines = monitor.ready()
    assert not ready
    assert lines.startswith(f"{NOT_READY}\nprod: down: cluster-unreachable: no broker answers")
    source.error = None
    poller.poll()
    assert monitor.ready()[0]


@pytest.mark.parametrize(("ahead", "stale"), [(0.5 * HOUR, 0.0), (2 * HOUR, 1.0)])
def test_expectations_from_the_future_are_stale(ahead: float, stale: float) -> None:
    """A rollup under a wrong clock would promise until that date; clocks that differ a little do no harm."""
    clock = ManualClock(MONDAY + HOUR)
    monitor = monitor_of(clock, max_age=HOUR)
    row = by_wall(as_of=clock.time + ahead)
    monitor.take_expectations(Publication(row.as_of, row.as_of, {}, table_of([row])), None)
    Poller("prod", TableSource({TopicPartition("orders", 0): (0, 10, None)}), [monitor], clock).poll()
    assert f"topic_liveness_expectations_stale {stale}" in monitor.metrics().decode()
    learning = 'kafka_topic_partitions_by_verdict{kafka_cluster="prod",topic="orders",verdict="learning"} 1'
    assert (learning in monitor.metrics().decode()) == bool(stale)


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_a_clock_that_is_set_between_polls_changes_no_age(step: float) -> None:
    """Silence and staleness are those of the poll and the monotonic time since, in metrics, API and pages alike."""
    monitor, poller, _, clock = scene()
    poller.poll()

    def ages() -> tuple[list[float], Any]:
        monitor._exposition.forget()  # noqa: SLF001 - shown within a second otherwise
        text = monitor.metrics().decode()
        found = re.findall(r"^kafka_topic(?:_partition)?_(?:silence|staleness)_seconds\{.*\} (.*)$", text, re.MULTILINE)
        [facts] = monitor.cluster_facts()
        return [float(one) for one in found], [row["silence_seconds"] for row in topics([facts], Query()).items]

    before = ages()
    assert before[0]
    clock.set_by = step
    assert ages() == before
    clock.time += 20
    assert ages()[0] == pytest.approx([age + 20 if age else age for age in before[0]]), "one is dated ahead"

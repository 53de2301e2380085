"""Replicas whose records are chosen by the test: copies made by hand, on one real broker that goes by two names."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from exporter.domain.replicas.comparison import Comparison, NotCompared, ReplicaReading, ReplicaState
from tests.demo.broker import Broker
from tests.integration.kafka import Kafka
from tests.integration.mirroring import PairTest, copy
from tests.workbench import Workbench

HOUR_AGO = float(round(time.time())) - 3600
YEAR_AGO = HOUR_AGO - 365 * 86_400
IN_STEP = ReplicaReading(ReplicaState.IN_STEP, 0.0, 0)

COPIES = {
    "disordered": ([10, 30, 20, 40, 35], 3),
    "late-only": ([10, 40, 20, 25, 30], 2),
    "fresh": ([10, 20, 30], 0),
    "head-gone": ([10, 20, 30, 40, 50], 2),
    "all-gone": ([10, 20, 30], 1),
    "emptied": ([10, 20, 30], 3),
    "ahead": ([10, 20, 30 * 86_400], 3),
    "not-ahead-yet": ([10, 20, 30 * 86_400, 30 * 86_400], 2),
    "shared": ([10, 20], 2),
    "other": ([10, 20, 30, 40], 0),
}
"""Topic -> seconds after HOUR_AGO of its records, and how many of them its replica has."""

MARKED = ("marked", "marked-copy", "marked-past")


@pytest.fixture(scope="module")
def found(broker: Broker, workbench: Workbench) -> Iterator[Comparison]:
    """All of these topics compared with their replicas, which a pair that stands still for no time calls stopped."""
    names = [f"case-{name}" for name in (*COPIES, *MARKED)]
    for name in names:
        workbench.create(name)
        workbench.create(f"east.{name}")
    workbench.write([(f"case-{name}", 0, HOUR_AGO + at) for name, (times, _) in COPIES.items() for at in times])
    workbench.write(
        [(f"east.case-{name}", 0, HOUR_AGO + at) for name, (times, copied) in COPIES.items() for at in times[:copied]]
    )
    workbench.delete_records("case-head-gone", 0, 3)
    workbench.delete_records("case-all-gone", 0, 3)
    workbench.delete_records("east.case-emptied", 0, 3)
    workbench.write([("east.case-shared", 0, HOUR_AGO + 25), ("east.case-other", 0, HOUR_AGO + 15)])
    workbench.write_transaction("case-marked", 0, HOUR_AGO, "case-1").commit_transaction(30)
    workbench.write([("east.case-marked", 0, HOUR_AGO), ("case-marked-copy", 0, HOUR_AGO)])
    workbench.write_transaction("east.case-marked-copy", 0, HOUR_AGO, "case-2").commit_transaction(30)
    for number in range(3):
        workbench.write_transaction("case-marked-past", 0, YEAR_AGO + number, "case-3").commit_transaction(30)
    workbench.write([("east.case-marked-past", 0, YEAR_AGO + number) for number in range(3)])
    pair = PairTest(broker.bootstrap, broker.bootstrap, topics=r"(east\.)?case-.*", behind_after=0)
    ends = {"case-marked": 2, "case-marked-past": 6, "east.case-marked-copy": 2}
    # A transaction's marker comes after its commit has returned.
    workbench.until(lambda: all(pair.end(topic) == end for topic, end in ends.items()))
    yield pair.compare()
    for name in names:
        workbench.delete(name)
        workbench.delete(f"east.{name}")


def test_a_source_of_any_version_is_counted(kafka: Kafka, workbench: Workbench) -> None:
    """Also one whose brokers do not know MAX_TIMESTAMP: offsets-for-times is all that is asked of them."""
    kafka.create("old-source")
    workbench.create("east.old-source")
    kafka.write([("old-source", 0, HOUR_AGO + number) for number in range(7)])
    workbench.write([("east.old-source", 0, HOUR_AGO + number) for number in range(3)])
    pair = PairTest(kafka.bootstrap, workbench.bootstrap, topics=r"(east\.)?old-source")
    behind = pair.reading("old-source")
    workbench.write([("east.old-source", 0, HOUR_AGO + number) for number in range(3, 7)])
    copied = pair.reading("old-source")
    kafka.delete("old-source")
    workbench.delete("east.old-source")
    assert (behind.state, behind.at_least) == (ReplicaState.BEHIND, 4)
    assert copied == IN_STEP


def reading(found: Comparison, name: str) -> ReplicaReading:
    """What was learnt of one of them."""
    return found.readings[copy(f"case-{name}")]


@pytest.mark.parametrize(
    ("name", "at_least", "oldest"),
    [
        ("disordered", 2, 40),
        ("fresh", 3, 10),
        ("head-gone", 2, 40),
    ],
)
def test_records_that_are_missing_are_counted(found: Comparison, name: str, at_least: int, oldest: int) -> None:
    """So many of those that the source still has are certainly missing, and the lag is the age of their oldest."""
    pair_reading = reading(found, name)
    assert (pair_reading.state, pair_reading.at_least) == (ReplicaState.BEHIND, at_least)
    assert pair_reading.lag_seconds == pytest.approx(found.at - (HOUR_AGO + oldest), abs=0.001)


def test_late_records_may_be_missing_or_not(found: Comparison) -> None:
    """What is dated before the replica's newest record does not count."""
    assert reading(found, "late-only") == ReplicaReading(ReplicaState.IN_STEP, 0.0, 0)


def test_of_a_source_without_records_nothing_is_missing(found: Comparison) -> None:
    """What was removed before it was copied is in neither cluster."""
    assert reading(found, "all-gone") == IN_STEP


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("emptied", NotCompared.REPLICA_EMPTY),
        ("ahead", NotCompared.FUTURE_TIMESTAMP),
        ("shared", NotCompared.NEWER_THAN_SOURCE),
        ("other", NotCompared.NOT_IN_SOURCE),
        ("marked-copy", NotCompared.NEWER_THAN_SOURCE),
        ("marked-past", NotCompared.NOT_IN_SOURCE),
    ],
)
def test_what_cannot_be_known_is_no_number(found: Comparison, name: str, reason: NotCompared) -> None:
    """An emptied replica, one that ends in the future, what is no copy, and markers that hide what the records say."""
    assert reading(found, name) == ReplicaReading(ReplicaState.UNKNOWN, reason=reason)


def test_a_source_that_ends_in_the_future_has_no_lag_in_seconds(found: Comparison) -> None:
    """Its records are counted; the oldest missing one is dated after now."""
    assert reading(found, "not-ahead-yet") == ReplicaReading(ReplicaState.BEHIND, None, 2)


def test_the_markers_of_several_producers_are_not_called_missing(broker: Broker, workbench: Workbench) -> None:
    """Two that commit last leave two: the settings may say so, and without that the copy looks as if it lacked them."""
    topic = "two-markers"
    workbench.create(topic)
    workbench.create(f"east.{topic}")
    open_ones = [workbench.write_transaction(topic, 0, HOUR_AGO + number, f"two-{number}") for number in range(2)]
    for one in open_ones:
        one.commit_transaction(30)
    workbench.write([(f"east.{topic}", 0, HOUR_AGO + number) for number in range(2)])
    pairs = [
        PairTest(
            broker.bootstrap,
            broker.bootstrap,
            topics=rf"(east\.)?{topic}",
            trailing_markers=markers,
            stopped_after="1s",
        )
        for markers in (1, 2)
    ]
    workbench.until(lambda: all(pair.end(topic) == 4 for pair in pairs))
    for pair in pairs:
        pair.reading(topic)
        pair.clock.monotonic = lambda: time.monotonic() + 60  # type: ignore[method-assign]
    readings = [pair.reading(topic) for pair in pairs]
    workbench.delete(topic)
    workbench.delete(f"east.{topic}")
    assert [(one.state, one.at_least) for one in readings] == [(ReplicaState.STOPPED, 2), (ReplicaState.IN_STEP, 0)]


@pytest.mark.parametrize(
    ("pattern", "unknown", "fault"),
    [
        ("merge-[ab]", 2, "in west more than one topic maps to merged <- merge-a, merge-b"),
        ("fuse-.*", 0, "no topic of east has its replica in west"),
    ],
)
def test_a_mapping_of_two_sources_or_of_none_is_named_and_gives_no_number(
    broker: Broker, workbench: Workbench, pattern: str, unknown: int, fault: str
) -> None:
    """The newest record may be of either source; where nothing matches there is nothing to compare."""
    topics = ("merge-a", "merge-b", "merged")
    for topic in topics:
        workbench.create(topic)
    workbench.write([(topic, 0, HOUR_AGO) for topic in topics])
    pair = PairTest(
        broker.bootstrap, broker.bootstrap, topics="merge.*", policy="regex", pattern=pattern, replacement="merged"
    )
    comparison = pair.compare()
    for topic in topics:
        workbench.delete(topic)
    assert [one for one in comparison.faults if fault in one.what], comparison.faults
    assert (
        list(comparison.readings.values())
        == [ReplicaReading(ReplicaState.UNKNOWN, reason=NotCompared.TWO_SOURCES)] * unknown
    )
    assert comparison.lookups == 0


def test_a_commit_marker_is_not_called_missing(found: Comparison) -> None:
    """A replica of a transactional topic that has every record is in step, though the source's last offset is newer."""
    assert reading(found, "marked") == ReplicaReading(ReplicaState.IN_STEP, 0.0, 0)

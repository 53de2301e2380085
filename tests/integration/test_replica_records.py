"""Replicas whose records are chosen by the test: copies made by hand, on one real broker that goes by two names."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from exporter.domain.replicas.comparison import Comparison, NotCompared, ReplicaReading, ReplicaState
from tests.demo.broker import Broker
from tests.integration.kafka import Kafka
from tests.integration.mirroring import PairTest, copy
from tests.unit.readings import replica_readings
from tests.workbench import Workbench

HOUR_AGO = float(round(time.time())) - 3600
IN_STEP = ReplicaReading(ReplicaState.IN_STEP, 0.0, 0)

COPIES = {
    "disordered": ([10, 30, 20, 40, 35], 3),
    "late-only": ([10, 40, 20, 25, 30], 2),
    "fresh": ([10, 20, 30], 0),
    "all-gone": ([10, 20, 30], 1),
    "emptied": ([10, 20, 30], 3),
    "ahead": ([10, 20, 30 * 86_400], 3),
    "not-ahead-yet": ([10, 20, 30 * 86_400, 30 * 86_400], 2),
}
"""Topic -> seconds after HOUR_AGO of its records, and how many of them its replica has."""


@pytest.fixture(scope="module")
def found(broker: Broker, workbench: Workbench) -> Iterator[Comparison]:
    """All of these topics compared with their replicas, for the first time."""
    names = [f"case-{name}" for name in (*COPIES, "marked")]
    for name in names:
        workbench.create(name)
        workbench.create(f"east.{name}")
    workbench.write([(f"case-{name}", 0, HOUR_AGO + at) for name, (times, _) in COPIES.items() for at in times])
    workbench.write(
        [(f"east.case-{name}", 0, HOUR_AGO + at) for name, (times, copied) in COPIES.items() for at in times[:copied]]
    )
    workbench.delete_records("case-all-gone", 0, 3)
    workbench.delete_records("east.case-emptied", 0, 3)
    written = time.time()
    workbench.write_transaction("case-marked", 0, written, "case-1").commit_transaction(30)
    workbench.write([("east.case-marked", 0, written)])
    pair = PairTest(broker.bootstrap, broker.bootstrap, topics=r"(east\.)?case-.*", behind_after=5)
    # A transaction's marker comes after its commit has returned.
    workbench.until(lambda: pair.end("case-marked") == 2)
    yield pair.compare()
    for name in names:
        workbench.delete(name)
        workbench.delete(f"east.{name}")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("disordered", ReplicaReading(ReplicaState.BEHIND, 10.0)),
        ("late-only", IN_STEP),
        ("fresh", ReplicaReading(ReplicaState.BEHIND, None, 3)),
        ("all-gone", IN_STEP),
        ("emptied", ReplicaReading(ReplicaState.UNKNOWN, reason=NotCompared.REPLICA_EMPTY)),
        ("ahead", ReplicaReading(ReplicaState.UNKNOWN, reason=NotCompared.FUTURE_TIMESTAMP)),
        ("not-ahead-yet", ReplicaReading(ReplicaState.BEHIND)),
    ],
)
def test_a_replica_is_compared_by_the_newest_records_of_both(
    found: Comparison, name: str, expected: ReplicaReading
) -> None:
    """What is unknown is no number: how many before both were in step, and what records of the future hide."""
    assert replica_readings(found.table)[copy(f"case-{name}")] == expected


def test_a_commit_marker_is_not_called_missing(found: Comparison) -> None:
    """A copy that has every record is in step, though the source's last offset is newer."""
    marked = replica_readings(found.table)[copy("case-marked")]
    assert (marked.state, marked.lag_records) == (ReplicaState.IN_STEP, None)


def test_a_source_before_max_timestamp_shows_a_stop_all_the_same(kafka: Kafka, workbench: Workbench) -> None:
    """By offsets alone; how far the replica is behind is unknown."""
    kafka.create("old-source")
    workbench.create("east.old-source")
    kafka.write([("old-source", 0, HOUR_AGO + number) for number in range(3)])
    workbench.write([("east.old-source", 0, HOUR_AGO + number) for number in range(3)])
    pair = PairTest(kafka.bootstrap, workbench.bootstrap, topics=r"(east\.)?old-source", stopped_after=1)
    states = [pair.reading("old-source").state for _ in range(2)]
    kafka.write([("old-source", 0, HOUR_AGO + number) for number in range(3, 7)])
    stopped = pair.until(
        lambda seen: replica_readings(seen.table)[copy("old-source")].state is ReplicaState.STOPPED, seconds=30
    )
    kafka.delete("old-source")
    workbench.delete("east.old-source")
    known = kafka.knows_max_timestamp
    assert states == [ReplicaState.IN_STEP if known else ReplicaState.UNKNOWN] * 2
    reading = replica_readings(stopped.table)[copy("old-source")]
    assert reading.reason is (None if known else NotCompared.NO_TIMESTAMP)

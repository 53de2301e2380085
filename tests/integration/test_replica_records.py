"""Replicas whose records are chosen by the test: copies made by hand, on one real broker that goes by two names."""

from __future__ import annotations

import time
from collections.abc import Mapping

from exporter.domain.replicas.comparison import NotCompared, ReplicaReading, ReplicaState
from tests.demo.broker import Broker
from tests.integration.kafka import Kafka
from tests.integration.mirroring import PairTest, copy
from tests.unit.readings import replica_readings
from tests.workbench import Workbench

HOUR_AGO = float(round(time.time())) - 3600


def test_newest_records_are_compared_and_a_commit_marker_is_not_called_missing(
    broker: Broker, workbench: Workbench
) -> None:
    """A copy without the newest of disordered records is behind; one with every record is in step before a marker."""
    for name in ("disordered", "marked"):
        workbench.create(f"case-{name}")
        workbench.create(f"east.case-{name}")
    times = [HOUR_AGO + at for at in (10, 30, 20, 40, 35)]
    workbench.write([("case-disordered", 0, at) for at in times])
    workbench.write([("east.case-disordered", 0, at) for at in times[:3]])
    written = time.time()
    workbench.write_transaction("case-marked", 0, written, "case-1").commit_transaction(30)
    workbench.write([("east.case-marked", 0, written)])
    pair = PairTest(broker.bootstrap, broker.bootstrap, topics=r"(east\.)?case-.*", behind_after=5)
    # A transaction's marker comes after its commit has returned.
    workbench.until(lambda: pair.end("case-marked") == 2)
    found = replica_readings(pair.compare().table)
    assert found[copy("case-disordered")] == ReplicaReading(ReplicaState.BEHIND, 10.0)
    marked = found[copy("case-marked")]
    assert (marked.state, marked.lag_records) == (ReplicaState.IN_STEP, None)
    pair.close()


def test_a_source_before_max_timestamp_shows_a_stop_all_the_same(
    brokers: Mapping[str, Broker], workbench: Workbench
) -> None:
    """By offsets alone; how far the replica is behind is unknown."""
    kafka = Kafka("2.8.2", brokers["2.8.2"].bootstrap)
    kafka.create("old-source")
    workbench.create("east.old-source")
    kafka.write([("old-source", 0, HOUR_AGO + number) for number in range(3)])
    workbench.write([("east.old-source", 0, HOUR_AGO + number) for number in range(3)])
    pair = PairTest(kafka.bootstrap, workbench.bootstrap, topics=r"(east\.)?old-source", stopped_after=1)
    assert [pair.reading("old-source").state for _ in range(2)] == [ReplicaState.UNKNOWN] * 2
    kafka.write([("old-source", 0, HOUR_AGO + number) for number in range(3, 7)])
    stopped = pair.until(
        lambda seen: replica_readings(seen.table)[copy("old-source")].state is ReplicaState.STOPPED, seconds=30
    )
    assert replica_readings(stopped.table)[copy("old-source")].reason is NotCompared.NO_TIMESTAMP
    pair.close()

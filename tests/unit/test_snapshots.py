"""Snapshots of tests are what they were built from."""

from __future__ import annotations

from dataclasses import replace

import pytest

from exporter.domain.judging.assessment import Judgement
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.readings import Reason, State, TopicPartition
from exporter.domain.verdicts import Verdict
from tests.snapshots import assessment_of, snapshot_of, topics_of
from tests.views import Activity, Inspected, Reading, judgements_of, readings_of, topics_in

AT = 1_000_000.0
POLLED = Activity(AT, AT - 30, AT - 60, AT - 60, 0, end_offset=12, polls_good=3, polls_missed=1, advanced_after=AT - 90)
OBSERVED = Reading(State.OBSERVED, POLLED, 1, 2, 12, AT - 61.5)
READINGS = {
    TopicPartition("b", 1): OBSERVED,
    TopicPartition("b", 0): replace(OBSERVED, earliest_local=5, latest_tiered=4, inspected=Inspected(log_bytes=9)),
    TopicPartition("a", 0): Reading(State.UNREADABLE, Activity(), None, reason=Reason.NO_LEADER),
    TopicPartition("c", 7): Reading(State.UNREADABLE, POLLED, 2, reason=Reason.TIMED_OUT, before=OBSERVED),
    TopicPartition("c", 8): replace(OBSERVED, state=State.UNREADABLE, newest=None, reason=Reason.STORAGE_ERROR),
}


def test_a_snapshot_reads_as_the_readings_that_it_was_built_from() -> None:
    """Read, not read, and never read partitions survive the way into columns and back."""
    snapshot = snapshot_of(READINGS, taken_at=AT)
    assert dict(readings_of(snapshot)) == READINGS
    assert list(readings_of(snapshot)) == sorted(READINGS)


def test_a_partition_without_a_reading_was_never_read() -> None:
    """The table has a row for every partition of the metadata."""
    topics = topics_of(READINGS)
    snapshot = snapshot_of({}, topics)
    assert {reading.latest for reading in readings_of(snapshot).values()} == {None}
    assert len(readings_of(snapshot)) == len(READINGS)


def test_an_assessment_reads_as_the_judgements_that_it_was_built_from() -> None:
    """What is not named is learning, and topics count their partitions."""
    snapshot = snapshot_of(READINGS)
    dead = Judgement(Verdict.DEAD, AT - 60, AT - 1, 2.5)
    found = assessment_of(snapshot, {TopicPartition("b", 1): dead}, {"b": Judgement(Verdict.LIVE)})
    assert judgements_of(found)[TopicPartition("b", 1)] == dead
    assert judgements_of(found)[TopicPartition("b", 0)] == Judgement(Verdict.LEARNING)
    b = topics_in(found)["b"]
    assert (b.partitions, b.newest, b.judgement.verdict) == (2, AT - 61.5, Verdict.LIVE)
    assert b.states == {State.OBSERVED: 2}
    assert b.verdicts == {Verdict.DEAD: 1, Verdict.LEARNING: 1}
    assert topics_in(found)["a"].newest is None


def test_no_column_of_a_table_can_be_written_to() -> None:
    """A scrape, the history and the next poll read the same columns."""
    table = snapshot_of({}).table
    for column in (table.latest, table.laid_out(Layout.of({"orders": [0, 1]})).newest):
        with pytest.raises(ValueError, match="read-only"):
            column[:] = 0

"""One poll cycle: what is asked, what a failure costs, and what the sinks get."""

from __future__ import annotations

from itertools import cycle, pairwise

import pytest

from exporter.collectors.poller import Poller
from exporter.domain.arrays import Rows
from exporter.domain.formatting import duration
from exporter.domain.polls.answers import Answers
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.readings import Answer, PollFailure, Reason, State, TopicPartition
from exporter.domain.polls.table import ClusterChange
from exporter.domain.ports import SourceError
from tests.snapshots import silence_of
from tests.unit.readings import Collected, ManualClock, TableSource
from tests.views import readings_of

A, B = TopicPartition("a", 0), TopicPartition("a", 1)


def make(source: TableSource) -> tuple[Poller, Collected, ManualClock]:
    """Return a poller over the source, its sink and its clock."""
    clock, collected = ManualClock(), Collected()
    return Poller("c", source, [collected], clock), collected, clock


def test_max_timestamp_is_asked_only_for_partitions_that_moved() -> None:
    """A quiet partition keeps its newest timestamp at no cost, and the saving is counted."""
    source = TableSource({A: (0, 5, 100.0), B: (0, 5, 200.0)})
    poller, collected, clock = make(source)
    poller.poll()
    clock.time += 30
    source.offsets[A] = (0, 6, 150.0)
    poller.poll()
    first, second = collected.snapshots
    assert first.lookups["max-timestamp"] == 2
    assert second.lookups["max-timestamp"] == 1
    assert (readings_of(second)[A].newest, readings_of(second)[B].newest) == (150.0, 200.0)


def test_one_failing_partition_costs_only_itself() -> None:
    """Its reading says why; the other is exact."""
    source = TableSource({A: (0, 5, 100.0), B: (0, 5, 200.0)}, failures={A: Answer(reason=Reason.LEADER_UNREACHABLE)})
    poller, collected, _ = make(source)
    poller.poll()
    readings = readings_of(collected.snapshots[0])
    assert (readings[A].state, readings[A].reason) == (State.UNREADABLE, Reason.LEADER_UNREACHABLE)
    assert (readings[A].latest, readings[A].newest) == (None, None)
    assert (readings[B].state, readings[B].latest) == (State.OBSERVED, 5)


def test_a_partition_that_cannot_be_read_keeps_what_it_was() -> None:
    """The last reading of its offsets goes along for as long as none is made, not into another topic of its name."""
    source = TableSource({A: (0, 5, 100.0), B: (0, 5, 200.0)})
    poller, collected, _ = make(source)
    poller.poll()
    source.failures[A] = Answer(reason=Reason.LEADER_UNREACHABLE)
    poller.poll()
    source.error = SourceError(Reason.CLUSTER_UNREACHABLE, "no broker")
    poller.poll()
    source.error = None
    poller.poll()
    source.topic_ids["a"] = "id-2"
    poller.poll()
    first, *away, again = (readings_of(snapshot)[A] for snapshot in collected.snapshots)
    assert first.before is None
    earlier = [reading.before for reading in away if reading.before is not None]
    assert [(one.state, one.latest, one.newest) for one in earlier] == [(first.state, 5, 100.0)] * 2
    assert again.before is None


def test_a_pending_answer_keeps_the_last_timestamp_and_is_asked_again() -> None:
    """Until the newest record is below the high watermark, the timestamp known before stands."""
    source = TableSource({A: (0, 5, 100.0)})
    poller, collected, _ = make(source)
    poller.poll()
    source.offsets[A] = (0, 6, 100.0)
    source.pending.add(A)
    poller.poll()
    assert (readings_of(collected.snapshots[1])[A].state, readings_of(collected.snapshots[1])[A].newest) == (
        State.PENDING,
        100.0,
    )
    source.offsets[A] = (0, 6, 1_000_030.0)
    source.pending.clear()
    poller.poll()
    assert (readings_of(collected.snapshots[2])[A].state, readings_of(collected.snapshots[2])[A].newest) == (
        State.OBSERVED,
        1_000_030.0,
    )


def test_a_newest_record_that_does_not_come_has_no_timestamp() -> None:
    """Records dated before 1970: pending while one may be on its way, then without a timestamp and asked no more."""
    source = TableSource({A: (0, 5, 100.0)}, pending={A})
    poller, collected, clock = make(source)
    for _ in range(12):
        poller.poll()
        clock.time += 30
    states = [readings_of(snapshot)[A].state for snapshot in collected.snapshots]
    assert states == [State.PENDING] * 10 + [State.NO_TIMESTAMP] * 2
    assert source.newest_lookups == 11
    source.offsets[A] = (0, 6, 1_000_030.0)
    source.pending.clear()
    poller.poll()
    assert readings_of(collected.snapshots[-1])[A].newest == 1_000_030.0


def test_a_moved_partition_whose_answer_was_left_out_is_not_observed() -> None:
    """Its answer was not proved: it is pending with the timestamp known before, and asked again though it rests."""
    source = TableSource({A: (0, 5, 100.0), B: (0, 5, 200.0)})
    poller, collected, _ = make(source)
    poller.poll()
    source.offsets[A] = (0, 6, 1_000_030.0)
    source.left_out.add(A)
    poller.poll()
    readings = readings_of(collected.snapshots[1])
    assert (readings[A].state, readings[A].newest, readings[B].state) == (State.PENDING, 100.0, State.OBSERVED)
    source.left_out.clear()
    poller.poll()
    reading = readings_of(collected.snapshots[2])[A]
    assert (reading.state, reading.newest) == (State.OBSERVED, 1_000_030.0)


def test_a_failing_answer_about_the_newest_record_leaves_no_timestamp() -> None:
    """What was known is that of an older record: offsets and the advance are shown, the time is not."""
    source = TableSource({A: (0, 5, 100.0)})
    poller, collected, _ = make(source)
    poller.poll()
    source.offsets[A] = (0, 6, 1_000_030.0)
    source.timestamp_failure = Reason.STORAGE_ERROR
    poller.poll()
    reading = readings_of(collected.snapshots[1])[A]
    assert (reading.state, reading.reason, reading.newest) == (State.UNREADABLE, Reason.STORAGE_ERROR, None)
    assert (reading.latest, reading.activity.advanced_by) == (6, 1)
    source.timestamp_failure = None
    poller.poll()
    assert readings_of(collected.snapshots[2])[A].newest == 1_000_030.0


def test_an_empty_partition_is_not_asked_for_its_newest_record() -> None:
    """Latest equal to earliest answers the question: empty, or never written."""
    source = TableSource({A: (0, 0, None), B: (7, 7, None)})
    poller, collected, _ = make(source)
    poller.poll()
    assert source.newest_lookups == 0
    assert [reading.state for reading in readings_of(collected.snapshots[0]).values()] == [
        State.NEVER_WRITTEN,
        State.EMPTY,
    ]


def test_a_cluster_that_cannot_be_asked_is_a_failure_with_its_reason() -> None:
    """The sinks learn of the poll that gave nothing; no reading is invented."""
    source = TableSource({A: (0, 5, 100.0)}, error=SourceError(Reason.AUTHENTICATION_FAILED, "SASL refused"))
    poller, collected, _ = make(source)
    poller.poll()
    assert collected.snapshots == []
    assert [(failure.reason, failure.detail) for failure in collected.failures] == [
        (Reason.AUTHENTICATION_FAILED, "SASL refused")
    ]


def test_a_deleted_partition_is_forgotten() -> None:
    """A topic that comes back under its name starts without a past."""
    source = TableSource({A: (0, 5, 100.0), B: (0, 5, 100.0)})
    poller, collected, _ = make(source)
    poller.poll()
    offsets = source.offsets.pop(B)
    poller.poll()
    source.offsets[B] = (0, offsets[1] + 3, 100.0)
    poller.poll()
    assert B not in readings_of(collected.snapshots[1])
    assert readings_of(collected.snapshots[2])[B].activity.advanced_by == 0


def test_one_bad_answer_for_a_topic_costs_neither_its_memory_nor_its_place() -> None:
    """Its partitions stay, unreadable with the topic's reason; the advance since is counted at the next good poll."""
    source = TableSource({A: (0, 5, 100.0), B: (0, 5, 100.0)})
    poller, collected, clock = make(source)
    poller.poll()
    clock.time += 30
    source.offsets[A] = (0, 6, 1_000_030.0)
    source.topic_errors["a"] = Reason.STORAGE_ERROR
    poller.poll()
    snapshot = collected.snapshots[1]
    assert {reading.reason for reading in readings_of(snapshot).values()} == {Reason.STORAGE_ERROR}
    assert readings_of(snapshot)[B].activity.last_good_poll == clock.time - 30
    assert snapshot.metadata.topics["a"].topic_id == "id-1"
    clock.time += 30
    source.topic_errors.clear()
    poller.poll()
    activity = readings_of(collected.snapshots[2])[A].activity
    assert (activity.advanced_by, activity.previous_poll) == (1, clock.time - 60)


@pytest.mark.parametrize("step", [86_400.0, -86_400.0, 60.0])
def test_a_clock_that_is_set_changes_no_silence(step: float, caplog: pytest.LogCaptureFixture) -> None:
    """What was seen before is moved to the new clock, and a line says so; a failed poll in between changes nothing."""
    source = TableSource({A: (0, 5, None)})
    poller, collected, clock = make(source)
    poller.poll()
    clock.time += 30
    source.offsets[A] = (0, 6, None)
    poller.poll()
    clock.time += 30
    clock.set_by = step
    source.error = SourceError(Reason.CLUSTER_UNREACHABLE, "no broker")
    poller.poll()
    source.error = None
    clock.time += 30
    poller.poll()
    silence = silence_of(readings_of(collected.snapshots[-1])[A], None)
    assert silence is not None
    assert (silence.until, silence.until - silence.since) == (clock.now(), 60.0)
    assert [snapshot.clock_set for snapshot in collected.snapshots] == [0.0, 0.0, step]
    assert f"set {'forward' if step > 0 else 'back'} by {duration(abs(step))}:" in caplog.text


def test_earliest_is_asked_in_turns() -> None:
    """Each partition is asked at least every interval, spread over the polls, and at once where its end fell."""
    keys = [TopicPartition("a", number) for number in range(100)]
    source = TableSource(dict.fromkeys(keys, (0, 5, 100.0)))
    clock, collected = ManualClock(), Collected()
    poller = Poller("c", source, [collected], clock, earliest_interval=300.0)
    for _ in range(21):
        poller.poll()
        clock.time += 30
    first, *later = source.earliest_requests
    assert first == keys
    turns_of = {key: [number for number, turn in enumerate(later) if key in turn] for key in keys}
    assert all(1 <= len(turns) <= 3 for turns in turns_of.values())
    assert all(after - before <= 10 for turns in turns_of.values() for before, after in pairwise(turns))
    assert max(map(len, later)) <= 25
    source.earliest_requests.clear()
    source.offsets[keys[7]] = (2, 3, 100.0)
    poller.poll()
    assert any(keys[7] in turn for turn in source.earliest_requests)
    assert readings_of(collected.snapshots[-1])[keys[7]].earliest == 2


def test_a_first_offset_that_was_not_taken_over_is_asked_for_at_the_next_poll() -> None:
    """Where LATEST fails in the poll in which EARLIEST is due, it is not older than the interval afterwards."""

    class Failing(TableSource):
        fails = False

        def latest(self, rows: Rows) -> Answers:
            return Answers.of(Answer(reason=Reason.TIMED_OUT) for _ in rows) if self.fails else super().latest(rows)

    source = Failing({A: (0, 100, 100.0)})
    clock, collected = ManualClock(), Collected()
    poller = Poller("c", source, [collected], clock, earliest_interval=300.0)
    poller.poll()
    source.offsets[A] = (60, 100, 100.0)
    source.earliest_requests.clear()
    while not any(source.earliest_requests):
        source.fails = True
        clock.time += 30
        poller.poll()
    source.fails = False
    clock.time += 30
    poller.poll()
    assert readings_of(collected.snapshots[-1])[A].earliest == 60


def test_earliest_is_asked_at_every_poll_where_a_group_is_near_the_log_start() -> None:
    """What retention takes from it next is seen at the next poll, not within the interval."""

    class Readers:
        def near_log_start(self, layout: Layout) -> Rows:
            return layout.rows([B])

    source = TableSource({A: (0, 5, 100.0), B: (0, 5, 100.0)})
    clock = ManualClock()
    poller = Poller("c", source, [Collected()], clock, earliest_interval=3600.0, readers=Readers())
    for _ in range(3):
        poller.poll()
        clock.time += 1
    assert [B in turn for turn in source.earliest_requests] == [True] * 3
    assert source.earliest_requests[-1] == [B]


def test_a_topic_that_is_gone_leaves_at_the_poll_that_finds_it_gone() -> None:
    """Metadata that is kept for a minute is read anew where an answer shows that it is out of date."""
    gone = TopicPartition("gone", 0)
    source = TableSource({A: (0, 5, 100.0), gone: (0, 5, 100.0)}, keeps_metadata=True)
    poller, collected, _ = make(source)
    poller.poll()
    del source.offsets[gone]
    poller.poll()
    assert list(readings_of(collected.snapshots[1])) == [A]


def test_a_topic_made_again_between_two_polls_is_another_at_once() -> None:
    """Its end offset fell, so its id is read in the same poll: what it holds was gained since, by the new topic."""
    source = TableSource({A: (0, 9, 100.0)}, keeps_metadata=True, topic_ids={"a": "id-1"})
    poller, collected, _ = make(source)
    poller.poll()
    source.offsets[A], source.topic_ids["a"] = (0, 4, 200.0), "id-2"
    poller.poll()
    snapshot = collected.snapshots[1]
    reading = readings_of(snapshot)[A]
    assert snapshot.metadata.topics["a"].topic_id == "id-2"
    assert (reading.activity.advanced_by, reading.activity.restarted, reading.newest) == (4, True, 200.0)


def test_a_topic_that_one_answer_leaves_out_is_no_other_topic() -> None:
    """Metadata without it, in a poll that then fails, makes no new topic of it when it is back."""
    source = TableSource({A: (0, 5, 100.0)})
    poller, collected, clock = make(source)
    poller.poll()
    offsets = source.offsets.pop(A)
    source.offsets[TopicPartition("b", 0)] = (0, 1, 1.0)
    source.earliest_error = SourceError(Reason.CLUSTER_UNREACHABLE, "gone")
    poller.poll()
    source.earliest_error = None
    source.offsets = {A: offsets}
    clock.time += 30
    poller.poll()
    activity = readings_of(collected.snapshots[-1])[A].activity
    assert (activity.advanced_by, activity.restarted, activity.last_advance) == (0, False, None)


def test_rows_keep_their_facts_when_partitions_come_and_go() -> None:
    """What is known of a partition follows it to its new row, and a new one begins without a past."""
    other, added = TopicPartition("z", 0), TopicPartition("a", 2)
    source = TableSource({A: (0, 5, 100.0), B: (0, 6, 200.0), other: (0, 7, 300.0)})
    poller, collected, clock = make(source)
    poller.poll()
    clock.time += 30
    source.offsets[other] = (0, 8, 400.0)
    poller.poll()
    clock.time += 30
    del source.offsets[A]
    source.offsets[added] = (0, 50, 500.0)
    poller.poll()
    readings = readings_of(collected.snapshots[-1])
    assert set(readings) == {B, other, added}
    assert (readings[other].activity.last_advance, readings[B].newest) == (clock.time - 30, 200.0)
    assert (readings[added].activity.last_advance, readings[added].activity.polls_good) == (None, 1)


def test_records_of_another_cluster_are_no_advance_although_metadata_is_kept() -> None:
    """Its id is asked for after the offsets of each poll, and the poll begins again with its own metadata."""
    source = TableSource({A: (0, 5, 100.0)}, keeps_metadata=True, own_id="first")
    poller, collected, clock = make(source)
    poller.poll()
    clock.time += 30
    source.own_id, source.offsets = "second", {A: (0, 9, 200.0), B: (0, 3, 200.0)}
    poller.poll()
    snapshot = collected.snapshots[1]
    readings = readings_of(snapshot)
    assert {key: (one.latest, one.activity.advanced_by) for key, one in readings.items()} == {A: (9, 0), B: (3, 0)}
    assert snapshot.metadata.cluster_id == "second"
    assert snapshot.cluster_change == ClusterChange("first", clock.time)


def test_no_poll_counts_while_two_clusters_answer_in_turn() -> None:
    """Whose offsets were read is not known: the poll failed and says why, and the next one begins anew."""
    source = TableSource({A: (0, 5, 100.0)}, own_id="first")
    poller, collected, clock = make(source)
    poller.poll()
    taking_turns = cycle(["second", "first"])
    source.cluster_id = lambda: next(taking_turns)  # type: ignore[method-assign]
    failure = poller.poll()
    assert isinstance(failure, PollFailure)
    assert failure.detail.startswith("several Kafka clusters answer in turn")
    del source.cluster_id
    clock.time += 30
    source.offsets[A] = (0, 9, 200.0)
    poller.poll()
    assert readings_of(collected.snapshots[-1])[A].activity.advanced_by == 0

"""One poll cycle: what is asked, what a failure costs, and what the sinks get."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from exporter.collectors.poller import Poller
from exporter.domain.formatting import duration
from exporter.domain.judging.detection import Detector
from exporter.domain.polls.metadata import Metadata, TopicConfig, TopicInfo, restore_known
from exporter.domain.polls.readings import Reason, State, TopicPartition
from exporter.domain.polls.silence import RestartFacts, silences_of
from exporter.domain.polls.table import Snapshot
from exporter.domain.ports import SourceError
from tests.lookup_answers import Answer
from tests.memberships import membership_of
from tests.snapshots import silence_of
from tests.unit.readings import Collected, ManualClock, TableSource
from tests.views import Reading, readings_of

A, B = TopicPartition("a", 0), TopicPartition("a", 1)
DOWN = SourceError(Reason.CLUSTER_UNREACHABLE, "no broker")


class Polled:
    """A poller over a source, its clock, and what its sink got."""

    def __init__(self, source: TableSource, **options: Any) -> None:
        self.source, self.clock, self.collected = source, ManualClock(), Collected()
        self.poller = Poller("c", source, [self.collected], self.clock, **options)

    def poll(self) -> dict[TopicPartition, Reading]:
        """Poll half a minute later, and return the readings of the last good poll."""
        self.clock.time += 30
        self.poller.poll()
        return readings_of(self.last) if self.collected.snapshots else {}

    @property
    def last(self) -> Snapshot:
        return self.collected.snapshots[-1]


def test_a_partition_that_cannot_be_read_keeps_what_it_was() -> None:
    polled = Polled(source := TableSource({A: (0, 5, 100.0), B: (0, 5, 200.0)}))
    first = polled.poll()[A]
    assert first.before is None
    source.failures[A] = Answer(reason=Reason.LEADER_UNREACHABLE)
    for error in (None, DOWN, None):
        source.error = error
        before = polled.poll()[A].before
        assert before is not None
        assert (before.state, before.latest, before.newest) == (first.state, 5, 100.0)
    source.topic_ids["a"] = "id-2"
    assert polled.poll()[A].before is None


@pytest.mark.parametrize("kind", ["pending", "left_out"])
def test_a_newest_record_without_an_answer_keeps_the_last_timestamp_and_is_asked_again(kind: str) -> None:
    """Until it is below the high watermark, or while its answer is not proved; also where the partition rests then."""
    polled = Polled(source := TableSource({A: (0, 5, 100.0), B: (0, 5, 200.0)}))
    polled.poll()
    source.offsets[A] = (0, 6, 1_000_030.0)
    getattr(source, kind).add(A)
    readings = polled.poll()
    assert (readings[A].state, readings[A].newest, readings[B].state) == (State.PENDING, 100.0, State.OBSERVED)
    getattr(source, kind).clear()
    reading = polled.poll()[A]
    assert (reading.state, reading.newest) == (State.OBSERVED, 1_000_030.0)


def test_a_newest_record_that_does_not_come_has_no_timestamp() -> None:
    """Records dated before 1970: pending while one may be on its way, then without a timestamp and asked no more."""
    polled = Polled(source := TableSource({A: (0, 5, 100.0)}, pending={A}))
    states = [polled.poll()[A].state for _ in range(12)]
    assert states == [State.PENDING] * 10 + [State.NO_TIMESTAMP] * 2
    assert source.newest_lookups == 11
    source.offsets[A] = (0, 6, 1_000_030.0)
    source.pending.clear()
    assert polled.poll()[A].newest == 1_000_030.0


def test_a_failing_answer_about_the_newest_record_leaves_no_timestamp() -> None:
    """What was known is that of an older record: offsets and the advance are shown, the time is not."""
    polled = Polled(source := TableSource({A: (0, 5, 100.0)}))
    polled.poll()
    source.offsets[A] = (0, 6, 1_000_030.0)
    source.timestamp_failure = Reason.STORAGE_ERROR
    reading = polled.poll()[A]
    assert (reading.state, reading.reason, reading.newest) == (State.UNREADABLE, Reason.STORAGE_ERROR, None)
    assert (reading.latest, reading.advanced_by) == (6, 1)
    source.timestamp_failure = None
    assert polled.poll()[A].newest == 1_000_030.0


def test_one_bad_answer_for_a_topic_costs_neither_its_memory_nor_its_place() -> None:
    polled = Polled(source := TableSource({A: (0, 5, 100.0), B: (0, 5, 100.0)}))
    polled.poll()
    good = polled.clock.time
    source.offsets[A] = (0, 6, 1_000_030.0)
    source.topic_errors["a"] = Reason.STORAGE_ERROR
    readings = polled.poll()
    assert {reading.reason for reading in readings.values()} == {Reason.STORAGE_ERROR}
    assert readings[B].last_good_poll == good
    assert polled.last.metadata.topics["a"].topic_id == "id-1"
    source.topic_errors.clear()
    reading = polled.poll()[A]
    assert (reading.advanced_by, reading.previous_poll) == (1, good)


@pytest.mark.parametrize("step", [86_400.0, -86_400.0, 60.0])
def test_a_clock_that_is_set_changes_no_silence(step: float, caplog: pytest.LogCaptureFixture) -> None:
    polled = Polled(source := TableSource({A: (0, 5, None)}))
    polled.poll()
    source.offsets[A] = (0, 6, None)
    polled.poll()
    polled.clock.set_by, source.error = step, DOWN
    polled.poll()
    source.error = None
    silence = silence_of(polled.poll()[A], None)
    assert silence is not None
    assert (silence.until, silence.until - silence.since) == (polled.clock.now(), 60.0)
    polled.poll()
    assert [snapshot.clock_set for snapshot in polled.collected.snapshots] == [0.0, 0.0, step, 0.0]
    assert f"set {'forward' if step > 0 else 'back'} by {duration(abs(step))}:" in caplog.text


def test_earliest_is_asked_in_turns() -> None:
    keys = [TopicPartition("a", number) for number in range(100)]
    polled = Polled(source := TableSource(dict.fromkeys(keys, (0, 5, 100.0))), earliest_polls=10)
    for _ in range(21):
        polled.poll()
    first, *later = source.earliest_requests
    assert first == keys
    turns_of = {key: [number for number, turn in enumerate(later) if key in turn] for key in keys}
    assert all(len(turns) == 2 for turns in turns_of.values())
    assert {after - before for before, after in turns_of.values()} == {10}
    assert set(map(len, later)) == {10}
    source.earliest_requests.clear()
    source.offsets[keys[7]] = (2, 3, 100.0)
    assert polled.poll()[keys[7]].earliest == 2
    assert any(keys[7] in turn for turn in source.earliest_requests)


def test_a_topic_made_again_between_two_polls_is_another_at_once() -> None:
    """Its end offset fell, so its id is read in the same poll: what it holds was gained since, by the new topic."""
    polled = Polled(source := TableSource({A: (0, 9, 100.0)}, topic_ids={"a": "id-1"}), metadata_seconds=60)
    polled.poll()
    source.offsets[A], source.topic_ids["a"] = (0, 4, 200.0), "id-2"
    reading = polled.poll()[A]
    assert polled.last.metadata.topics["a"].topic_id == "id-2"
    assert (reading.advanced_by, reading.restarted, reading.newest) == (4, True, 200.0)


def test_an_advance_in_a_long_gap_between_polls_is_not_known_to_be_new() -> None:
    """It may be as old as the gap; the next one is seen. In a cluster that is polled so rarely there is no gap."""
    polled = Polled(source := TableSource({A: (0, 5, 100.0)}))
    polled.poll()
    before = polled.clock.time
    polled.clock.time += 10 * 3600
    source.offsets[A] = (0, 6, before + 3600.0)
    polled.poll()
    for detector, known in ((Detector(), False), (Detector(poll_interval=6 * 3600.0), True)):
        silence = detector.assess(polled.last, polled.clock.time).silences.silence(0)
        assert silence is not None
        assert (silence.known, silence.not_before) == (known, None if known else before)
    for advance in (polled.clock.time, polled.clock.time - 9 * 3600):
        history = RestartFacts(*(np.array([value]) for value in (True, 6, True, advance)))
        silence = silences_of(polled.last.table, history, 3600.0).silence(0)
        assert silence is not None
        assert silence.known is (advance < polled.clock.time), "a rollup knows no more, unless by a backfill"
    source.offsets[A] = (0, 7, polled.clock.time)
    polled.poll()
    silence = Detector().assess(polled.last, polled.clock.time).silences.silence(0)
    assert silence is not None and silence.known


def test_a_topic_that_one_answer_leaves_out_is_no_other_topic() -> None:
    """Metadata without it, in a poll that then fails, makes no new topic of it when it is back."""
    polled = Polled(source := TableSource({A: (0, 5, 100.0)}))
    polled.poll()
    offsets = source.offsets.pop(A)
    source.offsets[TopicPartition("b", 0)] = (0, 1, 1.0)
    source.earliest_error = DOWN
    polled.poll()
    source.earliest_error = None
    source.offsets = {A: offsets}
    reading = polled.poll()[A]
    assert (reading.advanced_by, reading.restarted, reading.last_advance) == (0, False, None)


def test_rows_keep_their_facts_when_partitions_come_and_go() -> None:
    other, added = TopicPartition("z", 0), TopicPartition("a", 2)
    polled = Polled(source := TableSource({A: (0, 5, 100.0), B: (0, 6, 200.0), other: (0, 7, 300.0)}))
    polled.poll()
    source.offsets[other] = (0, 8, 400.0)
    polled.poll()
    seen = polled.clock.time
    del source.offsets[A]
    source.offsets[added] = (0, 50, 500.0)
    readings = polled.poll()
    assert set(readings) == {B, other, added}
    assert (readings[other].last_advance, readings[B].newest) == (seen, 200.0)
    assert (readings[added].last_advance, readings[added].polls_good) == (None, 1)
    source.offsets[A] = (0, 8, 100.0)
    assert polled.poll()[A].advanced_by == 0


@pytest.mark.parametrize(
    ("reused_at", "read_at"), [([31.0], 59.0), ([20.0, 39.0], 58.0), ([5.0 * poll for poll in range(1, 11)], 59.0)]
)
def test_metadata_is_read_anew_after_a_minute(reused_at: Sequence[float], read_at: float) -> None:
    """Without being asked for: a topic may have been made. A poll that is some seconds early does not put it off."""
    polled = Polled(source := TableSource({A: (0, 5, 100.0)}), metadata_seconds=60)
    polled.poll()
    first = polled.clock.time
    source.offsets[TopicPartition("new", 0)] = (0, 5, 100.0)
    for passed in reused_at:
        polled.clock.time = first + passed - 30
        assert list(polled.poll()) == [A]
    polled.clock.time = first + read_at - 30
    assert len(polled.poll()) == 2


def test_settings_that_cannot_be_read_any_more_stay_unless_the_right_is_gone() -> None:
    """A new process of the client may begin while no broker answers about them."""
    config = TopicConfig("CreateTime", "compact", None, remote_storage=False)
    membership = membership_of({"a": {}})
    before = Metadata({}, {"a": TopicInfo("id-1", config)}, membership=membership)
    for topic_id, unread, kept in (
        ("id-1", {}, config),
        ("id-1", {"a": Reason.TIMED_OUT}, config),
        ("id-1", {"a": Reason.UNAUTHORIZED}, None),
        ("id-2", {}, None),
    ):
        now = Metadata({}, {"a": TopicInfo(topic_id)}, unconfigured=unread, membership=membership)
        assert restore_known(now, before).topics["a"].config == kept

"""What is missing in a replica, which topics belong together, and when a replica stands still: rules without Kafka."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.domain import (
    Activity,
    Answer,
    NotCompared,
    PartitionInfo,
    Reading,
    Reason,
    ReplicaReading,
    ReplicaState,
    State,
    TopicInfo,
)
from exporter.domain.replication import (
    Missing,
    Naming,
    Standstill,
    faults,
    judge,
    missing,
    times_to_ask,
    without_asking,
)


def default(alias: str, *, exclude: tuple[str, ...] = ()) -> Naming:
    """MirrorMaker's default names."""
    return Naming.of("(.*)", rf"{alias}.\1", [".*"], exclude)


def log(times: list[int], start: int = 0, state: State | None = None) -> Reading:
    """A partition that holds records of these times, in milliseconds, from offset ``start`` on."""
    if not times:
        state = state or (State.EMPTY if start else State.NEVER_WRITTEN)
        return Reading(state, Activity(), 1, start, start)
    return Reading(state or State.OBSERVED, Activity(), 1, start, start + len(times), max(times) / 1000)


def found(source: list[int], copied: list[int], start: int = 0, *, compacted: bool = False) -> Missing | NotCompared:
    """What is found missing where the source holds records of these times, and the replica those."""

    def answer(time: float) -> Answer:
        ms = round(time * 1000)
        at = next((number for number, one in enumerate(source) if one >= ms), None)
        return Answer() if at is None else Answer(start + at, source[at] / 1000)

    mine, copy = log(source, start), log(copied)
    if (told := without_asking(mine, copy, "CreateTime")) is not None:
        return told
    return missing(mine, copy.newest, [answer(time) for time in times_to_ask(mine, copy, None)], compacted=compacted)


def test_rising_times_are_counted_to_the_record() -> None:
    """With a time of its own for each record both bounds are what is missing, and the oldest is told."""
    assert found([1, 2, 3, 4, 5], [1, 2]) == Missing(3, 3, 0.003)
    assert found([1, 2, 3, 4, 5], [1, 2, 3, 4, 5]) == Missing(0, 0)


def test_ties_make_an_interval() -> None:
    """Records that share the replica's newest time may or may not have arrived."""
    assert found([1, 2, 2, 2, 3, 4], [1, 2]) == Missing(2, 4, 0.003)
    assert found([1, 2, 2, 2], [1, 2]) == Missing(0, 2)


def test_a_single_last_record_may_be_a_marker() -> None:
    """One record at the end of the source is not called missing: a transaction marker is never copied."""
    assert found([1, 2, 3], [1, 2]) == Missing(0, 1)


@pytest.mark.parametrize(
    ("markers", "told"), [(0, Missing(2, 2, 0.003)), (1, Missing(2, 2, 0.003)), (2, Missing(0, 2))]
)
def test_so_many_last_records_may_be_markers(markers: int, told: Missing) -> None:
    """One for each transactional producer; the replica has not stood still for their sake either."""
    answers = [Answer(1, 0.002), Answer(2, 0.003)]
    assert missing(log([1, 2, 3, 4]), 0.002, answers, compacted=False, markers=markers) == told
    still = Standstill(2, 0.0, markers=markers)
    still.look(2, 1.0, 2, 1.0)
    still.look(4, 2.0, 2, 2.0)
    still.lasts(4, told.at_least, 10.0)
    assert (still.lasts(4, told.at_least, 20.0) > 0) == (markers < 2)


def test_a_replica_without_records_lacks_all() -> None:
    """What the source still holds is missing, and its first record is the oldest; removed ones do not count."""
    assert found([5, 6, 7], [], start=10) == Missing(3, 3, 0.005)
    assert found([], [], start=0) == Missing(0, 0)
    assert found([], [1], start=10) == Missing(0, 0)


def test_a_record_that_was_removed_from_the_source_counts_by_those_after_it() -> None:
    """Where retention took the record that the replica ends with, all that is left is missing."""
    assert found([5, 6, 7], [1, 2], start=10) == Missing(3, 3, 0.005)


def test_a_time_that_the_source_does_not_know_is_no_copy() -> None:
    """A replica newer than its source, or between two of its records, is not compared; a compacted source may be."""
    assert found([1, 2, 3], [1, 9]) is NotCompared.NEWER_THAN_SOURCE
    assert found([1, 3, 6, 8], [1, 5]) is NotCompared.NOT_IN_SOURCE
    assert found([1, 3, 6, 8], [1, 5], compacted=True) == Missing(2, 2, 0.006)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=40), st.data())
def test_the_interval_holds_what_is_missing(times: list[int], data: st.DataObject) -> None:
    """Whatever the order of the times, what is really missing lies between the bounds."""
    copied = data.draw(st.integers(0, len(times)))
    told = found(times, times[:copied])
    assert isinstance(told, Missing)
    assert told.at_least <= len(times) - copied <= told.at_most
    if times == sorted(set(times)) and told.at_most > 1:
        assert told.at_least == told.at_most


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=40, unique=True))
def test_one_look_up_is_enough_where_nothing_is_missing(times: list[int]) -> None:
    """A replica as new as the source's newest record asks for one time, one that is behind for two."""
    mine = log(sorted(times))
    assert len(times_to_ask(mine, log(sorted(times)), None)) == 1
    behind = log([min(times)])
    assert len(times_to_ask(mine, behind, None)) == (2 if len(times) > 1 else 1)


@pytest.mark.parametrize(
    ("source", "replica", "kind", "why"),
    [
        (Reading(State.UNREADABLE, Activity(), reason=Reason.NO_LEADER), log([1]), None, "source-unreadable"),
        (log([1]), Reading(State.UNREADABLE, Activity(), reason=Reason.NO_LEADER), None, "replica-unreadable"),
        (log([1]), log([1]), "LogAppendTime", "log-append-time"),
        (log([1]), log([], 7), None, "replica-empty"),
        (log([1]), log([9], state=State.FUTURE), None, "future-timestamp"),
        (log([1]), Reading(State.NO_TIMESTAMP, Activity(), 1, 0, 5), None, "no-timestamp"),
        (log([1]), Reading(State.UNSUPPORTED, Activity(), 1, 0, 5), None, "no-timestamp"),
    ],
)
def test_what_cannot_be_compared_says_why(source: Reading, replica: Reading, kind: str | None, why: str) -> None:
    """There is a reason instead of a number, and nobody is asked."""
    assert without_asking(source, replica, kind) == why
    assert times_to_ask(source, replica, kind) == ()


def test_a_failed_look_up_is_no_number() -> None:
    """An answer with a reason is not taken for one without a record."""
    told = missing(log([1, 2]), 0.001, [Answer(reason=Reason.TIMED_OUT), Answer()], compacted=False)
    assert told is NotCompared.LOOKUP_FAILED


def test_lag_is_the_age_of_the_oldest_missing_record() -> None:
    """0 where none is proved missing; none where records are dated back, or in the future."""
    assert judge(Missing(0, 3), State.OBSERVED, 100.0, stopped=False, behind_after=60).lag_seconds == 0
    behind = judge(Missing(2, 2, 10.0), State.OBSERVED, 100.0, stopped=False, behind_after=60)
    assert behind == ReplicaReading(ReplicaState.BEHIND, 90.0, 2, 2)
    assert judge(Missing(2, 2, 50.0), State.OBSERVED, 100.0, stopped=False, behind_after=60).state == "in-step"
    dated_back = judge(Missing(2, 2, 10.0), State.PRESERVED, 100.0, stopped=False, behind_after=60)
    assert (dated_back.state, dated_back.lag_seconds) == (ReplicaState.BEHIND, None)
    assert judge(Missing(2, 2, 200.0), State.FUTURE, 100.0, stopped=False, behind_after=60).lag_seconds is None


def test_a_replica_that_stands_still_has_stopped_whatever_its_times() -> None:
    """The state is told from offsets where no number is."""
    told = judge(NotCompared.LOG_APPEND_TIME, State.OBSERVED, 100.0, stopped=True, behind_after=60)
    assert told == ReplicaReading(ReplicaState.STOPPED, reason=NotCompared.LOG_APPEND_TIME)


def follow(ends: list[tuple[int, int]], lacks: int = 0) -> list[float]:
    """How long a replica has stood still, poll by poll: a poll of the source each 10 s, the target's a second later."""
    standstill, told = Standstill(ends[0][1], 1.0), []
    for number, (source, replica) in enumerate(ends):
        standstill.look(source, 10.0 * number, replica, 10.0 * number + 1)
        told.append(standstill.lasts(source, lacks, 10.0 * number))
    return told


def test_a_replica_stands_still_from_when_its_source_went_on() -> None:
    """Two records in the source and none in the replica begin it; a record in the replica ends it."""
    assert follow([(5, 5), (5, 5), (6, 5), (7, 5), (9, 5), (9, 6), (9, 6)]) == [0, 0, 0, 0, 10, 0, 0]


def test_a_source_that_rests_stops_nobody() -> None:
    """However long both rest, the replica does not stand still; a lone marker begins nothing."""
    assert set(follow([(5, 5)] * 9)) == {0}
    assert set(follow([(5, 5), (5, 5)] + [(6, 5)] * 9)) == {0}


def test_records_that_came_between_two_polls_begin_nothing() -> None:
    """What the replica already copied when it was polled is seen in the source only at the next poll."""
    assert set(follow([(5, 5), (5, 15)] + [(15, 15)] * 9)) == {0}


def test_records_proved_missing_begin_it_too() -> None:
    """They do where the source went on before anybody looked."""
    assert follow([(9, 5)] * 3, lacks=4) == [0, 10, 20]


def test_a_source_made_again_begins_anew() -> None:
    """Where its end falls, what was seen before says nothing."""
    assert follow([(50, 5), (50, 5), (60, 5), (60, 5), (3, 5), (3, 5)]) == [0, 0, 0, 10, 0, 0]


def test_names_follow_the_policy() -> None:
    """MirrorMaker puts the alias before a name; a pattern turns whole names into what its template says."""
    assert default("prod").replica_of("orders") == "prod.orders"
    assert Naming.of("(.*)", r"\1", [".*"], []).replica_of("orders") == "orders"
    dated = Naming.of(r"(\w+)\.v(\d)", r"dr-\2-\1", [".*"], [])
    assert dated.replica_of("orders.v2") == "dr-2-orders"
    assert dated.replica_of("orders") is None
    assert default("prod", exclude=("ord.*",)).replica_of("orders") is None
    assert Naming.of("(.*)", r"\1", ["pay.*"], []).replica_of("orders") is None


@pytest.mark.parametrize(
    "topic",
    [
        "heartbeats",
        "mm2-offset-syncs.west.internal",
        "mm2-configs.west.internal",
        "west.checkpoints.internal",
        "__consumer_offsets",
    ],
)
def test_what_mirrormaker_keeps_for_itself_is_no_replica(topic: str) -> None:
    """Heartbeats, checkpoints, offset syncs and internal topics are not compared."""
    assert default("prod").replica_of(topic) is None


def test_only_what_exists_on_both_sides_is_compared() -> None:
    """A topic without a replica is told by name; a topic of the target that nobody maps to is not looked at."""
    matching = default("e").match({"a", "b"}, {"e.a", "local"})
    assert (matching.replicas, matching.without_replica, matching.contested) == ({"a": "e.a"}, ["b"], {})


def test_a_topic_that_two_are_mapped_to_is_compared_with_neither() -> None:
    """Whether both are of one pair or the other is of another pair."""
    merged = Naming.of(r"(.*)-\d", r"\1", [".*"], [])
    assert merged.match({"a-1", "a-2", "b-1"}, {"a", "b"}).contested == {"a": ["a-1", "a-2"]}
    assert merged.match({"b-1"}, {"b"}, taken={"b"}).contested == {"b": ["b-1"]}


def info(partitions: int) -> TopicInfo:
    """A topic of so many partitions."""
    return TopicInfo(None, dict.fromkeys(range(partitions), PartitionInfo(1, (1,), (1,))))


def test_faults_name_the_topics_and_the_next_step() -> None:
    """No match, two sources and unequal partitions are told, each with what to do; a good pair tells nothing."""
    naming = default("e")
    [none] = faults("east", "west", naming.match({"a"}, {"x"}), {"a": info(1)}, {"x": info(1)})
    assert none.what == "replicas: no topic of east has its replica in west: 1 are expected with names such as 'e.a'"
    assert re.match("check policy", none.mend)
    mine, theirs = {"a": info(1), "b": info(3)}, {"e.a": info(1), "e.b": info(2)}
    [uneven] = faults("east", "west", naming.match(mine, theirs), mine, theirs)
    assert "b (3) -> e.b (2)" in uneven.what
    assert faults("east", "west", naming.match({"a"}, {"e.a"}), mine, theirs) == []
    merged = Naming.of("a|b", "x", [".*"], [])
    [two] = faults("east", "west", merged.match({"a", "b"}, {"x"}), mine, {"x": info(1)})
    assert "x <- a, b" in two.what

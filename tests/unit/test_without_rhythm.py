"""Verdicts without a learned rhythm, limits from few gaps, what died before polls, and partitions by their topic."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.domain.history.streams import add_topics
from exporter.domain.judging.current_facts import ClusterFacts
from exporter.domain.judging.detection import Assessment, Detector
from exporter.domain.judging.gap_law import find_limits
from exporter.domain.judging.queries import Query, partitions, topics
from exporter.domain.judging.rollup_verdicts import Verdicts
from exporter.domain.learning.baselines import Baselines
from exporter.domain.polls.readings import State, TopicPartition
from exporter.domain.verdicts import VERDICTS, Expectation, Verdict
from tests.judging import set_of
from tests.snapshots import snapshot_of, topics_of
from tests.unit.expectations import DAY, HOUR, MONDAY, by_wall
from tests.unit.test_rhythms import START, known
from tests.unit.test_rollup_verdicts import steady, streams
from tests.views import Reading

NOW = MONDAY + 2 * HOUR
NO_BASELINES = steady(1)[np.zeros(0, np.intp)]


def reading(state: State, age_days: float | None, advanced: float | None = None) -> Reading:
    """A partition that was first polled two hours ago; ``advanced`` seconds ago it was seen to advance."""
    since = MONDAY if advanced is None else NOW - advanced
    newest, last = None if age_days is None else NOW - age_days * DAY, None if advanced is None else since
    return Reading(state, 1, 0, 9, newest, last_good_poll=NOW, silent_since=since, last_advance=last, polls_good=9)


def assess(readings: list[Reading], *expectations: Expectation) -> Assessment:
    keyed = {TopicPartition("orders", number): one for number, one in enumerate(readings)}
    snapshot = snapshot_of(keyed, topics_of(keyed), taken_at=NOW)
    return Detector(set_of(expectations)).assess(snapshot, NOW)


@pytest.mark.parametrize(
    ("state", "age_days", "advanced", "verdict"),
    [
        (State.OBSERVED, 27, None, Verdict.LEARNING),
        (State.OBSERVED, 29, None, Verdict.SUSPECT),
        (State.OBSERVED, 57, None, Verdict.RETIRED),
        (State.FUTURE, -9, None, Verdict.LEARNING),
        (State.PRESERVED, 400, 7200, Verdict.LEARNING),
        (State.OBSERVED, 400, 60, Verdict.LIVE),
        (State.OBSERVED, 400, 7200, Verdict.LEARNING),
        (State.EMPTY, None, None, Verdict.LEARNING),
        (State.NEVER_WRITTEN, None, None, Verdict.LEARNING),
        (State.IDLE_IN_TIER, 400, None, Verdict.LEARNING),
        (State.PENDING, 400, None, Verdict.LEARNING),
    ],
)
def test_from_the_first_poll_on_the_age_of_the_newest_record_judges(
    state: State, age_days: float | None, advanced: float | None, verdict: Verdict
) -> None:
    """Without any expectation: old, unmoved and well dated is retired; an advance is life; all else is not known."""
    found = assess([reading(state, age_days, advanced)])
    assert VERDICTS[found.of_topics.verdict[0]] is verdict
    assert VERDICTS[found.of_partitions.verdict[0]] is verdict


@pytest.mark.parametrize(
    ("other", "verdict"),
    [
        (reading(State.EMPTY, None), Verdict.RETIRED),
        (reading(State.OBSERVED, 3), Verdict.LEARNING),
        (reading(State.UNSUPPORTED, None), Verdict.LEARNING),
        (reading(State.OBSERVED, 90, 60), Verdict.LIVE),
    ],
)
def test_a_topic_is_as_old_as_its_newest_partition(other: Reading, verdict: Verdict) -> None:
    """One partition whose newest record may be young leaves the topic without a verdict by age."""
    found = assess([reading(State.OBSERVED, 60), other])
    assert VERDICTS[found.of_topics.verdict[0]] is verdict


def test_the_evidence_of_an_abandoned_topic_says_where_it_comes_from() -> None:
    keyed = {TopicPartition("orders", 0): reading(State.OBSERVED, 100)}
    snapshot = snapshot_of(keyed, topics_of(keyed), taken_at=NOW)
    facts = ClusterFacts("prod", snapshot, Detector().assess(snapshot, NOW), None, NOW)
    (topic,), (partition,) = topics([facts], Query()).items, partitions([facts], Query()).items
    assert topic["verdict"] == "retired"
    assert topic["evidence"] == (
        "dead since Sat 2026-01-17 02:00 UTC; newest record of Sat 2025-11-22 by its timestamp; "
        "nothing written in 2 h of polls; 9 records before"
    )
    assert partition["evidence"] == topic["evidence"]


def judged(
    last_days: float, slots: int, lived_days: float, polled_days: float = 0.0
) -> tuple[Verdict, str, str, float]:
    """Return the verdict of a rollup on a stream of few records: verdict, rule, evidence, days until it is dead."""
    last = NOW - last_days * DAY
    each = streams([("prod", "few")], [0], [last], [NOW])
    count = len(each)
    each = replace(
        each,
        known_since=np.full(count, last - lived_days * DAY),
        known_slots=np.full(count, slots, np.int64),
        polled_from=np.full(count, NOW - polled_days * DAY),
    )
    found = Verdicts(each, NO_BASELINES, np.full(count, -1), NOW)
    return VERDICTS[found.verdict[0]], found.rule[0], found.evidence[0], float(found.expected_by[0] - last) / DAY


@pytest.mark.parametrize(
    ("last_days", "slots", "lived_days", "verdict"),
    [
        (5, 4, 21, Verdict.QUIET),
        (30, 4, 21, Verdict.SUSPECT),
        (57, 4, 21, Verdict.DEAD),
        (30, 1, 0, Verdict.SUSPECT),
        (57, 1, 0, Verdict.DEAD),
        (26, 12, 11, Verdict.DEAD),
        # A run each quarter, and a stream that was busy until it rested for months and came back.
        (91, 6, 455, Verdict.QUIET),
        (183, 6, 455, Verdict.DEAD),
        (27, 1000, 455, Verdict.QUIET),
        (57, 1000, 455, Verdict.DEAD),
        (60, 4, 21, Verdict.DEAD),
        (64, 4, 21, Verdict.RETIRED),
    ],
)
def test_few_records_are_judged_by_their_gaps(
    last_days: float, slots: int, lived_days: float, verdict: Verdict
) -> None:
    """A weekly topic of four records, one record, and a topic that lived for eleven days; polls saw all of it."""
    found = judged(last_days, slots, lived_days, polled_days=last_days + lived_days)
    assert found[:2] == (verdict, "gaps")


def test_what_was_dead_before_polls_began_is_retired_at_once() -> None:
    """Nobody is paged for what died before anybody watched; what dies under their eyes is dead."""
    verdict, _, evidence, dead_after = judged(60, 4, 21, polled_days=0.1)
    assert dead_after == 56.0
    assert verdict is Verdict.RETIRED
    assert "nothing written in 2 h 24 min of polls; 9 records before" in evidence
    assert judged(60, 4, 21, polled_days=4.1)[0] is Verdict.DEAD


@pytest.mark.parametrize(
    ("age_days", "verdict"),
    [(27, Verdict.LEARNING), (29, Verdict.SUSPECT), (57, Verdict.RETIRED), (None, Verdict.LEARNING)],
)
def test_the_rollup_judges_by_the_age_of_the_newest_record_where_no_advance_is_known(
    age_days: float | None, verdict: Verdict
) -> None:
    """Without a backfill it says what the exporter says, and when the topic was dead by that."""
    each = streams([("prod", "old")], [0], [np.nan], [NOW])
    partition = replace(each[~each.whole], newest=np.array([np.nan if age_days is None else NOW - age_days * DAY]))
    both = add_topics(partition, each[each.whole])
    both = replace(both, polled_from=np.full(2, MONDAY))
    found = Verdicts(both, NO_BASELINES, np.full(2, -1), NOW)
    assert [VERDICTS[code] for code in found.verdict] == [verdict] * 2
    if verdict is Verdict.RETIRED:
        assert found.expected_by[1] == NOW - DAY
        assert "nothing written in 2 h of polls" in found.evidence[1]


def test_the_exporter_retires_by_the_published_first_poll() -> None:
    """A silence that was dead at the first poll is retired; an advance makes it live at once."""
    row = by_wall(polled_from=MONDAY)
    silent = [reading(State.OBSERVED, 1)]
    died = replace(row, last_advance=MONDAY - 6 * HOUR, end_offset=9)
    lately = replace(row, last_advance=MONDAY - 4.9 * HOUR, end_offset=9)
    for one, verdict in ((died, Verdict.RETIRED), (lately, Verdict.DEAD)):
        whole = replace(one, partition=None)
        assert VERDICTS[assess(silent, one, whole).of_topics.verdict[0]] is verdict
    whole = replace(died, partition=None)
    written = [reading(State.OBSERVED, 0, advanced=30)]
    assert VERDICTS[assess(written, died, whole).of_topics.verdict[0]] is Verdict.LIVE


def test_the_only_partition_of_a_topic_has_the_verdict_of_its_topic() -> None:
    """One stream has one threshold: past that of partitions, not past that of topics, it is suspect."""
    partition = by_wall(last_advance=NOW - 6 * HOUR, end_offset=9)
    topic = replace(partition, partition=None, max_silence_seconds=9 * HOUR)
    found = assess([reading(State.OBSERVED, 1)], partition, topic)
    assert VERDICTS[found.of_partitions.verdict[0]] is Verdict.SUSPECT
    assert found.verdicts[0].sum() == 1
    assert found.of_partitions.expected_by[0] == found.of_topics.expected_by[0]


@pytest.mark.parametrize(("other_hours", "verdict"), [(0.5, Verdict.DEAD), (4.5, Verdict.SUSPECT)])
def test_a_partition_is_dead_by_itself_only_while_its_topic_advances(other_hours: float, verdict: Verdict) -> None:
    """Where the whole topic is overdue, that is what is said of each of its partitions."""
    dead = by_wall(last_advance=NOW - 6 * HOUR, end_offset=9)
    other = replace(dead, partition=1, last_advance=NOW - other_hours * HOUR)
    topic = replace(other, partition=None)
    found = assess([reading(State.OBSERVED, 1), reading(State.OBSERVED, 1)], dead, other, topic)
    assert VERDICTS[found.of_partitions.verdict[0]] is verdict


def test_the_rollup_gives_partitions_the_verdict_of_their_topic_too() -> None:
    last = [NOW - 6 * DAY, NOW - 5 * DAY]
    each = streams([("prod", "both")] * 2, [0, 1], last, [NOW, NOW])
    limits = np.array([1.0, 1.0, 30.0]) * DAY
    made: Baselines = replace(
        steady(3), mean=np.full(3, np.nan), spread=np.full(3, np.nan), suspect_silence=limits / 10, max_silence=limits
    )
    found = Verdicts(each, made, np.arange(3), NOW)
    assert [VERDICTS[code] for code in found.verdict] == [Verdict.SUSPECT] * 3
    assert found.evidence[0] == f"with its topic: {found.evidence[2]}"
    assert found.learned["max_silence_seconds"].tolist() == limits.tolist()
    assert found.expected_by.tolist() == [found.expected_by[2]] * 3


@pytest.mark.parametrize("hours", [[6, 18], [0, 6, 12, 18], [8, 9, 17, 18]])
def test_missed_hours_are_as_many_as_the_runs_at_fixed_hours_that_did_not_come(hours: list[int]) -> None:
    moments = START + np.sort([day * DAY + hour * HOUR + 600.0 for day in range(56) for hour in hours])
    learned = known(moments, 8).baselines
    last = float(moments[-1])
    until = last + 3 * DAY
    each = streams([("prod", "fixed")], [0], [last], [until])
    found = Verdicts(each, Baselines.concatenate([learned, learned]), np.arange(2), until)
    assert 3 * len(hours) - 1.5 <= found.missed_slots[0] <= 3 * len(hours) + 0.5


def _limits(gaps: float, days: float) -> tuple[float, float]:
    suspect, dead = find_limits(np.array([gaps]), np.array([days * DAY]))
    return float(suspect[0]) / DAY, float(dead[0]) / DAY


def test_limits_of_few_gaps() -> None:
    """A burst within a day is no rhythm: a topic of office hours is not dead on its first weekend."""
    assert _limits(0, 0) == (28, 56)
    assert _limits(2, 120) == (90, 120)
    assert _limits(45, 4.5) == _limits(4, 4.5)


@given(st.integers(0, 400), st.floats(0, 400), st.floats(2, 9))
def test_limits_are_in_order_and_at_least_a_day(gaps: int, days: float, score: float) -> None:
    suspect, dead = find_limits(np.array([float(gaps)]), np.array([days * DAY]), min(score, 2.5), score)
    assert DAY <= suspect[0] <= dead[0] < np.inf

"""The rollup's verdicts of whole topics: by the configuration, as unions of partitions, and within incidents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from exporter.domain.arrays import blank_columns, replace_nan
from exporter.domain.history.streams import Streams, add_topics, objects
from exporter.domain.judging.evidence import INCIDENT
from exporter.domain.judging.rollup_verdicts import Verdicts
from exporter.domain.learning.baselines import Baselines
from exporter.domain.overrides import Overrides
from exporter.domain.polls.readings import State
from exporter.domain.polls.silence import Silence
from exporter.domain.verdicts import VERDICTS, TopicOverride, Verdict
from tests.judging import judge as judge_one
from tests.judging import overrule
from tests.unit.expectations import by_wall

AS_OF = datetime(2026, 3, 2, 12, tzinfo=UTC)
NOW = AS_OF.timestamp()
HOUR = 3600.0
DAY = 24 * HOUR
OVERRIDES = (
    TopicOverride(r"billing\..*", max_silence_seconds=2 * HOUR),
    TopicOverride(".*-test", "prod", muted_until=NOW + 1),
    TopicOverride("over-.*", muted_until=NOW),
    TopicOverride("over-limit", max_silence_seconds=36 * HOUR),
    TopicOverride("monthly", max_silence_seconds=30 * 24 * HOUR),
    TopicOverride("(?i)LEGACY[a-z_.-]{0,9}", retired=True),
)


def streams(
    names: Sequence[tuple[str, str]],
    partitions: Sequence[int],
    last: Sequence[float] | np.ndarray,
    until: Sequence[float] | np.ndarray,
    states: Sequence[State] | None = None,
) -> Streams:
    """Return partitions, one a row, and their topics; each row's topic is its (cluster, name). NaN: not known."""
    topics = list(dict.fromkeys(names))
    count, number = len(names), np.array([topics.index(name) for name in names], np.intp)
    advance = np.array(last, np.float64)
    each = Streams.blank(
        count,
        topic=number,
        cluster=objects([cluster for cluster, _ in names]),
        name=objects([name for _, name in names]),
        topic_id="id",
        partition=np.array(partitions),
        leader=1,
        state=objects([state.value for state in states or [State.OBSERVED] * count]),
        observed_until=np.array(until),
        last_advance=advance,
        known_since=advance - 5 * DAY,
        known_slots=7,
        end_offset=9.0,
        records_7d=1,
        rests=objects([()] * count),
    )
    newest = np.full(len(topics), np.nan)
    for topic, at in zip(number.tolist(), advance.tolist(), strict=True):
        newest[topic] = np.fmax(newest[topic], at)
    of_topics = each[np.searchsorted(number, np.arange(len(topics)))]
    return add_topics(each, replace(of_topics, last_advance=newest))


def steady(count: int) -> Baselines:
    """Return baselines of streams with a slot each hour: crossed past 6.4 missed hours, dead past 24.8."""
    known = {"slot_seconds": HOUR, "step": 1.0, "mean": 1.0, "spread": 0.5, "active_slots": 900, "weeks": 8}
    known |= {"history_start": NOW - 60 * DAY, "observed": 56 * DAY, "largest_silence": 0.0, "largest_missed": 1.0}
    columns = blank_columns(Baselines, count, stream=np.arange(count), pause=0.0, schedule=None, **known)
    return Baselines(**columns | {"profile": np.ones((count, 168))})


def weekly(count: int) -> Baselines:
    """Return baselines of streams with a run a week, suspect past 10.5 days and dead past 12.25."""
    nothing = np.full(count, np.nan)
    return replace(
        steady(count),
        profile=np.full((count, 168), 1 / 168),
        step=np.full(count, 1 / 168),
        mean=nothing,
        spread=nothing,
        suspect_silence=np.full(count, 10.5 * DAY),
        max_silence=np.full(count, 12.25 * DAY),
        active_slots=np.full(count, 8),
    )


@pytest.mark.parametrize("decided", [{"max_silence_seconds": 2 * HOUR}, {"muted_until": NOW + 1}, {"retired": True}])
@pytest.mark.parametrize(("silent_days", "verdict"), [(3.0, Verdict.QUIET), (13.0, Verdict.DEAD)])
def test_a_topic_is_judged_by_what_was_learned_once_its_override_has_ended(
    decided: dict[str, Any], silent_days: float, verdict: Verdict
) -> None:
    last, overrides = NOW - silent_days * DAY, [TopicOverride("weekly", **decided)]
    found = Verdicts(
        streams([("prod", "weekly")], [0], [last], [NOW]), weekly(2), np.arange(2), NOW, overrides=overrides
    )
    learned = by_wall(**{name: values[0] for name, values in found.learned.items()})
    assert learned.rule == "period" and found.rule[0] == "override"
    assert judge_one(Silence(last, NOW, known=True), learned, NOW).verdict is verdict


def judged(each: Streams, overrides: Sequence[TopicOverride] = ()) -> Verdicts:
    return Verdicts(each, steady(len(each)), np.arange(len(each)), NOW, overrides=overrides)


@pytest.mark.parametrize("topic", ["billing.eu", "x-test", "over-limit", "monthly", "legacy.orders"])
def test_an_override_decides_as_in_the_exporter(topic: str) -> None:
    """Pattern, cluster, order, mute and limit: one reading of them on both sides, however long the silence is."""
    override = Overrides(OVERRIDES).get("prod", topic, NOW)
    assert override is not None
    hours = np.array([0, 0.5, 1.4, 1.6, 2.5, 30, 40, 29 * 24, 31 * 24, 38 * 24])
    until = np.where(hours == 0.5, NOW - 1.6 * HOUR, NOW)
    found = judged(streams([("prod", topic)] * len(hours), range(len(hours)), until - hours * HOUR, until), OVERRIDES)
    for row, (silent, at) in enumerate(zip(hours.tolist(), until.tolist(), strict=True)):
        live = overrule(Silence(at - silent * HOUR, at, known=True), override, NOW)
        assert (VERDICTS[found.verdict[row]], found.rule[row]) == (live.verdict, "override")
        assert replace_nan(found.expected_by[row]) == pytest.approx(live.expected_by)
    limit = override.max_silence_seconds or np.nan
    np.testing.assert_array_equal(found.max_silence_seconds, limit)
    assert np.isnan(found.silence_score).all()


def test_a_name_that_no_override_matches_is_judged_by_what_was_learned() -> None:
    names = [("prod", "billing"), ("prod", "legacy0"), ("other", "x-test")]
    each = streams(names, [0] * 3, [NOW - HOUR] * 3, [NOW] * 3)
    assert set(judged(each, OVERRIDES).rule) == {"traffic-clock"}


@pytest.mark.parametrize(
    ("decided", "suspect_after"),
    [({"max_silence_seconds": 40 * HOUR}, 30 * HOUR), ({"muted_until": NOW + 1}, np.nan), ({"retired": True}, np.nan)],
)
def test_an_override_decides_from_when_on_a_silence_is_suspect(decided: dict[str, Any], suspect_after: float) -> None:
    """What was learned says six hours; a topic that is muted or retired never is."""
    last = NOW - 20 * HOUR
    found = judged(streams([("prod", "a")], [0], [last], [NOW]), [TopicOverride("a", **decided)])
    assert found.suspect_from.tolist() == pytest.approx([last + suspect_after] * 2, nan_ok=True)
    assert Verdict.SUSPECT not in {VERDICTS[code] for code in found.verdict}


@pytest.mark.parametrize(
    ("polled_hours", "unseen_hours", "verdict"),
    [
        (1.4, 0.0, Verdict.LEARNING),
        (1.6, 0.0, Verdict.SUSPECT),
        (2.5, 0.0, Verdict.DEAD),
        (40 * 24, 0.0, Verdict.RETIRED),
        (1.7, 1.6, Verdict.HELD),
    ],
)
def test_a_limit_counts_from_the_first_poll_where_no_advance_is_known(
    polled_hours: float, unseen_hours: float, verdict: Verdict
) -> None:
    """As the exporter does, which promises no time of death then: the silence may be longer."""
    since, until = NOW - polled_hours * HOUR, NOW - unseen_hours * HOUR
    each = streams([("prod", "billing.eu")], [0], [np.nan], [until])
    found = judged(replace(each, unchanged_since=np.full(2, since)), OVERRIDES)
    live = overrule(Silence(since, until, known=False), OVERRIDES[0], NOW)
    assert [VERDICTS[code] for code in found.verdict] == [live.verdict] * 2 == [verdict] * 2
    assert live.expected_by is None and np.isnan(found.expected_by).all() and np.isnan(found.silence_seconds).all()
    said = r", when it was first polled; dead past 2 h, as the configuration says of billing\..*"
    assert found.evidence[0].endswith(said) or f"{said}; not looked at since " in found.evidence[0]


def test_a_limit_without_an_advance_or_a_first_poll_says_what_is_not_known() -> None:
    """The verdict is not the configuration's, and the line begins with the reason."""
    found = judged(streams([("prod", "billing.eu")], [0], [np.nan], [NOW]), OVERRIDES)
    assert {VERDICTS[code] for code in found.verdict} == {Verdict.LEARNING}
    said = "learning: since when it is silent is not known; dead past 2 h, as the configuration says of"
    assert all(line.startswith(said) for line in found.evidence)


def test_a_topic_is_silent_at_least_since_the_last_first_poll_of_its_partitions() -> None:
    """Where that is not known of one, nothing is proved of the topic."""
    names = [("prod", name) for name in ("both", "both", "one", "one")]
    each = streams(names, [0, 1, 0, 1], [np.nan] * 4, [NOW] * 4)
    partitions = each[~each.whole]
    partitions = replace(partitions, unchanged_since=np.array([NOW - 9 * HOUR, NOW - HOUR, NOW - HOUR, np.nan]))
    topics = add_topics(partitions, each[each.whole])
    assert topics.unchanged_since[topics.whole].tolist() == pytest.approx([NOW - HOUR, np.nan], nan_ok=True)


def test_a_partition_that_was_never_read_leaves_its_topic_unproved() -> None:
    """The topic lives while its other partition advances; past that it is held, never dead."""
    names = [("prod", name) for name in ("lives", "lives", "silent", "silent")]
    each = streams(names, [0, 1, 0, 1], [NOW - 60.0, np.nan, NOW - 3 * DAY, np.nan], [NOW, np.nan, NOW, np.nan])
    found = judged(each)
    verdicts = {(each.name[row], int(each.partition[row])): VERDICTS[found.verdict[row]] for row in range(len(each))}
    assert verdicts["lives", -1] == Verdict.LIVE
    assert verdicts["silent", 0] == Verdict.HELD
    assert verdicts["silent", -1] == Verdict.HELD
    assert verdicts["silent", 1] == Verdict.LEARNING


def test_topics_that_the_configuration_decides_on_take_part_in_no_incident() -> None:
    """A death that crossed counts; the same of a topic that was retired does not."""
    each = streams([("prod", "died"), ("prod", "gone")], [0, 0], [NOW - 30 * HOUR] * 2, [NOW] * 2)
    found = judged(each, [TopicOverride("gone", retired=True)])
    assert {each.name[row] for row in np.flatnonzero(found.holdable)} == {"died"}
    assert {each.name[row] for row in np.flatnonzero(found.has_expectation)} == {"died"}
    assert [line is not None for line in found.evidence_if_held] == [True, False, True, False]
    assert found.evidence_if_held[0].endswith(f"; suspect since Sun 2026-03-01 15:01 UTC; held: {INCIDENT}")
    assert not np.isnan(found.overdue[0]) and np.isnan(found.overdue[1])


def test_a_topic_has_the_state_of_all_its_partitions() -> None:
    """Future, preserved or empty only where every partition is; where they differ there is something to observe."""
    states = {
        "ahead": ([State.FUTURE, State.FUTURE], State.FUTURE),
        "cleared": ([State.EMPTY, State.NEVER_WRITTEN], State.EMPTY),
        "mirror": ([State.PRESERVED], State.PRESERVED),
        "mixed": ([State.FUTURE, State.OBSERVED], State.OBSERVED),
    }
    rows = [(name, number, state) for name, (found, _) in states.items() for number, state in enumerate(found)]
    names, numbers, found = zip(*rows, strict=True)
    now = [NOW] * len(rows)
    each = streams([("prod", name) for name in names], numbers, now, now, found)
    of_topics = dict(zip(each.name[each.whole], each.state[each.whole], strict=True))
    assert of_topics == {name: state for name, (_, state) in states.items()}


def test_a_partition_that_follows_its_topic_has_the_figures_of_that() -> None:
    last = [NOW - 30 * HOUR, NOW - 90 * DAY]
    each = streams([("prod", "orders")] * 2, [0, 1], last, [NOW] * 2)
    found, topic = judged(each), int(np.flatnonzero(each.whole)[0])
    assert found.evidence[1].startswith("with its topic: ") and not np.isnan(found.silence_score[topic])
    for name in ("suspect_from", "expected_by", "missed_slots", "silence_score"):
        assert getattr(found, name)[1] == getattr(found, name)[topic], name


def test_the_score_by_the_wall_clock_is_that_of_the_exporter() -> None:
    """A share of the limit: dead at the threshold. Both publish the same number."""
    last = NOW - 11 * DAY
    found = Verdicts(streams([("prod", "weekly")], [0], [last], [NOW]), weekly(2), np.arange(2), NOW)
    learned = by_wall(
        suspect_silence_seconds=found.suspect_silence_seconds[0],
        max_silence_seconds=found.max_silence_seconds[0],
        dead_score=found.dead_score[0],
    )
    assert found.rule[0] == "period"
    assert found.silence_score[0] == judge_one(Silence(last, NOW, known=True), learned, NOW).score

"""What the configuration says of topics wins over what was learned, and over its absence."""

from dataclasses import replace

import pytest

from exporter.domain.judging.detection import Detector
from exporter.domain.overrides import Overrides
from exporter.domain.polls.readings import Reason, State, TopicPartition
from exporter.domain.polls.silence import Silence
from exporter.domain.verdicts import TopicOverride, Verdict
from tests.judging import Judgement, judgement_in, overrule, set_of
from tests.snapshots import snapshot_of, topics_of
from tests.unit.expectations import HOUR, by_wall
from tests.views import Reading

LIMIT = TopicOverride("orders", max_silence_seconds=2 * HOUR)
MUTED = TopicOverride("orders", muted_until=1000.0)
RETIRED = TopicOverride(r"old\..*", retired=True)


def test_the_first_override_in_force_counts() -> None:
    in_prod, all_else = replace(LIMIT, cluster="prod"), replace(RETIRED, topics=".*")
    overrides = Overrides([MUTED, in_prod, all_else])
    assert overrides.get("prod", "orders", 999.9) == MUTED
    assert overrides.get("prod", "orders", 1000.0) == in_prod
    assert overrides.get("test", "orders", 1000.0) == all_else
    overrides = Overrides([RETIRED, in_prod])
    assert overrides.get("prod", "old.orders", 0.0) == RETIRED
    for cluster, name in (("prod", "very-old.orders"), ("prod", "orders-2"), ("test", "orders")):
        assert overrides.get(cluster, name, 0.0) is None


MINUTES, DAYS = 1 / 60, 24
"""In hours."""


@pytest.mark.parametrize(
    ("limit", "not_before", "until", "expected"),
    [
        (2, 0, 30 * MINUTES, Verdict.LIVE),
        (2, 0, 1.4, Verdict.QUIET),
        (2, 0, 1.6, Verdict.SUSPECT),
        (2, 0, 2.1, Verdict.DEAD),
        (2, 0, 28 * DAYS, Verdict.RETIRED),
        # However long the limit, what died is dead for a week before it is retired.
        (21 * DAYS, 0, 27.9 * DAYS, Verdict.DEAD),
        (21 * DAYS, 0, 28 * DAYS, Verdict.RETIRED),
        (28 * DAYS, 0, 28.1 * DAYS, Verdict.DEAD),
        (30 * DAYS, 0, 29 * DAYS, Verdict.SUSPECT),
        (30 * DAYS, 0, 36.9 * DAYS, Verdict.DEAD),
        (30 * DAYS, 0, 37 * DAYS, Verdict.RETIRED),
        # After a start nobody knows how long it was silent before: what may be silent for long is not called live.
        (2, None, 0, Verdict.LEARNING),
        (2, None, 1.4, Verdict.LEARNING),
        (2, -1.6, 0, Verdict.LEARNING),
        (2, -1.4, 0, Verdict.LIVE),
        (2, -0.1, 1.2, Verdict.QUIET),
        (2, None, 1.6, Verdict.SUSPECT),
        (2, None, 2.1, Verdict.DEAD),
    ],
)
def test_a_limit_judges_the_proved_silence(
    limit: float, not_before: float | None, until: float, expected: Verdict
) -> None:
    """Dead past the limit, suspect past three quarters of it. At 0 it advanced, or was first polled."""
    known, override = not_before == 0, replace(LIMIT, max_silence_seconds=limit * HOUR)
    earliest = None if known or not_before is None else not_before * HOUR
    judged = overrule(Silence(0.0, until * HOUR, known, not_before=earliest), override, until * HOUR)
    dates = (0.0, limit * HOUR) if known else (None, None)
    assert judged == Judgement(expected, *dates)


def test_a_limit_holds_what_polls_prove_too_little_of() -> None:
    """Two hours without a poll may have ended the silence, which is past its limit by now, or more than an hour."""
    assert overrule(Silence(0.0, 0.2 * HOUR, known=True), LIMIT, 2.1 * HOUR).verdict is Verdict.HELD
    day = replace(LIMIT, max_silence_seconds=24 * HOUR)
    for until, now, verdict in (
        (0.2, 1.1, Verdict.LIVE),
        (0.2, 5, Verdict.HELD),
        (5, 17, Verdict.QUIET),
        (5, 19, Verdict.HELD),
    ):
        assert overrule(Silence(0.0, until * HOUR, known=True), day, now * HOUR).verdict is verdict, (until, now)


def test_without_any_poll_a_limit_judges_nothing() -> None:
    assert overrule(None, LIMIT, 0.0).verdict is Verdict.LEARNING
    assert overrule(None, MUTED, 0.0).verdict is Verdict.MUTED
    assert overrule(None, RETIRED, 0.0).verdict is Verdict.RETIRED


def test_each_override_judges_the_partitions_of_its_topics_alone() -> None:
    overrides = {
        "orders": LIMIT,
        "muted": MUTED,
        "monthly": TopicOverride("monthly", max_silence_seconds=45 * 24 * HOUR),
        "old": RETIRED,
    }
    now, found = 100 * 24 * HOUR, {}
    for name in [*overrides, "free"]:
        found[TopicPartition(name, 9)] = Reading(State.UNREADABLE, reason=Reason.TIMED_OUT)
        for number, hours in enumerate([0.5, 1.6, 2.1, 60 * 24.0]):
            at = now - hours * HOUR
            found[TopicPartition(name, number)] = Reading(
                State.OBSERVED, 1, 0, 10, at, last_good_poll=now, last_advance=at, silent_since=at, polls_good=9
            )
    detector = Detector(set_of([by_wall(topic="free", partition=number) for number in range(4)]))
    snapshot = snapshot_of(found, topics_of(found), taken_at=now)
    judged, free = detector.assess(snapshot, now, overrides.get), detector.assess(snapshot, now)
    for row, (name, _) in enumerate(judged.layout):
        alone = judgement_in(free.of_partitions, row)
        if name in overrides:
            alone = overrule(judged.silences.silence(row), overrides[name], now)
        assert judgement_in(judged.of_partitions, row) == alone
    silences = judged.silences[slice(len(judged.layout), None)]
    for number, name in enumerate(judged.layout.topics):
        alone = judgement_in(free.of_topics, number)
        if name in overrides:
            alone = overrule(silences.silence(number), overrides[name], now)
        assert judgement_in(judged.of_topics, number) == alone

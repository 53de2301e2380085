"""While a drop of the fleet goes on its topics are held, with a limit: it may be a holiday, and may be a mass death."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from exporter.domain.history.streams import objects
from exporter.domain.judging.current_facts import ClusterFacts
from exporter.domain.judging.detection import Assessment, Detector
from exporter.domain.judging.queries import Query, topics
from exporter.domain.judging.rollup_verdicts import Verdicts
from exporter.domain.learning.drops import MOST_DAYS, Drop, OngoingDrop
from exporter.domain.learning.rest_days import Rests
from exporter.domain.polls.silence import Silence
from exporter.domain.verdicts import VERDICTS, TopicOverride, Verdict
from tests.judging import judge, rows_of, set_of
from tests.unit.expectations import DAY, HOUR, MONDAY, by_clock, by_wall
from tests.unit.test_incidents import NOW, fleet
from tests.unit.test_rollup_verdicts import steady, streams
from tests.views import topics_in

TUESDAY = MONDAY + DAY
DROP = OngoingDrop(TUESDAY, TUESDAY + MOST_DAYS * DAY, 41, 50)
ALWAYS = by_clock([1.0] * 168, falling=DROP)
"""Dead past e^2 = 7.39 hours missed, but for a drop that began on Tuesday and may hold until Friday."""


def drops(*days: int) -> list[Drop]:
    return [
        Drop("prod", day, 2 + (day == days[-1]), 20, frozenset(["a", "b", *"c" * (day == days[-1])])) for day in days
    ]


@pytest.mark.parametrize(
    ("days", "today", "since"),
    [((5,), 6, 5), ((5, 6), 7, 5), ((5, 6, 7), 8, None), ((5,), 7, None), ((5,), 5, 5), ((5, 7), 8, 7)],
)
def test_a_drop_goes_on_while_the_last_day_was_one_and_no_longer_than_a_rest_may(
    days: tuple[int, ...], today: int, since: int | None
) -> None:
    known = Rests(drops=[one for one in drops(*days) if one.day < today or today == 5], today=max(today, 6))
    for rests in (known, pickle.loads(pickle.dumps(known))):  # noqa: S301 - Spark sends it so
        found = [rests.find_ongoing_drop("prod", topic) for topic in ("a", "c", "other")]
        if since is None:
            assert found == [None, None, None]
        else:
            drop = OngoingDrop(since * DAY, (since + MOST_DAYS) * DAY, 3, 20)
            assert found == [drop, drop, None]
        assert rests.find_ongoing_drop("far", "a") is None


@pytest.mark.parametrize(
    ("began", "hours", "expected"),
    [
        (TUESDAY - HOUR, 12.0, Verdict.HELD),
        (TUESDAY - HOUR, 71.0, Verdict.HELD),
        (TUESDAY - HOUR, 73.1, Verdict.DEAD),
        (TUESDAY - 9 * HOUR, 12.0, Verdict.DEAD),
        (TUESDAY - 5 * HOUR, 6.0, Verdict.SUSPECT),
        (TUESDAY - HOUR, 3.0, Verdict.QUIET),
    ],
)
def test_what_a_drop_alone_makes_dead_is_held_until_its_limit(began: float, hours: float, expected: Verdict) -> None:
    until = began + hours * HOUR
    assert judge(Silence(began, until, known=True), ALWAYS, until).verdict is expected


@pytest.mark.parametrize(("hours", "expected"), [(10.0, Verdict.HELD), (73.0, Verdict.DEAD)])
def test_by_the_wall_clock_a_drop_holds_too(hours: float, expected: Verdict) -> None:
    silence = Silence(TUESDAY, TUESDAY + hours * HOUR, known=True)
    assert judge(silence, by_wall(falling=DROP), silence.until).verdict is expected


def assessed(silent: int, *, hours: float, falling: bool) -> Assessment:
    snapshot, known = fleet(silent, 40 - silent, hours=hours, partitions=2)
    drop = OngoingDrop(NOW - 2 * DAY, NOW + DAY, 12, 40) if falling else None
    rows = [replace(row, falling=drop if row.topic.startswith("silent") else None) for row in rows_of(known.table)]
    return Detector(set_of(rows)).assess(snapshot, NOW)


def test_a_mass_death_is_held_as_an_incident_that_says_until_when() -> None:
    """Also after the hold of what fell silent together ran out, and in the number that is alarmed on."""
    found, without = (assessed(12, hours=56.0, falling=each) for each in (True, False))
    assert (without.held_topics, found.held_topics) == (0, 12)
    (incident,) = found.incidents
    assert (incident.topics[0], len(incident.topics), incident.with_expectation) == ("silent-000", 12, 40)
    assert incident.name.startswith("drop-")
    facts = ClusterFacts("prod", fleet(12, 28, hours=56.0, partitions=2)[0], found, None, NOW, in_force=True)
    [record] = topics([facts], Query(topics=["silent-003"])).items
    assert record["verdict"] == "held"
    assert record["incident"] == incident.name
    assert "12 of 40 topics that usually write then were silent or nearly so" in record["evidence"]
    assert "; without it dead since " in record["evidence"]


def test_one_topic_that_died_before_the_drop_stays_dead() -> None:
    found = assessed(1, hours=24 * 9.0, falling=True)
    assert topics_in(found)["silent-000"].verdict is Verdict.DEAD
    assert found.incidents == ()


@pytest.mark.parametrize("overridden", [True, False])
def test_the_rollup_holds_it_too_but_for_an_override(*, overridden: bool) -> None:
    until = TUESDAY + 30 * HOUR
    rows = streams([("prod", "orders")], [0], [TUESDAY - HOUR], [until])
    rows = replace(rows, falling=objects([DROP] * len(rows)))
    overrides = [TopicOverride("orders", max_silence_seconds=DAY)] if overridden else []
    found = Verdicts(rows, steady(1), np.zeros(len(rows), int), until, overrides=overrides)
    assert {VERDICTS[code] for code in found.verdict} == {Verdict.DEAD if overridden else Verdict.HELD}
    assert set(found.incident) == {None if overridden else DROP.name}

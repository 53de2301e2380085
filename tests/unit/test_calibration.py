"""Thresholds give the promised rate of false alarms, and where that cannot be known nothing is promised."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exporter.domain.scoring.calibration import (
    DECIDED,
    FALSE_ALARMS,
    PARTITION,
    TOPIC,
    AlarmBudget,
    Calibration,
    Unusual,
    calibrations,
    poisson_interval,
)
from exporter.domain.scoring.thresholds import PRIOR_PAUSES, PRIOR_RATE, PRIOR_SCALE, PRIOR_SCALE_SPREAD, fit

HOUR, WEEK = 3600.0, 7 * 86_400.0
NOW = 2900
"""The number of the present week."""


def silences(
    rows: list[tuple[str, str, int, int, float]], judged: dict[tuple[str, str, int], int], *, late: int = 0
) -> Unusual:
    """Silences (kind, cluster, topic, week, score) that ended in their week or ``late`` weeks after it."""
    week = np.array([row[3] for row in rows], np.int64)
    score = np.array([row[4] for row in rows], np.float64)
    moments = np.random.default_rng(3).uniform(0.0, WEEK, len(rows))
    return Unusual(
        np.array([row[0] for row in rows], np.str_),
        np.array([row[1] for row in rows], np.str_),
        np.array([row[2] for row in rows], np.int64),
        week,
        week + late,
        score,
        week * WEEK + moments,
        week * WEEK + moments + 6 * HOUR,
        judged,
        np.zeros(len(rows), np.bool_),
    )


def drawn(topics: int, weeks: int, *, scale: float = 0.5, kind: str = TOPIC) -> Unusual:
    rng = np.random.default_rng(7)
    rows = []
    for week in range(NOW - weeks, NOW):
        scores = rng.exponential(scale, topics)
        rows += [(kind, "prod", topic, week, float(score)) for topic, score in enumerate(scores) if score > 2.0]
    return silences(rows, {(kind, "prod", week): topics for week in range(NOW - weeks, NOW)})


def joined(maxima: Unusual, more: Unusual) -> Unusual:
    columns = ("kind", "cluster", "topic", "week", "week_ended", "score", "since", "overdue", "labelled")
    both: dict[str, Any] = {name: np.concatenate([getattr(maxima, name), getattr(more, name)]) for name in columns}
    return replace(maxima, **both)


def of(kind: str, maxima: Unusual, false_alarms: float = 1.0, now: int = NOW) -> Calibration:
    return next(one for one in calibrations(maxima, now, AlarmBudget(false_alarms)) if one.kind == kind)


def alarms(found: Calibration) -> int:
    return found.false_alarms + found.outages_alarmed


def test_alarms_a_week_become_a_rate_by_the_size_of_the_fleet() -> None:
    """One a week in 500 topics is 2 per 1,000 topic-weeks, also where the last week saw few; without a size, 2."""
    fleet = drawn(500, 30)
    fleet = replace(fleet, judged={**fleet.judged, (TOPIC, "prod", NOW - 1): 20, (PARTITION, "prod", NOW - 2): 40})
    a_week, rate = (calibrations(fleet, NOW, accepted) for accepted in (AlarmBudget(a_week=1.0), AlarmBudget(2.0)))
    assert a_week == rate
    assert a_week != calibrations(fleet, NOW, AlarmBudget(a_week=20.0))
    assert [one.topics for one in a_week] == [500, 40]
    assert a_week[0].promised == 1.0
    assert "promised 1 per 1,000 topic-weeks, 0.5 a week in 500 topics" in str(a_week[0])
    new = calibrations(silences([], {}), NOW, AlarmBudget(a_week=1.0))
    assert new == calibrations(silences([], {}), NOW), "a fleet of unknown size has the default rate"
    assert new[0].topics is None


@pytest.mark.parametrize("false_alarms", [4.0, 20.0])
def test_the_rate_that_past_thresholds_gave_is_at_most_the_promised_one(false_alarms: float) -> None:
    """Each week judged by what was fitted before it: realised over promised is near one, and says how surely."""
    found = of(TOPIC, drawn(1000, 52), false_alarms)
    assert found.promised == false_alarms / 2
    assert found.topic_weeks == 26_000
    assert found.realised is not None and found.interval is not None
    assert found.interval[0] <= 1.1 * found.promised and found.realised >= 0.5 * found.promised
    assert found.threshold.suspect < found.threshold.dead


def test_a_fleet_without_a_past_is_judged_by_the_prior() -> None:
    nothing = of(TOPIC, silences([], {}), 2.0)
    assert (nothing.realised, nothing.interval, nothing.promised) == (None, None, None)
    assert nothing.threshold.suspect == pytest.approx(2.4) and nothing.threshold.dead == pytest.approx(3.85)
    week_by_week = [of(TOPIC, drawn(50, weeks), 2.0) for weeks in range(1, 13)]
    assert [one.promised is not None for one in week_by_week] == [one.topic_weeks >= 300 for one in week_by_week]
    steps = np.diff([nothing.threshold.dead, *(one.threshold.dead for one in week_by_week)])
    assert abs(steps).max() < 0.5, "no cliff where the fleet's own weeks take over"


def test_repaired_outages_do_not_make_a_fleet_blind() -> None:
    calm = drawn(1000, 52)
    rng = np.random.default_rng(11)
    weeks = np.repeat(np.arange(NOW - 26, NOW), 20)
    broken = [(TOPIC, "prod", int(rng.integers(1000)), int(week), 3 + rng.exponential(4)) for week in weeks]
    found, undisturbed = of(TOPIC, joined(calm, silences(broken, {}))), of(TOPIC, calm)
    assert found.threshold.dead < undisturbed.threshold.dead + 0.75
    assert found.outages == pytest.approx(len(broken), rel=0.25)
    passed = sum(score > found.threshold.dead for *_, score in broken)
    assert passed > 0.6 * len(broken) and found.outages_alarmed == pytest.approx(passed, rel=0.1)
    assert found.false_alarms < undisturbed.false_alarms + 20


def test_only_what_had_ended_before_a_week_makes_its_thresholds() -> None:
    """A silence that ends later is a false alarm of the week in which it began, and no evidence before its end."""
    maxima = drawn(1000, 52)
    late = replace(maxima, week_ended=maxima.week + np.where(maxima.week == NOW - 3, 3, 0))
    assert of(TOPIC, late, 10.0).false_alarms <= of(TOPIC, maxima, 10.0).false_alarms
    later = replace(maxima, week_ended=maxima.week_ended + 1)
    assert of(TOPIC, later).threshold.dead <= of(TOPIC, maxima).threshold.dead
    judged = {key: count for key, count in maxima.judged.items() if key[2] < NOW - 5}
    then = replace(maxima.select(maxima.week_ended < NOW - 5), judged=judged)
    assert of(TOPIC, then, now=NOW - 5) == of(TOPIC, maxima, now=NOW - 5)


def begun(at: np.ndarray | float, maxima: Unusual) -> Unusual:
    since = np.broadcast_to(at, maxima.since.shape).astype(np.float64)
    return replace(maxima, since=since, overdue=since + 6 * HOUR)


def test_an_incident_is_neither_an_alarm_nor_evidence() -> None:
    """Half of the fleet silent within one day changes no threshold and counts no alarm; over a month each is one."""
    quiet = drawn(1000, 52, scale=0.3)
    holiday = [(TOPIC, "prod", topic, NOW - 4, 12.0) for topic in range(500)]
    at = (NOW - 4) * WEEK + np.linspace(0.0, 80_000.0, 500)
    apart = at[0] + np.arange(500) * 86_400.0
    together = of(TOPIC, joined(quiet, begun(at, silences(holiday, {}))))
    assert together.threshold.dead == pytest.approx(of(TOPIC, quiet).threshold.dead, abs=0.2)
    assert alarms(together) <= alarms(of(TOPIC, quiet)) + 2
    assert together.topic_weeks <= 26_000 - 500
    spread = of(TOPIC, joined(quiet, begun(apart, silences(holiday, {}))))
    assert alarms(spread) > 400


def test_a_holiday_of_a_small_fleet_teaches_no_threshold() -> None:
    """Twelve of 50 topics, each overdue at an hour of its own in one day: too few for a hold, and no evidence."""
    quiet = drawn(50, 26, scale=0.3)
    holiday = silences([(TOPIC, "prod", topic, NOW - 4, 12.0) for topic in range(12)], {})
    since = np.asarray((NOW - 4) * WEEK + 6200.0 * np.arange(12), np.float64)
    found = of(TOPIC, joined(quiet, begun(since, holiday)))
    assert (alarms(found), found.threshold) == (0, of(TOPIC, quiet).threshold)


def test_silences_that_began_one_by_one_are_no_incident_though_all_are_noticed_in_one_day() -> None:
    """Fifty slow topics of 1,000, each silent for one more day when all are longer silent than usual, are fifty."""
    quiet = drawn(1000, 52, scale=0.3)
    slow = silences([(TOPIC, "prod", topic, NOW - 4, 12.0) for topic in range(50)], {})
    noticed = (NOW - 4) * WEEK + 3 * 86_400.0
    since = np.asarray(noticed - 86_400.0 * np.arange(1, 51), np.float64)
    slow = replace(slow, since=since, overdue=np.full(50, noticed))
    assert alarms(of(TOPIC, joined(quiet, slow))) >= alarms(of(TOPIC, quiet)) + 45


def test_a_partition_counts_only_while_its_topic_goes_on() -> None:
    """What the whole topic's silence explains is the topic's; of several partitions a topic-week counts one."""
    rows = [
        (PARTITION, "prod", 1, NOW - 2, 9.0),
        (PARTITION, "prod", 1, NOW - 2, 8.0),
        (PARTITION, "prod", 2, NOW - 2, 9.0),
        (TOPIC, "prod", 2, NOW - 2, 2.5),
    ]
    maxima = silences(rows, {(PARTITION, "prod", NOW - 2): 10, (TOPIC, "prod", NOW - 2): 10})
    found = of(PARTITION, maxima)
    assert (alarms(found), found.topic_weeks) == (1, 9)
    assert alarms(of(TOPIC, maxima)) == 0


def test_partitions_that_stopped_at_one_leader_count_each() -> None:
    """Who led is not known of past silences: forty at one moment are forty alarms, not one incident."""
    rows = [(PARTITION, "prod", topic, NOW - 2, 9.0) for topic in range(40)]
    maxima = silences(rows, {(kind, "prod", NOW - 2): 100 for kind in (TOPIC, PARTITION)})
    found = of(PARTITION, begun((NOW - 2) * WEEK, maxima))
    assert (alarms(found), found.topic_weeks) == (40, 100)


def test_two_clusters_are_one_fleet_but_not_one_incident() -> None:
    """Rates are those of all clusters together; what falls silent in one is held by the share of that one."""
    rows = [(TOPIC, "ab"[topic % 2], topic, NOW - 2, 9.0) for topic in range(8)]
    maxima = silences(rows, {(TOPIC, cluster, NOW - 2): 10 for cluster in ("a", "b")})
    maxima = begun((NOW - 2) * WEEK, maxima)
    assert (alarms(of(TOPIC, maxima)), of(TOPIC, maxima).topic_weeks) == (8, 20)


def test_the_interval_is_the_exact_one() -> None:
    """Garwood's limits, from the published table."""
    assert poisson_interval(0) == pytest.approx((0.0, 3.6889), abs=1e-4)
    assert poisson_interval(10) == pytest.approx((4.7954, 18.3904), abs=1e-4)


def test_known_outages_are_counted_and_the_threshold_is_what_it_is_without_them() -> None:
    """Each counts once as an outage, called dead past the threshold in force, of partitions where the topic lived."""
    fleet = drawn(500, 30)
    rows = [(TOPIC, "prod", 900, NOW - 3, 8.0), (TOPIC, "prod", 901, NOW - 4, 2.2), (TOPIC, "prod", 902, NOW - 5, 9.0)]
    rows += [(PARTITION, "prod", 900, NOW - 3, 8.0), (PARTITION, "prod", 903, NOW - 3, 8.5)]
    labels = np.repeat([False, True], [len(fleet.kind), len(rows)])
    with_outages = replace(joined(fleet, silences(rows, {})), labelled=labels)
    before, after = of(TOPIC, fleet), of(TOPIC, with_outages)
    assert after.threshold == before.threshold
    assert (after.false_alarms, after.topic_weeks) == (before.false_alarms, before.topic_weeks)
    assert (after.outages - before.outages, after.outages_alarmed - before.outages_alarmed) == (3, 2)
    partitions = of(PARTITION, with_outages)
    assert (partitions.outages, partitions.outages_alarmed) == (1, 1)


def test_the_documentation_gives_the_shipped_prior_and_its_thresholds() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-it-works.md").read_text(encoding="utf-8")
    nothing = fit(np.empty(0), 0.0)
    dead, suspect = (nothing.threshold(times * DECIDED * FALSE_ALARMS / 2000) for times in (1, 10))
    assert f"That is dead past {dead:g} and suspect past {suspect:g}." in page
    assert f"{1000 * PRIOR_RATE:.0f} unusual silences in 1,000 topic-weeks" in page
    assert f"Beta(1, {PRIOR_PAUSES:g})" in page
    assert f"ln scale ~ N(ln {PRIOR_SCALE:g}, {PRIOR_SCALE_SPREAD:g})" in page

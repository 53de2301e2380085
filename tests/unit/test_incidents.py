"""Many topics that fall silent together are held as one incident; a few, or for long, are not."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from exporter.domain.expectations.silence_rules import ExpectationSet
from exporter.domain.judging.detection import Assessment, Detector
from exporter.domain.polls.metadata import Metadata, TopicInfo
from exporter.domain.polls.readings import State, TopicPartition
from exporter.domain.polls.table import Snapshot
from exporter.domain.verdicts import TopicOverride, Verdict
from tests.judging import rows_of, set_of
from tests.memberships import Partition, membership_of
from tests.snapshots import snapshot_of
from tests.unit.expectations import CALM_MONDAY as MONDAY
from tests.unit.expectations import DAY, HOUR, by_clock, by_wall
from tests.views import Reading, partitions_in, readings_of, topics_in

STEADY = by_clock([1.0] * 168, clock_step=1.0, suspect_score=2.5, dead_score=3.0)
"""A slot each hour: crossed past e^2 - 1 = 6.4, suspect past 11.2, dead past 19.1 hours missed."""
NOW = MONDAY + 30 * DAY


def fleet(
    silent: int, living: int, *, hours: float, partitions: int = 1, silent_partitions: int | None = None
) -> tuple[Snapshot, ExpectationSet]:
    """Return topics of which some fell silent so many hours ago; partition n is led by broker n.

    ``silent_partitions`` says how many partitions of a silent topic are silent (None: all).
    """
    names = [f"silent-{number:03d}" for number in range(silent)] + [f"living-{number:03d}" for number in range(living)]
    infos = {number: Partition(number, (number,), (number,)) for number in range(partitions)}
    readings = {}
    for name in names:
        for number in range(partitions):
            quiet = name.startswith("silent") and (silent_partitions is None or number < silent_partitions)
            since = NOW - hours * HOUR if quiet else NOW - 60.0
            readings[TopicPartition(name, number)] = Reading(
                State.OBSERVED,
                leader=number,
                latest=10,
                last_good_poll=NOW,
                previous_poll=NOW - 30.0,
                last_advance=since,
                silent_since=since,
                polls_good=100,
            )
    metadata = Metadata(
        {}, {name: TopicInfo("id-1") for name in names}, membership=membership_of(dict.fromkeys(names, infos))
    )
    rows = [replace(STEADY, topic=name, partition=number) for name in names for number in [None, *range(partitions)]]
    return snapshot_of(readings, metadata=metadata, taken_at=NOW), set_of(rows)


def silent_since(snapshot: Snapshot, since: Mapping[str, float], polled: float = NOW) -> Snapshot:
    readings = dict(readings_of(snapshot))
    for key, reading in readings.items():
        if (at := since.get(key.topic)) is not None:
            readings[key] = replace(reading, last_good_poll=polled, last_advance=at, silent_since=at)
    return snapshot_of(readings, metadata=snapshot.metadata, taken_at=NOW)


def verdicts(assessment: Assessment) -> set[Verdict]:
    return {roll_up.verdict for name, roll_up in topics_in(assessment).items() if name.startswith("silent")}


def assessed(silent: int, living: int, hours: float, **more: int) -> Assessment:
    snapshot, expectations = fleet(silent, living, hours=hours, **more)
    return Detector(expectations).assess(snapshot, NOW)


@pytest.mark.parametrize(
    ("silent", "living", "expected"),
    [
        (6, 94, Verdict.HELD),
        (5, 5, Verdict.DEAD),
        (9, 216, Verdict.DEAD),
        (10, 215, Verdict.HELD),
        (6, 0, Verdict.HELD),
    ],
)
def test_more_than_five_and_four_percent_silent_together_are_one_incident(
    silent: int, living: int, expected: Verdict
) -> None:
    assessment = assessed(silent, living, 20.5)
    assert verdicts(assessment) == {expected}
    assert assessment.held_topics == (silent if expected is Verdict.HELD else 0)
    held = [key for key, judgement in partitions_in(assessment).items() if judgement.verdict is Verdict.HELD]
    assert len(held) == assessment.held_topics, "the partitions go with their topic"


def test_an_incident_is_known_before_anything_in_it_is_suspect() -> None:
    assessment = assessed(20, 80, 9.0)
    assert verdicts(assessment) == {Verdict.QUIET}
    (incident,) = assessment.incidents
    assert (len(incident.topics), incident.with_expectation, incident.leader) == (20, 100, None)
    assert assessment.held_topics == 0, "what is quiet shows no hold"


@pytest.mark.parametrize(("slow", "expected"), [(5, Verdict.HELD), (3, Verdict.DEAD)])
def test_what_is_noticed_counts_for_an_incident_before_it_crosses(slow: int, expected: Verdict) -> None:
    """Two fast topics are held where five slow ones, past a score of 1, fell silent with them; five are too few."""
    snapshot, promises = fleet(2 + slow, 93, hours=20.5)
    names = {f"silent-{number:03d}" for number in range(2, 2 + slow)}
    rows = [replace(row, profile=[0.2] * 168) if row.topic in names else row for row in rows_of(promises.table)]
    assessment = Detector(set_of(rows)).assess(snapshot, NOW)
    found = {name: one.verdict for name, one in topics_in(assessment).items() if name.startswith("silent")}
    assert {name for name, verdict in found.items() if verdict is Verdict.QUIET} == names
    assert {verdict for name, verdict in found.items() if name not in names} == {expected}


def test_a_hold_runs_out_after_a_day_and_two_days_of_traffic_and_then_all_are_dead() -> None:
    """Crossed at 6.4 missed hours, after which 48 more make the hold run out."""
    assert verdicts(assessed(20, 80, 54.5)) == {Verdict.HELD}
    assert verdicts(assessed(20, 80, 55.5)) == {Verdict.DEAD}


def test_a_hold_lasts_through_hours_without_traffic() -> None:
    """Where the nights are empty, a day on the wall is less than a day of traffic: the hold waits for both."""
    snapshot, promises = fleet(20, 80, hours=80.0)
    office = [3.0 if hour in range(8, 16) and day < 5 else 0.0 for day in range(7) for hour in range(24)]
    rows = [replace(row, profile=office) for row in rows_of(promises.table)]
    friday_night = MONDAY + 28 * DAY + 4 * DAY + 22 * HOUR
    since = dict.fromkeys(snapshot.metadata.topics, friday_night - 8 * HOUR)
    later = silent_since(snapshot, since, friday_night + 3 * DAY)
    held = Detector(set_of(rows)).assess(later, friday_night + 3 * DAY)
    assert verdicts(held) == {Verdict.HELD}


def test_a_leader_that_takes_no_records_is_one_incident() -> None:
    """All partitions of one broker stop while their topics live on elsewhere: held, and the topics stay live."""
    assessment = assessed(12, 11, 20.5, partitions=3, silent_partitions=1)
    assert verdicts(assessment) == {Verdict.LIVE}
    stopped = {
        judgement.verdict for key, judgement in partitions_in(assessment).items() if key.topic.startswith("silent")
    }
    assert stopped == {Verdict.LIVE, Verdict.HELD}
    (incident,) = assessment.incidents
    assert (len(incident.topics), incident.with_expectation, incident.leader) == (12, 23, 0)
    assert assessment.held_topics == 12
    half = assessed(12, 12, 20.5, partitions=3, silent_partitions=1)
    assert half.incidents == (), "half of what it leads may be anything"


@pytest.mark.parametrize(("died_before", "expected"), [([], Verdict.HELD), ([40, 52, 64, 80, 95], Verdict.DEAD)])
def test_on_a_holiday_topics_are_held_that_fell_silent_one_after_the_other(
    died_before: list[float], expected: Verdict
) -> None:
    """Seven of fifty in a day, because a few records were still written. Where topics die all week they are deaths."""
    ages = [28.0, 25.0, 21.0, 16.0, 12.5, 7.5, 4.0, *died_before]
    snapshot, promises = fleet(len(ages), 50 - len(ages), hours=0.0)
    since = {f"silent-{number:03d}": NOW - age * HOUR for number, age in enumerate(ages)}
    assessment = Detector(promises).assess(silent_since(snapshot, since), NOW)
    found = [topics_in(assessment)[name].verdict for name in since]
    assert found[:3] == [expected] * 3 and found[3:5] == [expected if died_before == [] else Verdict.SUSPECT] * 2
    assert found[5:7] == [Verdict.QUIET] * 2, "what is no alarm shows no hold"
    assert set(found[7:]) <= {Verdict.DEAD}
    assert [len(one.topics) for one in assessment.incidents] == ([7] if expected is Verdict.HELD else [])


def test_topics_without_a_promise_and_overridden_ones_make_no_incident() -> None:
    snapshot, promises = fleet(20, 80, hours=20.5)
    learning = set_of(
        replace(row, profile=None) if row.topic.startswith("silent-") else row for row in rows_of(promises.table)
    )
    assert Detector(learning).assess(snapshot, NOW).incidents == ()
    override = TopicOverride("silent-.*", max_silence_seconds=HOUR)
    overridden = Detector(promises).assess(snapshot, NOW, lambda name: override if name.startswith("silent") else None)
    assert overridden.incidents == ()
    assert verdicts(overridden) == {Verdict.DEAD}


def test_by_the_wall_clock_a_topic_crosses_at_its_suspect_limit_for_a_day() -> None:
    for hours, expected in ((4.5, Verdict.HELD), (27.0, Verdict.HELD), (29.0, Verdict.DEAD)):
        snapshot, promises = fleet(20, 80, hours=hours)
        walled = set_of(by_wall(topic=row.topic, partition=row.partition) for row in rows_of(promises.table))
        assert verdicts(Detector(walled).assess(snapshot, NOW)) == {expected}

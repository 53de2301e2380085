"""What was a known outage, or is decided by the configuration, is no false alarm and makes no threshold slower."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from exporter.domain.learning.rest_days import Calendar
from exporter.domain.scoring.calibration import PARTITION, TOPIC, AlarmBudget, Calibration, calibrations
from exporter.domain.verdicts import Outage, TopicOverride
from spark_rollups.spark.frames import arrow_schema
from spark_rollups.stages.calibration import UNITS, units, unusual_from
from spark_rollups.stages.learning import week_of
from spark_rollups.store.schemas import MAXIMA
from tests.unit.test_calibration import alarms

NOW = datetime(2026, 3, 30, tzinfo=UTC)
"""A Monday."""
WEEKS, TOPICS, OUT = 20, 200, 8
"""In each of so many weeks one of the first eight of so many topics was out: far more than one in 1,000."""


def begin(week: int) -> datetime:
    """When the outage of a week began: on its Tuesday."""
    return NOW - timedelta(weeks=week, days=-1)


def maxima_of(is_out: Callable[[int, int], bool]) -> pa.Table:
    """Topics of two partitions each, quiet but for the weeks in which one is out for six hours, with both."""
    rows = []
    for week in range(1, WEEKS + 1):
        monday = (NOW - timedelta(weeks=week)).date()
        for topic in range(TOPICS):
            out = is_out(week, topic)
            when = (begin(week), begin(week), begin(week) + timedelta(hours=6)) if out else (None, None, None)
            rows += [
                {
                    "cluster": "prod",
                    "topic": f"orders.{topic}",
                    "partition": partition,
                    "kind": TOPIC if partition is None else PARTITION,
                    "week": monday,
                    "week_ended": monday,
                    "score": 9.0 if out else 0.5,
                    **dict(zip(("overdue", "silent_from", "silent_until"), when, strict=True)),
                }
                for partition in (None, 0, 1)
            ]
    return pa.Table.from_pylist(rows, schema=arrow_schema(MAXIMA))


@pytest.fixture(scope="module")
def maxima() -> pa.Table:
    return maxima_of(lambda week, topic: topic == week % OUT)


def of_topics(maxima: pa.Table, outages: Sequence[Outage] = (), **known: Any) -> Calibration:
    """The calibration of topics, at one in 1,000."""
    known = {"outages": outages, "as_of": NOW.timestamp(), **known}
    counted = unusual_from(units(maxima, **known, schema=arrow_schema(UNITS)))
    return next(one for one in calibrations(counted, week_of(NOW.date()), AlarmBudget(1.0)) if one.kind == TOPIC)


def outage(week: int, topics: str = r"orders\..*", cluster: str | None = None, late: float = 0.0) -> Outage:
    """The outage of a week as an operator writes it down, so many hours too late."""
    since = begin(week).timestamp() + 3600.0 * (1 + late)
    return Outage(topics, since, since + 3600.0, cluster)


def test_known_outages_are_counted_as_such_and_fit_no_threshold(maxima: pa.Table) -> None:
    """Not labelled, each is an alarm, and most are taken for the outages that they were."""
    as_they_were = of_topics(maxima)
    assert (alarms(as_they_were), as_they_were.topic_weeks) == (WEEKS, WEEKS * TOPICS)
    assert as_they_were.outages_alarmed > 0.8 * WEEKS
    labelled = of_topics(maxima, [outage(week, cluster="prod") for week in range(1, WEEKS + 1)])
    assert (labelled.false_alarms, labelled.topic_weeks) == (0, WEEKS * (TOPICS - 1))
    assert (labelled.outages, labelled.outages_alarmed) == (WEEKS, WEEKS)
    assert labelled.threshold.dead < as_they_were.threshold.dead


@pytest.mark.parametrize("changed", [{"topics": "order"}, {"cluster": "other"}, {"late": 6.0}])
def test_an_outage_explains_its_own_topics_and_time_only(maxima: pa.Table, changed: dict[str, object]) -> None:
    as_they_were = of_topics(maxima)
    assert of_topics(maxima, [outage(1, **changed)]) == as_they_were  # type: ignore[arg-type]


def test_topics_that_the_configuration_decides_on_make_no_threshold_and_no_false_alarm(maxima: pa.Table) -> None:
    """Muted, retired or with a limit of its own: no score of such a topic can alarm, so none of its weeks counts."""
    muted = TopicOverride(rf"orders\.[0-{OUT - 3}]", "prod", muted_until=NOW.timestamp() + 1.0)
    retired = TopicOverride(rf"orders\.{OUT - 2}", retired=True)
    limited = TopicOverride(rf"orders\.{OUT - 1}", max_silence_seconds=7200.0)
    counted = of_topics(maxima, overrides=[muted, retired, limited])
    assert (alarms(counted), counted.topic_weeks) == (0, WEEKS * (TOPICS - OUT))


def test_silences_over_a_holiday_are_no_false_alarms_and_no_outages(maxima: pa.Table) -> None:
    """No verdict came of them. A calendar speaks for its own topics, and for others where they rest together."""
    days = [(begin(week).timestamp() + 3600.0, begin(week).timestamp() + 7200.0, "Day") for week in range(1, WEEKS + 1)]
    rested = of_topics(maxima, calendars=[Calendar(r"orders\..*", "XX", days)])
    assert (alarms(rested), rested.outages, rested.topic_weeks) == (0, 0, WEEKS * (TOPICS - 1))
    assert of_topics(maxima, calendars=[Calendar("order", "XX", days)]) == of_topics(maxima)
    together = maxima_of(lambda week, topic: week == 3 and topic < TOGETHER)
    assert of_topics(together, calendars=[Calendar(r"orders\.[0-8]", "XX", days)]) == of_topics(together)


@pytest.mark.parametrize("changed", [{"topics": "order"}, {"cluster": "other"}, {"muted_until": NOW.timestamp()}])
def test_an_override_that_is_not_in_force_for_a_topic_leaves_its_weeks_in(
    maxima: pa.Table, changed: dict[str, object]
) -> None:
    given: dict[str, object] = {"topics": r"orders\..*", "muted_until": NOW.timestamp() + 1.0, **changed}
    assert of_topics(maxima, overrides=[TopicOverride(**given)]) == of_topics(maxima)  # type: ignore[arg-type]


TOGETHER = 14
"""So many topics fell silent at one moment: more than 5, and more than 4 % of all."""


@pytest.mark.parametrize("labelled", [0, 1, 5, 9, TOGETHER])
def test_whatever_part_of_an_incident_is_labelled_the_rest_stays_one(labelled: int) -> None:
    """Five topics that nobody labelled are too few for an incident, and would count as false alarms.

    The labelled ones were held, so they are no outages that the thresholds should have called dead.
    """
    several = maxima_of(lambda week, topic: week == 3 and topic < TOGETHER)
    nobody = of_topics(several)
    assert (alarms(nobody), nobody.outages, nobody.topic_weeks) == (0, 0, WEEKS * TOPICS - TOGETHER)
    counted = of_topics(several, [outage(3, rf"orders\.{topic}") for topic in range(labelled)])
    assert counted == nobody

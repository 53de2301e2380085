"""Which partitions there are, how far their silence is proved, and what the rule makes of it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession

from exporter.model import Reason, State
from spark_rollups.silence import observed
from spark_rollups.verdicts import KLargestSilence
from tests.spark.frames import known
from tests.spark.story import HOUR, START, World, at, every, moment


def stream(spark: SparkSession, histories: dict[str, Iterable[float]]) -> DataFrame:
    """Hours of topics that were active in these hours since the story's start; negative ones are censored."""
    rows = []
    for topic, hours in histories.items():
        for hour in hours:
            when = moment(START + abs(hour) * HOUR)
            rows.append((topic, when, when, when, hour < 0))
    columns = "topic string, hour timestamp, first_advance timestamp, last_advance timestamp, censored boolean"
    return spark.createDataFrame(rows, columns).selectExpr(
        "'prod' AS cluster", "topic", "CAST(NULL AS string) AS topic_id", "0 AS partition", "hour",
        "first_advance", "last_advance", "censored",
    )  # fmt: skip


def scores(spark: SparkSession, as_of: datetime, factor: float = 2.0, **histories: Iterable[float]) -> dict[str, Row]:
    """The limits of each topic."""
    return {row.topic: row for row in KLargestSilence(factor).score(stream(spark, histories), as_of).collect()}


def test_limits_follow_the_largest_silence(spark: SparkSession) -> None:
    """Dead past k times the largest silence in slots and a slot more; what is thinly known promises nothing."""
    steady = range(0, 10 * 24, 4)
    found = scores(
        spark,
        moment(at(10)),
        steady=steady,
        lively=range(240),
        nine=range(0, 9 * 24, 24),
        ten=range(0, 10 * 24, 24),
        young=range(100, 240),
        censored=[-hour for hour in range(24, 240, 4)],
        holed=[*range(0, 100, 4), -150.0, *range(151, 240, 4)],
    )
    assert (found["steady"].largest_silent_slots, found["steady"].max_silence_seconds) == (3, 7 * HOUR)
    assert (found["steady"].usual_silence_seconds, found["steady"].suspect_silence_seconds) == (4 * HOUR, 5.5 * HOUR)
    assert (found["lively"].largest_silent_slots, found["lively"].max_silence_seconds) == (0, 3 * HOUR)
    assert found["ten"].max_silence_seconds == 47 * HOUR
    assert found["holed"].largest_silent_slots == 3
    for thin in ("nine", "young", "censored"):
        assert found[thin].max_silence_seconds is None, thin


def test_a_silence_never_enters_its_own_yardstick(spark: SparkSession) -> None:
    """Judged a year after its death a topic has the limits it had on the day it died."""
    died = [*range(0, 60 * 24, 6), 60 * 24]
    on_the_day, years_later = (
        scores(spark, moment(at(day)), died=died)["died"].asDict() for day in (60.1, 425)
    )  # fmt: skip
    assert on_the_day == years_later
    assert on_the_day["max_silence_seconds"] == 11 * HOUR


def test_only_the_eight_weeks_before_count(spark: SparkSession) -> None:
    """A holiday of ten days is forgotten when the eight weeks after it are over."""
    holiday = [*range(240), *range(480, 480 + 56 * 24 + 2)]
    found = scores(spark, moment(START + holiday[-1] * HOUR), holiday=holiday, recent=holiday[:-24])
    assert found["holiday"].largest_silent_slots == 0
    assert found["recent"].largest_silent_slots == 240


def looks(spark: SparkSession, history: Path) -> dict[tuple[str, str | None], Row]:
    """What is observed of each topic's only partition."""
    seen = known(spark, history)
    rows = observed(seen.windows, seen.coverage, seen.inventory).collect()
    return {(row.topic, row.topic_id): row for row in rows}


def naive(seconds: float) -> datetime:
    """As Spark hands a moment to Python in a process that runs in UTC."""
    return datetime.fromtimestamp(seconds)  # noqa: DTZ006


def test_silence_is_proved_only_as_far_as_someone_looked(spark: SparkSession, tmp_path: Path) -> None:
    """Good polls prove it; failed readings, a topic that a restart did not list, and a deletion end it."""
    world = World(tmp_path)
    for topic in ("orders", "flaky", "unread", "vanished", "deleted", "again", "emptied"):
        world.write(topic, 0, every(HOUR, at(0), at(1)))
    world.logs["emptied", 0].emptied_at = at(2)
    world.poll(
        at(0),
        at(4),
        every=1800.0,
        unreadable={("unread", 0): (at(3), at(9)), ("flaky", 0): (at(2), at(2, 5))},
        gone=[("deleted", 0)],
    )
    del world.logs["vanished", 0], world.logs["deleted", 0]
    world.write("again", 0, [], topic_id="second")
    world.poll(at(4, 3), at(5), every=1800.0, unreadable={("unread", 0): (at(3), at(9))})
    found = looks(spark, tmp_path)
    last = naive(at(5) - 1800)
    assert found["orders", "id-orders"].observed_until == last
    assert found["flaky", "id-flaky"].observed_until == last
    assert found["emptied", "id-emptied"].state == State.EMPTY
    unread = found["unread", "id-unread"]
    assert unread.observed_until == naive(at(3) - 1800)
    assert (unread.state, unread.reason, unread.unreadable_since) == (State.UNREADABLE, Reason.NO_LEADER, naive(at(3)))
    assert found["vanished", "id-vanished"].observed_until == naive(at(4) - 1800), "not listed after the restart"
    assert ("deleted", "id-deleted") not in found
    assert ("again", "id-again") not in found
    assert found["again", "second"].state == State.NEVER_WRITTEN


def test_a_topic_that_polls_no_longer_list_is_gone(spark: SparkSession, tmp_path: Path) -> None:
    """Deleted while the exporter was down: two days after the restart it is no longer judged."""
    world = World(tmp_path)
    world.write("orders", 0, every(HOUR, at(0), at(1)))
    world.write("vanished", 0, every(HOUR, at(0), at(1)))
    world.poll(at(0), at(2), every=HOUR)
    world.poll(at(2, 3), at(4, 5), every=HOUR, only=[("orders", 0)])
    assert ("orders", "id-orders") in looks(spark, tmp_path)
    assert ("vanished", "id-vanished") not in looks(spark, tmp_path)


def test_another_exporter_vouches_for_what_one_cannot_read(spark: SparkSession, tmp_path: Path) -> None:
    """A partition is unreadable only where no exporter could read it."""
    world = World(tmp_path)
    world.write("orders", 0, every(HOUR, at(0), at(1)))
    world.poll(at(0), at(3), every=HOUR, unreadable={("orders", 0): (at(1), at(9))})
    world.poll(at(0, 0.5), at(3), every=HOUR, exporter="exporter-b")
    row = looks(spark, tmp_path)["orders", "id-orders"]
    assert row.observed_until == naive(at(3) - HOUR / 2)
    assert row.unreadable_since is None

"""Days on which the fleet dropped are found once, and their topics rest on them once the fleet is back."""

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from exporter.domain.history.retention import retention_days
from exporter.domain.learning.drops import Drop
from exporter.domain.learning.rest_days import Rests
from spark_rollups.report.coverage import describe_drops
from spark_rollups.stages.drops import clip_backfills, drops_before, update_drops
from spark_rollups.stages.folding import FIRST_DAY
from spark_rollups.store.schemas import COVERAGE, DAILY, INVENTORY
from spark_rollups.store.tables import Tables

FIRST = date(2026, 1, 5)
HOLIDAY = FIRST + timedelta(days=64)
"""A Tuesday in the tenth week."""
TODAY = HOLIDAY + timedelta(days=2)
KEPT_DAYS = retention_days()["drops"]


def covered(day: date, since: float, until: float, exporter: str = "a") -> tuple[object, ...]:
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
    begin, end = midnight + timedelta(hours=since), midnight + timedelta(hours=until)
    values: dict[str, object] = {"cluster": "prod", "exporter": exporter, "source": "poll", "date": day}
    values |= {"window_start": begin, "window_end": end, "last_good_poll": begin}
    values |= {"interval_seconds": 60.0}
    return tuple(values[name] for name in COVERAGE.names)


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Sixteen topics of two partitions that take turns by the hour; half of them rest on the holiday.

    The topic ``office`` is written on weekdays, that holiday too.
    """
    no_day: dict[str, object] = {field.name: None for field in DAILY.fields}
    no_day |= {field.name: 0 for field in DAILY.fields if field.dataType.typeName() in ("long", "integer")}
    no_day |= {field.name: [] for field in DAILY.fields if field.dataType.typeName() == "array"}
    no_day |= {field.name: False for field in DAILY.fields if field.dataType.typeName() == "boolean"}
    days = [FIRST + timedelta(days=n) for n in range((TODAY - FIRST).days)]
    rows = []
    for number in range(16):
        for day in days:
            if not (day == HOLIDAY and number < 8):
                key = {"cluster": "prod", "topic": f"orders.{number:02}", "topic_id": "id", "date": day}
                partitions = ((0, 0x555555), (1, 0xAAAAAA))
                rows += [
                    Row(**no_day | key | {"partition": part, "active": bits, "source": "poll"})
                    for part, bits in partitions
                ]
    office = {
        "cluster": "prod",
        "topic": "office",
        "topic_id": "id",
        "partition": 0,
        "active": 0x1FE00,
        "source": "poll",
    }
    rows += [Row(**no_day | office | {"date": day}) for day in days if day.weekday() < 5]
    found = Tables(spark, tmp_path_factory.mktemp("drops"))
    found.append("daily", spark.createDataFrame([tuple(row.asDict()[n] for n in DAILY.names) for row in rows], DAILY))
    seen = [covered(day, 0, 23) for day in days]
    found.append("coverage", spark.createDataFrame(seen, COVERAGE))
    return found


def in_cluster(cluster: str, rows: Iterable[tuple[object, ...]]) -> list[tuple[object, ...]]:
    return [(cluster, *row[1:]) for row in rows]


def test_a_holiday_of_half_the_fleet_is_kept_with_its_topics(tables: Tables) -> None:
    """It is rest once the day after it is over; looked at again it is the same; as of an earlier day there is none."""
    for since in (FIRST, HOLIDAY):
        assert update_drops(tables, since, TODAY, KEPT_DAYS) == f"{HOLIDAY}: 8 of 17 topics"
        (row,) = tables.read("drops").collect()
        assert (row["date"], row["cluster"], row["judged"]) == (HOLIDAY, "prod", 17)
        assert row["topics"] == [f"orders.{number:02}" for number in range(8)]
    assert update_drops(tables, FIRST, TODAY, kept_days=0) == "none"
    assert tables.read("drops").count() == 1
    known = drops_before(tables, TODAY)
    rests = Rests(drops=known, today=(TODAY - FIRST_DAY).days)
    days = [datetime.fromtimestamp(rest.since, UTC).date() for rest in rests.get("prod", "orders.03")]
    assert days == [HOLIDAY]
    assert rests.get("prod", "orders.08") == ()
    assert drops_before(tables, HOLIDAY) == []


def test_a_backfill_covers_nothing_after_the_first_poll() -> None:
    """It may be of one new partition, and says nothing of what others did meanwhile."""
    polls, backfill = ("a", "poll"), ("backfill", "backfill")
    spans: dict[tuple[str, ...], Any] = {
        polls: (np.array([50, 80]), np.array([60, 90])),
        backfill: (np.array([0]), np.array([100])),
    }
    assert [edge.tolist() for edge in clip_backfills(spans)[backfill]] == [[0], [50]]
    assert clip_backfills(spans)[polls] is spans[polls]


SPANS = {
    "both at once": [(14, 24, "a"), (14, 24, "b")],
    "in turns": [(14, 20, "a"), (15, 24, "b"), (16, 17, "c"), (20, 24, "a")],
    "nearly all day": [(0, 13, "a"), (10, 20, "b")],
}
"""Hours of the holiday in which exporters polled, by the cluster they did so in."""


def listing(topic: str, day: date, exporter: str) -> tuple[object, ...]:
    values: dict[str, object] = dict.fromkeys(INVENTORY.names) | {"cluster": "prod", "topic": topic, "topic_id": "id"}
    values |= {"partition": 0, "exporter": exporter, "source": "poll", "state": "observed", "deleted": False}
    values |= {"observed_at": datetime(day.year, day.month, day.day, tzinfo=UTC), "date": day}
    return tuple(values[name] for name in INVENTORY.names)


LISTED = {
    "of one alone": ([("a", range(8, 16), FIRST), ("b", range(8), FIRST)], 23, None),
    "of one that never polls all day": ([("a", range(8, 16), FIRST), ("b", range(8), FIRST)], 17, None),
    "taken over later": (
        [("a", range(8, 16), FIRST), ("b", range(8), FIRST), ("a", range(8), TODAY - timedelta(days=1))],
        23,
        None,
    ),
    "of both": ([("a", range(16), FIRST), ("b", range(16), FIRST)], 23, (8, 17)),
    "others": ([("a", range(8), FIRST), ("b", range(8, 16), FIRST)], 23, (8, 9)),
    "not listed": ([], 23, (8, 17)),
}
"""By cluster: what its exporters list since when, until which hour ``b`` polls, and how many of how many dropped."""


@pytest.fixture(scope="module")
def dropped(tables: Tables, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, int]]:
    """By cluster of SPANS and LISTED, how many topics dropped on the holiday, and of how many.

    In each one half of the fleet rests then, and on other days all exporters of it poll.
    """
    days, inventory, coverage = [FIRST + timedelta(days=n) for n in range((TODAY - FIRST).days)], [], []
    for cluster, spans in SPANS.items():
        seen = [covered(day, 0, 23) for day in days if day != HOLIDAY]
        coverage += in_cluster(cluster, [*seen, *(covered(HOLIDAY, *span) for span in spans)])
    for cluster, (listed, until, _) in LISTED.items():
        hours = {"a": 23, "b": until}
        rows = [listing(f"orders.{number:02}", since, name) for name, topics, since in listed for number in topics]
        seen = [covered(day, 0, hours[name], name) for day in days for name in "ab" if (day, name) != (HOLIDAY, "b")]
        inventory += in_cluster(cluster, [*rows, listing("office", FIRST, "a")])
        coverage += in_cluster(cluster, seen)
    found = Tables(tables.spark, tmp_path_factory.mktemp("clusters"))
    of_all = F.explode(F.array(*map(F.lit, [*SPANS, *LISTED])))
    found.append("daily", tables.read("daily").withColumn("cluster", of_all))
    found.append("inventory", tables.spark.createDataFrame(inventory, INVENTORY))
    found.append("coverage", tables.spark.createDataFrame(coverage, COVERAGE))
    update_drops(found, HOLIDAY, TODAY, KEPT_DAYS)
    drops = found.read("drops").collect()
    assert {row.date for row in drops} == {HOLIDAY}
    return {row.cluster: (len(row.topics), row.judged) for row in drops}


def test_hours_that_several_exporters_saw_count_once(dropped: dict[str, tuple[int, int]]) -> None:
    """Of a day that nobody saw for 14 hours nothing is claimed, however many saw the rest; exporters may take turns.

    That nothing is claimed in some clusters takes no drop from another.
    """
    assert {cluster: drop for cluster, drop in dropped.items() if cluster in SPANS} == {"nearly all day": (8, 17)}


def test_topics_that_nobody_polled_take_no_part_in_a_drop(dropped: dict[str, tuple[int, int]]) -> None:
    """On other days ``b`` polls until some hour, on the holiday not at all.

    Of topics that it alone lists nobody knows whether they were silent then.
    """
    expected = {cluster: drop for cluster, (*_, drop) in LISTED.items() if drop}
    assert {cluster: drop for cluster, drop in dropped.items() if cluster in LISTED} == expected


def test_the_report_names_the_topics_of_a_drop_and_how_long_it_was() -> None:
    rested = [f"t{number}" for number in range(5)]
    day = (HOLIDAY - FIRST_DAY).days
    known = [
        Drop(cluster, day + days, len(topics), judged, frozenset(topics))
        for days, cluster, judged, topics in (
            (-28, "prod", 20, [*rested[2:], "x"]),
            (0, "prod", 20, rested),
            (1, "prod", 19, rested[:4]),
            (3, "far", 6, rested[:3]),
        )
    ]
    as_of = datetime(HOLIDAY.year, HOLIDAY.month, HOLIDAY.day, 6, tzinfo=UTC) + timedelta(days=4)
    found = describe_drops(known, as_of)
    assert found == (
        (
            "far: from 2026-03-13 (UTC), 3 of 6 topics that usually write then were silent or nearly so (t0, t1, t2). "
            "Until 2026-03-16 they are held, for it may be a holiday or a mass death."
        ),
        (
            "prod: from 2026-03-10 (UTC), for 2 days, 5 of 20 topics that usually write then were silent or nearly so "
            "(t0, t1, t2 and 2 more). The fleet came back: as on a holiday, these days are not counted as silence."
        ),
    )
    assert describe_drops(known, as_of + timedelta(weeks=2)) == ()

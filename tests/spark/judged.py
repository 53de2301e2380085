"""The story of six weeks that rollups judge, in five clusters, and the verdicts of a rollup as tests read them."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from exporter.domain.learning.rest_days import Calendar
from exporter.domain.verdicts import TopicOverride
from spark_rollups.progress import Progress
from spark_rollups.rollup import RollupRequest, run_rollup
from spark_rollups.store.tables import SCHEMAS
from tests.delta import Row, in_order, rows_of
from tests.spark.story import DAY, HOUR, World, at, every, moment

HALF, END = 31.5, 43.0
"""Days after the start: where the exporter was restarted, and where the story ends."""
RETIRED = TopicOverride("scratch", "mirror", retired=True)
OVERRIDES = RETIRED, TopicOverride(".*", "cut-off", retired=True)
FAIR = Calendar("office", "fair", ((at(35), at(36), "first day"), (at(44), at(45), "second day")))
"""The holidays of a topic that is written on weekdays."""
REST, BACK = 30.0, 32.0
"""A holiday of most of the cluster ``resting``: from Wednesday to Thursday in the fifth week."""
CUT_OFF = 24.0, 26.0
"""Of these days an exporter of the cluster ``cut-off`` writes its windows after the first rollup."""
LAST = at(END, -1.1)
"""The last record of a fast stream that died: an hour before the last poll."""


def verdicts_as_of(history: Path, day: float) -> list[Row]:
    """Return the rows of the table as of a day of the story, topics before their partitions."""
    rows = [row for row in rows_of(history, "verdicts") if row.as_of == moment(at(day))]
    return sorted(rows, key=lambda row: (row.cluster, row.topic, -1 if row.partition is None else row.partition))


def topics_as_of(history: Path, day: float) -> dict[str, Row]:
    return {row.topic: row for row in verdicts_as_of(history, day) if row.partition is None}


def write_story(world: World) -> None:
    for partition in range(3):
        world.write("orders", partition, every(HOUR, at(0), at(38 if partition == 2 else END)))
    world.logs["legacy", 0] = replace(world.write("legacy", 0, every(HOUR, at(0), at(38))), emptied_at=at(41))
    world.write("legacy", 1, [])
    world.logs["legacy", 2] = replace(world.write("legacy", 2, [at(-40)]), emptied_at=at(-30))
    world.write("retired", 0, every(HOUR, at(0), at(14, 5)))
    world.write("young", 0, every(HOUR, at(END - 2), at(END)))
    world.write("weekly", 0, every(7 * DAY, at(0), at(END)))
    world.write("monthly", 0, every(28 * DAY, at(0), at(END)))
    world.write("never", 0, [])
    world.write("unread", 0, every(HOUR, at(0), at(END)))
    world.write("gone", 0, every(HOUR, at(0), at(20)))
    nights = [at(day, 2) + minute * 60 for day in range(int(END)) for minute in range(0, 40, 10)]
    world.write("nightly", 0, nights)
    world.write("office", 0, [at(day, hour) for day in range(int(END)) if day % 7 < 5 for hour in range(9, 17)])
    world.logs["fell", 0] = replace(world.write("fell", 0, every(HOUR, at(0), at(END))), fell=(at(20), 100))


def write_mirror(world: World) -> None:
    """Write topics of a second cluster: names, ids and partitions are those of the story, lives are not."""
    for partition in range(3):
        world.write("orders", partition, every(HOUR, at(0), at(38)))
    world.write("legacy", 0, every(HOUR, at(0), at(END)))
    world.write("weekly", 0, every(HOUR, at(0), at(38)))
    world.write(RETIRED.topics, 0, every(HOUR, at(0), at(END)))


def write_resting(world: World) -> None:
    """Write seven topics of which six rest on a holiday, and one that died two hours before it."""
    for number in range(7):
        rests = every(HOUR, at(0), at(REST)) + every(HOUR, at(BACK), at(END))
        world.write(f"orders.{number}", 0, rests if number else every(HOUR, at(0), at(END)))
    world.write("died", 0, every(HOUR, at(0), at(REST, -2)))


def write_fast(history: Path) -> None:
    """Write two weeks and half a day of polls each five minutes: a stream died at the end, one has short mornings."""
    world, since = World(history, "fast"), at(END - 14.5)
    busy = np.sort(np.random.default_rng(7).uniform(since, at(END), int(14.5 * 24 * 120)))
    world.write("alive", 0, busy)
    world.write("dead", 0, busy[busy <= LAST])
    world.write("bursts", 0, [at(day, 9) + 60.0 * minute for day in range(28, 43) for minute in (1, 2, 33)])
    world.poll(since + 7.0, at(END), every=300.0)


def roll_up(spark: SparkSession, history: Path, day: float, *, rebuild: bool = False) -> list[Row]:
    """Run every stage as of ``day`` and return the verdict rows of that moment, in order."""
    run_rollup(
        spark,
        history,
        RollupRequest(moment(at(day)), rebuild, overrides=OVERRIDES, calendars=[FAIR]),
        Progress(),
    )
    return verdicts_as_of(history, day)


def contents(history: Path) -> dict[str, list[str]]:
    """Return every row of every table of history, and of what is published, in order, as text."""
    tables = {name: rows_of(history, name) for name in SCHEMAS}
    published = json.loads((history / "published" / "current.json").read_text())
    rows = pq.read_table(history / "published" / published["expectations"]).to_pylist()
    of_tables = {name: in_order(rows) for name, rows in tables.items()}
    return {**of_tables, "published": [published["as_of"], str(published["rows"]), *sorted(map(str, rows))]}

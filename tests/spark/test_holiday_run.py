"""A holiday of most of the fleet, through whole rollups: held while it lasts, rest once the fleet is back."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_rollups.progress import Progress
from spark_rollups.rollup import RollupRequest, run_rollup
from tests.delta import Row, rows_of
from tests.spark.judged import topics_as_of
from tests.spark.story import HOUR, World, at, every, moment

pytestmark = pytest.mark.timeout(900)

FIRST, BACK = 30.0, 32.0
"""The holiday in days after the start: from Wednesday to Thursday in the fifth week."""
RESTING, ALL = 9, 12


def rolled_up(spark: SparkSession, history: Path, day: float) -> dict[str, Row]:
    """Run every stage as of ``day`` and return the verdicts of topics."""
    run_rollup(spark, history, RollupRequest(moment(at(day))), Progress())
    return topics_as_of(history, day)


def test_a_holiday_is_held_from_its_second_day_on_and_is_no_silence_once_it_is_over(
    spark: SparkSession, tmp_path: Path
) -> None:
    """What comes back is live; what died on the holiday is dead, by a silence that the holiday is no part of."""
    world = World(tmp_path / "history")
    for number in range(ALL):
        rests = number < RESTING
        moments = [*every(HOUR, at(0), at(FIRST if rests else 40)), *(every(HOUR, at(BACK), at(40)) if rests else ())]
        world.write(f"orders.{number:02}", 0, moments)
    world.write("died", 0, every(HOUR, at(0), at(FIRST, -2)))
    world.poll(at(0), at(FIRST + 1.5))
    found = rolled_up(spark, world.history, FIRST + 1.5)
    rested = ["died", *(f"orders.{number:02}" for number in range(RESTING))]
    assert {topic for topic, row in found.items() if row.verdict == "held"} == set(rested)
    assert {found[topic].incident for topic in rested} == {"drop-2025-02-05"}
    without = "10 of 13 topics that usually write then were silent or nearly so, until Sat 2025-02-08 00:00 UTC at most"
    for topic, hour in (("orders.03", "04"), ("died", "02")):
        dead = rf"{re.escape(without)}; without it dead since Wed 2025-02-05 {hour}:3\d UTC"
        assert re.search(f"{dead}$", found[topic].evidence), found[topic].evidence
    world.poll(at(FIRST + 1.5), at(BACK + 1.5))
    found = rolled_up(spark, world.history, BACK + 1.5)
    drops = {row.date: row.topics for row in rows_of(world.history, "drops")}
    assert drops == {date(2025, 2, 5): rested, date(2025, 2, 6): rested}
    assert {row.verdict for topic, row in found.items() if topic != "died"} == {"live"}
    assert (found["died"].verdict, found["died"].incident) == ("dead", None)
    assert "not counted: Wed 05 Feb UTC (10 of 13 topics rested), Thu 06 Feb UTC" in found["died"].evidence
    assert re.search(r"dead since Fri 2025-02-07 02:3\d UTC$", found["died"].evidence), found["died"].evidence

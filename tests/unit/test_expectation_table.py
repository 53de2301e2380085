"""Expectations are kept as columns, and as objects only for who looks at one."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from exporter.domain.expectations.silence_rules import ExpectationSet
from exporter.domain.expectations.table import table_of
from exporter.domain.learning.rest_days import Rest
from exporter.domain.learning.schedule import Schedule
from exporter.domain.polls.layout import Layout
from exporter.domain.verdicts import Expectation
from tests.unit.expectations import DAY, HOUR, MONDAY, by_wall


def test_a_row_is_what_was_put_in() -> None:
    """With its schedule, its rests, and all that is unknown."""
    deadlines = [float(hour % 24 == 3) for hour in range(168)]
    schedule = Schedule(deadlines, DAY, 2 * HOUR, 7, 3.0, HOUR, 2 * HOUR, 127, 8)
    rests = (Rest(MONDAY, MONDAY + DAY, "New Year", seen=False),)
    rows = [
        by_wall(topic="walled", partition=None, topic_id=None, end_offset=None, last_advance=None, evidence="none yet"),
        by_wall(topic="planned", partition=2, schedule=schedule, rests=rests, pause_slots=3.5, verdict="late"),
    ]
    table = table_of(rows)
    assert {table[row.cluster, row.topic, row.partition].topic for row in rows} == {"walled", "planned"}
    assert [table[row.cluster, row.topic, row.partition] for row in rows] == rows


@pytest.mark.parametrize("key", [("prod", "orders", 1), ("prod", "order", 0), ("prod", "z", 0), ("test", "orders", 0)])
def test_what_is_not_there_is_not_found(key: tuple[str, str, int]) -> None:
    """Neither a neighbour in the order of names, nor the same stream of another cluster."""
    table = table_of([by_wall(), by_wall(cluster="zoo", topic="z"), by_wall(partition=2)])
    assert key not in table and table.get(("prod", "orders", 0)) == by_wall()


def test_rows_of_a_cluster_are_its_own() -> None:
    """In whatever order clusters, topics and partitions came; of two rows of one stream the last one counts."""
    rows = [
        by_wall(cluster=cluster, topic=topic, partition=number, end_offset=number)
        for cluster in ("b", "a", "c")
        for topic in ("y", "x")
        for number in (3, None, 1)
    ]
    again = replace(rows[9], end_offset=99)
    table = table_of([*rows, again])
    assert len(table) == len(rows)
    assert list(table.of_cluster("a")) == [("a", topic, number) for topic in "xy" for number in (None, 1, 3)]
    assert table.of_cluster("a")["a", again.topic, again.partition].end_offset == 99
    assert not table.of_cluster("none")


def test_rows_of_a_layout_are_those_that_are_asked_for_one_by_one() -> None:
    """Also of topics that are gone, new or made anew, and of partitions that were added."""
    drawn = random.Random(3)
    rows: list[Expectation] = [
        by_wall(topic=f"topic-{topic:03}", topic_id=drawn.choice([None, "old", "new"]), partition=number)
        for topic in range(0, 90, 2)
        for number in (None, *range(drawn.randrange(5)))
    ]
    promised = ExpectationSet(rows)
    layout = Layout.of({f"topic-{topic:03}": range(drawn.randrange(7)) for topic in range(0, 120, 3)})
    ids = [drawn.choice([None, "new", "unseen"]) for _ in layout.topics]
    of_partitions, of_topics = promised.rows_of(layout, ids)
    assert of_topics.tolist() == [promised.row(name, None, one) for name, one in zip(layout.topics, ids, strict=True)]
    assert of_partitions.tolist() == [
        promised.row(key.topic, key.partition, ids[number])
        for key, number in zip(layout, layout.topic.tolist(), strict=True)
    ]
    assert {(of_topics >= 0).any(), (of_topics < 0).any(), (of_partitions >= 0).any()} == {True}

"""What stands around a topic becomes rows where it is news."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from exporter.domain import (
    Comparison,
    Inspected,
    Matching,
    NotCompared,
    Producers,
    Replica,
    ReplicaReading,
    ReplicaState,
    TopicInfo,
    TopicPartition,
)
from exporter.domain.inspections import Inspections
from exporter.domain.layout import Layout
from exporter.history.relations import Copy, Relations, copies_of
from tests.unit.readings import replica_table

DAY = 86_400.0
NOW = 1_772_539_200.0


def due(known: Relations, ago: float, **topics: str | None) -> list[tuple[str, int | None, str | None]]:
    """Topic, groups and state of the rows due so long before now."""
    rows = known.due({name: TopicInfo(topic_id, {}) for name, topic_id in topics.items()}, NOW - ago)
    return [(row.topic, row.consumer_groups, row.replica_state) for row in rows]


@pytest.mark.parametrize("first", [{}, {"orders": "abc", "audit": ""}])
def test_rows_are_written_for_news_and_once_a_day(first: Mapping[str, str]) -> None:
    """What is not known any more is no news, and nothing is written where nothing was ever known."""
    known = Relations("prod", "exporter-a", readers=first)
    expected = [] if not first else [("orders", 3, None), ("audit", 0, None)]
    assert due(known, 5 * DAY, orders="1", audit="2") == expected
    known.readers = {"orders": "abc", "audit": ""}
    assert due(known, 5 * DAY - 300, orders="1", audit="2") == (
        [] if first else [("orders", 3, None), ("audit", 0, None)]
    )
    known.readers = {"orders": "", "audit": "a"}
    known.copies["east"] = {"orders": Copy("east", "orders", "stopped")}
    assert due(known, 5 * DAY - 600, orders="1", audit="2") == [("orders", 0, "stopped"), ("audit", 1, None)]
    known.readers, known.copies["east"] = {}, {"orders": Copy("east", "orders", None)}
    assert due(known, 5 * DAY - 900, orders="1", audit="2") == []
    assert due(known, 4 * DAY - 900, orders="1", audit="2") == [("orders", None, None), ("audit", None, None)]
    known.readers = {"orders": ""}
    assert due(known, 4 * DAY - 1200, orders="made-again") == [("orders", 0, None)]


def test_the_first_readers_are_named_and_all_are_counted() -> None:
    """A reader that takes the place of another is news; past 20 names the rest is only counted."""
    known = Relations("prod", "exporter-a")

    def due_rows(ago: float, *names: str) -> list[tuple[int | None, str | None]]:
        known.readers = {"orders": names}
        rows = known.due({"orders": TopicInfo("1", {})}, NOW - ago)
        return [(row.consumer_groups, row.readers) for row in rows]

    assert due_rows(900, "audit", 'a "group"') == [(2, '["audit", "a \\"group\\""]')]
    assert due_rows(600, "audit", "billing") == [(2, '["audit", "billing"]')]
    assert due_rows(300, "audit", "billing") == []
    [(count, names)] = due_rows(0, *(f"group-{number:02}" for number in range(30)))
    assert count == 30
    assert json.loads(names or "") == [f"group-{number:02}" for number in range(20)]


def test_a_size_is_written_where_it_was_not_known_and_then_once_a_day() -> None:
    """It changes all the time, which is no news; a row for other news brings the present one."""
    known = Relations("prod", "exporter-a")

    def due_rows(ago: float, inspected: Inspected) -> list[tuple[int | None, int | None, int | None]]:
        known.inspected = Inspections.of(Layout.of({"orders": [0]}), {TopicPartition("orders", 0): inspected})
        rows = known.due({"orders": TopicInfo("1", {})}, NOW - ago)
        return [(row.disk_bytes, row.producers, row.consumer_groups) for row in rows]

    assert due_rows(2 * DAY, Inspected()) == []
    assert due_rows(2 * DAY - 300, Inspected(None, 10, 30)) == [(30, None, None)]
    assert due_rows(2 * DAY - 600, Inspected(None, 20, 60)) == []
    assert due_rows(2 * DAY - 900, Inspected(Producers(frozenset({7})), 20, 60)) == [(60, 1, None)]
    assert due_rows(2 * DAY - 1200, Inspected()) == []
    known.readers = {"orders": "ab"}
    assert due_rows(2 * DAY - 1500, Inspected(Producers(), 0, 0)) == [(0, 0, 2)]
    assert due_rows(DAY - 1500, Inspected(Producers(), 5, 15)) == [(15, 0, 2)]


def test_a_topic_stands_to_its_source_as_its_worst_partition_does() -> None:
    """One partition that stopped is what matters; one that cannot be compared leaves the rest unknown."""
    states = {
        "stopped": [ReplicaState.IN_STEP, ReplicaState.STOPPED, ReplicaState.UNKNOWN],
        "behind": [ReplicaState.IN_STEP, ReplicaState.BEHIND],
        "odd": [ReplicaState.IN_STEP, ReplicaState.UNKNOWN],
        "dead": [ReplicaState.SOURCE_DEAD_TOO, ReplicaState.SOURCE_DEAD_TOO],
        "half": [ReplicaState.SOURCE_DEAD_TOO, ReplicaState.IN_STEP],
    }
    readings = {
        Replica(topic, f"east.{topic}", number): ReplicaReading(state)
        for topic, each in states.items()
        for number, state in enumerate(each)
    }
    contested = ReplicaReading(ReplicaState.UNKNOWN, reason=NotCompared.TWO_SOURCES)
    readings |= {Replica(topic, "both", 0): contested for topic in ("one", "two")}
    infos = {name: TopicInfo("id", {}) for name in [*(f"east.{topic}" for topic in states), "both", "other"]}
    known = Relations("prod", "exporter-a")
    known.copies["east"] = copies_of(Comparison("east", "prod", NOW, Matching({}), replica_table(readings)))
    assert [(row.topic, row.replica_of_topic, row.replica_state) for row in known.due(infos, NOW)] == [
        ("east.stopped", "stopped", "stopped"),
        ("east.behind", "behind", "behind"),
        ("east.odd", "odd", None),
        ("east.dead", "dead", "source-dead-too"),
        ("east.half", "half", "in-step"),
    ]

"""What stands around a topic becomes rows where it is news."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from exporter.domain.polls.layout import Layout
from exporter.domain.polls.metadata import TopicInfo
from exporter.domain.polls.readings import TopicPartition
from exporter.domain.replicas.comparison import ReplicaState
from exporter.history.relations import Relations, copies_of
from tests.groups import topic_readers
from tests.snapshots import inspections_of
from tests.unit.readings import Replica, ReplicaReading, comparison_of
from tests.views import Inspected

DAY = 86_400.0
NOW = 1_772_539_200.0


def rows_due(known: Relations, ago: float, topics: Mapping[str, TopicInfo]) -> list[dict[str, Any]]:
    rows = known.take_due(topics, NOW - ago)
    return [] if rows is None else rows.to_pylist()


@dataclass(frozen=True)
class Seen:
    readers: tuple[str, ...] | None = ("audit",)
    copy: tuple[str, str, ReplicaState] | None = ("east", "orders", ReplicaState.IN_STEP)
    disk_bytes: int | None = 10

    def into(self, known: Relations) -> None:
        """Have a cluster know this of ``orders``."""
        known.readers = topic_readers({} if self.readers is None else {"orders": self.readers})
        known.copies.clear()
        if self.copy is not None:
            source, topic, state = self.copy
            known.copies[source] = {"orders": (topic, state)}
        inspected = Inspected(None, self.disk_bytes)
        known.inspected = inspections_of(Layout.build({"orders": [0]}), {TopicPartition("orders", 0): inspected})


ALL = Seen()
NONE = Seen(None, None, None)


@pytest.mark.parametrize(
    ("before", "now", "after", "expected"),
    [
        (None, NONE, 0, False),
        (None, replace(NONE, disk_bytes=0), 0, True),
        (ALL, ALL, DAY - 1, False),
        (ALL, ALL, DAY, True),
        (ALL, ALL, -1, True),
        (ALL, NONE, 300, False),
        (ALL, replace(ALL, readers=("audit", "billing")), 300, True),
        (ALL, replace(ALL, readers=None), 300, False),
        (replace(ALL, readers=None), ALL, 300, True),
        (ALL, replace(ALL, copy=("east", "orders", ReplicaState.BEHIND)), 300, True),
        (ALL, replace(ALL, copy=("east", "orders", ReplicaState.UNKNOWN)), 300, False),
        (replace(ALL, copy=("east", "orders", ReplicaState.UNKNOWN)), ALL, 300, True),
        (ALL, replace(ALL, copy=None), 300, False),
        (ALL, replace(ALL, disk_bytes=20), 300, False),
        (replace(ALL, disk_bytes=None), ALL, 300, True),
    ],
)
def test_what_is_news_of_a_topic(before: Seen | None, now: Seen, after: float, *, expected: bool) -> None:
    """A value that is known and new or changed, of some only where it was not known; and a day, or a clock set back."""
    known, topics = Relations("prod", "exporter-a"), {"orders": TopicInfo("1")}
    if before is not None:
        before.into(known)
        assert len(rows_due(known, 0, topics)) == 1
    now.into(known)
    assert len(rows_due(known, -after, topics)) == expected
    assert rows_due(known, -after, dict(topics)) == [], "written once"
    again = rows_due(known, -after, {"orders": TopicInfo("made again")})
    assert [row["topic_id"] for row in again] == ["made again"] * (now != NONE)


def test_the_first_readers_are_named_and_all_are_counted() -> None:
    known = Relations("prod", "exporter-a")

    def due_rows(ago: float, *names: str) -> list[tuple[int | None, str | None]]:
        known.readers = topic_readers({"orders": names})
        rows = rows_due(known, ago, {"orders": TopicInfo("1")})
        return [(row["consumer_groups"], row["readers"]) for row in rows]

    assert due_rows(900, "audit", 'a "group"') == [(2, '["a \\"group\\"", "audit"]')]
    assert due_rows(600, "audit", "billing") == [(2, '["audit", "billing"]')]
    assert due_rows(300, "audit", "billing") == []
    [(count, names)] = due_rows(0, *(f"group-{number:02}" for number in range(30)))
    assert count == 30
    assert json.loads(names or "") == [f"group-{number:02}" for number in range(20)]


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
    infos = {name: TopicInfo("id") for name in [*(f"east.{topic}" for topic in states), "other"]}
    known = Relations("prod", "exporter-a")
    known.copies["east"] = copies_of(comparison_of(readings, target="prod"))
    assert [(row["topic"], row["replica_of_topic"], row["replica_state"]) for row in rows_due(known, 0, infos)] == [
        ("east.stopped", "stopped", "stopped"),
        ("east.behind", "behind", "behind"),
        ("east.odd", "odd", None),
        ("east.dead", "dead", "source-dead-too"),
        ("east.half", "half", "in-step"),
    ]

"""What history folds in columns is what the written definitions say of one partition at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from hypothesis import example, given
from hypothesis import strategies as st

from exporter.domain.history.rows import Inventory, Source
from exporter.domain.polls.metadata import Metadata, PartitionInfo, TopicConfig, TopicInfo
from exporter.domain.polls.readings import Reason, State, TopicPartition
from exporter.domain.polls.table import Snapshot
from exporter.history.inventory import InventoryRows
from exporter.history.tables import columns_of, table_of
from tests.snapshots import snapshot_of
from tests.views import Activity, Reading, readings_of

START = 1_000_000.0
DAY = 86_400.0
COMPACT = TopicConfig("CreateTime", "compact", None, remote_storage=False)
PASSING = {State.PENDING, State.FUTURE, State.CONTRADICTORY, State.PRESERVED, State.UNREADABLE}

OBSERVED = Reading(State.OBSERVED, Activity(), 1, 1, 11, 999_999.5)
UNREAD = Reading(State.UNREADABLE, Activity(), 1, reason=Reason.NOT_LEADER)
SEEN = [
    *(replace(OBSERVED, state=state, latest=12 + number) for number, state in enumerate(State)),
    replace(OBSERVED, leader=2, newest=None),
    replace(OBSERVED, state=State.UNREADABLE, newest=None, reason=Reason.TIMED_OUT),
    UNREAD,
    replace(UNREAD, leader=None, reason=Reason.NO_LEADER),
]


class Topic(NamedTuple):
    """What one poll saw of one topic."""

    topic_id: str | None
    partitions: Mapping[int, Reading]
    config: TopicConfig | None = None
    owner: str | None = None
    reason: Reason | None = None


TOPIC = st.builds(
    Topic,
    topic_id=st.sampled_from([None, "id-1", "id-2"]),
    partitions=st.dictionaries(st.integers(0, 3), st.sampled_from(SEEN), max_size=3),
    config=st.sampled_from([None, COMPACT]),
    owner=st.sampled_from([None, "team-a"]),
    reason=st.sampled_from([None, None, Reason.STORAGE_ERROR]),
)
POLLS = st.lists(
    st.tuples(
        st.sampled_from([30.0, 30.0, -30.0, DAY]), st.dictionaries(st.sampled_from(["a", "b", "ä"]), TOPIC, max_size=3)
    ),
    max_size=6,
)
"""Seconds since the poll before, and what was seen."""


def snapshots(polls: list[tuple[float, dict[str, Topic]]]) -> Iterator[Snapshot]:
    """The snapshots of these polls; the metadata is another object only where it changed."""
    at, metadata = START, Metadata({}, {})
    for later, topics in polls:
        at += later
        infos = {
            name: TopicInfo(
                topic.topic_id,
                {number: PartitionInfo(seen.leader, (), ()) for number, seen in topic.partitions.items()},
                topic.config,
                topic.reason,
                topic.owner,
            )
            for name, topic in topics.items()
        }
        if infos != metadata.topics:
            metadata = Metadata({}, infos)
        readings = {TopicPartition(name, n): seen for name in topics for n, seen in topics[name].partitions.items()}
        yield snapshot_of(readings, cluster="c", taken_at=at, metadata=metadata)


@given(POLLS)
@example([(30.0, {"a": Topic("id-1", {0: seen})}) for seen in (UNREAD, OBSERVED, UNREAD, OBSERVED)])
def test_the_inventory_lists_what_changed_what_is_a_day_old_and_what_is_gone(
    polls: list[tuple[float, dict[str, Topic]]],
) -> None:
    """A state that passes is no change; a topic that cannot be described is not gone, nor are its partitions."""
    inventory, known = InventoryRows("c", "e"), dict[TopicPartition, Inventory]()
    known_facts = dict[TopicPartition, object]()
    for snapshot in snapshots(polls):
        at, topics, rows = snapshot.taken_at, snapshot.metadata.topics, list[Inventory]()
        for key, reading in readings_of(snapshot).items():
            topic = topics[key.topic]
            state = State.OBSERVED if reading.state in PASSING else reading.state
            facts = (topic.topic_id, topic.config, topic.owner, state)
            before = known.get(key)
            if (
                before is None
                or not 0 <= at - before.observed_at < DAY
                or known_facts[key] != facts
                or (before.latest_offset is None and reading.latest is not None)
            ):
                known[key], known_facts[key] = row_of(snapshot, key), facts
                rows.append(known[key])
        for key in sorted(known.keys() - readings_of(snapshot).keys()):
            if key.topic not in topics or topics[key.topic].reason is None:
                rows.append(replace(known.pop(key), observed_at=at, deleted=True))
        found = inventory.due(snapshot)
        assert (table_of(found).to_pylist() if found else []) == (columns_of(rows).table().to_pylist() if rows else [])


def row_of(snapshot: Snapshot, key: TopicPartition) -> Inventory:
    """What the inventory says of one partition."""
    reading, topic = readings_of(snapshot)[key], snapshot.metadata.topics[key.topic]
    config = topic.config or TopicConfig(None, None, None, remote_storage=False)
    return Inventory(
        "c",
        key.topic,
        topic.topic_id,
        key.partition,
        "e",
        Source.POLL,
        snapshot.taken_at,
        reading.leader,
        reading.earliest,
        reading.latest,
        reading.newest,
        reading.state,
        reading.reason,
        config.timestamp_type,
        config.cleanup_policy,
        config.retention_seconds,
        topic.owner,
        deleted=False,
        remote_storage=None if topic.config is None else config.remote_storage,
    )

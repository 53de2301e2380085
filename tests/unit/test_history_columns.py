"""What history folds in columns is what the written definitions say of one partition at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from exporter.domain.history.rows import Inventory, Source
from exporter.domain.polls.answers import reason_code
from exporter.domain.polls.layout import NO_LEADER
from exporter.domain.polls.metadata import Metadata, PartitionInfo, TopicConfig, TopicInfo
from exporter.domain.polls.readings import Reason, State, TopicPartition
from exporter.domain.polls.table import STATE_CODES, Snapshot, Table
from exporter.history.columns import Columns, table_of
from exporter.history.inventory import InventoryRows
from exporter.history.tables import to_table
from tests.snapshots import columns_to_write
from tests.views import readings_of

START, END = 1_000_000.0, 1_000_300.0
DAY = 86_400.0
COMPACT = TopicConfig("CreateTime", "compact", None, remote_storage=False)


@dataclass(frozen=True)
class PolledPartition:
    """What one poll saw of one partition."""

    read: bool
    gained: int
    fell: bool
    state: State
    newest: float | None
    leader: int | None
    resolution: float | None
    unread: Reason = Reason.NOT_LEADER


@dataclass(frozen=True)
class Topic:
    """What one poll saw of one topic."""

    topic_id: str | None
    partitions: dict[int, PolledPartition]
    config: TopicConfig | None = None
    owner: str | None = None
    reason: Reason | None = None


Polls = list[tuple[float, float, dict[str, Topic]]]
"""Seconds since the poll before, by how much the clock was set since each last advance, and what was seen."""

NEWEST = [None, None, 0.0, 1.0, 999_999.5, START, 1_000_200.25, 2e6]
RESOLUTIONS = [None, None, 0.0, 0.001, 30.0, 60.0, 99.5, 100.0]


def seen(drawn: bytes) -> PolledPartition:
    """What one poll saw, of a byte for each fact: a draw for each takes longer than all that is tested."""
    flags, gained, state, newest, leader, resolution = drawn
    return PolledPartition(
        read=bool(flags & 1),
        gained=[0, 0, 1, 7][gained % 4],
        fell=bool(flags & 2),
        state=list(State)[state % len(State)],
        newest=NEWEST[newest % 8],
        leader=[None, 1, 2, 3][leader % 4],
        resolution=RESOLUTIONS[resolution % 8],
        unread=[Reason.NOT_LEADER, Reason.NO_LEADER][flags >> 2 & 1],
    )


SEEN = st.binary(min_size=6, max_size=6).map(seen)
TOPIC = st.builds(
    Topic,
    topic_id=st.sampled_from([None, "id-1", "id-2"]),
    partitions=st.dictionaries(st.integers(0, 3), SEEN, max_size=3),
    config=st.sampled_from([None, COMPACT]),
    owner=st.sampled_from([None, "team-a"]),
    reason=st.sampled_from([None, None, Reason.STORAGE_ERROR]),
)
TOPICS = st.dictionaries(st.sampled_from(["a", "b", "ä"]), TOPIC, max_size=3)
POLLS = st.lists(st.tuples(st.floats(0.001, 40.0), st.sampled_from([0.0, 3600.0]), TOPICS), max_size=6)

ADVANCED = Topic("id-1", {0: PolledPartition(True, 1, False, State.OBSERVED, 1.0, 1, 30.0)})
UNREAD = Topic("id-1", {0: PolledPartition(False, 0, False, State.OBSERVED, None, 1, None)})
MADE_AGAIN = replace(UNREAD, topic_id="id-2")


def snapshots(polls: Polls) -> Iterator[Snapshot]:
    """The snapshots of these polls; the metadata is another object only where it changed."""
    at, metadata = START, Metadata({}, {})
    for later, _, topics in polls:
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
        yield Snapshot("c", at, at, 0.0, metadata, table(metadata, topics, at), {}, {})


def table(metadata: Metadata, topics: dict[str, Topic], at: float) -> Table:
    """What a poll saw, as columns."""
    layout = metadata.membership.layout
    found = columns_to_write(layout)
    for row, key in enumerate(layout):
        seen = topics[key.topic].partitions[key.partition]
        found.read[row] = seen.read
        found.unread[row] = 0 if seen.read else reason_code(seen.unread)
        found.leader[row] = NO_LEADER if seen.leader is None else seen.leader
        found.led_by[row] = 3 if seen.leader is None else seen.leader
        found.last_good_poll[row] = at
        found.previous_poll[row] = np.nan if seen.resolution is None else at - seen.resolution
        found.earliest[row], found.latest[row] = 1 + row, 10 + row + seen.gained
        found.state[row] = STATE_CODES[seen.state]
        found.reason[row] = reason_code(Reason.TIMED_OUT if seen.state is State.UNREADABLE else None)
        found.newest[row] = np.nan if seen.newest is None else seen.newest
        if seen.read:
            found.advanced_by[row], found.restarted[row] = seen.gained, seen.fell
    return Table(layout, **vars(found))


@given(st.lists(st.tuples(st.sampled_from([30.0, 30.0, -30.0, DAY]), st.just(0.0), TOPICS), max_size=6))
@example([(30.0, 0.0, {"a": topic}) for topic in (UNREAD, ADVANCED, UNREAD, ADVANCED)])
def test_the_inventory_lists_what_changed_what_is_a_day_old_and_what_is_gone(polls: Polls) -> None:
    """A state that passes is no change; a topic that cannot be described is not gone, nor are its partitions."""
    inventory, known = InventoryRows("c", "e"), dict[TopicPartition, Inventory]()
    known_facts = dict[TopicPartition, object]()
    passing = {State.PENDING, State.FUTURE, State.CONTRADICTORY, State.PRESERVED, State.UNREADABLE}
    for snapshot in snapshots(polls):
        at, topics, rows = snapshot.taken_at, snapshot.metadata.topics, list[Inventory]()
        for key, reading in readings_of(snapshot).items():
            topic = topics[key.topic]
            state = State.OBSERVED if reading.state in passing else reading.state
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
        assert written(found) == as_dicts(rows)


@pytest.mark.parametrize(
    ("state", "rows"),
    [
        (State.PENDING, [1, 0, 0]),
        (State.FUTURE, [1, 0, 0]),
        (State.CONTRADICTORY, [1, 0, 0]),
        (State.PRESERVED, [1, 0, 0]),
        (State.UNREADABLE, [1, 0, 0]),
        (State.EMPTY, [1, 1, 1]),
        (State.NEVER_WRITTEN, [1, 1, 1]),
        (State.NO_TIMESTAMP, [1, 1, 1]),
        (State.IDLE_IN_TIER, [1, 1, 1]),
        (State.UNSUPPORTED, [1, 1, 1]),
    ],
)
def test_a_state_that_passes_is_not_listed_and_one_that_lasts_is(state: State, rows: list[int]) -> None:
    """From observed to the state and back: each change to or from a lasting one is a new row."""
    inventory, observed = InventoryRows("c", "e"), ADVANCED.partitions[0]
    states = (State.OBSERVED, state, State.OBSERVED)
    polls: Polls = [
        (30.0, 0.0, {"a": replace(ADVANCED, partitions={0: replace(observed, state=one)})}) for one in states
    ]
    found = [inventory.due(snapshot) for snapshot in snapshots(polls)]
    assert [sum(columns.count for columns in each) for each in found] == rows


def row_of(snapshot: Snapshot, key: TopicPartition) -> Inventory:
    """What the inventory says of one partition."""
    reading, topic = readings_of(snapshot)[key], snapshot.metadata.topics[key.topic]
    config = topic.config
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
        None if config is None else config.timestamp_type,
        None if config is None else config.cleanup_policy,
        None if config is None else config.retention_seconds,
        topic.owner,
        deleted=False,
        remote_storage=None if config is None else config.remote_storage,
    )


def written(rows: list[Columns]) -> list[dict[str, object]] | None:
    """Rows in columns as they come out of a file; None for none."""
    found: pa.Table | None = table_of(rows) if rows else None
    return None if found is None else found.to_pylist()


def as_dicts(rows: list[Inventory]) -> list[dict[str, object]] | None:
    """Rows as they come out of a file; None for none."""
    found: pa.Table | None = to_table(rows) if rows else None
    return None if found is None else found.to_pylist()

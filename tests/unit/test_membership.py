"""The partitions of a cluster as columns, where some topics could not be described."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from exporter.domain.polls.layout import Layout
from exporter.domain.polls.metadata import Membership, Metadata, PartitionInfo, TopicInfo, restore_partitions
from exporter.domain.polls.readings import Reason

Numbers = Mapping[str, set[int]]
Topics = Mapping[str, Mapping[int, PartitionInfo]]

BROKERS = st.lists(st.integers(1, 4), max_size=3).map(tuple)
INFO = st.builds(PartitionInfo, st.none() | st.integers(1, 4), BROKERS, BROKERS)
TOPICS = st.dictionaries(st.sampled_from("abcdef"), st.dictionaries(st.integers(0, 5), INFO, max_size=4))


def described(topics: Topics, failed: frozenset[str] = frozenset()) -> Metadata:
    """Metadata of topics, of which some could not be described."""
    partitions = {name: {} if name in failed else infos for name, infos in topics.items()}
    infos = {name: TopicInfo(f"id-{name}", partitions[name], reason=failure(name in failed)) for name in partitions}
    return Metadata({1: "one:9092"}, infos, given=Membership.of(partitions))


def failure(failed: bool) -> Reason | None:
    """Return why a topic could not be described."""
    return Reason.TIMED_OUT if failed else None


@given(TOPICS, TOPICS, st.frozensets(st.sampled_from("abcdef")))
def test_topics_that_could_not_be_described_keep_their_partitions_without_a_leader(
    before: Topics, now: Topics, failed: frozenset[str]
) -> None:
    """All others are as they were described, whatever came, went or changed beside them."""
    found = restore_partitions(described(now, failed), described(before))
    expected = {
        name: infos
        if name not in failed
        else {number: PartitionInfo(None, info.replicas, info.in_sync) for number, info in before.get(name, {}).items()}
        for name, infos in now.items()
    }
    assert found.membership.same_as(Membership.of(expected))
    assert {name: dict(topic.partitions) for name, topic in found.topics.items()} == expected
    assert {name for name, topic in found.topics.items() if topic.reason is not None} == failed & now.keys()


NUMBERS = st.dictionaries(st.sampled_from("abcdef"), st.sets(st.integers(0, 9), max_size=4))


@given(NUMBERS, NUMBERS, st.sets(st.integers(0, 99)))
def test_rows_of_two_layouts_are_joined_in_order(one: Numbers, other: Numbers, left_out: set[int]) -> None:
    """Each row of the result is named with the layout and row that it comes from."""
    here, there = Layout.of(one), Layout.of(other)
    rows = np.array([row for row in range(len(here)) if row not in left_out], dtype=np.intp)
    remain = {here.key(row) for row in rows.tolist()}
    others = np.array([row for row in range(len(there)) if there.key(row) not in remain], dtype=np.intp)
    expected: dict[str, set[int]] = {name: set() for name in one}
    for key in [*remain, *map(there.key, others.tolist())]:
        expected.setdefault(key.topic, set()).add(key.partition)
    layout, origin = here.joined(rows, there, others)
    assert layout == Layout.of(expected)
    found = [here.key(row) if row < len(here) else there.key(row - len(here)) for row in origin.tolist()]
    assert found == list(layout)

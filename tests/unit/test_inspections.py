"""Results of inspections as columns: they tell what the same results tell as objects."""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np
import pytest

from exporter.domain.polls.layout import Layout
from exporter.domain.polls.readings import TopicPartition
from tests.snapshots import inspections_of
from tests.views import Inspected, sizes_of

KEYS = [TopicPartition(topic, number) for topic in ("a", "orders", "z") for number in range(4)]


def drawn(chance: random.Random) -> dict[TopicPartition, Inspected]:
    """Results of some partitions, each with some of its values."""

    def maybe(value: object, share: float = 0.9) -> object:
        return value if chance.random() < share else None

    return {
        key: Inspected(maybe(chance.randrange(9)), maybe(2**60 + chance.randrange(9)))  # type: ignore[arg-type]
        for key in chance.sample(KEYS, chance.randrange(len(KEYS) + 1))
    }


def layout_of(keys: Mapping[TopicPartition, object] | list[TopicPartition]) -> Layout:
    """The layout of these partitions."""
    topics = {key.topic for key in keys}
    return Layout.of({topic: [key.partition for key in keys if key.topic == topic] for topic in topics})


@pytest.mark.parametrize("seed", range(30))
def test_columns_tell_of_partitions_and_topics_what_objects_do(seed: int) -> None:
    """Each result comes back as it was, and a topic is the union of its partitions that were inspected."""
    found = drawn(random.Random(seed))
    columns = inspections_of(layout_of(KEYS), found)
    assert sizes_of(columns) == found
    for number, topic in enumerate(columns.layout.topics):
        of_topic = [each for key, each in found.items() if key.topic == topic]
        columns_of = ([each.log_bytes for each in of_topic], [each.disk_bytes for each in of_topic])
        sums = [sum(filter(None, values)) if values and None not in values else None for values in columns_of]
        assert columns.of_topics.topic(number) == tuple(sums)


@pytest.mark.parametrize("seed", range(30))
def test_results_move_with_their_partitions(seed: int) -> None:
    """To a layout with other partitions too; what is not wanted of a row is unknown there."""
    chance = random.Random(seed)
    found, before = drawn(chance), layout_of(KEYS)
    there = chance.sample(KEYS, 7)
    after = layout_of([*there, TopicPartition("new", 0)])
    kept = {key for key in KEYS if chance.random() < 0.7}
    moved = inspections_of(before, found).laid_out(after, np.array([key in kept for key in before]))
    assert sizes_of(moved) == {key: each if key in kept else Inspected() for key, each in found.items() if key in there}
    assert moved.layout is after

"""Results of inspections as columns: they tell what the same results tell as objects."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from exporter.domain.polls.inspections import OfTopic
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.readings import Inspected, Producers, TopicPartition
from tests.snapshots import inspections_of

KEYS = [TopicPartition(topic, number) for topic in ("a", "orders", "z") for number in range(4)]


def drawn(chance: random.Random) -> dict[TopicPartition, Inspected]:
    """Results of some partitions, each with some of its values."""

    def maybe(value: object, share: float = 0.9) -> object:
        return value if chance.random() < share else None

    def producers() -> Producers:
        ids = frozenset(chance.sample(range(6), chance.randrange(5)))
        opened = frozenset(one for one in ids if chance.random() < 0.3)
        return Producers(ids, maybe(chance.uniform(1, 9)), opened, chance.uniform(1, 9) if opened else None)  # type: ignore[arg-type]

    return {
        key: Inspected(maybe(producers()), maybe(chance.randrange(9)), maybe(2**60 + chance.randrange(9)))  # type: ignore[arg-type]
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
    assert columns == found
    for number, topic in enumerate(columns.layout.topics):
        expected = union([each for key, each in found.items() if key.topic == topic])
        assert columns.of_topics.topic(number) == expected


def union(found: list[Inspected]) -> OfTopic:
    """The values of a topic whose partitions these are: those that all of them have."""

    def known(values: list[Any]) -> list[Any] | None:
        return values if values and None not in values else None

    logs, disks = known([each.log_bytes for each in found]), known([each.disk_bytes for each in found])
    sizes = OfTopic(*(None if values is None else sum(values) for values in (logs, disks)))
    writers = known([each.producers for each in found])
    if writers is None:
        return sizes
    return sizes._replace(
        producers=len({one for each in writers for one in each.ids}),
        open_transactions=len({one for each in writers for one in each.open_transactions}),
        last_write=max((each.last_write for each in writers if each.last_write is not None), default=None),
        open_since=min((each.open_since for each in writers if each.open_since is not None), default=None),
    )


@pytest.mark.parametrize("seed", range(30))
def test_results_move_with_their_partitions(seed: int) -> None:
    """To a layout with other partitions too; what is not wanted of a row is unknown there."""
    chance = random.Random(seed)
    found, before = drawn(chance), layout_of(KEYS)
    there = chance.sample(KEYS, 7)
    after = layout_of([*there, TopicPartition("new", 0)])
    sizes, producers = ({key for key in KEYS if chance.random() < 0.7} for _ in range(2))
    moved = inspections_of(before, found).laid_out(
        after, np.array([key in sizes for key in before]), np.array([key in producers for key in before])
    )
    assert moved == {
        key: Inspected(
            each.producers if key in producers else None,
            each.log_bytes if key in sizes else None,
            each.disk_bytes if key in sizes else None,
        )
        for key, each in found.items()
        if key in there
    }
    assert moved.layout is after

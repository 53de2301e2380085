"""Log sizes of partitions as columns: those of topics, and what stays of them by another layout."""

from __future__ import annotations

import numpy as np

from exporter.domain.polls.layout import Layout
from exporter.domain.polls.readings import TopicPartition
from tests.snapshots import inspections_of
from tests.views import Inspected, sizes_of

A, B, C, D = (TopicPartition(*key) for key in (("a", 0), ("a", 1), ("orders", 0), ("z", 0)))
FOUND = {A: Inspected(1, 2**60), B: Inspected(2, 2**60 + 1), C: Inspected(3, None)}
COLUMNS = inspections_of(Layout.of({"a": [0, 1], "orders": [0], "z": [0]}), FOUND)


def test_the_size_of_a_topic_is_known_where_that_of_each_partition_is() -> None:
    """Of both replicas sizes, each for itself; nothing of a topic that no inspection knew."""
    assert sizes_of(COLUMNS) == FOUND
    assert [COLUMNS.of_topics.topic(number) for number in range(3)] == [(3, 2**61 + 1), (3, None), (None, None)]
    assert [COLUMNS.partition(row) for row in (0, 2, 3)] == [(1, 2**60), (3, None), (None, None)]


def test_sizes_move_with_their_partitions() -> None:
    """To a layout with other partitions too; what is not wanted of a row is unknown there."""
    after = Layout.of({"a": [1], "new": [0], "orders": [0]})
    moved = COLUMNS.laid_out(after, np.array([True, False, True, True]))
    assert sizes_of(moved) == {B: Inspected(), C: FOUND[C]}
    assert moved.layout is after

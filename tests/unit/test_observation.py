"""Which partitions exist, by the newest row that lists each."""

import numpy as np
import pytest

from exporter.domain.history.observation import do_streams_exist
from exporter.domain.learning.hours import DAY_HOURS, HOUR_MICROS

BEFORE, AT = 95 * HOUR_MICROS, 99 * HOUR_MICROS


@pytest.mark.parametrize("ids", [(0, 1), (1, 0)], ids=["later id is larger", "later id is smaller"])
def test_a_topic_created_again_with_fewer_partitions_exists_at_once(ids: tuple[int, int]) -> None:
    old, new = ids
    assert existing([(old, AT, True)] * 3 + [(new, AT, False)] * 2) == [False] * 3 + [True] * 2


def test_without_topic_ids_partitions_stay_where_others_were_deleted() -> None:
    """The poll that misses two partitions lists only these; the first three were listed before."""
    assert existing([(0, BEFORE, False)] * 3 + [(0, AT, True)] * 2) == [True] * 3 + [False] * 2


def test_what_belongs_to_an_earlier_topic_does_not_exist() -> None:
    """Nor does a deleted topic; that of a partition which nobody lists any more is over after two days."""
    assert existing([(1, BEFORE, False), (0, AT, False)]) == [False, True]
    assert existing([(0, AT, True)] * 2) == [False, False]
    assert existing([(0, AT - 2 * DAY_HOURS * HOUR_MICROS - 1, False)]) == [False]


def existing(rows: list[tuple[int, int, bool]]) -> list[bool]:
    """Return which partitions of one topic exist, of (number of its id, listed at, deleted), polled at AT."""
    topic_id, listed_at, deleted = (np.array(column) for column in zip(*rows, strict=True))
    topic = np.zeros(len(rows), np.intp)
    return do_streams_exist(["prod"] * len(rows), topic, topic_id, listed_at, deleted, {"prod": AT}).tolist()  # type: ignore[no-any-return]

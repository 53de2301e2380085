"""The table of what look-ups by time proved: what is true of one partition holds for each of many."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from exporter.domain.groups.time_points import Points

facts = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(0, 9), st.integers(0, 9), st.booleans()), max_size=30
)
"""Points of any kind, also contradictory ones: row, offset, target, how much later the record is, whether known."""

Fact = tuple[int, int, int, int, bool]


def points_of(given_facts: list[Fact]) -> Points:
    """The columns of points, in the given order."""
    row, offset, target, later, known = (np.array(column) for column in zip(*given_facts, strict=True))
    return Points(row.astype(np.intp), offset, target, np.where(known, target + later, 0), known)


def rows_of(points: Points) -> list[tuple[int, ...]]:
    """The points as objects."""
    return list(zip(*(column.tolist() for column in points.columns()), strict=True))


@given(facts, facts)
def test_what_is_kept_does_not_contradict_itself(first: list[Fact], second: list[Fact]) -> None:
    """Whatever the answers, every record is from before the targets of all later points of its partition."""
    points = Points.none()
    for step in filter(None, (first, second)):
        points, _ = points.added(points_of(step))
    kept = rows_of(points)
    for at, (row, _, _, timestamp, known) in enumerate(kept):
        later = [other[2] for other in kept[at + 1 :] if other[0] == row]
        assert not known or all(timestamp < target for target in later)

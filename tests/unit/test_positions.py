"""The table of the positions of consumer groups: rows by group and partition, and what of them is kept."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from exporter.domain.groups.consumer_groups import NoTimeLag
from exporter.domain.groups.positions import Positions, outcomes
from exporter.domain.polls.readings import Reason, TopicPartition
from tests.groups import Group, GroupPartition, TimeLag, groups_of, positions_of

A, B, C = TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("b", 7)
PLACES = {
    A: GroupPartition(40, 5, 2, time_lag=TimeLag(3.0, 0.5, stalled=True)),
    B: GroupPartition(7, reason=Reason.NOT_LEADER, no_time_lag=Reason.NOT_LEADER),
    C: GroupPartition(9, 1, None, no_time_lag=NoTimeLag.FUTURE),
}


def table(**groups: Mapping[TopicPartition, GroupPartition]) -> Positions:
    """The positions of these groups."""
    return positions_of({name: Group(partitions=places) for name, places in groups.items()})


def as_dicts(positions: Positions) -> dict[str, dict[TopicPartition, GroupPartition]]:
    """The same as objects."""
    return {name: dict(group.partitions) for name, group in groups_of(positions).items()}


def test_a_row_as_an_object_is_what_it_was_made_from() -> None:
    """Whatever is known or unknown of it; a group without a commit has no row."""
    positions = table(h=PLACES, g={C: PLACES[C]}, empty={})
    assert as_dicts(positions) == {"empty": {}, "g": {C: PLACES[C]}, "h": PLACES}
    assert outcomes(positions.no_time_lag) == {"ok": 1, Reason.NOT_LEADER: 1, NoTimeLag.FUTURE: 2}


def test_rows_keep_their_columns_when_others_come_and_go() -> None:
    """Groups, topics and partitions may be new or gone; a row that is in both tables is found in both."""
    before, now = table(g=PLACES, gone={A: PLACES[A]}), table(a={A: PLACES[A]}, g={A: PLACES[A], C: PLACES[C]})
    here, there = now.rows.moves_from(before.rows)
    assert [(now.rows.names[now.rows.group[row]], now.rows.key(row)) for row in here.tolist()] == [("g", A), ("g", C)]
    assert before.committed[there].tolist() == now.committed[here].tolist() == [40, 9]
    assert [len(each) for each in table(new={A: PLACES[A]}).rows.moves_from(before.rows)] == [0, 0]


def test_what_sweeps_missed_is_kept_and_counted() -> None:
    """Only the groups named; they are not fresh."""
    positions = table(g=PLACES, h={A: PLACES[A]})
    missed = positions.missed_again(["h", "unknown"]).missed_again(["h"])
    assert as_dicts(missed) == {"h": {A: PLACES[A]}}
    assert missed.missed.tolist() == [2]
    assert positions.fresh.all() and not missed.fresh.any()


@pytest.mark.parametrize(
    ("place", "unread", "start"),
    [
        (GroupPartition(40, 5, 0), True, 40),
        (GroupPartition(40, 0, 0), False, 40),
        (GroupPartition(40, 5, 2), True, 42),
        (GroupPartition(40, 5, 5), False, 45),
        (GroupPartition(40, 5, None), True, 40),
        (GroupPartition(40, reason=Reason.TIMED_OUT), False, 40),
    ],
    ids=["behind", "at the end", "records lost", "all lost", "losses unknown", "end unknown"],
)
def test_the_first_offset_that_a_group_has_not_read(place: GroupPartition, unread: bool, start: int) -> None:
    """It lies past what was deleted before it was read; where the end is unknown, so is whether there is one."""
    positions = table(g={A: place})
    assert (positions.unread.tolist(), positions.start.tolist()) == ([unread], [start])

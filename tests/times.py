"""Look-ups of single partitions, asked and answered."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from exporter.domain.arrays import Offsets, Rows
from exporter.domain.polls.layout import NO_LEADER, Layout
from exporter.domain.polls.metadata import Membership
from exporter.domain.polls.readings import Answers, TopicPartition
from exporter.domain.ports import OffsetSource, TimeIndex
from tests.lookup_answers import Answer, answer_at, answers_of


def led(leaders: Mapping[TopicPartition, int]) -> Membership:
    """Partitions with their leaders, as columns."""
    topics: dict[str, list[int]] = {}
    for key in leaders:
        topics.setdefault(key.topic, []).append(key.partition)
    layout = Layout.build(topics)
    return Membership.make_bare(layout, np.array([leaders[key] for key in layout], dtype=np.int32))


def first_since(source: TimeIndex, key: TopicPartition, seconds: float, leader: int = 1) -> Answer:
    """The first record of a partition at or after a time, as its leader answers."""
    milliseconds = np.array([round(seconds * 1000)], dtype=np.int64)
    return objects(source.look_up_times(led({key: leader}), np.zeros(1, dtype=np.intp), milliseconds))[0]


def end_of(source: OffsetSource, key: TopicPartition, leader: int = 1) -> Answer:
    """LATEST of a partition, as its leader answers."""
    return objects(source.ends(led({key: leader})))[0]


def tier_of(tiers: Any, spec: str, key: TopicPartition, leader: int = 1) -> Answer:
    """EARLIEST_LOCAL or LATEST_TIERED of a partition, as its leader answers."""
    return objects(tiers.tier(spec, led({key: leader})))[0]


def objects(answers: Answers) -> list[Answer]:
    return [answer for at in range(len(answers)) if (answer := answer_at(answers, at)) is not None]


def answered(
    membership: Membership, rows: Rows, milliseconds: Offsets, answer: Callable[[TopicPartition, float], Answer | None]
) -> Answers:
    """Answer look-ups by time, each of a led partition and of its own time, with a function of both (in seconds)."""
    assert (membership.leader[rows] != NO_LEADER).all()
    wanted = list(zip(rows.tolist(), milliseconds.tolist(), strict=True))
    assert len(set(wanted)) == len(wanted)
    return answers_of(answer(membership.layout.key(row), each / 1000) for row, each in wanted)

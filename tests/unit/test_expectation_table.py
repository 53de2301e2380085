"""Expectations are kept as columns, and as objects only for who looks at one."""

import random

from exporter.domain.polls.layout import Layout
from exporter.domain.verdicts import Expectation
from tests.judging import rows_in, set_of
from tests.unit.expectations import by_wall


def test_rows_of_a_layout_are_those_that_are_asked_for_one_by_one() -> None:
    drawn = random.Random(3)
    rows: list[Expectation] = [
        by_wall(topic=f"topic-{topic:03}", topic_id=drawn.choice([None, "old", "new"]), partition=number)
        for topic in range(0, 90, 2)
        for number in (None, *range(drawn.randrange(5)))
    ]
    promised = set_of(rows)
    layout = Layout.build({f"topic-{topic:03}": range(drawn.randrange(7)) for topic in range(0, 120, 3)})
    ids = [drawn.choice([None, "new", "unseen"]) for _ in layout.topics]
    of_partitions, of_topics = promised.rows_of(layout, ids)

    numbers = {key[1:]: row for row, key in enumerate(rows_in(promised.table))}

    def row_of(topic: str, partition: int | None, topic_id: str | None) -> int:
        row = numbers.get((topic, partition), -1)
        known = None if row < 0 else promised.table.row(row).topic_id
        return row if None in (topic_id, known) or known == topic_id else -1

    assert of_topics.tolist() == [row_of(name, None, one) for name, one in zip(layout.topics, ids, strict=True)]
    assert of_partitions.tolist() == [
        row_of(key.topic, key.partition, ids[number]) for key, number in zip(layout, layout.topic.tolist(), strict=True)
    ]
    assert {(of_topics >= 0).any(), (of_topics < 0).any(), (of_partitions >= 0).any()} == {True}

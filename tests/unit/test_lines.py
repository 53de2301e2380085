"""Lines and ages of rows that come and go: what is kept from poll to poll is what would be rendered anew."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.domain.polls.layout import Layout
from exporter.domain.polls.readings import TopicPartition
from exporter.metrics import lines
from exporter.metrics.blocks import Block
from exporter.metrics.lines import Ages, LabelledRows, Lines

Topics = dict[str, int]
"""The value of each topic; a topic has two partitions."""


def labels_of(key: TopicPartition) -> str:
    """Return labels without their closing brace."""
    return f'{{topic="{key.topic}",partition="{key.partition}"'


class Rendered(NamedTuple):
    """What a poll shows: the blocks of lines, and of ages."""

    lines: tuple[Block, ...]
    ages: list[Block]

    @property
    def text(self) -> bytes:
        """All of them."""
        return b"".join(block.text for block in (*self.lines, *self.ages))


class Polls:
    """One metric with two variants, and ages, over several polls."""

    def __init__(self) -> None:
        self._rows = LabelledRows(labels_of)
        self._lines = Lines("m", variants=(',side="a"', ',side="b"'))
        self._ages: Ages | None = None

    def show(self, topics: Topics) -> Rendered:
        """Render these topics; a negative value is unknown."""
        layout = Layout.of({name: [0, 1] for name in topics})
        values = np.array([topics[key.topic] for key in layout for _ in "ab"], dtype=np.int64)
        moves = self._rows.follow(layout)
        if moves is not None:
            self._lines.move(len(layout), *moves)
        shown = self._lines.show(self._rows.labels, values, values >= 0)
        since = np.where(values[::2] < 0, np.nan, -values[::2].astype(float))
        self._ages = Ages("age", self._rows.labels, since, self._ages, moves)
        return Rendered(shown, self._ages.blocks(0.0))


NAMES = [f"t{number:03d}" for number in range(60)]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few rows a chunk, so that a few topics have many."""
    monkeypatch.setattr(lines, "CHUNK_ROWS", 8)


@given(st.lists(st.dictionaries(st.sampled_from(NAMES), st.integers(-1, 2)), min_size=1, max_size=6))
def test_whatever_comes_goes_and_changes_is_shown_as_if_it_was_rendered_anew(polls: list[Topics]) -> None:
    """No line of a row that is gone, none twice, and none with an old value."""
    running = Polls()
    for topics in polls:
        assert running.show(topics).text == Polls().show(topics).text


@given(st.sampled_from(NAMES), st.booleans())
def test_one_topic_that_comes_or_goes_costs_the_chunks_around_it(name: str, comes: bool) -> None:
    """All other blocks, and what is cached in them, stay."""
    whole = dict.fromkeys(NAMES, 7)
    without = {topic: value for topic, value in whole.items() if topic != name}
    before, after = (without, whole) if comes else (whole, without)
    polls = Polls()
    first, second = polls.show(before), polls.show(after)
    assert len(second.lines) > 20
    assert len({id(block) for block in second.lines} - {id(block) for block in first.lines}) <= 2


def test_chunks_stay_near_their_size_while_topics_come_and_go() -> None:
    """Neither many small ones nor a large one is left."""
    polls, random = Polls(), np.random.default_rng(7)
    for _ in range(300):
        there = random.random(len(NAMES)) < 0.9
        blocks = polls.show({name: 1 for name, one in zip(NAMES, there.tolist(), strict=True) if one}).lines
        sizes = [block.text.count(b"\n") for block in blocks]
        assert len(sizes) <= 2.2 * sum(sizes) / 8
        assert max(sizes) <= 2 * 8


def test_what_a_client_asks_for_compressed_is_compressed_before_it_asks_again() -> None:
    """Also where all lines are rendered anew because of a topic that comes."""
    polls = Polls()
    for block in polls.show({"a": 1, "c": 1}).lines:
        block.deflated()
    assert all(block.is_deflated for block in polls.show({"a": 1, "b": 1, "c": 1}).lines)
    assert all(block.is_deflated for block in polls.show({"a": 2, "b": 1, "c": 1}).lines)

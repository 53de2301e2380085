"""A drop of the fleet is judged beside the last one of the same topics: how long it was, and who took part."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from exporter.domain.learning.drops import LONGEST_DAYS, Drop, EarlierDrop, OngoingDrop, earlier_drops
from exporter.domain.learning.rest_days import Rests
from tests.unit.expectations import DAY


def holiday(first: int, days: int, topics: str, judged: int = 20) -> list[Drop]:
    """Return the days of one drop of prod, of topics with names of one letter."""
    return [Drop("prod", first + n, frozenset(topics), judged) for n in range(days)]


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ([], None),
        (holiday(10, 2, "abcd"), EarlierDrop(10 * DAY, 12 * DAY, 4)),
        (holiday(10, 9, "abxy"), EarlierDrop(10 * DAY, 19 * DAY, 2)),
        (holiday(10, 2, "axyz"), None),
        (holiday(10, LONGEST_DAYS + 1, "abcd"), None),
        ([*holiday(10, 9, "abc"), *holiday(40, 1, "abcd")], EarlierDrop(40 * DAY, 41 * DAY, 4)),
        ([*holiday(10, 9, "abcd"), *holiday(40, 1, "abcd")], EarlierDrop(40 * DAY, 41 * DAY, 4)),
        ([*holiday(10, 9, "abcd"), *holiday(40, 1, "abc")], EarlierDrop(10 * DAY, 19 * DAY, 4)),
        ([replace(one, cluster="far") for one in holiday(10, 2, "abcd")], None),
        (holiday(101, 2, "abcd"), None),
    ],
)
def test_a_drop_is_like_the_last_one_with_most_of_its_topics(before: list[Drop], expected: EarlierDrop | None) -> None:
    """Half of them at least; one that lasted for more than two weeks is like none."""
    later = holiday(100, 1, "abcd")
    assert earlier_drops([*before, *later]).get(("prod", 100)) == expected


@pytest.mark.parametrize(
    ("days", "lasted", "topic", "held_until"),
    [
        (1, 1, "a", 103),
        (1, 5, "a", 105),
        (4, 5, "a", 105),
        (5, 5, "a", None),
        (1, 5, "d", 103),
        (3, 5, "d", None),
        (1, 5, "x", None),
        (1, 5, "b", 103),
    ],
)
def test_a_drop_holds_a_topic_for_as_long_as_an_earlier_one_that_it_was_in(
    days: int, lasted: int, topic: str, held_until: int | None
) -> None:
    """Others, and those of which the earlier one was a known outage (b), for three days."""
    drops = [*holiday(10, lasted, "abc"), *holiday(100, days, "abcd")]
    made = Rests((), drops, 100 + days, earlier=earlier_drops(drops), repaired=[("prod", "b")])
    for rests in (made, pickle.loads(pickle.dumps(made))):  # noqa: S301 - Spark sends it so
        found = rests.falling("prod", topic)
        assert (None if found is None else found.until / DAY) == held_until
        if found is not None and topic == "a":
            assert found.earlier == EarlierDrop(10 * DAY, (10 + lasted) * DAY, 3)
        elif found is not None:
            assert found.earlier is None


@pytest.mark.parametrize(
    ("lasted", "days", "rested"), [(5, 5, "ac"), (5, 6, ""), (2, 3, "abcd"), (2, 4, ""), (LONGEST_DAYS + 1, 5, "")]
)
def test_a_long_drop_is_rest_of_those_that_rested_as_long_before(lasted: int, days: int, rested: str) -> None:
    """Once the fleet came back; a short one is rest of all."""
    drops = [*holiday(10, lasted, "abc"), *holiday(100, days, "abcd")]
    rests = Rests((), drops, 130, earlier=earlier_drops(drops), repaired=[("prod", "b")])
    last = [(100 + n) * DAY for n in range(days)]
    found = {topic: [one.since for one in rests.of("prod", topic) if one.since >= last[0]] for topic in "abcdx"}
    assert found == {topic: last if topic in rested else [] for topic in "abcdx"}


def test_an_ongoing_drop_tells_of_the_earlier_one() -> None:
    """With its days, and how many of the topics took part in both."""
    earlier = EarlierDrop(355 * DAY, 364 * DAY, 39)
    assert str(OngoingDrop(720 * DAY, 729 * DAY, 41, 50, earlier)) == (
        "drop of the fleet since Wed 1971-12-22 00:00 UTC, 41 of 50 topics that usually write then were silent or "
        "nearly so (39 of them were so before, from 1970-12-22 to 1970-12-30, for 9 days, and came back), until "
        "Fri 1971-12-31 00:00 UTC at most"
    )
    assert str(EarlierDrop(DAY, 2 * DAY, 3)) == "3 of them were so before, on 1970-01-02, and came back"

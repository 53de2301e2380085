"""Brokers that answer what they should not, played by a script over a real client: the right reading or a reason."""

from collections.abc import Sequence
from typing import Any

import pytest

from exporter.domain.polls.readings import Reason, State
from tests.integration.watch import Watch, seen
from tests.scripted import Answering, ListedOffset, ScriptedBroker
from tests.views import readings_of

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
NEWEST = 1.7e9
GOOD = (State.OBSERVED, 5, 10, NEWEST)
LARGEST = 2**63 - 1


def well(target: int, keys: Sequence[tuple[str, int]]) -> list[ListedOffset]:
    """Answer as a log of offsets 5 to 9 does whose newest record is the last; later than it there is none."""
    newest = (9, round(NEWEST * 1000))
    answers = {LATEST: (10, -1), EARLIEST: (5, -1), MAX_TIMESTAMP: newest, 0: (5, 1)}
    other = newest if 0 < target <= newest[1] else (-1, -1)
    return [ListedOffset(topic, partition, *answers.get(target, other)) for topic, partition in keys]


def wrong_for_partition_1(**wrong: Any) -> Answering:
    return lambda target, keys: [each._replace(**wrong) if each.partition == 1 else each for each in well(target, keys)]


def also(extra: Sequence[ListedOffset]) -> Answering:
    return lambda target, keys: [*well(target, keys), *extra]


def poll(answering: Answering) -> list[tuple[State, int | None, int | None, float | None, Reason | None]]:
    with ScriptedBroker({"t": 3}, answering) as broker:
        watch = Watch(broker.bootstrap, ["t"], timeout=5.0)
        readings = readings_of(watch.poll())
        watch.source.close()
    return [(*seen(readings[key]), readings[key].reason) for key in sorted(readings)]


@pytest.mark.parametrize(
    "answering",
    [
        well,
        lambda target, keys: well(target, keys)[::-1],
        lambda target, keys: well(target, keys) * 2,
        also([ListedOffset("t", 99, 7), ListedOffset("t", -5, 7), ListedOffset("t", LARGEST % 2**31, 7)]),
        also([ListedOffset("other", 0, 7), ListedOffset("", 0, 7), ListedOffset("ü\n", 1, 7)]),
    ],
    ids=["well", "in another order", "all twice", "partitions that are not", "topics not asked for"],
)
def test_what_nobody_asked_for_changes_nothing(answering: Answering) -> None:
    assert poll(answering) == [(*GOOD, None)] * 3


@pytest.mark.parametrize(
    ("answering", "reason"),
    [
        (wrong_for_partition_1(error=999), Reason.OTHER),
        (wrong_for_partition_1(error=56), Reason.STORAGE_ERROR),
        (wrong_for_partition_1(offset=-1), Reason.MISSING_ANSWER),
        (wrong_for_partition_1(offset=-(2**63)), Reason.OTHER),
    ],
)
def test_a_wrong_answer_for_one_partition_costs_that_one(answering: Answering, reason: Reason) -> None:
    before, wrong, after = poll(answering)
    assert before == after == (*GOOD, None)
    assert wrong == (State.UNREADABLE, None, None, None, reason)


@pytest.mark.parametrize(
    "answering",
    [lambda _target, _keys: [], lambda target, keys: [each._replace(topic="u") for each in well(target, keys)]],
    ids=["nothing", "another topic"],
)
def test_an_answer_without_what_was_asked_is_no_answer(answering: Answering) -> None:
    assert poll(answering) == [(State.UNREADABLE, None, None, None, Reason.LEADER_UNREACHABLE)] * 3


def test_impossible_timestamps_are_no_timestamps() -> None:
    """Below -1 there is no time; the last 64-bit millisecond is none that a look-up by time could prove."""
    assert poll(wrong_for_partition_1(timestamp=-9))[1][:4] == (State.PENDING, 5, 10, None)
    assert poll(wrong_for_partition_1(timestamp=LARGEST))[1] == (State.UNREADABLE, 5, 10, None, Reason.HIDDEN)

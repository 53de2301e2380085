"""The search for newest timestamps: always right, and cheap where a guess is."""

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.domain.arrays import Offsets, Rows
from exporter.domain.polls.metadata import Membership
from exporter.domain.polls.newest_timestamp import LOOKUPS_OF_A_SEARCH, NewestSearches
from exporter.domain.polls.readings import END_OF_TIME, Answers, Reason, TopicPartition
from tests.lookup_answers import Answer, answer_at
from tests.times import answered, led

NOW = 1_800_000_000.0
DAY = 86_400.0

Broker = Callable[[float], Answer | None]
"""The first record of one partition at or after a time."""

moments = st.one_of(
    st.integers(1, 9),
    st.integers(round((NOW - 7 * DAY) * 1000), round(NOW * 1000) + 5),
    st.integers(0, round(END_OF_TIME * 1000)),
).map(lambda ms: ms / 1000)


def log_of(times: Sequence[float]) -> Broker:
    """Answer as a broker does: with the first record, in offset order, at or after a time."""
    return lambda target: next((Answer(offset, time) for offset, time in enumerate(times) if time >= target), Answer())


def each_of(answers: Sequence[Answer | None]) -> Broker:
    """Answer with one after the other, again and again, whatever is asked."""
    turns = itertools.cycle(answers)
    return lambda _: next(turns)


class Searched:
    """Searches of one partition each, side by side, until all have ended: results, and the times that were asked."""

    def __init__(self, *partitions: tuple[Broker, int, float | None], now: float = NOW) -> None:
        """Each partition has a broker's answers, its end offset, and a guess."""
        brokers, latest, guesses = zip(*partitions, strict=True)
        self._brokers: Sequence[Broker] = brokers
        self.targets: list[list[float]] = [[] for _ in partitions]
        guess = np.array([math.nan if one is None else one for one in guesses])
        whole = np.zeros(len(latest), dtype=np.bool_)
        self._searches = NewestSearches(np.array(latest, dtype=np.int64), guess=guess, now=now, whole=whole)
        membership = led({TopicPartition("t", at): 1 for at in range(len(partitions))})
        while len((step := self._searches.step())[0]):
            self._searches.take(step[0], self.look_up_times(membership, *step))
        self.columns = self._searches.results()
        self.results = [answer_at(self.columns, at) for at in range(len(partitions))]

    def look_up_times(self, membership: Membership, rows: Rows, milliseconds: Offsets) -> Answers:
        return answered(membership, rows, milliseconds, self._answer)

    def _answer(self, key: TopicPartition, target: float) -> Answer | None:
        self.targets[key.partition].append(target)
        return self._brokers[key.partition](target)


def alone(broker: Broker, latest: int, guess: float | None = None, *, now: float = NOW) -> tuple[Answer, list[float]]:
    """Search one partition; return the result, and the times that were asked."""
    searched = Searched((broker, latest, guess), now=now)
    [result], [targets] = searched.results, searched.targets
    assert result is not None
    return result, targets


def run(times: Sequence[float], latest: int, guess: float | None) -> tuple[float | None, int]:
    """Search a log; return the time that is certain where its record is the last one, and how many look-ups it took."""
    searched = Searched((log_of(times), latest, guess))
    newest = float(searched.columns.timestamp[0])
    proved = times.index(newest) == latest - 1
    assert searched.results == [Answer(latest - 1, newest) if proved else Answer(reason=Reason.HIDDEN)]
    return newest, len(searched.targets[0])


@given(st.lists(moments, min_size=1, max_size=30), st.integers(0, 3), st.none() | moments)
def test_it_finds_the_largest_time_before_the_end_offset(times: list[float], since: int, guess: float | None) -> None:
    latest = max(1, len(times) - since)
    newest, lookups = run(times, latest, guess)
    assert newest == max(times[:latest])
    assert lookups <= LOOKUPS_OF_A_SEARCH


RISING = [NOW - 100 + i for i in range(50)]
WEEK = [NOW - 7 * DAY + i * 60 for i in range(7 * 1440)]


@pytest.mark.parametrize(
    ("times", "guess", "most"),
    [(RISING, RISING[-1], 1), ([*RISING, NOW - 200], RISING[-1], 2), (RISING, RISING[-2], 2), (WEEK, None, 25)],
    ids=["a right guess", "later records are older", "a guess one record old", "a week of records without a guess"],
)
def test_how_many_look_ups_a_search_costs(times: list[float], guess: float | None, most: int) -> None:
    """A guess is confirmed by the time after it; without one, time is halved until only the last record is left."""
    newest, lookups = run(times, len(times), guess)
    assert newest == max(times)
    assert lookups <= most


def test_a_failed_look_up_ends_without_a_number() -> None:
    """Half a search is no knowledge: the reason is kept, the timestamp found so far is not."""
    refused = Answer(reason=Reason.UNAUTHORIZED)
    assert alone(each_of([Answer(3, NOW), refused]), 5, NOW)[0] == refused


def test_what_times_out_is_asked_once_more() -> None:
    """A broker lets a look-up in its remote tier lie now and then; one that does so again gives no answer."""
    silent = Answer(reason=Reason.TIMED_OUT)
    result, targets = alone(each_of([silent, Answer(0, 10.0), silent]), 2, 10.0, now=20.0)
    assert (result, targets[:2]) == (silent, [10.0, 10.0])


def test_a_partition_that_an_answer_leaves_out_costs_only_itself() -> None:
    searched = Searched((lambda _: None, 5, NOW), (log_of([NOW]), 1, NOW))
    assert searched.results == [Answer(reason=Reason.MISSING_ANSWER), Answer(0, NOW)]


answers = st.builds(Answer, st.none() | st.integers(0, 9), st.none() | moments)
failures = st.builds(Answer, reason=st.sampled_from([Reason.TIMED_OUT, Reason.TIMED_OUT, Reason.UNAUTHORIZED]))
makers = st.one_of(
    st.lists(moments, min_size=1, max_size=9).map(lambda times: partial(log_of, times)),
    st.lists(answers | failures | st.none(), min_size=1, max_size=5).map(lambda given: partial(each_of, given)),
)
"""Make brokers, some of which lie and fail."""


@given(st.lists(st.tuples(makers, st.integers(1, 9), st.none() | moments), min_size=1, max_size=8))
def test_searches_side_by_side_go_as_each_alone(
    partitions: list[tuple[Callable[[], Broker], int, float | None]],
) -> None:
    together = Searched(*((make(), latest, guess) for make, latest, guess in partitions))
    each = [alone(make(), latest, guess) for make, latest, guess in partitions]
    assert list(zip(together.results, together.targets, strict=True)) == each
    assert all(result.timestamp is None or result.reason is None for result, _ in each)

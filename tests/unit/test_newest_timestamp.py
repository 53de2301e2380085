"""The search for a partition's newest timestamp: always right, and cheap where a guess is."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.collectors.newest_timestamp import LOOKUPS_OF_A_SEARCH, Search
from exporter.domain import Answer, Reason
from exporter.domain.polls.readings import END_OF_TIME

NOW = 1_800_000_000.0
DAY = 86_400.0

moments = st.one_of(
    st.integers(1, 9),
    st.integers(round((NOW - 7 * DAY) * 1000), round(NOW * 1000) + 5),
    st.integers(0, round(END_OF_TIME * 1000)),
).map(lambda ms: ms / 1000)


def first_since(times: Sequence[float], target_ms: int) -> Answer:
    """What a broker answers: the first record, in offset order, at or after a time."""
    for offset, time in enumerate(times):
        if round(time * 1000) >= target_ms:
            return Answer(offset, time)
    return Answer()


def run(times: Sequence[float], latest: int, guess: float | None) -> tuple[float | None, int]:
    """Search a log, and return the time that was found and how many look-ups it took."""
    search = Search(latest, guess=guess, now=NOW)
    lookups = 0
    while search.target is not None:
        search.take(first_since(times, search.target))
        lookups += 1
    assert search.newest is not None
    assert search.offset == times.index(search.newest)
    return search.newest, lookups


@given(st.lists(moments, min_size=1, max_size=30), st.integers(0, 3), st.none() | moments)
def test_it_finds_the_largest_time_before_the_end_offset(times: list[float], since: int, guess: float | None) -> None:
    """Whatever the order of times, the guess, and what was written since: exact and first, in so many look-ups."""
    latest = max(1, len(times) - since)
    newest, lookups = run(times, latest, guess)
    assert newest == max(times[:latest])
    assert lookups <= LOOKUPS_OF_A_SEARCH


def test_a_right_guess_costs_two_look_ups() -> None:
    """One shows that the record is still there, one that nothing is later."""
    times = [NOW - 100 + i for i in range(50)]
    assert run(times, 50, times[-1]) == (times[-1], 2)


def test_a_guess_that_is_one_record_old_costs_three() -> None:
    """The guess, the time after it, which finds the last record, and the time after that."""
    times = [NOW - 100 + i for i in range(50)]
    assert run(times, 50, times[-2]) == (times[-1], 3)


def test_a_week_of_records_every_minute_costs_twenty_and_some() -> None:
    """Without a guess, time is halved until only the last record is left."""
    times = [NOW - 7 * DAY + i * 60 for i in range(7 * 1440)]
    newest, lookups = run(times, len(times), None)
    assert newest == times[-1]
    assert lookups <= 25


def test_a_log_without_timestamps_has_none() -> None:
    """Nothing is found at or after the beginning of time: the search ends without a result and without a reason."""
    search = Search(5, guess=None, now=NOW)
    search.take(Answer())
    assert (search.target, search.newest, search.reason) == (None, None, None)


def test_a_failed_look_up_ends_without_a_number() -> None:
    """Half a search is no knowledge: the reason is kept, the timestamp found so far is not."""
    search = Search(5, guess=NOW, now=NOW)
    search.take(Answer(4, NOW))
    search.take(Answer(reason=Reason.UNAUTHORIZED))
    assert (search.target, search.newest, search.reason) == (None, None, Reason.UNAUTHORIZED)


def test_what_times_out_is_asked_once_more() -> None:
    """A broker lets a look-up in its remote tier lie now and then; one that does so again gives no answer."""
    search = Search(2, guess=10.0, now=20.0)
    silent = Answer(reason=Reason.TIMED_OUT)
    search.take(silent)
    again = search.target
    search.take(Answer(1, 10.0))
    search.take(silent)
    assert (again, search.target, search.newest, search.reason) == (10_000, None, None, Reason.TIMED_OUT)


@given(st.lists(st.builds(Answer, st.none() | st.integers(0, 9), st.none() | moments), min_size=60, max_size=60))
def test_whatever_a_broker_answers_a_search_ends(answers: list[Answer]) -> None:
    """After so many answers, and with a time or a reason where records were found."""
    search = Search(5, guess=None, now=NOW)
    targets: list[int] = []
    while search.target is not None:
        targets.append(search.target)
        search.take(answers[len(targets) - 1])
    assert search.newest is None or search.reason is None
    wrong = any(
        answer.offset is not None
        and answer.offset < 5
        and answer.timestamp is not None
        and round(answer.timestamp * 1000) < target
        for answer, target in zip(answers, targets, strict=False)
    )
    assert not wrong or (search.newest, search.reason) == (None, Reason.OTHER)


@pytest.mark.parametrize("behind", [-1, 0], ids=["before the time asked for", "just at it"])
def test_a_broker_that_always_finds_a_record_does_not_hold_up_the_search(behind: int) -> None:
    """There is no such log: the search ends with a reason and without a timestamp."""
    search = Search(5, guess=NOW, now=NOW)
    for _ in range(LOOKUPS_OF_A_SEARCH):
        if search.target is not None:
            search.take(Answer(4, (search.target + behind) / 1000))
    assert (search.target, search.newest, search.reason) == (None, None, Reason.OTHER)

"""The search for a partition's newest timestamp: always right, and cheap where a guess is."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from exporter.kafka.answers import END_OF_TIME
from exporter.kafka.newest import Search
from exporter.model import Answer, Reason

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
    asked = 0
    while search.target is not None:
        search.take(first_since(times, search.target))
        asked += 1
    assert search.newest is not None
    assert search.offset == times.index(search.newest)
    return search.newest, asked


@given(st.lists(moments, min_size=1, max_size=30), st.integers(0, 3), st.none() | moments)
def test_it_finds_the_largest_time_before_the_end_offset(times: list[float], since: int, guess: float | None) -> None:
    """Whatever the order of times, the guess, and what was written since: exact and first, in 60 look-ups."""
    latest = max(1, len(times) - since)
    newest, asked = run(times, latest, guess)
    assert newest == max(times[:latest])
    assert asked <= 60


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
    newest, asked = run(times, len(times), None)
    assert newest == times[-1]
    assert asked <= 25


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

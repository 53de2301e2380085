"""What is missing in a replica, and when a replica stands still: rules on columns, without Kafka."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.domain.polls.answers import Answers
from exporter.domain.polls.readings import Answer, Reason, State
from exporter.domain.polls.table import STATE_CODES
from exporter.domain.replicas.comparison import (
    COMPARED,
    NOT_COMPARED_CODES,
    REPLICA_STATES,
    NotCompared,
    ReplicaState,
    not_compared_of_code,
)
from exporter.domain.replicas.missing_records import (
    LOOK_UP,
    Ends,
    Missing,
    Standstill,
    judge,
    missing,
    times_to_ask,
    without_asking,
)
from tests.views import Activity, Reading

Found = tuple[int, float | None] | NotCompared
"""At least so many records, and the time of the oldest; or why that is unknown."""


def ends(*readings: Reading) -> Ends:
    """Readings as columns."""
    return Ends(
        np.array([one.latest is not None for one in readings]),
        np.array([STATE_CODES[one.state] for one in readings], dtype=np.int8),
        np.array([one.earliest or 0 for one in readings]),
        np.array([one.latest or 0 for one in readings]),
        np.array([np.nan if one.newest is None else one.newest for one in readings]),
    )


def flags(*values: bool) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """A column of flags."""
    return np.array(values, dtype=np.bool_)


def rows(found: Missing) -> list[Found]:
    """What was found, row by row."""
    columns = (found.reason.tolist(), found.at_least.tolist(), found.oldest.tolist())
    return [
        not_compared_of_code(reason) or (least, None if np.isnan(oldest) else oldest)
        for reason, least, oldest in zip(*columns, strict=True)
    ]


def log(times: Sequence[int], start: int = 0, state: State | None = None) -> Reading:
    """A partition that holds records of these times, in milliseconds, from offset ``start`` on."""
    if not times:
        state = state or (State.EMPTY if start else State.NEVER_WRITTEN)
        return Reading(state, Activity(), 1, start, start)
    return Reading(state or State.OBSERVED, Activity(), 1, start, start + len(times), max(times) / 1000)


def found(source: list[int], copied: list[int], start: int = 0, *, compacted: bool = False, markers: int = 1) -> Found:
    """What is found missing where the source holds records of these times, and the replica those."""

    def answers(column: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Answers:
        return Answers.of(None if np.isnan(time) else answer(time) for time in column.tolist())

    def answer(time: float) -> Answer:
        ms = round(time * 1000)
        at = next((number for number, one in enumerate(source) if one >= ms), None)
        return Answer() if at is None else Answer(start + at, source[at] / 1000)

    mine, copy = ends(log(source, start)), ends(log(copied))
    [code] = without_asking(mine, copy, flags(False)).tolist()
    times = times_to_ask(mine, copy, flags(False))
    if code != LOOK_UP:
        assert np.isnan([*times.first, *times.later]).all()
        return not_compared_of_code(code) or (0, None)
    found_answers = answers(times.first), answers(times.later)
    [one] = rows(missing(mine, copy.newest, *found_answers, compacted=flags(compacted), markers=markers))
    return one


@pytest.mark.parametrize(
    ("source", "copied", "start", "compacted", "markers", "expected"),
    [
        # A time of its own for each record: what is missing is counted exactly.
        ([1, 2, 3, 4, 5], [1, 2], 0, False, 1, (3, 0.003)),
        ([1, 2, 3, 4, 5], [1, 2, 3, 4, 5], 0, False, 1, (0, None)),
        # Records that share the replica's newest time may or may not have arrived.
        ([1, 2, 2, 2, 3, 4], [1, 2], 0, False, 1, (2, 0.003)),
        ([1, 2, 2, 2], [1, 2], 0, False, 1, (0, None)),
        # One record at the end may be a transaction marker, which is never copied; or as many as are configured.
        ([1, 2, 3], [1, 2], 0, False, 1, (0, None)),
        ([1, 2, 3, 4], [1, 2], 0, False, 0, (2, 0.003)),
        ([1, 2, 3, 4], [1, 2], 0, False, 1, (2, 0.003)),
        ([1, 2, 3, 4], [1, 2], 0, False, 2, (0, None)),
        # A replica without records lacks all that the source still holds; removed records do not count.
        ([5, 6, 7], [], 10, False, 1, (3, 0.005)),
        ([], [], 0, False, 1, (0, None)),
        ([], [1], 10, False, 1, (0, None)),
        # Retention took the record that the replica ends with.
        ([5, 6, 7], [1, 2], 10, False, 1, (3, 0.005)),
        # A time that the source does not know: it is no copy, except where the source may have removed the record.
        ([1, 2, 3], [1, 9], 0, False, 1, NotCompared.NEWER_THAN_SOURCE),
        ([1, 3, 6, 8], [1, 5], 0, False, 1, NotCompared.NOT_IN_SOURCE),
        ([1, 3, 6, 8], [1, 5], 0, True, 1, (2, 0.006)),
    ],
)
def test_what_a_replica_lacks(
    source: list[int], copied: list[int], start: int, compacted: bool, markers: int, expected: Found
) -> None:
    """How many records are certainly missing and the time of the oldest, or why that is unknown."""
    assert found(source, copied, start, compacted=compacted, markers=markers) == expected


@given(st.lists(st.integers(1, 30), min_size=1, max_size=40), st.data())
def test_no_more_is_called_missing_than_is(times: list[int], data: st.DataObject) -> None:
    """Whatever the order of the times; where each record is later than the one before, all that is missing is."""
    copied = data.draw(st.integers(0, len(times)))
    result = found(times, times[:copied])
    assert not isinstance(result, NotCompared)
    at_least, lacking = result[0], len(times) - copied
    assert at_least <= lacking
    if times == sorted(set(times)) and lacking > 1:
        assert at_least == lacking


def test_each_row_is_judged_by_itself() -> None:
    """Rows with two answers, one, failed ones, and one without an answer that there must be, in the same columns."""
    readings = [log([1, 2, 3, 4])] * 6
    newest = np.array([0.002, 0.004, np.nan, 0.002, 0.002, np.nan])
    first = [Answer(1, 0.002), Answer(3, 0.004), Answer(0, 0.001), Answer(reason=Reason.TIMED_OUT), Answer(1, 0.002)]
    later = [Answer(2, 0.003), None, None, Answer(2, 0.003), Answer(reason=Reason.NO_LEADER), None]
    result = missing(
        ends(*readings), newest, Answers.of([*first, Answer()]), Answers.of(later), compacted=flags(*[False] * 6)
    )
    failed = NotCompared.LOOKUP_FAILED
    assert rows(result) == [(2, 0.003), (0, None), (4, 0.001), failed, failed, NotCompared.HIDDEN_RECORDS]


UNREAD = Reading(State.UNREADABLE, Activity(), reason=Reason.NO_LEADER)

WITHOUT_ASKING = [
    (UNREAD, log([1]), False, NotCompared.SOURCE_UNREADABLE),
    (UNREAD, UNREAD, True, NotCompared.SOURCE_UNREADABLE),
    (log([1]), UNREAD, False, NotCompared.REPLICA_UNREADABLE),
    (log([], 3), log([1]), True, COMPARED),
    (log([1]), log([]), True, LOOK_UP),
    (log([1]), log([1]), True, NotCompared.LOG_APPEND_TIME),
    (log([1]), log([1]), False, LOOK_UP),
    (log([1]), log([], 7), False, NotCompared.REPLICA_EMPTY),
    (log([1]), log([9], state=State.FUTURE), False, NotCompared.FUTURE_TIMESTAMP),
    (log([1]), Reading(State.NO_TIMESTAMP, Activity(), 1, 0, 5), False, NotCompared.NO_TIMESTAMP),
    (log([1]), Reading(State.UNSUPPORTED, Activity(), 1, 0, 5), False, NotCompared.NO_TIMESTAMP),
    (log([1]), log([1], state=State.PENDING), False, LOOK_UP),
]
"""Source, replica, whether the replica's brokers set its timestamps, and what follows."""


def test_what_follows_without_a_look_up() -> None:
    """A reason, or that nothing is missing; then nobody is asked. All rows at once, as a comparison judges them."""
    mine, copy = ends(*(case[0] for case in WITHOUT_ASKING)), ends(*(case[1] for case in WITHOUT_ASKING))
    stamped = flags(*(case[2] for case in WITHOUT_ASKING))
    wanted = [NOT_COMPARED_CODES[case[3]] if isinstance(case[3], NotCompared) else case[3] for case in WITHOUT_ASKING]
    assert without_asking(mine, copy, stamped).tolist() == wanted
    times = times_to_ask(mine, copy, stamped)
    assert (~np.isnan(times.first)).tolist() == [code == LOOK_UP for code in wanted]
    assert np.isnan(times.later[np.isnan(times.first)]).all()


@pytest.mark.parametrize(
    ("source", "replica", "first", "later"),
    [
        (log([1000, 2000]), log([1000, 2000]), 2.0, None),
        (log([1000, 2000]), log([1000]), 1.0, 1.001),
        (log([1000, 2000]), log([]), 0.0, None),
        (log([1000, 2000], state=State.PENDING), log([2000]), 2.0, 2.001),
        (log([1000], state=State.PRESERVED), log([1000]), 1.0, None),
        (Reading(State.UNSUPPORTED, Activity(), 1, 0, 5), log([1000]), 1.0, 1.001),
    ],
)
def test_one_look_up_is_enough_where_nothing_is_missing(
    source: Reading, replica: Reading, first: float, later: float | None
) -> None:
    """A replica as new as its source's newest record asks for one time, one that may be behind for two."""
    times = times_to_ask(ends(source), ends(replica), flags(False))
    assert times.first.tolist() == [first]
    np.testing.assert_allclose(times.later, [np.nan if later is None else later])


JUDGED: list[tuple[Found, State, bool, ReplicaState, float | None]] = [
    # what is missing, state of the source, stopped -> state, lag in seconds
    ((0, None), State.OBSERVED, False, ReplicaState.IN_STEP, 0.0),
    ((2, 10.0), State.OBSERVED, False, ReplicaState.BEHIND, 90.0),
    ((2, 50.0), State.OBSERVED, False, ReplicaState.IN_STEP, 50.0),
    ((2, 10.0), State.OBSERVED, True, ReplicaState.STOPPED, 90.0),
    ((2, 10.0), State.PRESERVED, False, ReplicaState.BEHIND, None),
    ((0, None), State.PRESERVED, False, ReplicaState.IN_STEP, 0.0),
    ((2, 200.0), State.FUTURE, False, ReplicaState.BEHIND, None),
    (NotCompared.LOG_APPEND_TIME, State.OBSERVED, False, ReplicaState.UNKNOWN, None),
    (NotCompared.LOG_APPEND_TIME, State.OBSERVED, True, ReplicaState.STOPPED, None),
]


def test_lag_is_the_age_of_the_oldest_missing_record() -> None:
    """0 where none is proved missing, unknown where records are dated back or in the future; stopped goes first."""
    found_ = Missing.nothing(np.zeros(len(JUDGED), dtype=np.int8))
    for row, (each, *_) in enumerate(JUDGED):
        if isinstance(each, NotCompared):
            found_.reason[row] = NOT_COMPARED_CODES[each]
        else:
            found_.at_least[row] = each[0]
            found_.oldest[row] = np.nan if each[1] is None else each[1]
    source = np.array([STATE_CODES[case[1]] for case in JUDGED], dtype=np.int8)
    verdicts = judge(found_, source, 100.0, stopped=flags(*(case[2] for case in JUDGED)), behind_after=60)
    assert [REPLICA_STATES[code] for code in verdicts.state] == [case[3] for case in JUDGED]
    assert [None if np.isnan(lag) else lag for lag in verdicts.lag_seconds] == [case[4] for case in JUDGED]


def follow(polls: list[tuple[int | None, int | None]], lacks: int = 0, markers: int = 1) -> list[float]:
    """How long a replica has stood still, poll by poll: a poll of the source each 10 s, the target's a second later."""

    def read(end: int | None) -> Ends:
        return ends(UNREAD if end is None else Reading(State.OBSERVED, Activity(), 1, 0, end))

    standstill, durations = Standstill.begin(read(polls[0][1]), 1.0), []
    for number, (source, replica) in enumerate(polls):
        mine, copy = read(source), read(replica)
        standstill = standstill.update(mine, 10.0 * number, copy, 10.0 * number + 1)
        standstill = standstill.wait(mine, np.array([lacks]), 10.0 * number, mine.read & copy.read, markers=markers)
        durations.append(float(standstill.lasts(10.0 * number)[0]))
    return durations


@pytest.mark.parametrize(
    ("polls", "lacks", "markers", "expected"),
    [
        # Two records in the source and none in the replica begin it; a record in the replica ends it.
        ([(5, 5), (5, 5), (6, 5), (7, 5), (9, 5), (9, 6), (9, 6)], 0, 1, [0, 0, 0, 0, 10, 0, 0]),
        # However long both rest, the replica does not stand still; a lone marker begins nothing.
        ([(5, 5)] * 5, 0, 1, [0] * 5),
        ([(5, 5), (5, 5), (6, 5), (6, 5), (6, 5)], 0, 1, [0] * 5),
        ([(5, 5), (5, 5), (6, 5), (6, 5), (6, 5)], 0, 0, [0, 0, 0, 10, 20]),
        ([(5, 5), (5, 5), (7, 5), (7, 5), (7, 5)], 0, 2, [0] * 5),
        # What the replica already copied when it was polled is seen in the source only at the next poll.
        ([(5, 5), (5, 15), (15, 15), (15, 15), (15, 15)], 0, 1, [0] * 5),
        # Records that are proved missing begin it where the source went on before anybody looked.
        ([(9, 5)] * 3, 4, 1, [0, 10, 20]),
        # Where the source's end falls, what was seen before says nothing.
        ([(50, 5), (50, 5), (60, 5), (60, 5), (3, 5), (3, 5)], 0, 1, [0, 0, 0, 10, 0, 0]),
        # A poll that could not read one side begins nothing and ends nothing.
        ([(5, 5), (5, 5), (None, 5), (9, None), (9, 5), (None, 5), (9, 5)], 0, 1, [0, 0, 0, 0, 0, 10, 20]),
        # A replica that was never read is seen for the first time when it is.
        ([(5, None), (9, None), (9, 5), (9, 5), (12, 5), (12, 5)], 0, 1, [0, 0, 0, 0, 0, 10]),
    ],
)
def test_how_long_a_replica_stands_still(
    polls: list[tuple[int | None, int | None]], lacks: int, markers: int, expected: list[float]
) -> None:
    """By the ends of both logs alone, from when there is something to copy until the replica moves."""
    assert follow(polls, lacks, markers) == expected

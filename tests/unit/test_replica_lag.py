"""How far a replica is behind its source, and in which state it is: rules on columns, without Kafka."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from exporter.domain.polls.readings import State
from exporter.domain.polls.table import STATE_CODES
from exporter.domain.replicas.comparison import (
    REASONS_NOT_COMPARED,
    REPLICA_STATES,
    Ends,
    NotCompared,
    ReplicaLimits,
    ReplicaProgress,
    judge,
)


@dataclass(frozen=True)
class End:
    """One side of one partition: its end offset, its newest timestamp, its first offset and its state."""

    latest: int
    newest: float | None
    earliest: int = 0
    state: State = State.OBSERVED
    stamped: bool = False


UNREAD = End(0, None, state=State.UNREADABLE)
EMPTY = End(0, None, state=State.NEVER_WRITTEN)
Expected = tuple[str, float | None, int | None] | NotCompared
"""State, seconds, records; or why the two cannot be compared."""


def column(end: End) -> Ends:
    """One reading as columns of one row."""
    return Ends(
        np.array([end.state is not State.UNREADABLE]),
        np.array([STATE_CODES[end.state]], dtype=np.int8),
        np.array([end.earliest]),
        np.array([end.latest]),
        np.array([np.nan if end.newest is None else end.newest]),
    )


def follow(polls: list[tuple[End, End]], *, markers: int = 1, every: float = 10) -> list[Expected]:
    """What is found poll by poll: of the source at 1000 and each 10 s later, of the target a second after it."""
    progress, found = ReplicaProgress.blank(1), list[Expected]()
    for number, (source, replica) in enumerate(polls):
        at = 1000 + every * number
        progress, lag = judge(
            progress,
            column(source),
            at,
            column(replica),
            at + 1,
            stamped=np.array([replica.stamped]),
            now=at,
            limits=ReplicaLimits(15, 30, markers),
        )
        reason, state = REASONS_NOT_COMPARED[lag.reason[0]], REPLICA_STATES[lag.state[0]]
        seconds = None if np.isnan(lag.seconds[0]) else float(lag.seconds[0])
        records = int(lag.records.value[0]) if lag.records.known[0] else None
        found.append(reason if reason and state == "unknown" else (str(state), seconds, records))
    return found


FULL = (End(5, 900), End(5, 900))
IN_STEP: Expected = ("in-step", 0, 0)
MARKED = (End(8, 909.1), End(6, 909))


@pytest.mark.parametrize(
    ("polls", "expected"),
    [
        # As new as its source: nothing is missing, whatever the offsets are.
        ([FULL, (End(90, 900), End(7, 900))], [IN_STEP, IN_STEP]),
        # A replica that was read later may have more.
        ([(End(5, 900), End(9, 1000.5)), (End(9, 1000.5), End(9, 1000.5))], [IN_STEP, IN_STEP]),
        # What the source gained since both were in step is missing.
        (
            [FULL, (End(9, 1009), End(5, 900)), (End(9, 1009), End(5, 900)), (End(9, 1009), End(9, 1009))],
            [IN_STEP, ("in-step", 11, 4), ("behind", 21, 4), IN_STEP],
        ),
        # A replica that moves all the time is as far behind as its newest record is older; the last seconds may hold
        # markers alone.
        (
            [FULL, *((End(n * 10, n * 10 + 900), End(n * 10 - 3, n * 10 + 880)) for n in range(1, 5))],
            [IN_STEP, ("in-step", 10, None), *[("behind", 20, 3)] * 3],
        ),
        # Before it was in step, the number is unknown, and so is for how long it has been missing.
        ([(End(9, 950), End(5, 900))] * 2, [("behind", 50, None)] * 2),
        # One last offset may be a transaction marker; with the next record of a live source it is in step again.
        ([FULL, *[(End(6, 960), End(5, 900))] * 6], [IN_STEP] * 7),
        # Markers shortly after the last record leave a replica at rest in step, however many they are.
        ([FULL, *[MARKED] * 6], [IN_STEP, *[("in-step", pytest.approx(0.1), None)] * 6]),
        # A replica that never had a record lacks what its source still holds.
        ([(End(15, 900, 10), EMPTY)] * 5, [*[("behind", None, 5)] * 3, *[("stopped", None, 5)] * 2]),
        ([(End(15, 900, 10), EMPTY), (End(15, 900, 10), End(2, 800))], [("behind", None, 5), ("behind", 100, 3)]),
        ([(EMPTY, EMPTY), (End(3, 1009), EMPTY)], [IN_STEP, ("in-step", 11, 3)]),
        # What the source removed is not missing.
        ([(End(9, None, 9, State.EMPTY), End(5, 900))], [IN_STEP]),
        ([FULL, *[(End(40, 1000, 38), End(5, 900))] * 2], [IN_STEP, ("in-step", 11, None), ("behind", 21, 2)]),
        # Records that are dated back: only polls say for how long they have been missing.
        (
            [FULL, *[(End(9, 903, state=State.PRESERVED), End(5, 900))] * 2],
            [IN_STEP, ("in-step", 11, None), ("behind", 21, 4)],
        ),
        ([(End(9, 903, state=State.PRESERVED), End(5, 900))], [("behind", None, None)]),
        ([(End(9, 9999, state=State.FUTURE), End(5, 900))], [("behind", None, None)]),
        # The newest record of the replica was deleted: it had it.
        ([FULL, (End(5, 900), End(5, 850))], [IN_STEP, IN_STEP]),
        # Another writer: both rest, and the source never had what the replica has.
        ([(End(5, 900), End(5, 950))] * 2, [IN_STEP, NotCompared.NEWER_THAN_SOURCE]),
    ],
)
def test_how_far_a_replica_is_behind(polls: list[tuple[End, End]], expected: list[Expected]) -> None:
    """Seconds from the newest timestamps and polls, records from the difference of the ends when both were in step."""
    assert follow(polls) == expected


@pytest.mark.parametrize(
    ("source", "replica", "reason"),
    [
        (UNREAD, UNREAD, NotCompared.SOURCE_UNREADABLE),
        (FULL[0], UNREAD, NotCompared.REPLICA_UNREADABLE),
        (FULL[0], replace(FULL[1], stamped=True), NotCompared.LOG_APPEND_TIME),
        (FULL[0], End(7, None, 7, State.EMPTY), NotCompared.REPLICA_EMPTY),
        (FULL[0], End(5, 9999, state=State.FUTURE), NotCompared.FUTURE_TIMESTAMP),
        (FULL[0], End(5, None, state=State.NO_TIMESTAMP), NotCompared.NO_TIMESTAMP),
        (End(5, None, state=State.UNSUPPORTED), FULL[1], NotCompared.NO_TIMESTAMP),
    ],
)
def test_what_cannot_be_compared_has_a_reason_and_no_number(source: End, replica: End, reason: NotCompared) -> None:
    """Until it stands still while its source goes on, which offsets alone show."""
    assert follow([(source, replica)]) == [reason]
    if UNREAD not in (source, replica):
        gone_on = replace(source, latest=source.latest + 2)
        states = follow([(source, replica), (source, replica), *[(gone_on, replica)] * 4])
        assert states == [*[reason] * 5, ("stopped", None, None)]


def ends(*pairs: tuple[int | None, int | None]) -> list[tuple[End, End]]:
    """Polls by their end offsets, of topics that show nothing else."""
    return [
        (
            UNREAD if source is None else End(source, None, state=State.UNSUPPORTED),
            UNREAD if replica is None else End(replica, None, state=State.UNSUPPORTED),
        )
        for source, replica in pairs
    ]


@pytest.mark.parametrize(
    ("polls", "markers", "stopped"),
    [
        # Two records in the source and none in the replica begin it; a record in the replica ends it.
        (ends((5, 5), (5, 5), (7, 5), (7, 5), (9, 5), (9, 5), (9, 6), (9, 6)), 1, [5]),
        # However long both rest, it is not stopped; a lone marker begins nothing, nor as many as are configured.
        (ends(*[(5, 5)] * 8), 1, []),
        (ends((5, 5), (5, 5), *[(6, 5)] * 6), 1, []),
        (ends((5, 5), (5, 5), *[(6, 5)] * 6), 0, [5, 6, 7]),
        (ends((5, 5), (5, 5), *[(7, 5)] * 6), 2, []),
        # What the replica already had when it was polled is seen in the source only at the next poll.
        (ends((5, 5), (5, 15), *[(15, 15)] * 6), 1, []),
        # Where the source's end falls, what was seen before says nothing.
        (ends((50, 5), (50, 5), (60, 5), (60, 5), *[(3, 5)] * 4), 1, []),
        # A poll that could not read one side begins nothing and ends nothing.
        (ends((5, 5), (5, 5), (None, 5), (9, None), (9, 5), (None, 5), (9, 5), (9, 5)), 1, [7]),
        # A replica that was never read is seen for the first time when it is.
        (ends((5, None), (9, None), (9, 5), (9, 5), *[(12, 5)] * 4), 1, [7]),
        # It lacked records when it moved last, and its source rests.
        ([FULL, *[(End(30, 960), End(10, 920))] * 5], 1, [5]),
        # A burst right after the last copy, within the time that counts as in step.
        ([FULL, *[(End(30, 1005), End(5, 1000))] * 5], 1, [4, 5]),
        # A source without records is waited for no longer.
        ([*ends((5, 5), (5, 5), *[(9, 5)] * 4), (End(9, None, 9, State.EMPTY), FULL[1])], 1, [5]),
    ],
)
def test_when_a_replica_has_stopped(polls: list[tuple[End, End]], markers: int, stopped: list[int]) -> None:
    """Half a minute after there was something to copy, as long as it does not move."""
    found = follow(polls, markers=markers)
    assert [number for number, one in enumerate(found) if one[0] == "stopped"] == stopped

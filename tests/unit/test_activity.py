"""Readings become states, advances and verdicts."""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from exporter.domain.polls.activity import (
    Circumstances,
    Sightings,
    clock_set,
    conclude,
    find_unsettled,
    miss_poll,
    observe,
)
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.readings import Reason, State
from exporter.domain.polls.silence import Silence
from exporter.domain.polls.table import Table
from exporter.domain.verdicts import Expectation
from tests.judging import silences_in
from tests.lookup_answers import Answer, answers_of
from tests.snapshots import silence_of
from tests.unit.expectations import by_wall
from tests.views import OF_POLLS, Reading, reading_of, union

HOUR = 3600.0
PROMISE = by_wall(as_of=0.0, last_advance=500.0)


class Sighting(NamedTuple):
    """What a poll saw of a partition."""

    topic_id: int
    leader: int
    leader_epoch: int
    earliest: int
    latest: int


SEEN = Sighting(1, leader=1, leader_epoch=0, earliest=0, latest=10)


def columns_of(*seen: Sighting | None) -> Sightings:
    kinds = (np.int64, np.int32, np.int32, np.int64, np.int64)
    rows = zip(*(one or SEEN for one in seen), strict=True)
    columns = (np.array(values, kind) for values, kind in zip(rows, kinds, strict=True))
    return Sightings(np.array([one is not None for one in seen]), *columns)


class OneRow:
    """The table of one partition, poll by poll."""

    def __init__(self) -> None:
        self.table = Table.empty(Layout.build({"orders": [0]}))

    def observe(self, seen: Sighting, newest: Answer | None, at: float) -> Reading:
        """Take a good poll; ``newest`` is what MAX_TIMESTAMP answers should it be asked."""
        self.table = observe(self.table, columns_of(seen), at)
        rows = find_unsettled(self.table)
        answers = answers_of([newest] * len(rows))
        no = np.array([False])
        self.table = conclude(self.table, rows, answers, Circumstances(no, no, at + 60.0, at))
        return reading_of(self.table, 0)

    def unread(self) -> Reading:
        self.table = observe(self.table, columns_of(None), 0.0)
        return reading_of(self.table, 0)

    def asks_about(self, moved: Sighting) -> bool:
        return len(find_unsettled(observe(self.table, columns_of(moved), 1.0))) > 0


NEVER, GOOD, REFUSED = None, Answer(4, 100.0), Answer(reason=Reason.STORAGE_ERROR)
OLD = Answer(reason=Reason.UNSUPPORTED_FORMAT)
UNPROVED = Answer(reason=Reason.HIDDEN)

CASES = [
    # earliest, latest, answer, tiered, unsupported, state, reason
    (0, 0, NEVER, False, False, State.NEVER_WRITTEN, None),
    (7, 7, NEVER, False, False, State.EMPTY, None),
    (0, 0, NEVER, False, True, State.NEVER_WRITTEN, None),
    (0, 5, GOOD, False, False, State.OBSERVED, None),
    (0, 5, GOOD, True, False, State.OBSERVED, None),
    (0, 5, Answer(4, 161.0), False, False, State.FUTURE, None),
    (0, 5, Answer(4, None), False, False, State.NO_TIMESTAMP, None),
    (0, 5, Answer(), True, False, State.IDLE_IN_TIER, None),
    (0, 5, Answer(), False, False, State.PENDING, None),
    (0, 5, NEVER, False, False, State.PENDING, None),
    (0, 5, NEVER, False, True, State.UNSUPPORTED, None),
    (9, 5, REFUSED, False, False, State.PENDING, None),
    (0, 5, OLD, False, False, State.NO_TIMESTAMP, None),
    (0, 5, REFUSED, False, False, State.UNREADABLE, Reason.STORAGE_ERROR),
    (3, 5, UNPROVED, False, False, State.UNREADABLE, Reason.HIDDEN),
    (3, 5, UNPROVED, False, True, State.UNSUPPORTED, None),
]


def test_every_answer_has_a_state_or_a_reason() -> None:
    numbers = range(len(CASES))
    table = Table.empty(Layout.build({"orders": numbers}))
    earliest, latest, answers, tiered, unsupported, states, reasons = zip(*CASES, strict=True)
    ends = zip(earliest, latest, strict=True)
    table = observe(table, columns_of(*(SEEN._replace(earliest=one, latest=other) for one, other in ends)), 100.0)
    rows = find_unsettled(table)
    given = Circumstances(np.array(tiered), np.array(unsupported), latest_allowed=160.0)
    table = conclude(table, rows, answers_of(answers[row] for row in rows), given)
    readings = [table.get_row(row) for row in numbers]
    assert [(one.state, one.reason) for one in readings] == list(zip(states, reasons, strict=True))
    dated = (State.OBSERVED, State.FUTURE)
    assert [one.newest is not None for one in readings] == [state in dated for state in states]


@pytest.mark.parametrize(("newest", "state"), [(7_000.0, State.PRESERVED), (9_800.0, State.OBSERVED)])
def test_a_record_older_than_its_writing_kept_the_time_of_elsewhere(newest: float, state: State) -> None:
    """Written after 10,000 and dated more than five minutes before: its own time says nothing of liveness."""
    row = OneRow()
    row.observe(SEEN, Answer(9, newest), at=10_000.0)
    assert row.table.get_row(0).state is State.OBSERVED
    row.observe(SEEN._replace(latest=11), Answer(9, newest), at=10_030.0)
    assert row.table.get_row(0).state is state


def test_records_are_written_after_the_poll_that_did_not_see_them() -> None:
    """That moment is kept while the partition rests, moves with the clock, and is not known before an advance."""
    row = OneRow()
    assert row.observe(SEEN, None, at=100.0).advanced_after is None
    assert row.observe(SEEN._replace(latest=11), None, at=130.0).advanced_after == 100.0
    row.unread()
    row.table = clock_set(row.table, 5.0)
    assert row.observe(SEEN._replace(latest=11), None, at=900.0).advanced_after == 105.0
    assert row.observe(SEEN._replace(latest=5), None, at=930.0).advanced_after == 105.0


LATER = SEEN._replace(latest=14)


@pytest.mark.parametrize(
    ("polls", "expected"),
    [
        ([(SEEN, 100.0)], (100.0, None, None, 100.0, None, 0, False, 1, 0)),
        ([(SEEN, 100.0), (LATER, 130.0)], (130.0, 100.0, 130.0, 130.0, 100.0, 4, False, 1, 0)),
        ([(SEEN, 100.0), (LATER, 130.0), None, (LATER, 900.0)], (900.0, 130.0, 130.0, 130.0, 100.0, 0, False, 2, 1)),
    ],
    ids=["the first poll", "an advance, dated to the poll that saw it", "through unread polls a silence is proved"],
)
def test_what_end_offsets_tell_of_advances(
    polls: list[tuple[Sighting, float] | None], expected: tuple[float | None, ...]
) -> None:
    row = OneRow()
    seen = [row.unread() if polled is None else row.observe(polled[0], None, at=polled[1]) for polled in polls]
    assert tuple(getattr(seen[-1], name) for name in OF_POLLS) == expected


def test_a_partition_that_starts_over_forgets_what_it_was() -> None:
    """No advance is counted after truncation; silence starts anew, and the newest timestamp is not known any more."""
    for seen, advanced_by in ((SEEN._replace(latest=3), 0), (Sighting(2, 1, 0, 0, 2), 2)):
        row = OneRow()
        row.observe(SEEN, Answer(9, 90.0), at=100.0)
        found = row.observe(seen, None, at=130.0)
        assert (found.restarted, found.advanced_by, found.silent_since) == (True, advanced_by, 130.0)
        assert (found.last_advance, found.newest) == (130.0 if advanced_by else None, None)


@pytest.mark.parametrize(
    "moved",
    [
        SEEN._replace(latest=11),
        SEEN._replace(leader=2),
        SEEN._replace(leader_epoch=1),
        SEEN._replace(earliest=1),
        SEEN._replace(topic_id=2),
    ],
)
def test_max_timestamp_is_asked_again_only_after_a_move(moved: Sighting) -> None:
    row = OneRow()
    assert row.asks_about(SEEN)
    row.observe(SEEN, Answer(9, 90.0), at=100.0)
    assert not row.asks_about(SEEN)
    assert row.asks_about(moved)
    row.unread()
    assert not row.asks_about(SEEN)


def _reading(at: float, latest: int = 10) -> Reading:
    return Reading(State.OBSERVED, 1, 0, latest, 50.0, last_good_poll=at, silent_since=at, polls_good=3)


READ = _reading(2000.0)
CARRIED = Silence(500.0, 2000.0, known=True, polls_good=3)
UNSEEN = Silence(2000.0, 2000.0, known=False, polls_good=3, not_before=500.0)


@pytest.mark.parametrize(
    ("reading", "expected"),
    [
        (READ, CARRIED),
        (replace(READ, newest=900.0), UNSEEN),
        (replace(READ, newest=799.0), CARRIED),
        (replace(READ, newest=900.0, state=State.FUTURE), CARRIED),
        (_reading(2000.0, latest=11), UNSEEN),
        (replace(READ, state=State.UNREADABLE, latest=None, before=READ), CARRIED),
    ],
    ids=[
        "LATEST is the published end offset",
        "a later record is there: history missed the last advance",
        "a record within five minutes of the published advance",
        "a later timestamp that shows nothing",
        "a larger LATEST: an unseen advance, at the latest at the first poll",
        "no answer: proved to the last good poll",
    ],
)
def test_what_a_restart_carries_over_of_a_published_silence(reading: Reading, expected: Silence) -> None:
    assert silence_of(reading, PROMISE) == expected


def test_a_timestamp_later_than_its_writing_shows_nothing_when_its_time_has_come() -> None:
    row = OneRow()
    row.observe(SEEN, Answer(9, 150.0), at=100.0)
    assert row.table.get_row(0).state is State.OBSERVED
    row.observe(SEEN._replace(latest=11), Answer(10, 700.0), at=130.0)
    row.observe(SEEN._replace(latest=11), None, at=900.0)
    assert (row.table.get_row(0).state, row.table.get_row(0).newest) == (State.CONTRADICTORY, 700.0)


def test_a_newest_record_that_stays_unproved_is_searched_for_five_minutes() -> None:
    """Then it stays unknown, with its reason, until the partition moves: a search takes many look-ups."""
    row = OneRow()
    row.observe(SEEN, GOOD, at=100.0)
    cut = SEEN._replace(earliest=SEEN.earliest + 1)
    for at, searched in ((160.0, True), (390.0, True), (420.0, True), (450.0, False)):
        assert row.asks_about(cut) == searched
        row.observe(cut, UNPROVED, at=at)
        reading = row.table.get_row(0)
        assert (reading.state, reading.newest, reading.reason) == (State.UNREADABLE, None, Reason.HIDDEN)
    assert row.asks_about(cut._replace(latest=cut.latest + 1))


@pytest.mark.parametrize(
    ("latest", "published"),
    [
        (0, None),  # never written, unknown to the rollup
        (0, replace(PROMISE, end_offset=0, last_advance=None)),
        (10, replace(PROMISE, end_offset=10, last_advance=None)),  # emptied, or written before all history
    ],
)
def test_a_partition_that_never_advanced_does_not_shorten_its_topics_silence(
    latest: int, published: Expectation | None
) -> None:
    """After a start its silence is young only because the process is; the topic's is that of its siblings."""
    never = silence_of(_reading(2000.0, latest=latest), published)
    assert never == Silence(2000.0, 2000.0, known=False, advanced=False, polls_good=3)
    assert union([never, Silence(500.0, 2100.0, known=True)]) == Silence(500.0, 2000.0, known=True, polls_good=3)


@pytest.mark.parametrize("published", [None, PROMISE, replace(PROMISE, end_offset=9, last_advance=None)])
def test_a_partition_that_may_have_advanced_shortens_its_topics_silence(published: Expectation | None) -> None:
    """Where records lie past what history knows, one may have been written just before the first poll."""
    unsure = silence_of(_reading(2000.0, latest=11), published)
    topic = union([unsure, Silence(500.0, 2100.0, known=True)])
    assert topic == Silence(2000.0, 2000.0, known=False, polls_good=3, not_before=500.0)


def test_a_silence_lasts_at_most_since_the_latest_moment_that_is_known_of_any_partition() -> None:
    """By that a topic lives though one of its partitions moved unseen; where nothing is known it may be endless."""
    unsure = Silence(2000.0, 2100.0, known=False)
    after_all = unsure._replace(not_before=700.0)
    known, later = Silence(500.0, 2100.0, known=True), Silence(2050.0, 2100.0, known=True)
    together = [union([unsure]), union([unsure, known]), union([after_all, known]), union([unsure, later])]
    assert silences_in(together).longest.tolist() == [math.inf, 1600.0, 1400.0, 50.0]


def test_a_silence_that_this_process_has_hardly_seen_is_settling_until_the_third_poll() -> None:
    """Two good polls after a start are too few for news; an advance that it saw itself ends the waiting."""
    row = OneRow()
    seen = [row.observe(SEEN, None, at=at) for at in (100.0, 130.0, 160.0)]
    silences = [silence_of(reading, PROMISE) for reading in seen]
    assert [silence is not None and silence.settling for silence in silences] == [True, True, False]
    moved = row.observe(SEEN._replace(latest=11), None, at=190.0)
    assert silence_of(moved, PROMISE) == Silence(190.0, 190.0, True, polls_good=1)


def test_polls_that_could_not_read_are_counted_for_the_silence_they_lie_in() -> None:
    """A partition's own failures and those of the whole cluster count until it advances."""
    row = OneRow()
    row.observe(SEEN, None, at=100.0)
    row.unread()
    row.table = miss_poll(row.table)
    silent = row.observe(SEEN, None, at=190.0)
    assert (silent.polls_good, silent.polls_missed) == (2, 2)
    moved = row.observe(SEEN._replace(latest=11), None, at=220.0)
    assert (moved.polls_good, moved.polls_missed) == (1, 0)


def test_a_topic_is_silent_only_since_its_last_partition_fell_silent() -> None:
    """The union starts at the latest advance proved to the earliest last good poll; one never read proves none."""
    first, last = Silence(10.0, 100.0, known=True), Silence(40.0, 90.0, known=True)
    assert union([first, last]) == Silence(40.0, 90.0, known=True)
    assert union([first, None]) == Silence(10.0, 10.0, known=True)
    assert union([None, None]) is None

"""Time lag by look-ups of times: against an offline model of a broker, over logs of every kind."""

import itertools
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from exporter.domain.arrays import Rows
from exporter.domain.groups.consumer_groups import NoTimeLag
from exporter.domain.groups.positions import outcome_code
from exporter.domain.groups.time_lag import CommitProgress, TimeLagLimits, TimeLagSearches, are_trailing
from exporter.domain.groups.time_points import NEWEST_KEPT, Points
from exporter.domain.polls.readings import ANSWERED, TopicPartition
from tests.groups import Group, GroupPartition, positions_of
from tests.timelog import Log

NOW = 1_767_225_600_000
HOUR = 3_600_000
DAY = 24 * HOUR
SLACK = 60_000


class TimestampRange(NamedTuple):
    """T of one committed offset lies within these, Unix milliseconds."""

    low: int
    high: int


@dataclass(frozen=True)
class Search:
    """How the search for T of one committed offset ended."""

    found: TimestampRange | NoTimeLag
    tolerance: int
    compacted: bool
    lookups: int
    """Those of its partition."""


@dataclass
class Known:
    points: Points = field(default_factory=lambda: Points.blank(0))

    def add(self, points: Sequence[tuple[int, int, int, int | None]]) -> None:
        """Add points (row, offset, target, timestamp) of one step."""
        rows, offsets, targets, timestamps = zip(*points, strict=True)
        self.points, _ = self.points.extend(
            Points(
                np.array(rows, dtype=np.intp),
                np.array(offsets, dtype=np.int64),
                np.array(targets, dtype=np.int64),
                np.array([each or 0 for each in timestamps], dtype=np.int64),
                np.array([each is not None for each in timestamps], dtype=np.bool_),
            )
        )


def search_offsets(
    log: Log, known: Known, committed: Iterable[int], *, tolerance: int = 1000, now: int = NOW, compacted: bool = False
) -> dict[int, Search]:
    """Search for T of each committed offset of a partition as a sweep does."""
    known.points = known.points[known.points.offset >= log.earliest]
    offsets = sorted(set(committed))
    rows = np.zeros(len(offsets), dtype=np.intp)
    return searched(log, known, rows, offsets, TimeLagLimits(now, tolerance, SLACK), compacted=compacted)


def search_apart(
    log: Log, committed: Sequence[int], *, tolerance: int = 1000, compacted: bool = False
) -> dict[int, Search]:
    """Search for T of each committed offset in a partition of its own, of which nothing is known."""
    rows = np.arange(len(committed), dtype=np.intp)
    return searched(log, Known(), rows, committed, TimeLagLimits(NOW, tolerance, SLACK), compacted=compacted)


def searched(
    log: Log, known: Known, rows: Rows, committed: Sequence[int], limits: TimeLagLimits, *, compacted: bool
) -> dict[int, Search]:
    """Make every search one step at a time, until all are finished."""
    offsets = np.array(committed, dtype=np.int64)
    start = np.maximum(offsets, log.earliest)
    behind = start < log.latest
    count = int(behind.sum())
    searches = TimeLagSearches.begin(
        limits, rows[behind], start[behind], np.full(count, log.latest), np.full(count, compacted)
    )
    lookups = np.zeros(len(rows), dtype=np.int64)
    for _ in range(500):
        pending, targets = searches.step(known.points)
        if not len(pending):
            known.points = known.points.trim(rows, offsets)
            return {
                offset: ended(searches, at, int(lookups[searches.row[at]]))
                for at, offset in enumerate(offsets[behind].tolist())
            }
        assert (targets >= 0).all()
        wanted = sorted(set(zip(searches.row[pending].tolist(), targets.tolist(), strict=True)))
        answers = [(row, target, log.first_from(target)) for row, target in wanted]
        np.add.at(lookups, [row for row, _ in wanted], 1)
        known.add(
            [(row, *((log.latest, t, None) if found is None else (found[0], t, found[1]))) for row, t, found in answers]
        )
    raise AssertionError(f"no end after 500 rounds: {searches}")


def ended(searches: TimeLagSearches, at: int, lookups: int) -> Search:
    code, bracket = searches.outcome[at], TimestampRange(int(searches.low[at]), int(searches.high[at]))
    reasons = {outcome_code(reason): reason for reason in NoTimeLag}
    found = bracket if code == ANSWERED else reasons[int(code)]
    return Search(found, searches.limits.tolerance, bool(searches.compacted[at]), lookups)


def holds(log: Log, search: Search, committed: int, *, now: int = NOW) -> None:
    """Assert that what was found contains the truth, and is as narrow as promised."""
    truth = log.truth(committed, compacted=search.compacted)
    assert truth is not None
    if search.found is NoTimeLag.FUTURE:
        assert truth > now + SLACK
        return
    assert isinstance(search.found, TimestampRange)
    smallest, largest = max(0, now - search.found.high), max(0, now - search.found.low)
    assert smallest <= max(0, now - truth) <= largest
    assert search.found.high - search.found.low <= max(search.tolerance, 0.05 * smallest + 1)


PAUSES = (3, 2000, 10 * HOUR, 400 * DAY, 0)
"""The longest time between two records, of each kind of pause."""


@st.composite
def logs(draw: st.DrawFn, *, compacted: bool = False) -> Log:
    """Logs in every order: rising, with ties, late, back-dated, from the future; with gaps where compacted."""
    size = draw(st.integers(1, 40))
    # Bytes for all records at once, because draws take longer than the searches.
    drawn = draw(st.binary(min_size=3 * size, max_size=3 * size))
    pauses = [
        (longest + 1) * (256 * high + low) // 2**16
        for longest, high, low in zip(
            (PAUSES[kind % len(PAUSES)] for kind in drawn[::3]), drawn[1::3], drawn[2::3], strict=True
        )
    ]
    times = list(itertools.accumulate(pauses, initial=draw(st.sampled_from([0, NOW - 30 * DAY, NOW - HOUR]))))[1:]
    end = draw(st.sampled_from([None, NOW, NOW - DAY, NOW + SLACK]))
    if end is not None:
        times = [time - max(0, times[-1] - end) for time in times]
    for at in draw(st.lists(st.integers(0, size - 1), max_size=size // 3)):
        times[at] = draw(st.one_of(st.integers(0, NOW), st.integers(NOW - 10_000, NOW + DAY), st.just(NOW + 10**15)))
    steps = [1 + each % 4 for each in draw(st.binary(min_size=size, max_size=size))] if compacted else [1] * size
    offsets = [offset - 1 for offset in itertools.accumulate(steps)]
    return Log([(offset, max(0, time)) for offset, time in zip(offsets, times, strict=True)], latest=offsets[-1] + 1)


@given(st.one_of(logs(), logs(compacted=True)), st.sampled_from([0, 1, 1000, 30_000]), st.booleans())
@settings(max_examples=200)
def test_what_is_found_contains_the_truth(log: Log, tolerance: int, compacted: bool) -> None:
    """For every committed offset of any log, also one that is missing, T as defined, and as narrow as asked."""
    for committed, search in search_apart(log, range(log.latest), tolerance=tolerance, compacted=compacted).items():
        holds(log, search, committed)


@given(logs(), st.data())
@settings(max_examples=60)
def test_many_groups_and_many_looks(log: Log, data: st.DataObject) -> None:
    """Points shared by groups prove nothing false from look to look, while a log grows and its start is cut off."""
    known, grown = Known(), Log([], 0)
    committed = dict.fromkeys("abc", 0)
    newest = dict.fromkeys("abc", -1)
    while len(log.records) > (there := grown.latest):
        grown.records += log.records[there : there + data.draw(st.integers(1, 6))]
        grown.latest = grown.records[-1][0] + 1
        for group in data.draw(st.sets(st.sampled_from("abc"))):
            committed[group] = data.draw(st.integers(committed[group], grown.latest))
        if data.draw(st.integers(0, 9)) == 0:
            grown.delete_before(data.draw(st.integers(grown.earliest, grown.latest)))
            newest = dict.fromkeys("abc", -1)
        found = search_offsets(grown, known, committed.values())
        for group, offset in committed.items():
            if offset in found and grown.records:
                holds(grown, found[offset], max(offset, grown.earliest))
                bracket = found[offset].found
                if isinstance(bracket, TimestampRange):
                    assert bracket.high >= newest[group] or bracket.high >= NOW
                    newest[group] = max(newest[group], bracket.low)
        assert len(known.points) <= NEWEST_KEPT + 4 * len(committed)


@given(logs())
@example(Log([(0, 0), (1, 0), (2, NOW - 1), (3, NOW)], 4))
@settings(max_examples=150)
def test_t_never_moves_back_and_the_number_of_lookups_is_bounded(log: Log) -> None:
    assert all(search.lookups <= 40 for search in search_apart(log, range(log.latest)).values())
    found = search_offsets(log, Known(), range(log.latest))
    brackets = [search.found for _, search in sorted(found.items()) if isinstance(search.found, TimestampRange)]
    assert all(one.low <= two.low for one, two in itertools.pairwise(brackets))


def rising(records: int, seconds: float, end: int = NOW, seed: int = 1) -> Log:
    """Records at random moments, ``seconds`` apart on average, up to ``end``."""
    source = random.Random(seed)
    pauses = [round(source.expovariate(1 / seconds) * 1000) for _ in range(records)]
    times = list(itertools.accumulate(pauses))
    return Log([(offset, end - times[-1] + time) for offset, time in enumerate(times)], records)


def test_a_first_look_costs_a_few_lookups() -> None:
    log = rising(60_000, 10.0)
    found = search_apart(log, random.Random(2).sample(range(log.latest), 300))
    counts = sorted(search.lookups for search in found.values())
    assert counts[150] <= 4 and counts[-1] <= 7


def test_a_group_that_keeps_up_costs_one_lookup_a_look() -> None:
    log, known, grown = rising(60_000, 0.1), Known(), Log([], 0)
    looks = range(30_000, log.latest, 600)
    for end in looks:
        grown.records += log.records[grown.latest : end]
        grown.latest, now = end, grown.records[-1][1]
        if end == looks[1]:
            grown.lookups = 0
        found = search_offsets(grown, known, [end - 20], now=now, tolerance=5000)
        holds(grown, found[end - 20], end - 20, now=now)
    assert grown.lookups <= 1.2 * len(looks)


@pytest.mark.parametrize("committed", [51, 60])
def test_the_end_of_an_earlier_look_is_no_bound_in_a_compacted_topic(committed: int) -> None:
    """No record up to there was newer, but those from the committed offset on may be gone: a later one counts."""
    known, log = Known(), Log([(0, NOW - 40 * DAY), (80, NOW - 60_000)], 81)
    known.add([(0, 0, 0, NOW - 40 * DAY), (0, 60, NOW - 40 * DAY + 1, None)])
    found = search_offsets(log, known, [committed], compacted=True)[committed].found
    assert found == TimestampRange(NOW - 60_000, NOW - 60_000)


@pytest.mark.parametrize(
    ("moves", "trailing"),
    [
        ([(7, 3, 0)], True),
        ([(7, 10, 0)], True),
        ([(7, 11, 0)], False),
        ([(7, 0, 0)], False),
        ([(7, 3, 0), (7, 4, 60)], True),
        ([(7, 3, 0), (7, 4, 901)], False),
        ([(7, 3, 0), (7, 4, 901), (7, 4, 2000)], False),
        ([(7, 3, 0), (7, 4, 901), (8, 3, 2000)], True),
        ([(5, 5, 0), (7, 3, 2000), (7, 3, 9000)], True),
    ],
)
def test_few_offsets_at_the_end_of_a_quiet_log_may_be_markers(
    moves: list[tuple[int, int, int]], trailing: bool
) -> None:
    """(Committed offset, lag, seconds): not where records came long after the last commit, until the next one."""
    key = TopicPartition("a", 0)
    before, progress = positions_of({}), CommitProgress.blank(0)
    for committed, lag, seconds in moves:
        now = positions_of({"g": Group(partitions={key: GroupPartition(committed, lag, 0)})})
        progress = progress.follow(before, now, *now.rows.moves_from(before.rows), float(seconds))
        before = now
    for quiet_for, expected in ((901.0, trailing), (899.0, False), (np.nan, False)):
        assert are_trailing(before.lag, np.array([quiet_for]), progress.added).tolist() == [expected]

"""Time lag by look-ups of times: against an offline model of a broker, over logs of every kind."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from exporter.domain import NoTimeLag
from exporter.domain.time_lag import POINTS_PER_PARTITION, Point, Points, Search, TimestampRange
from tests.timelog import Log

NOW = 1_767_225_600_000
HOUR = 3_600_000
DAY = 24 * HOUR
SLACK = 60_000


def search_offsets(
    log: Log,
    points: Points,
    committed: Iterable[int],
    *,
    tolerance: int = 1000,
    now: int = NOW,
    compacted: bool = False,
) -> dict[int, Search]:
    """Search for T of each committed offset as a sweep does, every search one step at a time."""
    points.renew("id", log.earliest, log.latest)
    searches = {
        offset: Search(max(offset, log.earliest), log.latest, now, tolerance, SLACK, compacted)
        for offset in set(committed)
        if max(offset, log.earliest) < log.latest
    }
    for _ in range(500):
        targets = {target for search in searches.values() if (target := search.next(points)) is not None}
        if not targets:
            points.trim(list(committed))
            return searches
        for target in targets:
            assert target >= 0
            answer = log.first_from(target)
            points.add(Point(log.latest, target, None) if answer is None else Point(answer[0], target, answer[1]))
    raise AssertionError(f"no end after 500 rounds: {searches}")


def lag_of(found: TimestampRange, now: int = NOW) -> tuple[float, float]:
    """The smallest and the largest time lag that an exported value and its error bound allow."""
    return max(0, now - found.high), max(0, now - found.low)


def holds(log: Log, search: Search, committed: int, *, now: int = NOW) -> None:
    """Assert that what was found contains the truth, and is as narrow as promised."""
    truth = log.truth(committed, compacted=search.compacted)
    assert truth is not None
    if search.found is NoTimeLag.FUTURE:
        assert truth > now + SLACK
        return
    assert isinstance(search.found, TimestampRange)
    smallest, largest = lag_of(search.found, now)
    assert smallest <= max(0, now - truth) <= largest
    assert search.found.high - search.found.low <= max(search.tolerance, 0.05 * smallest + 1)


@st.composite
def logs(draw: st.DrawFn, *, compacted: bool = False) -> Log:
    """Logs in every order: rising, with ties, late, back-dated, from the future; with gaps where compacted."""
    size = draw(st.integers(1, 40))
    pauses = draw(
        st.lists(
            st.one_of(
                st.integers(0, 3),
                st.integers(0, 2000),
                st.integers(0, 10 * HOUR),
                st.integers(0, 400 * DAY),
                st.just(0),
            ),
            min_size=size,
            max_size=size,
        )
    )
    times = list(itertools.accumulate(pauses, initial=draw(st.sampled_from([0, NOW - 30 * DAY, NOW - HOUR]))))[1:]
    end = draw(st.sampled_from([None, NOW, NOW - DAY, NOW + SLACK]))
    if end is not None:
        times = [time - max(0, times[-1] - end) for time in times]
    for at in draw(st.lists(st.integers(0, size - 1), max_size=size // 3)):
        times[at] = draw(st.one_of(st.integers(0, NOW), st.integers(NOW - 10_000, NOW + DAY), st.just(NOW + 10**15)))
    steps = draw(st.lists(st.integers(1, 4), min_size=size, max_size=size)) if compacted else [1] * size
    offsets = [offset - 1 for offset in itertools.accumulate(steps)]
    return Log([(offset, max(0, time)) for offset, time in zip(offsets, times, strict=True)], latest=offsets[-1] + 1)


@given(logs(), st.sampled_from([0, 1, 1000, 30_000]))
def test_what_is_found_contains_the_truth(log: Log, tolerance: int) -> None:
    """For every committed offset of any log the bracket contains T as defined, and is as narrow as asked."""
    for committed in range(log.latest):
        search = search_offsets(log, Points(), [committed], tolerance=tolerance)[committed]
        holds(log, search, committed)


@given(logs(compacted=True), st.booleans())
def test_gaps(log: Log, compacted: bool) -> None:
    """The same where offsets are missing, which a committed offset may be too."""
    for committed in range(log.latest):
        search = search_offsets(log, Points(), [committed], compacted=compacted)[committed]
        holds(log, search, committed)


@given(logs(), st.data())
@settings(max_examples=60)
def test_many_groups_and_many_looks(log: Log, data: st.DataObject) -> None:
    """Points shared by groups prove nothing false from look to look, while a log grows and its start is cut off."""
    points, grown = Points(), Log([], 0)
    committed = dict.fromkeys("abc", 0)
    newest = dict.fromkeys("abc", -1)
    for each in log.records:
        grown.records.append(each)
        grown.latest = each[0] + 1
        for group in data.draw(st.sets(st.sampled_from("abc"))):
            committed[group] = data.draw(st.integers(committed[group], grown.latest))
        if data.draw(st.integers(0, 9)) == 0:
            grown.delete_before(data.draw(st.integers(grown.earliest, grown.latest)))
            newest = dict.fromkeys("abc", -1)
        found = search_offsets(grown, points, committed.values())
        for group, offset in committed.items():
            if offset in found and grown.records:
                holds(grown, found[offset], max(offset, grown.earliest))
                bracket = found[offset].found
                if isinstance(bracket, TimestampRange):
                    assert bracket.high >= newest[group] or bracket.high >= NOW
                    newest[group] = max(newest[group], bracket.low)
        assert len(points) <= POINTS_PER_PARTITION


@given(logs())
def test_t_never_moves_back(log: Log) -> None:
    """T rises with the committed offset, whatever the order of the timestamps: both ends of its bracket do."""
    points = Points()
    found = search_offsets(log, points, range(log.latest))
    brackets = [search.found for _, search in sorted(found.items()) if isinstance(search.found, TimestampRange)]
    assert all(one.low <= two.low for one, two in itertools.pairwise(brackets))


@given(logs())
@example(Log([(0, 0), (1, 0), (2, NOW - 1), (3, NOW)], 4))
@settings(max_examples=300)
def test_the_number_of_lookups_is_bounded(log: Log) -> None:
    """No log, however made, costs more than 40 look-ups for an offset of which nothing is known."""
    for committed in range(log.latest):
        log.lookups = 0
        search_offsets(log, Points(), [committed])
        assert log.lookups <= 40


def rising(records: int, seconds: float, end: int = NOW, seed: int = 1) -> Log:
    """Records at random moments, ``seconds`` apart on average, up to ``end``."""
    source = random.Random(seed)
    pauses = [round(source.expovariate(1 / seconds) * 1000) for _ in range(records)]
    times = list(itertools.accumulate(pauses))
    return Log([(offset, end - times[-1] + time) for offset, time in enumerate(times)], records)


def cold(log: Log, offsets: Sequence[int]) -> list[int]:
    """Look-ups for each committed offset, of which nothing is known."""
    counts = []
    for committed in offsets:
        log.lookups = 0
        search_offsets(log, Points(), [committed])
        counts.append(log.lookups)
    return sorted(counts)


def test_a_first_look_costs_a_few_lookups() -> None:
    """On a steady topic of a week an offset of which nothing is known costs 4 look-ups at the median, 7 at most."""
    log = rising(60_000, 10.0)
    counts = cold(log, random.Random(2).sample(range(log.latest), 300))
    assert counts[150] <= 4 and counts[-1] <= 7


def test_a_group_that_keeps_up_costs_one_lookup_a_look() -> None:
    """A group 20 records behind a topic of ten records a second costs about one look-up a minute, not more."""
    log, points = rising(60_000, 0.1), Points()
    counts = []
    for end in range(30_000, log.latest, 600):
        grown = Log(log.records[:end], end)
        now = grown.records[-1][1]
        found = search_offsets(grown, points, [end - 20], now=now, tolerance=5000)
        holds(grown, found[end - 20], end - 20, now=now)
        counts.append(grown.lookups)
    assert sum(counts[1:]) <= 1.2 * len(counts)


def test_a_group_that_stopped_costs_nothing() -> None:
    """Where the committed offset has not moved its bracket is still true: nothing is asked, as the lag grows."""
    log, points = rising(10_000, 1.0), Points()
    search_offsets(log, points, [5000])
    lookups = log.lookups
    for minutes in range(1, 60):
        found = search_offsets(log, points, [5000], now=NOW + minutes * 60_000)
        holds(log, found[5000], 5000, now=NOW + minutes * 60_000)
    assert log.lookups == lookups


def test_the_unread_record_of_a_slow_topic_is_hit() -> None:
    """At one record an hour the timestamp of the record is found to the millisecond, not a rate guessed."""
    log = Log([(offset, NOW - 45 * 60_000 - (99 - offset) * HOUR) for offset in range(100)], 100)
    assert search_offsets(log, Points(), [99])[99].found == TimestampRange(NOW - 45 * 60_000, NOW - 45 * 60_000)


def test_ties_are_exact() -> None:
    """Where records share a timestamp T is that timestamp, for each of them."""
    log = Log([(offset, NOW - DAY + offset // 50 * HOUR) for offset in range(200)], 200)
    for committed in range(200):
        found = search_offsets(log, Points(), [committed], tolerance=0)[committed].found
        assert isinstance(found, TimestampRange)
        assert found.low <= log.records[committed][1] <= found.high
        assert found.high - found.low <= 0.05 * (NOW - found.high)


def test_a_late_record_counts_with_those_before_it() -> None:
    """A record dated years back does not make the lag years long: T stays with what was written before it."""
    log = Log([(0, NOW - 3000), (1, NOW - 2000), (2, NOW - 1000 * DAY), (3, NOW - 500)], 4)
    assert search_offsets(log, Points(), [2], tolerance=0)[2].found == TimestampRange(NOW - 2000, NOW - 2000)


def test_a_future_timestamp_is_the_reason_that_hides_what_follows() -> None:
    """Behind a record from the future there is no time lag but a reason; before it there is one."""
    log = Log([(0, NOW - HOUR), (1, NOW + 365 * DAY), (2, NOW - 2000), (3, NOW - 1000)], 4)
    found = search_offsets(log, Points(), [0, 1, 2, 3], tolerance=0)
    assert found[0].found == TimestampRange(NOW - HOUR, NOW - HOUR)
    assert [found[offset].found for offset in (1, 2, 3)] == [NoTimeLag.FUTURE] * 3


def test_a_clock_slightly_ahead_is_no_future() -> None:
    """A timestamp within the slack counts as now: the lag is 0."""
    log = Log([(0, NOW - HOUR), (1, NOW + SLACK // 2), (2, NOW + SLACK // 2)], 3)
    found = search_offsets(log, Points(), [2], tolerance=0)[2].found
    assert isinstance(found, TimestampRange) and lag_of(found) == (0, 0)


def test_records_without_timestamps_have_none() -> None:
    """Where no record carries a timestamp the reason says so."""
    assert search_offsets(Log([], 10), Points(), [5])[5].found is NoTimeLag.NO_TIMESTAMP


def test_below_the_log_start_the_first_record_counts() -> None:
    """A group whose next records were deleted is as late as the first one that is left."""
    log = rising(1000, 60.0)
    log.delete_before(400)
    assert search_offsets(log, Points(), [10])[10].found == TimestampRange(log.records[0][1], log.records[0][1])


def test_compaction_leaves_the_next_newer_record() -> None:
    """Where the records from the committed offset on were compacted away, the next one counts, not the last read."""
    log = Log([(0, NOW - 40 * DAY), (50, NOW - 30 * DAY), (80, NOW - 60_000)], 81)
    assert search_offsets(log, Points(), [51], compacted=True)[51].found == TimestampRange(NOW - 60_000, NOW - 60_000)


def test_points_are_forgotten_when_offsets_start_over() -> None:
    """A topic made again, or cut back, is searched from nothing: old points are of other records."""
    points = Points()
    search_offsets(rising(1000, 60.0), points, [500])
    assert len(points) > 0
    points.renew("id", 0, 999)
    assert len(points) == 0
    search_offsets(rising(1000, 60.0), points, [500])
    points.renew("another", 0, 2000)
    assert len(points) == 0


def test_an_answer_that_contradicts_what_was_proved_wins() -> None:
    """Where records were removed between two answers the new one stands and the old ones are forgotten."""
    points = Points()
    points.renew("id", 0, 1000)
    points.add(Point(100, 5000, 6000))
    points.add(Point(200, 9000, 9500))
    points.add(Point(300, 5500, 9900))
    assert points.up_to(250) is None
    assert points.up_to(300) == Point(300, 5500, 9900)


def test_hundreds_of_groups_on_one_partition_keep_their_points() -> None:
    """Past 64 points each committed offset keeps the two around it, so a second look asks nothing."""
    log, points = rising(20_000, 1.0), Points()
    committed = random.Random(3).sample(range(log.latest), 200)
    search_offsets(log, points, committed)
    assert POINTS_PER_PARTITION < len(points) <= 4 * len(committed)
    log.lookups = 0
    search_offsets(log, points, committed)
    assert log.lookups == 0


@pytest.mark.parametrize("compacted", [False, True])
def test_bursts(compacted: bool) -> None:
    """On a topic of bursts with hours in between, each offset's bracket is right and found in few look-ups."""
    source = random.Random(4)
    times: list[int] = []
    for burst in range(40):
        begins = NOW - (40 - burst) * 6 * HOUR
        times += sorted(begins + source.randrange(2000) for _ in range(500))
    log = Log(list(enumerate(times)), len(times))
    counts = []
    for committed in source.sample(range(log.latest), 300):
        log.lookups = 0
        search = search_offsets(log, Points(), [committed], compacted=compacted)[committed]
        holds(log, search, committed)
        counts.append(log.lookups)
    assert sorted(counts)[150] <= 8 and max(counts) <= 40

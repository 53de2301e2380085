"""Backfill against a log in memory that answers as a broker does; the real broker has tests of its own."""

import math
from collections.abc import Sequence
from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from exporter.domain.history.rows import Window
from exporter.domain.polls.readings import Reason, TopicPartition
from tests.unit.past_logs import HOUR, KEY, NOW, Log, Logs, SegmentedLog, run


def moments_of(windows: Sequence[Window]) -> list[tuple[float, float, int | None, float | None, float | None]]:
    return [(w.window_start / HOUR, w.window_end / HOUR, w.records, w.first_advance, w.last_advance) for w in windows]


@given(st.lists(st.floats(50 * HOUR, NOW), max_size=60).map(sorted), st.integers(0, 1000), st.sampled_from([30, 400]))
def test_every_hour_with_records_has_one_exact_window(times: list[float], start: int, hours: int) -> None:
    times = [math.floor(time * 1000) / 1000 for time in times]
    source = Logs({KEY: Log(times, start)})
    windows = run(source, hours).windows
    first_hour = math.floor((max(times, default=NOW) - hours * HOUR) / HOUR)
    by_hour: dict[int, list[float]] = {}
    for time in times:
        by_hour.setdefault(math.floor(time / HOUR), []).append(time)
    expected = []
    for hour, within in sorted(by_hour.items()):
        if hour >= first_hour:
            last = within[-1] if within[-1] == times[-1] else within[0]
            expected.append((float(hour), min(hour + 1, NOW / HOUR), len(within), within[0], last))
    assert moments_of(windows) == expected
    assert all(w.resolution_seconds == HOUR for w in windows)
    ends = [w.end_offset for w in windows]
    assert [w.start_offset for w in windows[1:]] == ends[:-1]
    assert ends[-1:] == ([start + len(times)] if windows else [])


@given(st.lists(st.floats(101 * HOUR, NOW), max_size=150))
def test_no_order_of_records_loses_one(times: list[float]) -> None:
    windows = run(Logs({KEY: Log(times)})).windows
    assert sum(w.records or 0 for w in windows) == len(times)
    assert all(left.window_end <= right.window_start for left, right in pairwise(windows))


def test_a_future_record_hides_the_hours_after_it() -> None:
    times = [450.2 * HOUR, 451.1 * HOUR, 451.9 * HOUR, 9000 * HOUR, 460.5 * HOUR, 470.5 * HOUR]
    windows = run(Logs({KEY: Log(times)})).windows
    assert moments_of(windows) == [
        (450, 451, 1, 450.2 * HOUR, 450.2 * HOUR),
        (451, 452, 2, 451.1 * HOUR, 451.1 * HOUR),
        (452, NOW / HOUR, 3, None, None),
    ]
    hidden = windows[-1]
    assert (hidden.future_timestamps, hidden.resolution_seconds) == (1, NOW - 452 * HOUR)
    assert (hidden.start_offset, hidden.end_offset) == (3, 6)


def test_a_future_record_in_the_hour_of_the_cutoff_or_before_all_others_hides_what_is_known_there() -> None:
    for times, window in (
        ([450.2 * HOUR, 500.1 * HOUR, 9000 * HOUR], (500, NOW / HOUR, 2, None, None)),
        ([9000 * HOUR, 450 * HOUR], (400, NOW / HOUR, 2, None, None)),
        ([NOW + 50], (500, NOW / HOUR, 1, NOW, NOW)),
    ):
        windows = run(Logs({KEY: Log(times)}), 100).windows
        assert moments_of(windows)[-1] == window
        assert len(windows) == 1 + (times[0] == 450.2 * HOUR)


def test_history_ends_where_the_exporter_began() -> None:
    """The last window ends at the first poll; polls cover later records. The inventory has what backfill itself saw."""
    polled = 480 * HOUR + 600
    times = [450 * HOUR, 480 * HOUR + 60, 480 * HOUR + 700, 490 * HOUR]
    windows, inventory, _, (coverage,) = run(Logs({KEY: Log(times)}), polls={("t", "id", 0): (2, polled)})
    assert moments_of(windows) == [
        (450, 451, 1, 450 * HOUR, 450 * HOUR),
        (480, polled / HOUR, 1, 480 * HOUR + 60, 480 * HOUR + 60),
    ]
    assert coverage.last_good_poll == coverage.window_end == polled
    assert (inventory[0].latest_offset, inventory[0].observed_at) == (4, NOW)


def test_a_topic_created_again_since_the_first_poll_has_nothing_to_backfill() -> None:
    """An end offset below that of the first poll means that polls saw every record."""
    windows, inventory, *_ = run(Logs({KEY: Log([490 * HOUR])}), polls={("t", "id", 0): (7, 480 * HOUR)})
    assert windows == []
    assert (inventory[0].latest_offset, inventory[0].observed_at) == (1, NOW)


def test_a_partition_that_fails_costs_only_itself() -> None:
    logs = {TopicPartition("t", n): Log([450 * HOUR]) for n in range(3)}
    logs[TopicPartition("t", 1)].unread = Reason.NOT_LEADER
    windows, inventory, result, _ = run(Logs(logs, unled={TopicPartition("t", 2)}), 100)
    assert [(w.partition, w.reason, w.polls_ok, w.records) for w in windows] == [
        (0, None, 1, 1),
        (1, "not-leader", 0, None),
        (2, "no-leader", 0, None),
    ]
    assert (windows[1].window_start, windows[1].window_end) == (NOW - 100 * HOUR, NOW)
    assert set(result.failed) == {TopicPartition("t", 1), TopicPartition("t", 2)}
    assert [(row.state, row.reason) for row in inventory][2] == ("unreadable", "no-leader")


def test_the_horizon_lies_before_the_newest_record() -> None:
    """What a partition was like before it died is found however long ago that was, for no more look-ups."""
    now = 20_000 * HOUR
    times = [now - 9000 * HOUR + day * 24 * HOUR for day in range(30)]
    later = [time + 8304 * HOUR for time in times]
    dead, living = Logs({KEY: Log(times)}, moment=now), Logs({KEY: Log(later)}, moment=now)
    assert len(run(dead, 10 * 24).windows) == len(run(living, 10 * 24).windows) == 11
    assert dead.lookup_count <= living.lookup_count


@given(
    st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=12),
    st.lists(st.floats(450 * HOUR, NOW), min_size=60, max_size=60).map(sorted),
)
@example([(0, True), (1, False)], [NOW] * 60)
def test_segments_that_hide_records_never_make_a_silence(
    segments: list[tuple[int, bool]], moments: list[float]
) -> None:
    """Whatever segments without records a broker looks into: each record lies in a window, and none counts twice."""
    moments = [math.floor(time * 1000) / 1000 for time in moments]
    times: list[float] = []
    made = []
    for number, (count, leftover) in enumerate(segments):
        mine = moments[5 * number : 5 * number + count]
        times += mine
        made.append((count, moments[5 * number + 4] if leftover else max(mine, default=0.0)))
    if not times:
        return
    log = SegmentedLog(times, segments=made)
    windows = run(Logs({KEY: log}), 100).windows
    assert all(left.window_end <= right.window_start for left, right in pairwise(windows))
    assert sum(window.records or 0 for window in windows) == len(times)
    for time in times:
        assert any(window.window_start <= time <= window.window_end for window in windows), time
    exact = [window for window in windows if window.first_advance is not None]
    assert all(window.first_advance in times for window in exact)
    if log.at_or_after(times[-1]).offset is not None:  # else a segment before it hides the newest record too
        assert exact[-1].last_advance == times[-1]


def test_an_empty_partition_has_an_inventory_row_and_no_window() -> None:
    logs = {TopicPartition("empty", 0): Log([], 5), TopicPartition("never", 0): Log([])}
    windows, inventory, *_ = run(Logs(logs))
    assert windows == []
    assert [(row.topic, row.state) for row in inventory] == [("empty", "empty"), ("never", "never-written")]


def test_what_is_in_the_history_is_not_read_again() -> None:
    logs = {TopicPartition("t", n): Log([450.5 * HOUR]) for n in range(3)}
    logs[TopicPartition("t", 1)].unread = Reason.NOT_LEADER
    first = run(Logs(logs), 100)
    assert (set(first.result.failed), first.result.already_written) == ({TopicPartition("t", 1)}, 0)
    written = [("t", row.topic_id, row.partition) for row in first.inventory if row.latest_offset]
    logs[TopicPartition("t", 1)].unread = None
    second = run(Logs(logs), 100, backfilled=written)
    assert ([w.partition for w in second.windows], second.result.already_written) == ([1], 2)
    nothing = Logs(logs)
    assert run(nothing, 100, backfilled=[("t", "id", n) for n in range(3)]).windows == []
    assert (nothing.lookup_count, nothing.newest_count) == (0, 0)
    other = run(Logs(logs), 100, backfilled=[("t", "old", n) for n in range(3)])
    assert len(other.windows) == 3


def test_a_broker_that_is_gone_is_not_asked_batch_after_batch() -> None:
    logs = {TopicPartition("t", n): Log([450.5 * HOUR], unread=Reason.LEADER_UNREACHABLE) for n in range(100)}
    source = Logs(logs)
    result = run(source, 150_000).result
    assert set(result.failed.values()) == {Reason.LEADER_UNREACHABLE}
    assert len(result.failed) == 100
    assert source.newest_count == 1


def test_a_topic_without_a_known_id_is_not_written() -> None:
    """Without the topic id two runs would write two histories, so the partition fails with the reason."""
    windows, inventory, result, _ = run(Logs({KEY: Log([450.5 * HOUR])}, unidentified={"t": Reason.TIMED_OUT}))
    assert [window.reason for window in windows] == ["timed-out"]
    assert [row.latest_offset for row in inventory] == [None]
    assert result.failed == {KEY: Reason.TIMED_OUT}

"""Backfill against a log in memory that answers as a broker does; the real broker has tests of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from exporter.kafka.backfill import BackfillResult, backfill
from exporter.model import Answer, Metadata, PartitionInfo, Reason, TopicConfig, TopicInfo, TopicPartition, Window
from exporter.poller import Extent

HOUR = 3600.0
NOW = 500 * HOUR + 1234.5
KEY = TopicPartition("t", 0)


@dataclass
class Log:
    """One partition's records as timestamps in offset order, the first at ``start``."""

    times: Sequence[float]
    start: int = 0
    unread: Reason | None = None

    def end(self) -> int:
        return self.start + len(self.times)

    def at_or_after(self, seconds: float) -> Answer:
        if self.unread is not None:
            return Answer(reason=self.unread)
        for offset, time in enumerate(self.times, self.start):
            if time >= seconds:
                return Answer(offset, time)
        return Answer()


@dataclass
class Logs:
    """A cluster of logs: the part of a source that backfill needs."""

    logs: Mapping[TopicPartition, Log]
    config: TopicConfig | None = None
    asked: int = 0
    moment: float = NOW
    unled: set[TopicPartition] = field(default_factory=set)

    def now(self) -> float:
        return self.moment

    def monotonic(self) -> float:
        return self.moment

    def metadata(self) -> Metadata:
        topics: dict[str, dict[int, PartitionInfo]] = {}
        for key in self.logs:
            leader = None if key in self.unled else 1
            topics.setdefault(key.topic, {})[key.partition] = PartitionInfo(leader, (1,), (1,))
        return Metadata({1: "h:1"}, {name: TopicInfo("id", parts, self.config) for name, parts in topics.items()})

    def earliest(self, leaders: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, Answer]:
        return {key: Answer(self.logs[key].start) for key in leaders}

    def latest(self, leaders: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, Answer]:
        return {key: Answer(self.logs[key].end()) for key in leaders}

    def max_timestamp(self, extents: Mapping[TopicPartition, Extent]) -> Mapping[TopicPartition, Answer]:
        return {key: max((Answer(n, t) for n, t in enumerate(self.logs[key].times)), key=_time) for key in extents}

    def max_timestamp_supported(self) -> Mapping[int, bool]:
        return {1: True}

    def by_time(
        self, wanted: Sequence[tuple[TopicPartition, float]], leaders: Mapping[TopicPartition, int]
    ) -> Mapping[tuple[TopicPartition, float], Answer]:
        assert len(set(wanted)) == len(wanted)
        assert {key for key, _ in wanted} <= set(leaders)
        self.asked += len(wanted)
        return {(key, at): self.logs[key].at_or_after(at) for key, at in wanted}

    def lookups(self) -> Mapping[str, int]:
        return {"by-time": self.asked}

    def close(self) -> None:
        pass


def _time(answer: Answer) -> float:
    return answer.timestamp or 0.0


def run(
    source: Logs, hours: float = 400, seam: Mapping[TopicPartition, tuple[int, float]] | None = None
) -> tuple[list[Window], BackfillResult]:
    """Back-fill and return the windows with the rest."""
    windows: list[Window] = []
    result = backfill(
        source,
        cluster="c",
        exporter="e",
        clock=source,
        horizon_seconds=hours * HOUR,
        emit=windows.extend,
        seam=seam,
    )
    return windows, result


def told(windows: Sequence[Window]) -> list[tuple[float, float, int | None, float | None, float | None]]:
    """What matters of windows: hours, records, first and last advance."""
    return [(w.window_start / HOUR, w.window_end / HOUR, w.records, w.first_advance, w.last_advance) for w in windows]


@given(st.lists(st.floats(50 * HOUR, NOW), max_size=60).map(sorted), st.integers(0, 1000), st.sampled_from([30, 400]))
def test_every_hour_with_records_has_one_exact_window(times: list[float], start: int, hours: int) -> None:
    """Ordered records come back as their true hourly counts, each hour's first time, and the very last time."""
    times = [math.floor(time * 1000) / 1000 for time in times]
    source = Logs({KEY: Log(times, start)})
    windows, _ = run(source, hours)
    first_hour = math.floor((NOW - hours * HOUR) / HOUR)
    by_hour: dict[int, list[float]] = {}
    for time in times:
        by_hour.setdefault(math.floor(time / HOUR), []).append(time)
    expected = []
    for hour, within in sorted(by_hour.items()):
        if hour >= first_hour:
            last = within[-1] if within[-1] == times[-1] else within[0]
            expected.append((float(hour), min(hour + 1, NOW / HOUR), len(within), within[0], last))
    assert told(windows) == expected
    assert all(w.advances is None and w.max_inner_gap_seconds is None and w.resolution_seconds == HOUR for w in windows)
    ends = [w.end_offset for w in windows]
    assert [w.start_offset for w in windows[1:]] == ends[:-1]
    assert ends[-1:] == ([start + len(times)] if windows else [])


@given(st.lists(st.floats(101 * HOUR, NOW), max_size=300))
def test_no_order_of_records_loses_one(times: list[float]) -> None:
    """Records in any order are all counted, once, in windows that do not overlap."""
    windows, _ = run(Logs({KEY: Log(times)}))
    assert sum(w.records or 0 for w in windows) == len(times)
    assert all(left.window_end <= right.window_start for left, right in pairwise(windows))


def test_a_quiet_partition_costs_few_look_ups() -> None:
    """One record in eight weeks costs a handful of look-ups, not one for each of 1,344 hours."""
    source = Logs({KEY: Log([NOW - 500 * HOUR])}, moment=2000 * HOUR)
    run(source, 1344)
    assert source.asked <= 4


def test_a_future_record_hides_the_hours_after_it_and_is_said() -> None:
    """Hours after a record from the future become one window that knows no moment; hours before stay exact."""
    times = [450.2 * HOUR, 451.1 * HOUR, 451.9 * HOUR, 9000 * HOUR, 460.5 * HOUR, 470.5 * HOUR]
    windows, _ = run(Logs({KEY: Log(times)}))
    assert told(windows) == [
        (450, 451, 1, 450.2 * HOUR, 450.2 * HOUR),
        (451, 452, 2, 451.1 * HOUR, 451.1 * HOUR),
        (452, NOW / HOUR, 3, None, None),
    ]
    hidden = windows[-1]
    assert (hidden.future_timestamps, hidden.resolution_seconds) == (1, NOW - 452 * HOUR)
    assert (hidden.start_offset, hidden.end_offset, hidden.max_timestamp) == (3, 6, None)


def test_a_future_record_in_the_last_hour_hides_that_hour() -> None:
    """Normal and future records in the hour of the freeze share one window without times."""
    windows, _ = run(Logs({KEY: Log([450.2 * HOUR, 500.1 * HOUR, 9000 * HOUR])}))
    assert told(windows)[1:] == [(500, NOW / HOUR, 2, None, None)]


def test_a_future_record_before_all_others_hides_the_horizon() -> None:
    """Where the first record is from the future, nothing is known of any hour."""
    windows, _ = run(Logs({KEY: Log([9000 * HOUR, 450 * HOUR])}), 100)
    assert told(windows) == [(400, NOW / HOUR, 2, None, None)]


def test_a_record_within_the_slack_is_not_from_the_future() -> None:
    """A producer's clock 50 s ahead still gives an ordinary window, closed at the freeze."""
    windows, _ = run(Logs({KEY: Log([NOW + 50])}))
    assert told(windows) == [(500, NOW / HOUR, 1, NOW, NOW)]


def test_history_ends_where_the_exporter_began() -> None:
    """With a seam, later records are left to the polls, and the last window ends at the first poll."""
    polled = 480 * HOUR + 600
    times = [450 * HOUR, 480 * HOUR + 60, 480 * HOUR + 700, 490 * HOUR]
    windows, result = run(Logs({KEY: Log(times)}), seam={KEY: (2, polled)})
    assert told(windows) == [
        (450, 451, 1, 450 * HOUR, 450 * HOUR),
        (480, polled / HOUR, 1, 480 * HOUR + 60, 480 * HOUR + 60),
    ]
    assert result.coverage.last_good_poll == result.coverage.window_end == polled
    assert (result.inventory[0].latest_offset, result.inventory[0].observed_at) == (2, polled)


def test_a_topic_made_again_since_the_first_poll_has_no_untold_past() -> None:
    """An end offset below the seam's means that every record was written while the exporter watched."""
    windows, result = run(Logs({KEY: Log([490 * HOUR])}), seam={KEY: (7, 480 * HOUR)})
    assert windows == []
    assert (result.inventory[0].latest_offset, result.inventory[0].observed_at) == (1, NOW)


def test_a_partition_that_fails_costs_only_itself() -> None:
    """Unread and leaderless partitions each get one window with the reason; the others are complete."""
    logs = {TopicPartition("t", n): Log([450 * HOUR]) for n in range(3)}
    logs[TopicPartition("t", 1)].unread = Reason.NOT_LEADER
    windows, result = run(Logs(logs, unled={TopicPartition("t", 2)}), 100)
    assert [(w.partition, w.reason, w.polls_ok, w.records) for w in windows] == [
        (0, None, 1, 1),
        (1, "not-leader", 0, None),
        (2, "no-leader", 0, None),
    ]
    assert (windows[1].window_start, windows[1].window_end) == (400 * HOUR, NOW)
    assert set(result.failed) == {TopicPartition("t", 1), TopicPartition("t", 2)}
    assert (result.coverage.partitions_ok, result.coverage.partitions_failed) == (1, 2)
    assert [(row.state, row.reason) for row in result.inventory][2] == ("unreadable", "no-leader")


def test_finite_retention_shortens_the_horizon_of_its_topic() -> None:
    """Nothing is asked from before retention, unless the topic is only compacted."""
    times = [300 * HOUR, 499 * HOUR]
    kept = TopicConfig("CreateTime", "delete", 24 * HOUR, remote_storage=False)
    assert [w.window_start / HOUR for w in run(Logs({KEY: Log(times)}, kept))[0]] == [499]
    compacted = TopicConfig("CreateTime", "compact", 24 * HOUR, remote_storage=False)
    assert [w.window_start / HOUR for w in run(Logs({KEY: Log(times)}, compacted))[0]] == [300, 499]


def test_an_empty_partition_has_an_inventory_row_and_no_window() -> None:
    """Empty and never written partitions are listed, so that their silence can be told from ignorance."""
    logs = {TopicPartition("empty", 0): Log([], 5), TopicPartition("never", 0): Log([])}
    windows, result = run(Logs(logs))
    assert windows == []
    assert [(row.topic, row.state) for row in result.inventory] == [("empty", "empty"), ("never", "never-written")]

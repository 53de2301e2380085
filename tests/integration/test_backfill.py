"""History reconstructed from a real broker's time index, against what was written (Kafka 4.3.1)."""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Mapping

import pytest

from exporter.backfill.cutoff import Request
from exporter.clock import SystemClock
from exporter.domain.history.rows import Window
from exporter.domain.polls.readings import TopicPartition
from tests.backfill_rows import Run, Stream, first_polls_of, run_backfill
from tests.demo.broker import Broker
from tests.integration.watch import Watch
from tests.views import readings_of
from tests.workbench import EVERLASTING, Workbench

HOUR = 3600
WEEKS = 4
NOW = math.floor(time.time())
START = (NOW // HOUR - WEEKS * 168 + 2) * HOUR


def steady() -> list[float]:
    """Every 20 minutes."""
    return [float(at) for at in range(START + 7, NOW - 60, 1200)]


def poisson() -> list[float]:
    """Two an hour on average, at any moment, seeded."""
    rng, times, at = random.Random(7), [], float(START)
    while (at := at + rng.expovariate(2 / HOUR)) < NOW - 60:
        times.append(round(at, 3))
    return times


def office_hours() -> list[float]:
    """Every ten minutes from 8 to 17 UTC on weekdays."""
    return [
        float(at)
        for at in range(START, NOW - 60, 600)
        if 8 <= at // HOUR % 24 < 17 and (at // HOUR // 24 + 3) % 7 < 5  # 1970-01-01 was a Thursday
    ]


def weekly() -> list[float]:
    """One record a week, on the hour."""
    return [float(START + week * 168 * HOUR) for week in range(WEEKS)]


def long_dead() -> list[float]:
    """Lively for a day, three weeks ago."""
    return [float(at) for at in range(START, START + 24 * HOUR, 300)]


KINDS = (steady, poisson, office_hours, weekly, long_dead)


def run(
    watch: Watch,
    polls: Mapping[Stream, tuple[int, float]] | None = None,
    *,
    slot: int = HOUR,
    horizon: float = (WEEKS + 1) * 7 * 86400,
) -> Run:
    """Backfill five weeks of what is watched."""
    request = Request(cluster="c", exporter="e", horizon=horizon, slot=slot)
    return run_backfill(watch.source, request, SystemClock(), first_polls=lambda: first_polls_of(polls or {}))


def hourly(windows: list[Window], partition: int) -> list[tuple[int, int | None, float | None]]:
    """(hour, records, first time) of one partition's windows."""
    return [(int(w.window_start) // HOUR, w.records, w.first_advance) for w in windows if w.partition == partition]


def test_four_weeks_come_back_hour_by_hour(broker: Broker, workbench: Workbench) -> None:
    """Five rhythms of back-dated records: every hour's count and first time, and the last time, are exact."""
    workbench.create("rhythms", len(KINDS))
    written = [kind() for kind in KINDS]
    # By time, as producers do: the partitions' records arrive interleaved.
    workbench.write(sorted((("rhythms", n, at) for n, times in enumerate(written) for at in times), key=lambda r: r[2]))
    windows, inventory, result, (coverage,) = run(Watch(broker.bootstrap, ["rhythms"]))
    for partition, times in enumerate(written):
        first: dict[int, float] = {}
        for at in times:
            first.setdefault(int(at) // HOUR, at)
        counts = Counter(int(at) // HOUR for at in times)
        assert hourly(windows, partition) == [(hour, counts[hour], first[hour]) for hour in sorted(first)]
        assert [w.last_advance for w in windows if w.partition == partition][-1] == times[-1]
    assert (result.partitions, result.failed, result.windows) == (len(KINDS), {}, len(windows))
    assert coverage.window_end == coverage.last_good_poll
    assert {row.latest_offset for row in inventory} == {len(times) for times in written}
    whole = (WEEKS + 1) * 168
    assert result.lookups["by-time"] < 0.6 * whole * len(KINDS), "quiet hours are not asked for"


def test_finer_slots_come_back_quarter_by_quarter(broker: Broker, workbench: Workbench) -> None:
    """With slots of 15 minutes each quarter's count and first time are exact, and the resolution says so."""
    workbench.create("quarters")
    times = poisson()
    workbench.write(("quarters", 0, at) for at in times)
    windows, *_ = run(Watch(broker.bootstrap, ["quarters"]), slot=900)
    counts = Counter(int(at) // 900 for at in times)
    first = {int(at) // 900: at for at in reversed(times)}
    found = [(int(w.window_start) // 900, w.records, w.first_advance) for w in windows]
    assert found == [(quarter, counts[quarter], first[quarter]) for quarter in sorted(counts)]
    assert {w.resolution_seconds for w in windows} == {900.0}


def test_a_record_from_the_future_hides_only_what_follows_it(broker: Broker, workbench: Workbench) -> None:
    """One record ten years ahead: hours before it are exact, all hours after it are one window without times."""
    workbench.create("spoilt")
    times = steady()
    middle = len(times) // 2
    workbench.write(("spoilt", 0, at) for at in [*times[:middle], NOW + 10 * 365 * 86400.0, *times[middle:]])
    windows, *_ = run(Watch(broker.bootstrap, ["spoilt"]))
    known, hidden = windows[:-1], windows[-1]
    before = Counter(int(at) // HOUR for at in times[:middle])
    assert [(hour, count) for hour, count, _ in hourly(known, 0)] == sorted(before.items())
    assert hidden.window_start == known[-1].window_end
    assert (hidden.future_timestamps, hidden.first_advance, hidden.last_advance) == (1, None, None)
    assert (hidden.start_offset, hidden.end_offset, hidden.records) == (
        middle,
        len(times) + 1,
        len(times) - middle + 1,
    )
    # Times are whole microseconds in a file.
    assert hidden.resolution_seconds == pytest.approx(hidden.window_end - hidden.window_start, abs=1e-5)


def test_the_past_ends_where_the_polls_begin(broker: Broker, workbench: Workbench) -> None:
    """Backfill writes the records before the first poll, polls those after it: none twice, none lost."""
    workbench.create("seam", 2)
    old = [NOW - 3 * HOUR, NOW - 3 * HOUR + 60, NOW - 2 * HOUR]
    workbench.write([("seam", n, float(at)) for at in old for n in range(2)])
    watch = Watch(broker.bootstrap, ["seam"])
    first = watch.poll()
    topic_id = first.metadata.topics["seam"].topic_id
    starts = {
        Stream(key, topic_id): (reading.latest or 0, first.taken_at) for key, reading in readings_of(first).items()
    }
    workbench.write([("seam", 1, time.time())] * 4)
    polled = readings_of(watch.poll())[TopicPartition("seam", 1)].activity.advanced_by
    windows, _, _, (coverage,) = run(watch, starts)
    assert [(w.partition, w.records, w.end_offset) for w in windows] == [(0, 2, 2), (0, 1, 3), (1, 2, 2), (1, 1, 3)]
    assert polled == 4
    assert coverage.last_good_poll == pytest.approx(first.taken_at, abs=1e-6)


def test_what_retention_took_is_not_history(broker: Broker, workbench: Workbench) -> None:
    """History starts at the log start: deleted records leave no window, and the first one kept is exact."""
    workbench.create("cut", config={**EVERLASTING, "retention.ms": str(30 * 86400 * 1000)})
    times = [float(NOW - hour * HOUR) for hour in range(100, 0, -1)]
    workbench.write(("cut", 0, at) for at in times)
    workbench.delete_records("cut", 0, 60)
    windows, *_ = run(Watch(broker.bootstrap, ["cut"]))
    assert len(windows) == 40
    assert windows[0].first_advance == times[60]
    assert {w.log_start_offset for w in windows} == {60}


def test_topics_that_died_long_ago_get_their_history(broker: Broker, workbench: Workbench) -> None:
    """Dead for 30 to 400 days, each shows the eight weeks before its last record, and nothing from before these."""
    ages = [30, 45, 60, 75, 90, 120, 150, 180, 240, 300, 365, 400]
    day = 24 * HOUR
    records = {f"long-dead-{age}": [NOW - (age + back) * day for back in range(70, -1, -1)] for age in ages}
    for topic in records:
        workbench.create(topic)
    workbench.write([(topic, 0, float(at)) for topic, times in records.items() for at in times])
    windows, inventory, result, _ = run(Watch(broker.bootstrap, ["long-dead-.*"]), horizon=56 * day)
    assert len(inventory) == len(ages) and result.failed == {}
    for topic, times in records.items():
        mine = [window for window in windows if window.topic == topic]
        assert [window.first_advance for window in mine] == times[-57:]
        assert mine[-1].last_advance == mine[-1].max_timestamp == times[-1]


def test_a_deleted_record_is_not_the_newest(broker: Broker, workbench: Workbench) -> None:
    """Where the record with the largest timestamp was deleted, the newest one is the last record kept."""
    workbench.create("newest-deleted")
    workbench.write([("newest-deleted", 0, float(NOW - 5 * HOUR)), ("newest-deleted", 0, float(NOW - 50 * HOUR))])
    workbench.delete_records("newest-deleted", 0, 1)
    (window,), *_ = run(Watch(broker.bootstrap, ["newest-deleted"]))
    assert (window.records, window.first_advance, window.last_advance) == (1, NOW - 50 * HOUR, NOW - 50 * HOUR)
    assert window.max_timestamp == NOW - 50 * HOUR


def test_log_append_time_puts_records_where_they_were_written(broker: Broker, workbench: Workbench) -> None:
    """With LogAppendTime a back-dated record belongs to the hour in which the broker took it."""
    workbench.create("honest", config={**EVERLASTING, "message.timestamp.type": "LogAppendTime"})
    began = time.time()
    workbench.write([("honest", 0, NOW - 50 * HOUR)] * 3)
    windows, *_ = run(Watch(broker.bootstrap, ["honest"]))
    assert sum(w.records or 0 for w in windows) == 3
    assert windows[0].first_advance == pytest.approx(began, abs=30)


def test_a_whole_cluster_is_read_topic_by_topic(broker: Broker, workbench: Workbench) -> None:
    """Empty, never written and lively topics side by side: windows are in order, inventory lists them all."""
    for topic in ("mixed-empty", "mixed-lively", "mixed-never"):
        workbench.create(topic)
    workbench.write([("mixed-empty", 0, float(NOW - HOUR)), ("mixed-lively", 0, float(NOW - HOUR))])
    workbench.delete_records("mixed-empty", 0, 1)
    windows, inventory, *_ = run(Watch(broker.bootstrap, ["mixed-.*"]))
    assert [(w.topic, w.records) for w in windows] == [("mixed-lively", 1)]
    assert [(row.topic, row.state) for row in inventory] == [
        ("mixed-empty", "empty"),
        ("mixed-lively", "observed"),
        ("mixed-never", "never-written"),
    ]

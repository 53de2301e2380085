"""History reconstructed from a real broker's time index, against what was written (Kafka 4.3.1)."""

import math
import random
import time
from collections import Counter

from exporter.backfill.cutoff import Request
from exporter.clock import SystemClock
from exporter.domain.history.rows import Window
from tests.backfill_rows import Run, run_backfill
from tests.demo.broker import Broker
from tests.integration.watch import Watch
from tests.workbench import Workbench

HOUR = 3600
WEEKS = 4
NOW = math.floor(time.time())
START = (NOW // HOUR - WEEKS * 168 + 2) * HOUR


def steady() -> list[float]:
    return [float(at) for at in range(START + 7, NOW - 60, 1200)]


def poisson() -> list[float]:
    """Two an hour on average, at any moment, seeded."""
    rng, times, at = random.Random(7), [], float(START)
    while (at := at + rng.expovariate(2 / HOUR)) < NOW - 60:
        times.append(round(at, 3))
    return times


def office_hours() -> list[float]:
    return [
        float(at)
        for at in range(START, NOW - 60, 600)
        if 8 <= at // HOUR % 24 < 17 and (at // HOUR // 24 + 3) % 7 < 5  # 1970-01-01 was a Thursday
    ]


def weekly() -> list[float]:
    return [float(START + week * 168 * HOUR) for week in range(WEEKS)]


def long_dead() -> list[float]:
    """Lively for a day, three weeks ago."""
    return [float(at) for at in range(START, START + 24 * HOUR, 300)]


KINDS = (steady, poisson, office_hours, weekly, long_dead)


def run(watch: Watch) -> Run:
    request = Request(cluster="c", exporter="e", horizon=(WEEKS + 1) * 7 * 86400)
    return run_backfill(watch.source, request, SystemClock())


def hourly(windows: list[Window], partition: int) -> list[tuple[int, int | None, float | None]]:
    """(hour, records, first time) of one partition's windows."""
    return [(int(w.window_start) // HOUR, w.records, w.first_advance) for w in windows if w.partition == partition]


def test_four_weeks_come_back_hour_by_hour(broker: Broker, workbench: Workbench) -> None:
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

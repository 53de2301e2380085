"""History reconstructed from a real broker's time index, against what was written (Kafka 4.3.1)."""

import math
import random
import time
from collections import Counter

from exporter.backfill.cutoff import Request
from exporter.clock import SystemClock
from tests.backfill_rows import run_backfill
from tests.demo.broker import Broker
from tests.integration.watch import Watch
from tests.workbench import Workbench

HOUR = 3600
WEEKS = 4
NOW = math.floor(time.time())
START = (NOW // HOUR - WEEKS * 168 + 2) * HOUR


def poisson() -> list[float]:
    """Two an hour on average, at any moment, seeded."""
    rng, times, at = random.Random(7), [], float(START)
    while (at := at + rng.expovariate(2 / HOUR)) < NOW - 60:
        times.append(round(at, 3))
    return times


RHYTHMS = {
    "steady": range(START + 7, NOW - 60, 1200),
    "poisson": poisson(),
    # 1970-01-01 was a Thursday
    "office hours": [
        at for at in range(START, NOW - 60, 600) if 8 <= at // HOUR % 24 < 17 and (at // HOUR // 24 + 3) % 7 < 5
    ],
    "weekly, on the hour": range(START, START + WEEKS * 168 * HOUR, 168 * HOUR),
    "dead for three weeks": range(START, START + 24 * HOUR, 300),
}


def test_four_weeks_come_back_hour_by_hour(broker: Broker, workbench: Workbench) -> None:
    workbench.create("rhythms", len(RHYTHMS))
    written = [[float(at) for at in times] for times in RHYTHMS.values()]
    # By time, as producers do: the partitions' records arrive interleaved.
    workbench.write(sorted((("rhythms", n, at) for n, times in enumerate(written) for at in times), key=lambda r: r[2]))
    request = Request(cluster="c", exporter="e", horizon=(WEEKS + 1) * 7 * 86400)
    source = Watch(broker.bootstrap, ["rhythms"]).source
    windows, inventory, result, (coverage,) = run_backfill(source, request, SystemClock())
    for partition, times in enumerate(written):
        first: dict[int, float] = {}
        for at in times:
            first.setdefault(int(at) // HOUR, at)
        counts = Counter(int(at) // HOUR for at in times)
        found = [window for window in windows if window.partition == partition]
        assert [(int(window.window_start) // HOUR, window.records, window.first_advance) for window in found] == [
            (hour, counts[hour], first[hour]) for hour in sorted(first)
        ]
        assert found[-1].last_advance == times[-1]
    assert (result.partitions, result.failed, result.windows) == (len(RHYTHMS), {}, len(windows))
    assert coverage.window_end == coverage.last_good_poll
    assert {row.latest_offset for row in inventory} == {len(times) for times in written}
    whole = (WEEKS + 1) * 168
    assert result.lookups["by-time"] < 0.6 * whole * len(RHYTHMS), "quiet hours are not asked for"

"""What a backfill costs, and what a poll notices of one: on one real broker, at several paces.

Run by ``make bench-backfill``. The poller of this process polls once a second, alone and then beside
``topic-liveness backfill`` as its own process, which tells the same past anew at each pace.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from exporter.clock import SystemClock
from exporter.collectors.poller import Poller
from exporter.domain.polls.table import Snapshot
from exporter.kafka.poll_source import PollSource
from exporter.kafka.source import KafkaSource
from tests.demo.broker import KAFKA_VERSION, Broker, resolve_kafka
from tests.workbench import Workbench

HOUR = 3600
PER_TOPIC = 100
POLL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How hard a backfill asks; None: not at all."""

    lookups_per_second: int | None

    def __str__(self) -> str:
        if self.lookups_per_second is None:
            return "no backfill"
        return "unlimited" if self.lookups_per_second >= 10**6 else f"{self.lookups_per_second:,}/s"


PACES = (Pace(None), Pace(1000), Pace(2000), Pace(4000), Pace(10**6))


def records(partitions: int, weeks: int, now: int) -> Iterator[tuple[str, int, float]]:
    """One record an hour in every second hour or so of each partition, in order of time."""
    for hour in range(now // HOUR - weeks * 168, now // HOUR):
        for number in range(partitions):
            # Active and silent hours alternate in runs, as between day and night.
            if (hour + number) % 24 < 12:
                yield f"bench-{number // PER_TOPIC:04d}", number % PER_TOPIC, float(hour * HOUR + number % 3600)


def polls(bootstrap: str, running: subprocess.Popen[str] | None, seconds: float) -> list[float]:
    """Poll once a second while the backfill runs, or for so long; return how long each poll took."""
    source = KafkaSource({"bootstrap.servers": bootstrap}, clock=SystemClock())
    poller = Poller("bench", PollSource(source, SystemClock()), [], SystemClock())
    took: list[float] = []
    ends = time.monotonic() + seconds
    while running.poll() is None if running else time.monotonic() < ends:
        begun = time.monotonic()
        snapshot = poller.poll()
        if not isinstance(snapshot, Snapshot):
            raise SystemExit(f"a poll failed: {snapshot}")
        took.append(snapshot.duration_seconds)
        time.sleep(max(0.0, POLL_SECONDS - (time.monotonic() - begun)))
    source.close()
    # The first poll connects and asks for everything.
    return took[1:] or took


def measure(bootstrap: str, pace: Pace, weeks: int) -> tuple[list[float], str]:
    """Return how long the polls beside a backfill took, and its closing line."""
    if pace.lookups_per_second is None:
        return polls(bootstrap, None, 20.0), ""
    with tempfile.TemporaryDirectory() as history:
        settings = {
            "TOPIC_LIVENESS_HISTORY__FOLDER": history,
            "TOPIC_LIVENESS_LOOKUPS_PER_SECOND": str(pace.lookups_per_second),
        }
        command = [sys.executable, "-m", "exporter", "backfill", "--bootstrap-server", bootstrap]
        with subprocess.Popen(
            [*command, "--horizon", f"{weeks}w"], env={**os.environ, **settings}, stderr=subprocess.PIPE, text=True
        ) as running:
            took = polls(bootstrap, running, math.inf)
            output = running.stderr.read() if running.stderr else ""
        if running.returncode:
            raise SystemExit(output)
        return took, output.splitlines()[-1]


def main() -> None:
    """Print one row for each pace, and the bill of each backfill."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=1000, help="how many partitions (multiple of 100)")
    parser.add_argument("--weeks", type=int, default=2, help="weeks of back-dated records")
    arguments = parser.parse_args()
    cache = Path.home() / ".cache" / "topic-liveness"
    jars = resolve_kafka(cache=cache, progress=lambda line: print(line, file=sys.stderr))
    with tempfile.TemporaryDirectory() as folder, Broker(Path(folder), jars=jars, heap="1g") as broker:
        workbench = Workbench(broker.bootstrap)
        print(f"Kafka {KAFKA_VERSION}, filling {arguments.partitions} partitions", file=sys.stderr)
        for number in range(arguments.partitions // PER_TOPIC):
            workbench.create(f"bench-{number:04d}", PER_TOPIC)
        workbench.write(records(arguments.partitions, arguments.weeks, int(time.time())))
        rows = [(pace, *measure(broker.bootstrap, pace, arguments.weeks)) for pace in PACES]
    print(
        f"\nOne broker, Kafka {KAFKA_VERSION}, {arguments.partitions} partitions, {arguments.weeks} weeks; polls in ms"
    )
    print(f"{'backfill beside the polls':<28}{'polls':>7}{'median':>9}{'p90':>9}{'largest':>9}")
    for pace, took, _ in rows:
        ordered = sorted(1000 * seconds for seconds in took)
        p90 = ordered[math.ceil(0.9 * len(ordered)) - 1]
        print(f"{pace!s:<28}{len(took):>7}{statistics.median(ordered):>9.0f}{p90:>9.0f}{ordered[-1]:>9.0f}")
    print()
    for pace, _, summary in rows:
        if summary:
            print(f"{pace}: {summary}")


if __name__ == "__main__":
    main()

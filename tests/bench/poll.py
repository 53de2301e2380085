"""Cost of a poll on one real broker: CPU and wall per 1,000 partitions, render time and memory.

Run by ``make bench``; ``--partitions`` sets the size. Every figure is the median of several rounds in one
run, so that rows can be compared with each other; absolute times belong to the machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from exporter.app import SystemClock
from exporter.demo.broker import KAFKA_VERSION, Broker, resolve_kafka
from exporter.judging import assess
from exporter.kafka import KafkaSource
from exporter.metrics.catalogue import DEFAULT_PARTITION_SWITCHES
from exporter.metrics.series import ClusterSeries, render
from exporter.model import Snapshot, TopicPartition
from exporter.poller import Extent, Poller
from exporter.promises import Promises
from tests.workbench import Workbench

_Result = TypeVar("_Result")
PER_TOPIC = 100


@dataclass(frozen=True, slots=True)
class Cost:
    """Medians of one measured step: client CPU and wall, in seconds."""

    step: str
    cpu: float
    wall: float
    partitions: int


class Bench:
    """Measures steps over the same partitions, round by round."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds
        self.costs: list[Cost] = []

    def measure(self, step: str, partitions: int, work: Callable[[], _Result]) -> _Result:
        """Run ``work`` once to warm up and then ``rounds`` times; keep the medians; return its last result."""
        work()
        cpus, walls = [], []
        for _ in range(self._rounds):
            cpu, wall = time.process_time(), time.perf_counter()
            result = work()
            cpus.append(time.process_time() - cpu)
            walls.append(time.perf_counter() - wall)
        self.costs.append(Cost(step, statistics.median(cpus), statistics.median(walls), partitions))
        print(f"  {step}: done", file=sys.stderr)
        return result


class Latest:
    """A sink that keeps the last snapshot."""

    snapshot: Snapshot | None = None

    def accept(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def missed(self, failure: object) -> None:
        raise SystemExit(f"a poll failed: {failure}")


def resident_mib() -> float:
    """Return the memory this process holds now, in MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise SystemExit("no VmRSS in /proc/self/status")


def fill(workbench: Workbench, partitions: int) -> None:
    """Make the topics, each led, and write three records to every partition."""
    topics = [f"bench-{number:04d}" for number in range(partitions // PER_TOPIC)]
    for topic in topics:
        workbench.create(topic, PER_TOPIC)
    touch(workbench, [TopicPartition(topic, number) for topic in topics for number in range(PER_TOPIC)] * 3)


def touch(workbench: Workbench, partitions: list[TopicPartition]) -> None:
    """Write one record to each listed partition, now."""
    workbench.write([(key.topic, key.partition, time.time()) for key in partitions])


def run(workbench: Workbench, partitions: int, rounds: int) -> tuple[list[Cost], dict[str, float]]:
    """Measure every step against the filled broker."""
    source = KafkaSource({"bootstrap.servers": workbench.bootstrap}, clock=SystemClock())
    bench = Bench(rounds)
    metadata = bench.measure("metadata", partitions, source.metadata)
    leaders = {
        TopicPartition(name, number): info.leader
        for name, topic in metadata.topics.items()
        for number, info in topic.partitions.items()
        if info.leader is not None
    }
    if len(leaders) != partitions:
        raise SystemExit(f"{len(leaders)} of {partitions} partitions have a leader: the figures would be wrong")
    bench.measure("EARLIEST", partitions, lambda: source.earliest(leaders))
    latest = bench.measure("LATEST", partitions, lambda: source.latest(leaders))
    if any(answer.reason is not None for answer in latest.values()):
        raise SystemExit("not every partition answered: the figures would be wrong")
    extents = {key: Extent(leaders[key], 0, answer.offset or 0) for key, answer in latest.items()}
    bench.measure("MAX_TIMESTAMP", partitions, lambda: source.max_timestamp(extents))
    sink = Latest()
    bench.measure("poll, first", partitions, lambda: Poller("bench", source, [sink], SystemClock()).poll())
    poller = Poller("bench", source, [sink], SystemClock())
    poller.poll()
    bench.measure("poll, nothing moved", partitions, poller.poll)
    moving = sorted(leaders)[:: max(1, partitions // (partitions // 100))]

    def poll_moving() -> None:
        touch(workbench, moving)
        cpu, wall = time.process_time(), time.perf_counter()
        poller.poll()
        inner.append((time.process_time() - cpu, time.perf_counter() - wall))

    inner: list[tuple[float, float]] = []
    for _ in range(rounds):
        poll_moving()
    bench.costs.append(
        Cost("poll, 1 % moved", *(statistics.median(column) for column in zip(*inner, strict=True)), partitions)
    )
    snapshot = sink.snapshot
    assert snapshot is not None
    series = ClusterSeries("bench", partition_switches=DEFAULT_PARTITION_SWITCHES)
    assessment = bench.measure("judge", partitions, lambda: assess(snapshot, Promises(), snapshot.taken_at))
    bench.measure("render, once a poll", partitions, lambda: series.update(snapshot, assessment))
    text = bench.measure("render, each scrape", partitions, lambda: render({"bench": series}, snapshot.taken_at))
    figures = {
        "partitions": float(partitions),
        "series": float(sum(1 for line in text.splitlines() if not line.startswith("#"))),
        "exposition_mib": len(text.encode()) / 2**20,
        "resident_mib": resident_mib(),
    }
    source.close()
    return bench.costs, figures


def main() -> None:
    """Print the table, and save it as JSON when asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=8000, help="how many partitions (multiple of 100)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds a median is taken over")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    cache = Path.home() / ".cache" / "topic-liveness"
    jars = resolve_kafka(cache=cache, progress=lambda line: print(line, file=sys.stderr))
    with tempfile.TemporaryDirectory() as folder, Broker(Path(folder), jars=jars, heap="2g") as broker:
        print(f"Kafka {KAFKA_VERSION}, filling {arguments.partitions} partitions", file=sys.stderr)
        workbench = Workbench(broker.bootstrap)
        fill(workbench, arguments.partitions)
        costs, figures = run(workbench, arguments.partitions, arguments.rounds)
    print(
        f"\nOne broker, Kafka {KAFKA_VERSION}, {arguments.partitions} partitions, median of {arguments.rounds} rounds"
    )
    print(f"{'step':<24}{'CPU s':>9}{'wall s':>9}{'CPU ms per 1,000':>18}{'wall ms per 1,000':>19}")
    for cost in costs:
        per = 1e6 / cost.partitions
        print(f"{cost.step:<24}{cost.cpu:>9.3f}{cost.wall:>9.3f}{cost.cpu * per:>18.1f}{cost.wall * per:>19.1f}")
    print(
        f"{figures['series']:.0f} series, exposition {figures['exposition_mib']:.1f} MiB, "
        f"resident memory of this process {figures['resident_mib']:.0f} MiB"
    )
    if arguments.json:
        rows = [{"step": cost.step, "cpu_seconds": cost.cpu, "wall_seconds": cost.wall} for cost in costs]
        arguments.json.write_text(json.dumps({"kafka": KAFKA_VERSION, **figures, "steps": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()

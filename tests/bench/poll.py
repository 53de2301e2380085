"""Cost of a poll on one real broker: step by step, and of the whole exporter as users run it.

Run by ``make bench``; ``--partitions`` sets the size. Every figure of a step is the median of several rounds in one
run, so that rows can be compared with each other; absolute times belong to the machine. The exporter's side
runs in a process of its own: what makes topics and records is not in its CPU or memory.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import numpy as np

from exporter.clock import SystemClock
from exporter.collectors.log_sizes import Inspector
from exporter.collectors.poller import Poller
from exporter.domain.judging.detection import Detector
from exporter.domain.polls.answers import Answers
from exporter.domain.polls.readings import TopicPartition
from exporter.domain.polls.table import Snapshot
from exporter.domain.ports import Extents
from exporter.kafka.poll_source import PollSource
from exporter.kafka.process import LOG_SIZES, ClientProcess, RemoteClient
from exporter.kafka.source import KafkaSource
from exporter.metrics.catalogue import DEFAULT_PARTITION_SWITCHES
from exporter.metrics.series import ClusterSeries
from tests.bench import serve_costs
from tests.bench.process_tree import usage
from tests.bench.serve_costs import MOVE_INTERVAL, add_options, as_json, plan_of, show, yardsticks
from tests.demo.broker import KAFKA_VERSION, Broker, resolve_kafka
from tests.exposed import exposed
from tests.programs import cache_folder
from tests.times import led
from tests.workbench import Workbench

_Result = TypeVar("_Result")
PER_TOPIC = 100
PREFIX = "bench-"


@dataclass(frozen=True, slots=True)
class Cost:
    """Medians of one measured step: client CPU and wall, in seconds."""

    step: str
    cpu: float
    wall: float
    partitions: int


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured: the steps, and what the last scrape was like."""

    costs: list[Cost]
    series: int
    exposition_mib: float
    resident_mib: float


class Bench:
    """Measures steps over the same partitions, round by round."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds
        self.costs: list[Cost] = []

    def measure(
        self,
        step: str,
        partitions: int,
        work: Callable[[], _Result],
        before: Callable[[], None] = lambda: None,
        beside: int | None = None,
    ) -> _Result:
        """Run ``work`` once to warm up and then ``rounds`` times; keep the medians; return its last result.

        ``before`` each round something else may be done, which is not measured. The CPU of the process ``beside``
        counts too.
        """

        def spent() -> float:
            return time.process_time() + (0.0 if beside is None else usage(beside).cpu)

        result = work()
        cpus, walls = [], []
        for _ in range(self._rounds):
            before()
            cpu, wall = spent(), time.perf_counter()
            result = work()
            cpus.append(spent() - cpu)
            walls.append(time.perf_counter() - wall)
        self.costs.append(Cost(step, statistics.median(cpus), statistics.median(walls), partitions))
        print(f"  {step}: done", file=sys.stderr)
        return result


class Writing:
    """Writes a record to a share of the partitions each ``MOVE_INTERVAL``, until the block ends."""

    def __init__(self, workbench: Workbench, partitions: int) -> None:
        self._workbench = workbench
        self._keys = _keys(partitions)
        self._moving: list[TopicPartition] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def share(self, share: float) -> None:
        """From now on write to this share."""
        count = round(share * len(self._keys))
        self._moving = [self._keys[number * len(self._keys) // count] for number in range(count)]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _write(self) -> None:
        while not self._ended.wait(MOVE_INTERVAL):
            touch(self._workbench, self._moving)


class Latest:
    """A sink that keeps the last snapshot."""

    snapshot: Snapshot | None = None

    def accept(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def missed(self, failure: object) -> None:
        raise SystemExit(f"a poll failed: {failure}")


def fill(workbench: Workbench, partitions: int) -> None:
    """Make the topics, each led, and write three records to every partition."""
    keys = _keys(partitions)
    for topic, count in Counter(key.topic for key in keys).items():
        workbench.create(topic, count)
    touch(workbench, keys * 3)


def _keys(partitions: int) -> list[TopicPartition]:
    return [TopicPartition(f"{PREFIX}{number // PER_TOPIC:04d}", number % PER_TOPIC) for number in range(partitions)]


def touch(workbench: Workbench, partitions: list[TopicPartition]) -> None:
    """Write one record to each listed partition, now."""
    workbench.write([(key.topic, key.partition, time.time()) for key in partitions])


def all_answered(step: str, partitions: int, answers: Answers) -> None:
    """Raise SystemExit unless every partition gave a good answer."""
    good = np.count_nonzero(answers.found)
    if good != partitions:
        raise SystemExit(f"{step}: {good} of {partitions} partitions answered: the figures would be wrong")


def all_read(step: str, partitions: int, snapshot: Snapshot | None) -> Snapshot:
    """Return the snapshot; raise SystemExit unless every partition in it was read."""
    read = 0 if snapshot is None else sum(1 for each in snapshot.readings.values() if each.newest is not None)
    if snapshot is None or read != partitions:
        raise SystemExit(f"{step}: {read} of {partitions} partitions were read: the figures would be wrong")
    return snapshot


def run(bootstrap: str, partitions: int, rounds: int, write: Callable[[list[TopicPartition]], None]) -> Figures:
    """Measure every step against the filled broker; ``write`` adds a record to each of some partitions."""
    source = KafkaSource({"bootstrap.servers": bootstrap}, clock=SystemClock(), include=[f"{PREFIX}.*"])
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
    membership = led(leaders)
    all_answered("EARLIEST", partitions, bench.measure("EARLIEST", partitions, lambda: source.starts(membership)))
    latest = bench.measure("LATEST", partitions, lambda: source.ends(membership))
    all_answered("LATEST", partitions, latest)
    extents = Extents(np.zeros(partitions, dtype=np.int64), latest.offset, latest.epoch, latest.offset)
    newest = bench.measure("MAX_TIMESTAMP", partitions, lambda: source.max_timestamp(membership, extents))
    all_answered("MAX_TIMESTAMP", partitions, newest)
    sink = Latest()
    bench.measure(
        "poll, first",
        partitions,
        lambda: Poller("bench", PollSource(source, SystemClock()), [sink], SystemClock()).poll(),
    )
    poller = Poller("bench", PollSource(source, SystemClock()), [sink], SystemClock())
    poller.poll()
    bench.measure("poll, nothing moved", partitions, poller.poll)
    before = all_read("poll, nothing moved", partitions, sink.snapshot)
    moving = sorted(leaders)[::100]
    bench.measure("poll, 1 % moved", partitions, poller.poll, before=lambda: write(moving))
    snapshot = all_read("poll, 1 % moved", partitions, sink.snapshot)
    if moved(before, snapshot) != rounds * len(moving):
        raise SystemExit("poll, 1 % moved: not every record was seen: the figures would be wrong")
    series = ClusterSeries("bench", partition_switches=DEFAULT_PARTITION_SWITCHES)
    assessment = bench.measure("judge", partitions, lambda: Detector().assess(snapshot, snapshot.taken_at))
    bench.measure("render, once a poll", partitions, lambda: series.update(snapshot, assessment))
    text = bench.measure("render, each scrape", partitions, lambda: exposed({"bench": series}, snapshot.taken_at))
    source.close()
    resident = usage(os.getpid()).rss_mib
    inspect(bench, bootstrap, snapshot)
    count = sum(1 for line in text.splitlines() if not line.startswith("#"))
    return Figures(bench.costs, count, len(text.encode()) / 2**20, resident)


def inspect(bench: Bench, bootstrap: str, snapshot: Snapshot) -> None:
    """Measure what it takes to ask for log sizes, as fast as the broker answers."""
    process = ClientProcess("bench")
    process.start()

    def client() -> RemoteClient:
        return RemoteClient(
            process,
            LOG_SIZES,
            limit=60,
            properties={"bootstrap.servers": bootstrap},
            request_timeout=10,
        )

    inspector = Inspector("bench", SystemClock(), interval=300, client=client)
    inspector.accept(snapshot)
    inspection = bench.measure("inspect log sizes", len(snapshot.readings), inspector.inspect, beside=process.pid)
    if inspection.problem or inspection.failures:
        raise SystemExit(f"log sizes: {inspection.problem or dict(inspection.failures)}: the figures would be wrong")
    process.close()


def moved(before: Snapshot, after: Snapshot) -> int:
    """Return how many records came between two snapshots."""
    return sum((each.latest or 0) - (before.readings[key].latest or 0) for key, each in after.readings.items())


def _measured(pipe: Connection, bootstrap: str, partitions: int, rounds: int) -> None:
    """Measure in this process, ask the other one for records, and hand it the figures."""

    def write(keys: list[TopicPartition]) -> None:
        pipe.send(keys)
        pipe.recv()

    pipe.send(run(bootstrap, partitions, rounds, write))


def measure(workbench: Workbench, partitions: int, rounds: int) -> Figures:
    """Fill the broker here, measure the exporter's side in a child process, write for it meanwhile.

    Raises SystemExit where the child finds that figures would be wrong; it says why on standard error.
    """
    fill(workbench, partitions)
    context = multiprocessing.get_context("spawn")
    pipe, theirs = context.Pipe()
    child = context.Process(target=_measured, args=(theirs, workbench.bootstrap, partitions, rounds))
    child.start()
    theirs.close()
    try:
        while not isinstance(received := pipe.recv(), Figures):
            touch(workbench, received)
            pipe.send(None)
    except EOFError:
        raise SystemExit("the measuring process ended without figures") from None
    finally:
        child.join()
        pipe.close()
    return received


def main() -> None:
    """Print the tables, and save them as JSON where requested."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=8000, help="how many partitions")
    parser.add_argument("--rounds", type=int, default=5, help="rounds a median of steps is taken over")
    parser.add_argument("--moving", type=float, default=10, help="percent of partitions that move for the exporter")
    add_options(parser, polls=20, scrape_seconds=40)
    arguments = parser.parse_args()
    if arguments.partitions < 1 or arguments.rounds < 1 or not 0 <= arguments.moving <= 100:
        parser.error("--partitions and --rounds must be at least 1, and --moving 0 to 100")
    plan = plan_of(parser, arguments, [arguments.moving / 100])
    jars = resolve_kafka(cache=cache_folder(), progress=lambda line: print(line, file=sys.stderr))
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker(Path(folder), jars=jars, heap="2g")
        with broker:
            print(f"Kafka {KAFKA_VERSION}, filling {arguments.partitions} partitions", file=sys.stderr)
            workbench = Workbench(broker.bootstrap)
            figures = measure(workbench, arguments.partitions, arguments.rounds)
            with Writing(workbench, arguments.partitions) as writing:
                held_against = yardsticks(broker.bootstrap, plan.shares, arguments.yardstick_rounds, writing.share)
                costs = serve_costs.measure(broker.bootstrap, arguments.partitions, plan, writing.share)
    print(
        f"\nOne broker, Kafka {KAFKA_VERSION}, {arguments.partitions} partitions, median of {arguments.rounds} rounds"
    )
    print(f"{'step':<24}{'CPU s':>9}{'wall s':>9}{'CPU ms per 1,000':>18}{'wall ms per 1,000':>19}")
    for cost in figures.costs:
        per = 1e6 / cost.partitions
        print(f"{cost.step:<24}{cost.cpu:>9.3f}{cost.wall:>9.3f}{cost.cpu * per:>18.1f}{cost.wall * per:>19.1f}")
    print(
        f"{figures.series} series, exposition {figures.exposition_mib:.1f} MiB, "
        f"resident memory of the exporter's side {figures.resident_mib:.0f} MiB\n\nThe whole exporter"
    )
    show(costs, held_against)
    if arguments.json:
        content = {"kafka": KAFKA_VERSION, "partitions": arguments.partitions, **asdict(figures)}
        content["exporter"] = as_json(costs, held_against)
        arguments.json.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()

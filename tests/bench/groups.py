"""Cost of a sweep over consumer groups on one real broker, and what polls beside it notice.

Run by ``make bench-groups``. Polls and sweeps share one process, as in the exporter, so that what one takes from the
other of its CPU is in the figures; making topics and groups is not. Seconds of polls are median and worst.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as Committed

from exporter.clock import SystemClock
from exporter.collectors.consumer_groups import GroupWatch
from exporter.collectors.poller import Poller
from exporter.domain.groups.sweep import GroupSweep
from exporter.domain.polls.readings import TopicPartition
from exporter.kafka.poll_source import PollSource
from exporter.kafka.source import KafkaSource
from exporter.metrics.groups import GroupSeries
from tests.bench.poll import PREFIX, Latest, all_read, fill
from tests.bench.process_tree import usage
from tests.demo.broker import KAFKA_VERSION, Broker, resolve_kafka
from tests.programs import cache_folder
from tests.workbench import Workbench

AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured; seconds. ``cpu`` is the process's, of one sweep."""

    sweep: GroupSweep
    wall: float
    cpu: float
    render: float
    alone: list[float]
    beside: list[float]
    resident_mib: float


def commit(workbench: Workbench, groups: int, keys: list[TopicPartition], each: int) -> None:
    """Have each group commit an offset in so many partitions, shared out among them."""
    admin: Any = workbench.admin
    running: deque[tuple[ConsumerGroupTopicPartitions, Future[Any]]] = deque()

    def start(wanted: ConsumerGroupTopicPartitions) -> None:
        running.append((wanted, admin.alter_consumer_group_offsets([wanted])[wanted.group_id]))

    for number in range(groups):
        mine = [Committed(*keys[(number * each + place) % len(keys)], number % 3) for place in range(each)]
        start(ConsumerGroupTopicPartitions(f"{PREFIX}{number:05d}", mine))
        while len(running) >= AT_ONCE or (running and number == groups - 1):
            wanted, future = running.popleft()
            # The first commits come before the coordinators are ready.
            if any(done.error for done in future.result(60).topic_partitions):
                start(wanted)


def run(bootstrap: str, groups: int, partitions: int, rounds: int) -> Figures:
    """Measure sweeps alone, polls alone, and polls while one sweep follows another."""
    properties = {"bootstrap.servers": bootstrap}
    watch = GroupWatch(
        "bench",
        SystemClock(),
        KafkaSource(properties, clock=SystemClock()),
        interval=600.0,
        include=[f"{PREFIX}.*"],
    )
    sink = Latest()
    source = KafkaSource(properties, clock=SystemClock(), include=[f"{PREFIX}.*"])
    poller = Poller("bench", PollSource(source, SystemClock()), [sink, watch], SystemClock())
    poller.poll()
    snapshot = all_read("poll", partitions, sink.snapshot)
    walls, cpus = [], []
    sweep = watch.sweep()
    for _ in range(rounds):
        cpu, began = time.process_time(), time.perf_counter()
        sweep = watch.sweep()
        walls.append(time.perf_counter() - began)
        cpus.append(time.process_time() - cpu)
    if not sweep.complete or sweep.read != groups:
        reasons = ", ".join(f"{reason} {count}" for reason, count in [*sweep.failures.items(), *sweep.unlisted.items()])
        raise SystemExit(f"{sweep.read} of {groups} groups were read ({reasons}): the figures would be wrong")
    series = GroupSeries("bench")
    series.update(sweep, snapshot.metadata.topics)
    began = time.perf_counter()
    series.update(sweep, snapshot.metadata.topics)
    rendered = time.perf_counter() - began
    print("  sweeps: done", file=sys.stderr)
    polls = max(10, 4 * rounds)
    alone = list(_polls(poller, polls))
    stop = threading.Event()
    sweeping = threading.Thread(target=_sweep_until, args=(watch, stop.is_set))
    sweeping.start()
    beside = list(_polls(poller, polls))
    stop.set()
    sweeping.join()
    all_read("poll beside sweeps", partitions, sink.snapshot)
    watch.close()
    source.close()
    return Figures(
        sweep, statistics.median(walls), statistics.median(cpus), rendered, alone, beside, usage(os.getpid()).rss_mib
    )


def _polls(poller: Poller, count: int) -> Iterator[float]:
    for _ in range(count):
        began = time.perf_counter()
        poller.poll()
        yield time.perf_counter() - began
        time.sleep(0.2)


def _sweep_until(watch: GroupWatch, stop: Callable[[], bool]) -> None:
    while not stop():
        watch.sweep(stop)


def _measured(pipe: Connection, bootstrap: str, groups: int, partitions: int, rounds: int) -> None:
    pipe.send(run(bootstrap, groups, partitions, rounds))


def measure(workbench: Workbench, groups: int, partitions: int, each: int, rounds: int) -> Figures:
    """Fill the broker here, and measure the exporter's side in a child process.

    Raises SystemExit where the child finds that figures would be wrong; it says why on standard error.
    """
    fill(workbench, partitions)
    known = workbench.admin.list_topics(timeout=30).topics
    topics = sorted(name for name in known if name.startswith(PREFIX))
    keys = [TopicPartition(topic, number) for topic in topics for number in known[topic].partitions]
    commit(workbench, groups, keys, each)
    context = multiprocessing.get_context("spawn")
    pipe, theirs = context.Pipe()
    child = context.Process(target=_measured, args=(theirs, workbench.bootstrap, groups, partitions, rounds))
    child.start()
    theirs.close()
    try:
        figures: Figures = pipe.recv()
    except EOFError:
        raise SystemExit("the measuring process ended without figures") from None
    finally:
        child.join()
        pipe.close()
    return figures


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=2000, help="how many consumer groups")
    parser.add_argument("--offsets", type=int, default=10, help="partitions that each has committed an offset in")
    parser.add_argument("--partitions", type=int, default=2000, help="how many partitions")
    parser.add_argument("--rounds", type=int, default=5, help="rounds a median is taken over")
    arguments = parser.parse_args()
    if min(arguments.groups, arguments.offsets, arguments.partitions, arguments.rounds) < 1:
        parser.error("each of them must be at least 1")
    jars = resolve_kafka(cache=cache_folder(), progress=lambda line: print(line, file=sys.stderr))
    with tempfile.TemporaryDirectory() as folder, Broker(Path(folder), jars=jars, heap="1g") as broker:
        print(f"Kafka {KAFKA_VERSION}, making topics and groups", file=sys.stderr)
        figures = measure(
            Workbench(broker.bootstrap), arguments.groups, arguments.partitions, arguments.offsets, arguments.rounds
        )
    per = 1000 / arguments.groups
    sweep = figures.sweep
    print(
        f"\nOne broker, Kafka {KAFKA_VERSION}, {arguments.groups} groups of {arguments.offsets} committed offsets, "
        f"{arguments.partitions} partitions, median of {arguments.rounds} sweeps"
    )
    print(f"{'':<34}{'the sweep':>12}{'per 1,000':>12}")
    for what, value in (
        ("seconds", figures.wall),
        ("client CPU, seconds", figures.cpu),
        ("rendered once a sweep, seconds", figures.render),
        *((f"look-ups: {spec}", float(count)) for spec, count in sorted(sweep.lookups.items())),
    ):
        print(f"{what:<34}{value:>12,.3f}{value * per:>12,.3f}")
    print(f"\n{'a poll takes, seconds':<34}{'median':>12}{'worst':>12}")
    for what, polls in (("alone", figures.alone), ("while sweeps follow each other", figures.beside)):
        print(f"{what:<34}{statistics.median(polls):>12.3f}{max(polls):>12.3f}")
    print(f"resident memory of the exporter's side {figures.resident_mib:.0f} MiB")


if __name__ == "__main__":
    main()

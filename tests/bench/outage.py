"""What a poll of three real brokers takes when one is gone, what it asks when 1 % move, and which outages it survives.

Run by ``make bench-outage``. Seconds are those of the exporter's own poll with its default settings; requests are
counted on the wire, to all brokers and of every kind. While a broker is gone each poll is a row of its own: the first
finds it out, and the cluster takes some seconds to name no leader for the partitions of one that is dead.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka
from confluent_kafka import Consumer

from exporter.clock import SystemClock
from exporter.collectors.poller import Poller
from exporter.domain.polls.readings import Reason, TopicPartition
from exporter.domain.polls.table import Snapshot
from exporter.domain.ports import SourceError
from exporter.kafka.process import OFFSETS, POLLS, ClientProcess, RemoteClient, Restart
from exporter.settings.schema import PollSettings
from tests.bench.running import WrongFiguresError, kafka_jars, show
from tests.demo.broker import Broker
from tests.tables import Rows
from tests.trio import Trio, frozen
from tests.views import readings_of
from tests.workbench import Workbench

TOPIC = "spread"

FROZEN_SECONDS = 21.0
"""Past the 20 s after which an exporter stayed blind for good once."""


def poll_source(process: ClientProcess, bootstrap: str, request_timeout: float, interval: float) -> RemoteClient:
    """Return what polls the topic, with default settings otherwise."""
    return RemoteClient(
        process,
        POLLS,
        limit=2 * (interval + request_timeout) + 5,
        metadata_seconds=2 * interval,
        poll_interval=interval,
        properties={"bootstrap.servers": bootstrap},
        request_timeout=request_timeout,
        include=[TOPIC],
        budget=interval,
    )


@dataclass(frozen=True, slots=True)
class Survived:
    """Outages of one broker under polls and sweeps over groups, and what was left of these."""

    outages: int
    restarts: dict[str, int]
    """Processes that were replaced, by reason."""
    polls: dict[str, int]
    """Polls by outcome."""
    well_after: int
    """After how many of the outages a poll and a sweep were good within a minute."""


class Steady:
    """Polls and sweeps one broker again and again, each in a thread of its own."""

    def __init__(self, bootstrap: str) -> None:
        self.restarts, self.polls = Counter[str](), Counter[str]()
        self._process = ClientProcess("bench", self._restarted)
        self._poller = Poller("bench", poll_source(self._process, bootstrap, 2.0, 5.0), [], SystemClock())
        self._groups = RemoteClient(
            self._process,
            OFFSETS,
            limit=60.0,
            properties={"bootstrap.servers": bootstrap},
            request_timeout=2.0,
            budget=10.0,
        ).groups
        self._stop = threading.Event()
        self.good = {"poll": threading.Event(), "sweep": threading.Event()}
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._poll, self._sweep)]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End all of it."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._process.close()

    def _restarted(self, why: Restart) -> None:
        self.restarts[str(why)] += 1

    def _poll(self) -> None:
        while not self._stop.wait(1.0):
            outcome = self._poller.poll()
            self.polls["ok" if isinstance(outcome, Snapshot) else str(outcome.reason)] += 1
            if isinstance(outcome, Snapshot) and outcome.table.read.all():
                self.good["poll"].set()

    def _sweep(self) -> None:
        while not self._stop.wait(0.2):
            try:
                names = self._groups.list_groups().names
                described, committed = self._groups.describe(names), self._groups.committed(names)
            except SourceError:
                continue
            if names and not committed.failed and not any(isinstance(each, Reason) for each in described.values()):
                self.good["sweep"].set()


def survive(jars: Path, folder: Path, outages: int) -> Survived:
    """Stop one broker and start it again, kill it and start it again, freeze it for 21 s, so often in all.

    Under polls and sweeps: a connection that was silent for so long is the one that librdkafka may not open again.
    """
    with Broker(folder, jars=jars) as broker:
        Workbench(broker.bootstrap).create(TOPIC, 30)
        for number in range(20):
            consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": f"group-{number}", "log_level": 0})
            consumer.commit(offsets=[confluent_kafka.TopicPartition(TOPIC, number, 0)], asynchronous=False)
            consumer.close()
        steady, well = Steady(broker.bootstrap), 0
        for number in range(outages):
            good = all(event.wait(60) for event in steady.good.values())
            assert good or number, "a poll and a sweep are good at first"
            if number % 3 == 2:
                with frozen(broker):
                    time.sleep(FROZEN_SECONDS)
            else:
                (broker.kill if number % 3 else broker.stop)()
                time.sleep(4)
                broker.start()
            for event in steady.good.values():
                event.clear()
            well += all(event.wait(60) for event in steady.good.values())
        steady.close()
    return Survived(outages, dict(steady.restarts), dict(steady.polls), well)


class Bench:
    """Polls a trio as the exporter does."""

    def __init__(self, trio: Trio) -> None:
        poll = PollSettings()
        self._trio = trio
        source = poll_source(ClientProcess("bench"), trio.bootstrap, poll.request_timeout, poll.interval)
        self._poller = Poller("bench", source, [], SystemClock())

    def poll(self, step: str) -> tuple[str, ...]:
        """Poll once, and return a row. Raises WrongFiguresError where the cluster as a whole gave nothing."""
        before = self._trio.requests
        snapshot = self._poller.poll()
        if not isinstance(snapshot, Snapshot):
            raise WrongFiguresError(f"{step}: the poll failed: {snapshot.detail}")
        unread = Counter(str(each.reason) for each in readings_of(snapshot).values() if each.latest is None)
        counts = (
            self._trio.requests - before,
            sum(snapshot.lookups.values()),
            len(readings_of(snapshot)) - unread.total(),
        )
        why = ", ".join(f"{reason} {count}" for reason, count in sorted(unread.items()))
        return (step, f"{snapshot.duration_seconds:.2f}", *map(str, counts), why)


def measure(trio: Trio, partitions: int, polls: int) -> Iterator[tuple[str, ...]]:
    """Yield a row for each poll; ``partitions`` is a multiple of 3, ``polls`` is how many while a broker is gone."""
    trio.create(TOPIC, partitions // 3)
    keys = [TopicPartition(TOPIC, number) for number in range(partitions)]
    for _ in range(2):
        trio.workbench.write([(*key, time.time()) for key in keys])
        time.sleep(0.002)  # another millisecond: equal times prove nothing of a broker
    bench = Bench(trio)
    yield bench.poll("all well, first poll")
    yield bench.poll("all well, nothing moved")
    trio.workbench.write([(*key, time.time()) for key in keys[::100]])
    yield bench.poll("all well, 1 % moved")
    for name, gone in (("cut off", trio.cut_off), ("dead", trio.dead)):
        with gone():
            for number in range(polls):
                yield bench.poll(f"third {name}, poll {number + 1}")
        trio.workbench.await_leaders(TOPIC, partitions)
        yield bench.poll(f"after {name}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=3000, help="how many partitions, a multiple of 3")
    parser.add_argument("--polls", type=int, default=3, help="polls while a broker is gone")
    parser.add_argument("--outages", type=int, default=6, help="how often one broker is stopped, killed or frozen")
    given = parser.parse_args()
    if given.partitions < 3 or given.partitions % 3 or given.polls < 1:
        parser.error("--partitions must be a multiple of 3, and --polls at least 1")
    jars = kafka_jars()
    with tempfile.TemporaryDirectory() as folder, Trio(Path(folder), jars) as trio:
        rows: Rows = [("poll", "seconds", "requests", "look-ups", "read", "unread")]
        rows += measure(trio, given.partitions, given.polls)
    show(f"Three brokers, {given.partitions} partitions, default settings", rows)
    with tempfile.TemporaryDirectory() as folder:
        survived = survive(jars, Path(folder), given.outages)
    print(f"\nOne broker, stopped, killed or frozen {survived.outages} times under polls and sweeps")
    print(f"restarts survived: {sum(survived.restarts.values())} {survived.restarts or ''}")
    print(f"polls: {survived.polls}; good again within a minute: {survived.well_after} of {survived.outages}")


if __name__ == "__main__":
    main()

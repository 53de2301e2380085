"""What a poll of three real brokers takes when one is gone, and what it asks when 1 % of partitions move.

Run by ``make bench-outage``. Seconds are those of the exporter's own poll with its default settings; requests are
counted on the wire, to all brokers and of every kind. While a broker is gone each poll is a row of its own: the first
finds it out, and the cluster takes some seconds to name no leader for the partitions of one that is dead.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from exporter.collectors.poller import Poller
from exporter.demo.broker import KAFKA_VERSION, resolve_kafka
from exporter.domain import Snapshot, TopicPartition
from exporter.factory import SystemClock
from exporter.kafka import KafkaSource
from exporter.settings.schema import PollSettings
from tests.programs import cache_folder
from tests.trio import Trio

TOPIC = "spread"


@dataclass(frozen=True, slots=True)
class Row:
    """One poll: wall seconds, requests on the wire, look-ups (partitions asked about), and why some were not read."""

    step: str
    seconds: float
    requests: int
    lookups: int
    read: int
    unread: dict[str, int]


class Bench:
    """Polls a trio as the exporter does."""

    def __init__(self, trio: Trio) -> None:
        poll = PollSettings()
        self._trio = trio
        source = KafkaSource(
            {"bootstrap.servers": trio.bootstrap},
            clock=SystemClock(),
            request_timeout=poll.request_timeout,
            chunk_size=poll.chunk_size,
            calls_in_flight=poll.calls_in_flight,
            include=[TOPIC],
            budget=poll.interval,
        )
        self._poller = Poller("bench", source, [], SystemClock())

    def poll(self, step: str) -> Row:
        """Poll once. Raises SystemExit where the cluster as a whole gave nothing."""
        before = self._trio.requests
        snapshot = self._poller.poll()
        if not isinstance(snapshot, Snapshot):
            raise SystemExit(f"{step}: the poll failed: {snapshot.detail}")
        unread = Counter(str(each.reason) for each in snapshot.readings.values() if each.latest is None)
        return Row(
            step,
            snapshot.duration_seconds,
            self._trio.requests - before,
            sum(snapshot.lookups.values()),
            len(snapshot.readings) - unread.total(),
            dict(unread),
        )


def measure(trio: Trio, partitions: int, polls: int) -> Iterator[Row]:
    """Yield the rows; ``partitions`` is a multiple of 3, ``polls`` is how many while a broker is gone."""
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
    """Print the table, and save it as JSON when asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=3000, help="how many partitions, a multiple of 3")
    parser.add_argument("--polls", type=int, default=3, help="polls while a broker is gone")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    if arguments.partitions < 3 or arguments.partitions % 3 or arguments.polls < 1:
        parser.error("--partitions must be a multiple of 3, and --polls at least 1")
    jars = resolve_kafka(cache=cache_folder(), progress=lambda line: print(line, file=sys.stderr))
    rows = []
    print(f"Three brokers, Kafka {KAFKA_VERSION}, {arguments.partitions} partitions, default settings")
    print(f"{'poll':<28}{'seconds':>9}{'requests':>10}{'look-ups':>10}{'read':>7}  unread")
    with tempfile.TemporaryDirectory() as folder, Trio(Path(folder), jars) as trio:
        for row in measure(trio, arguments.partitions, arguments.polls):
            rows.append(row)
            why = ", ".join(f"{reason} {count}" for reason, count in sorted(row.unread.items()))
            print(
                f"{row.step:<28}{row.seconds:>9.2f}{row.requests:>10}{row.lookups:>10}{row.read:>7}  {why}", flush=True
            )
    if arguments.json:
        told = {"kafka": KAFKA_VERSION, "partitions": arguments.partitions, "polls": [asdict(row) for row in rows]}
        arguments.json.write_text(json.dumps(told, indent=2) + "\n")


if __name__ == "__main__":
    main()

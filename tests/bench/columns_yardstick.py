"""The least that a poll in Python takes: numpy columns, the cheapest look-ups, five series of each partition as text.

Run as ``python -m tests.bench.columns_yardstick BOOTSTRAP``, a process of its own on the cluster on which an exporter
is measured. It judges nothing, keeps no history and serves nobody: a poll of the exporter is held against it. Each
round asks for LATEST of all partitions by ``Consumer.offsets_for_times`` (one call a chunk, no future for each
partition) and for MAX_TIMESTAMP of those that moved; EARLIEST is asked before the first round only. Prints JSON.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.bench.process_tree import usage

CHUNK = 250
SERIES = ("current_offset", "oldest_offset", "last_record_timestamp", "staleness", "last_advance_timestamp")
_LATEST, _EARLIEST = -1, -2


@dataclass(frozen=True, slots=True)
class Yardstick:
    """Medians of all rounds but the first: CPU and wall seconds, partitions that moved; memory at the end."""

    cpu: float
    wall: float
    moved: float
    resident_mib: float


class Table:
    """A row for each partition of the topics whose names begin with ``prefix``, a column for each fact."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        properties: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._consumer = Consumer({**properties, "group.id": "yardstick"})
        self._admin: Any = AdminClient(properties)
        topics = {
            name: topic
            for name, topic in self._consumer.list_topics(timeout=60).topics.items()
            if name.startswith(prefix)
        }
        led = sorted((each.leader, name, each.id) for name in topics for each in topics[name].partitions.values())
        self._rows = [(topic, partition) for _, topic, partition in led]
        self._leader = np.array([leader for leader, _, _ in led], np.int64)
        size = len(led)
        self._latest = np.zeros(size, np.int64)
        self._earliest = np.zeros(size, np.int64)
        self._newest = np.full(size, np.nan)
        self._advanced = np.full(size, np.nan)
        self._prefixes = [
            [
                f'\nkafka_topic_partition_{name}{{kafka_cluster="bench",topic="{topic}",partition="{partition}"}} '
                for topic, partition in self._rows
            ]
            for name in SERIES
        ]
        self._asking = {spec: self._chunks(spec) for spec in (_LATEST, _EARLIEST)}

    def first(self) -> None:
        """Ask for everything of every partition."""
        self._earliest[:] = self._ask(_EARLIEST)
        self._latest[:] = self._ask(_LATEST)
        self._ask_newest(np.arange(len(self._rows)))

    def poll(self) -> tuple[int, int]:
        """Ask for what may have changed, and render; return how many partitions moved and the bytes of text."""
        latest, now = self._ask(_LATEST), time.time()
        moved = np.flatnonzero(latest != self._latest)
        self._latest = latest
        self._advanced[moved] = now
        self._ask_newest(moved)
        return len(moved), len(self._render(now))

    def _chunks(self, spec: int) -> list[tuple[slice, list[TopicPartition]]]:
        """Rows that lie beside each other and have one leader, with what to ask for them."""
        bounds = [0, *(np.flatnonzero(np.diff(self._leader)) + 1).tolist(), len(self._rows)]
        return [
            (
                slice(start, min(start + CHUNK, until)),
                [TopicPartition(*row, spec) for row in self._rows[start : min(start + CHUNK, until)]],
            )
            for begin, until in itertools.pairwise(bounds)
            for start in range(begin, until, CHUNK)
        ]

    def _ask(self, spec: int) -> npt.NDArray[np.int64]:
        found = np.empty(len(self._rows), np.int64)
        for rows, partitions in self._asking[spec]:
            found[rows] = [each.offset for each in self._consumer.offsets_for_times(partitions, timeout=30)]
        return found

    def _ask_newest(self, rows: npt.NDArray[np.int64]) -> None:
        for leader in np.unique(self._leader[rows]):
            led = rows[self._leader[rows] == leader]
            for start in range(0, len(led), CHUNK):
                part = led[start : start + CHUNK]
                specs = {TopicPartition(*self._rows[row]): OffsetSpec.max_timestamp() for row in part}
                answers = self._admin.list_offsets(specs, request_timeout=30).values()
                self._newest[part] = [each.result().timestamp / 1000 for each in answers]

    def _render(self, now: float) -> bytes:
        staleness = np.maximum(0, now - self._newest).round(3)
        columns = (self._latest, self._earliest, self._newest, staleness, self._advanced)
        return "".join(
            piece
            for prefixes, column in zip(self._prefixes, columns, strict=True)
            for pair in zip(prefixes, map(repr, column.tolist()), strict=True)
            for piece in pair
        ).encode()


def measure(bootstrap: str, prefix: str, rounds: int, interval: float) -> Yardstick:
    """Poll so many times after a first round, ``interval`` seconds apart from end to beginning."""
    table = Table(bootstrap, prefix)
    table.first()
    cpus, walls, moved = [], [], []
    for _ in range(rounds):
        time.sleep(interval)
        cpu, began = time.process_time(), time.perf_counter()
        moved.append(table.poll()[0])
        cpus.append(time.process_time() - cpu)
        walls.append(time.perf_counter() - began)
    return Yardstick(
        statistics.median(cpus), statistics.median(walls), statistics.median(moved), usage(os.getpid()).rss_mib
    )


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bootstrap", help="HOST:PORT of the cluster")
    parser.add_argument("--prefix", default="bench-", help="how the names of the topics begin")
    parser.add_argument("--rounds", type=int, default=5, help="rounds a median is taken over")
    parser.add_argument("--interval", type=float, default=3.0, help="seconds from one round to the next")
    arguments = parser.parse_args()
    figures = measure(arguments.bootstrap, arguments.prefix, arguments.rounds, arguments.interval)
    json.dump(asdict(figures), sys.stdout)


if __name__ == "__main__":
    main()

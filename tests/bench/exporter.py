"""What ``topic-liveness serve`` costs as users run it: CPU a poll, memory, the start, scrapes, and a further cluster.

``make bench`` takes one real broker with 8,000 partitions (``--real``), ``make bench-scale`` 100,000 of a fake cluster:
three brokers in one Go program (kfake). CPU and memory are those of the exporter and all its processes. CPU a poll is
what they used between two polls, divided by their number: polling, judging, one scrape of /metrics each ``INTERVAL``,
and all else that an exporter does. What makes records has processes of its own, on the same cores.
"""

import argparse
import contextlib
import functools
import gzip
import http.client
import json
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.bench.running import WrongFiguresError, real_broker, say, show
from tests.fake_cluster import FakeCluster
from tests.integration.serving import Exporter
from tests.integration.sweeping import commit
from tests.process_tree import Memory, cpu_seconds, descendants, memory
from tests.tables import Rows
from tests.workbench import Workbench

INTERVAL = 5.0
"""Seconds from poll to poll, sweep to sweep and scrape to scrape: the least that settings allow."""

MOVE_INTERVAL = INTERVAL / 2
"""Seconds from record to record of a partition that moves: it has moved at every poll."""

PER_TOPIC = 100
ENCODINGS = ("identity", "gzip")
_SETTINGS = {
    "TOPIC_LIVENESS_POLL__INTERVAL": f"{INTERVAL}s",
    "TOPIC_LIVENESS_POLL__REQUEST_TIMEOUT": "10s",
    "TOPIC_LIVENESS_GROUPS__INTERVAL": f"{INTERVAL}s",
    "TOPIC_LIVENESS_LOG__LEVEL": "warning",
    # As the image and the unit of systemd set it.
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_TRIM_THRESHOLD_": "16777216",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}
_LONGEST = 300.0
_LEAST_SCRAPES = 20
_POLL_TIMEOUT = 180.0
_PAUSE = 0.02

Move = Callable[[float], None]
"""Has a share of the partitions move each ``MOVE_INTERVAL``, until it is called again."""


def measure(name: str, bootstrap: str, partitions: int, given: argparse.Namespace, move: Move) -> None:
    """Start an exporter on a cluster, measure it, end it and print its tables.

    Scrapes are timed at the middle one of the shares. Raises WrongFiguresError where partitions were not read, records
    not seen, or no poll was good for three minutes.
    """
    polls: Rows = [("moving", "polls", "missed", "CPU s a poll", "wall s", "RSS, PSS MiB halfway", "after all")]
    scrapes: Rows = [("start to first good scrape, s", "RSS, PSS MiB then", *("scrape beside a poll, ms", "MiB") * 2)]
    shares = [each / 100 for each in given.moving]
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        with Exporter(Path(folder), bootstrap, **_SETTINGS) as exporter:
            serving = _Serving(exporter, partitions)
            serving.await_first()
            started, held = time.perf_counter() - began, memory(exporter.process.pid)
            say(f"  start: {started:.1f} s")
            for share in shares:
                move(share)
                polls.append(serving.polls(share, given.polls))
                say(f"  {share:.0%} moving: {polls[-1][3]} s of CPU a poll")
            move(sorted(shares)[len(shares) // 2])
            scrapes.append((f"{started:.1f}", _text(held), *serving.scrapes(given.scrape_seconds)))
            exporter.end()
    show(f"{name}: polls", polls)
    show(f"{name}: start and scrapes", scrapes)


@dataclass(frozen=True, slots=True)
class _Counters:
    """What the exporter says of itself in one scrape."""

    polls: int
    missed: int
    wall: float
    records: float
    timestamps: int


def _counters(text: bytes) -> _Counters:
    def values(name: bytes) -> list[tuple[bytes, bytes]]:
        return re.findall(rb"^" + name + rb"\{(.*)\} (\S+)", text, re.MULTILINE)

    good, missed = 0, 0
    for labels, value in values(b"topic_liveness_polls_total"):
        good, missed = (good + int(float(value)), missed) if b'"ok"' in labels else (good, missed + int(float(value)))
    wall, records = (
        sum(float(value) for _, value in values(name))
        for name in (b"topic_liveness_poll_duration_seconds_sum", b"kafka_topic_records_total")
    )
    return _Counters(good, missed, wall, records, text.count(b"\nkafka_topic_partition_last_record_timestamp_seconds{"))


class _Serving:
    """An exporter that was just started."""

    def __init__(self, exporter: Exporter, partitions: int) -> None:
        self._exporter = exporter
        self._partitions = partitions

    def await_first(self) -> None:
        """Wait for a scrape that has the newest timestamp of every partition."""
        deadline, found = time.monotonic() + _LONGEST, 0
        while found != self._partitions:
            if self._exporter.process.poll() is not None or time.monotonic() > deadline:
                raise WrongFiguresError(f"{found} of {self._partitions} partitions were read at first")
            time.sleep(_PAUSE)
            with contextlib.suppress(OSError):
                found = _counters(self._scrape()).timestamps

    def polls(self, share: float, count: int) -> tuple[str, ...]:
        """Measure so many polls or a few more, from the second one at this share on; return a row.

        Polls that failed meanwhile are missed; their CPU is in that of the good ones.
        """
        pid = self._exporter.process.pid
        before = self._await_polls(1)
        cpu = cpu_seconds(pid)
        self._await_polls(count // 2)
        halfway = memory(pid)
        after = self._await_polls(count - count // 2)
        done, missed = after.polls - before.polls, after.missed - before.missed
        cpu = (cpu_seconds(pid) - cpu) / done
        seen = (after.records - before.records) / done
        if after.timestamps != self._partitions or seen < 0.9 * share * self._partitions:
            raise WrongFiguresError(
                f"{after.timestamps} of {self._partitions} partitions were read and {seen:.0f} records seen in a poll, "
                f"with {share:.0%} moving"
            )
        wall = (after.wall - before.wall) / (done + missed)
        figures = (f"{share:.0%}", str(done), str(missed), f"{cpu:.3f}", f"{wall:.2f}")
        return (*figures, _text(halfway), _text(memory(pid)))

    def scrapes(self, seconds: float) -> list[str]:
        """Scrape plain and with gzip in turns; return time and size of each, as cells.

        Those count that ran in the seconds before a poll is first seen. Scrapes go on for five minutes at most, until
        20 of each kind ran beside polls: p99 of fewer says nothing.
        """
        taken: list[tuple[str, float, float, int]] = []
        beside: dict[str, list[tuple[float, int]]] = {}
        polls: list[tuple[float, float]] = []
        before, began_all = None, time.perf_counter()
        while (passed := time.perf_counter() - began_all) < seconds or (
            min(len(beside.get(each, ())) for each in ENCODINGS) < _LEAST_SCRAPES and passed < _LONGEST
        ):
            for encoding in ENCODINGS:
                began = time.perf_counter()
                body = self._scrape(encoding)
                ended = time.perf_counter()
                taken.append((encoding, began, ended, len(body)))
                now = _counters(gzip.decompress(body) if encoding == "gzip" else body)
                if before is not None and now.polls > before.polls:
                    polls.append((began - (now.wall - before.wall), ended))
                before = now
                time.sleep(_PAUSE)
            beside = {encoding: [] for encoding in ENCODINGS}
            for encoding, began, ended, size in taken:
                if any(began <= until and ended >= since for since, until in polls):
                    beside[encoding].append((ended - began, size))
        if not all(beside.values()):
            raise WrongFiguresError("no scrape ran beside a poll: scrape for longer (--scrape-seconds)")
        cells = []
        for encoding, own in beside.items():
            p50, p99 = 1000 * np.quantile([took for took, _ in own], [0.5, 0.99])
            cells += [f"{p50:.0f}, p99 {p99:.0f} ({encoding}, {len(own)})", f"{own[-1][1] / 2**20:.2f}"]
        return cells

    def _await_polls(self, count: int) -> _Counters:
        """Scrape each ``INTERVAL`` until there were so many more polls."""
        first = now = _counters(self._scrape())
        deadline = time.monotonic() + count * _POLL_TIMEOUT
        while now.polls < first.polls + count:
            if time.monotonic() > deadline:
                raise WrongFiguresError(f"{now.polls - first.polls} of {count} polls were good")
            time.sleep(INTERVAL)
            now = _counters(self._scrape())
        return now

    def _scrape(self, encoding: str = "identity") -> bytes:
        """Return the answer as it came over the wire. Raises OSError or HTTPException where there is none."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self._exporter.port, timeout=120)) as line:
            line.request("GET", "/metrics", headers={"Accept-Encoding": encoding})
            answer = line.getresponse()
            body = answer.read()
            if answer.status != http.HTTPStatus.OK:
                raise http.client.HTTPException(f"/metrics answered {answer.status}")
            return body


@contextlib.contextmanager
def fake_cluster(partitions: int, groups: int) -> Iterator[tuple[str, Move]]:
    """A fake cluster of so many partitions and groups: its bootstrap servers, and what makes partitions move."""
    with FakeCluster(partitions // PER_TOPIC, PER_TOPIC, groups=groups) as cluster:
        cluster.command("create", "__consumer_offsets", 1)  # as every cluster of that size has
        yield cluster.bootstrap, functools.partial(cluster.command, "every", MOVE_INTERVAL)


@contextlib.contextmanager
def filled_broker(partitions: int) -> Iterator[tuple[str, Move]]:
    """A real broker with three records in each of so many partitions, likewise."""
    keys = [(f"bench-{number // PER_TOPIC:04d}", number % PER_TOPIC) for number in range(partitions)]
    moving, ended = list[tuple[str, int]](), threading.Event()
    with real_broker("2g") as broker:
        workbench = Workbench(broker.bootstrap)

        def write(chosen: Sequence[tuple[str, int]]) -> None:
            workbench.write([(*key, time.time()) for key in chosen])

        def move(share: float) -> None:
            count = round(share * partitions)
            moving[:] = [keys[place * partitions // count] for place in range(count)]

        def write_on() -> None:
            while not ended.wait(MOVE_INTERVAL):
                write(list(moving))

        say(f"filling {partitions} partitions")
        for first in range(0, partitions, PER_TOPIC):
            workbench.create(keys[first][0], min(PER_TOPIC, partitions - first))
        write(keys * 3)
        commit(broker.bootstrap, "bench", {keys[0][0]: 3})  # without a topic of offsets polls go another, dearer way
        writing = threading.Thread(target=write_on)
        writing.start()
        try:
            yield broker.bootstrap, move
        finally:
            ended.set()
            writing.join()


def measure_further_clusters(more: int, partitions: int) -> tuple[float, float]:
    """Return the MiB of PSS and the processes that each of some further clusters takes, all of that size."""

    def held(bootstraps: Sequence[str]) -> tuple[float, int]:
        clusters = [{"name": f"c{at}", "kafka": {"bootstrap.servers": one}} for at, one in enumerate(bootstraps)]
        settings = {**_SETTINGS, "TOPIC_LIVENESS_CLUSTERS": json.dumps(clusters)}
        with tempfile.TemporaryDirectory() as folder, Exporter(Path(folder), None, **settings) as exporter:
            serving = _Serving(exporter, len(bootstraps) * partitions)
            serving.await_first()
            serving._await_polls(3 * len(bootstraps))  # noqa: SLF001 - of the same module
            found = memory(exporter.process.pid).pss, len(descendants(exporter.process.pid))
            exporter.end()
        return found

    with contextlib.ExitStack() as stack:
        fakes = [stack.enter_context(FakeCluster(1, partitions)).bootstrap for _ in range(1 + more)]
        (pss, processes), (pss_of_all, processes_of_all) = held(fakes[:1]), held(fakes)
    return (pss_of_all - pss) / more, (processes_of_all - processes) / more


def _text(held: Memory) -> str:
    return f"{held.rss:.0f}, {held.pss:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", action="store_true", help="on one real broker, in place of a fake cluster")
    parser.add_argument("--partitions", type=int, help="8000 on a real broker, else 100000; in topics of 100")
    parser.add_argument("--groups", type=int, nargs="+", default=[0], help="numbers of consumer groups (fake cluster)")
    parser.add_argument("--moving", type=float, nargs="+", default=[10], help="percent of partitions that move")
    parser.add_argument("--polls", type=int, default=20, help="polls to measure at each share of moving partitions")
    parser.add_argument("--scrape-seconds", type=float, default=40, help="how long to time scrapes")
    parser.add_argument("--further", type=int, default=2, help="further clusters to measure (fake); 0: none")
    given = parser.parse_args()
    partitions = given.partitions or (8_000 if given.real else 100_000)
    if min(given.polls, partitions, given.scrape_seconds) < 1 or not all(0 < each <= 100 for each in given.moving):
        parser.error("--partitions, --polls and --scrape-seconds must be at least 1, --moving more than 0, at most 100")
    for groups in [0] if given.real else given.groups:
        name = f"{partitions} partitions, " + ("a real broker" if given.real else f"{groups} groups, fake brokers")
        with filled_broker(partitions) if given.real else fake_cluster(partitions, groups) as (bootstrap, move):
            measure(name, bootstrap, partitions, given, move)
    if given.further and not given.real:
        pss, processes = measure_further_clusters(given.further, PER_TOPIC)
        print(f"\na further cluster of {PER_TOPIC} partitions: PSS {pss:.0f} MiB, {processes:g} processes")


if __name__ == "__main__":
    main()

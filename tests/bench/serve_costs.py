"""What ``topic-liveness serve`` costs as users run it: a process of its own with its children, polling and scraped.

CPU and memory are those of the whole process tree. CPU a poll is what the tree used between two polls, divided by their
number: polling, rendering, one scrape of /metrics each ``INTERVAL``, and all else that an exporter does beside.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.columns_yardstick import Yardstick
from tests.bench.process_tree import Memory, memory, usage
from tests.bench.scraping import scrape
from tests.integration.serving import Exporter

INTERVAL = 5.0
"""Seconds from poll to poll, sweep to sweep and scrape to scrape: the least that settings allow."""

MOVE_INTERVAL = INTERVAL / 2
"""Seconds from record to record of a partition that moves: it has moved at every poll."""

ENCODINGS = ("identity", "gzip")

_SETTINGS = {
    "TOPIC_LIVENESS_POLL__INTERVAL": f"{INTERVAL}s",
    "TOPIC_LIVENESS_POLL__REQUEST_TIMEOUT": "10s",
    "TOPIC_LIVENESS_GROUPS__INTERVAL": f"{INTERVAL}s",
    "TOPIC_LIVENESS_LOG__LEVEL": "warning",
}
_START_SECONDS = 300.0
_POLL_TIMEOUT = 180.0
_PAUSE = 0.02


@dataclass(frozen=True, slots=True)
class Polls:
    """Polls in a row while a share of the partitions moved: CPU and wall seconds a poll, memory after half and all.

    ``missed`` are polls that failed meanwhile; their CPU is in that of the good ones.
    """

    moving: float
    polls: int
    missed: int
    cpu: float
    wall: float
    memory_halfway: Memory
    memory: Memory


@dataclass(frozen=True, slots=True)
class Scrapes:
    """Scrapes that a poll ran beside: seconds, and MiB on the wire."""

    encoding: str
    count: int
    p50: float
    p99: float
    size_mib: float


@dataclass(frozen=True, slots=True)
class Costs:
    """One exporter process, from its start."""

    start_seconds: float
    start_memory: Memory
    polls: list[Polls]
    scrapes: list[Scrapes]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure: polls at each share of moving partitions, and how many seconds of scrapes.

    Scrapes go on for five minutes at most, until ``least_scrapes`` of each kind ran beside polls: p99 of fewer says
    nothing.
    """

    shares: Sequence[float]
    polls: int
    scrape_seconds: float
    least_scrapes: int = 20
    publish: Callable[[Path], None] | None = None
    """Publishes expectations of all partitions into a folder of history, before the exporter starts."""


def measure(bootstrap: str, partitions: int, plan: Plan, move: Callable[[float], None]) -> Costs:
    """Start an exporter on a cluster and measure it; end it.

    ``move`` has a share of the partitions move each ``MOVE_INTERVAL`` until it is called again. Scrapes are timed at
    the middle one of the shares. Raises SystemExit where figures would be wrong: partitions that were not read, records
    that were not seen, no good poll for three minutes.
    """
    with tempfile.TemporaryDirectory() as folder:
        if plan.publish is not None:
            plan.publish(Path(folder) / "history")
        began = time.perf_counter()
        with Exporter(Path(folder), bootstrap, **_SETTINGS) as exporter:
            serving = _Serving(exporter, partitions)
            serving.await_first(expected=plan.publish is not None)
            start_seconds, start_memory = time.perf_counter() - began, memory(exporter.process.pid)
            print(f"  start: {start_seconds:.1f} s", file=sys.stderr)
            polls = []
            for share in plan.shares:
                move(share)
                polls.append(serving.polls(share, plan.polls))
                print(f"  {share:.0%} moving: {polls[-1].cpu:.2f} s of CPU a poll", file=sys.stderr)
            move(sorted(plan.shares)[len(plan.shares) // 2])
            scrapes = serving.scrapes(plan.scrape_seconds, plan.least_scrapes)
            exporter.end()
    return Costs(start_seconds, start_memory, polls, scrapes)


def yardsticks(
    bootstrap: str, shares: Sequence[float], rounds: int, move: Callable[[float], None]
) -> dict[float, Yardstick]:
    """Return what ``columns_yardstick`` takes on the same cluster, for each share of moving partitions."""
    found = {}
    for share in shares:
        move(share)
        command = [sys.executable, "-m", "tests.bench.columns_yardstick", bootstrap, f"--rounds={rounds}"]
        done = subprocess.run(
            [*command, f"--interval={MOVE_INTERVAL * 1.2}"], stdout=subprocess.PIPE, text=True, check=True
        )
        found[share] = Yardstick(**json.loads(done.stdout))
        print(f"  yardstick, {share:.0%} moving: {found[share].cpu:.2f} s of CPU", file=sys.stderr)
    return found


@dataclass(frozen=True, slots=True)
class _Counters:
    """What the exporter says of itself in one scrape."""

    polls: int
    missed: int
    wall: float
    records: float
    timestamps: int


def _counters(text: bytes) -> _Counters:
    outcomes = {key: int(float(value)) for key, value in _POLLS.findall(text)}
    good = outcomes.pop(b"ok", 0)
    return _Counters(
        good,
        sum(outcomes.values()),
        sum(map(float, _POLL_SECONDS.findall(text))),
        sum(map(float, _RECORDS.findall(text))),
        text.count(b"\nkafka_topic_partition_last_record_timestamp_seconds{"),
    )


_POLLS = re.compile(rb'^topic_liveness_polls_total\{.*outcome="([^"]*)".*\} (\S+)', re.MULTILINE)
_POLL_SECONDS = re.compile(rb"^topic_liveness_poll_duration_seconds_sum\{.*\} (\S+)", re.MULTILINE)
_EXPECTED = re.compile(rb"^topic_liveness_expectations_timestamp_seconds ", re.MULTILINE)
_RECORDS = re.compile(rb"^kafka_topic_records_total\{.*\} (\S+)", re.MULTILINE)


class _Serving:
    """An exporter that was just started."""

    def __init__(self, exporter: Exporter, partitions: int) -> None:
        self._exporter = exporter
        self._partitions = partitions
        self._url = f"http://127.0.0.1:{exporter.port}/metrics"

    def await_first(self, *, expected: bool) -> None:
        """Wait for a scrape that has the newest timestamp of every partition; all of them may have to be expected."""
        deadline = time.monotonic() + _START_SECONDS
        found, shown = 0, b""
        while found != self._partitions:
            if self._exporter.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(
                    f"{found} of {self._partitions} partitions were read at first: the figures would be wrong"
                )
            time.sleep(_PAUSE)
            try:
                shown = scrape(self._url)
            except OSError:
                continue
            found = _counters(shown).timestamps
        if expected and not _EXPECTED.search(shown):
            raise SystemExit("the exporter did not take the published expectations: the figures would be wrong")

    def polls(self, share: float, count: int) -> Polls:
        """Measure so many polls or a few more, from the second one at this share on."""
        pid = self._exporter.process.pid
        before = self._await_polls(1)
        cpu = usage(pid).cpu
        self._await_polls(count // 2)
        halfway = memory(pid)
        after = self._await_polls(count - count // 2)
        done = after.polls - before.polls
        cpu = (usage(pid).cpu - cpu) / done
        seen = (after.records - before.records) / done
        if after.timestamps != self._partitions or seen < 0.9 * share * self._partitions:
            raise SystemExit(
                f"{after.timestamps} of {self._partitions} partitions were read and {seen:.0f} records seen in a poll, "
                f"with {share:.0%} moving: the figures would be wrong"
            )
        missed = after.missed - before.missed
        wall = (after.wall - before.wall) / (done + missed)
        return Polls(share, done, missed, cpu, wall, halfway, memory(pid))

    def scrapes(self, seconds: float, least: int) -> list[Scrapes]:
        """Scrape plain and with gzip in turns; those count that ran in the seconds before a poll is first seen.

        It goes on until there are ``least`` of each kind.
        """
        taken: list[tuple[str, float, float, int]] = []
        polls: list[tuple[float, float]] = []
        beside: list[tuple[str, float, float, int]] = []
        kinds: list[str] = []
        before = None
        began_all = time.perf_counter()
        while (passed := time.perf_counter() - began_all) < seconds or (
            min(kinds.count(each) for each in ENCODINGS) < least and passed < _START_SECONDS
        ):
            for encoding in ENCODINGS:
                began = time.perf_counter()
                body = scrape(self._url, encoding)
                ended = time.perf_counter()
                taken.append((encoding, began, ended, len(body)))
                now = _counters(gzip.decompress(body) if encoding == "gzip" else body)
                if before is not None and now.polls > before.polls:
                    polls.append((began - (now.wall - before.wall), ended))
                before = now
                time.sleep(_PAUSE)
            beside = [each for each in taken if any(each[1] <= until and each[2] >= since for since, until in polls)]
            kinds = [each[0] for each in beside]
        return [self._scrapes(encoding, [each[1:] for each in beside if each[0] == encoding]) for encoding in ENCODINGS]

    @staticmethod
    def _scrapes(encoding: str, beside: list[tuple[float, float, int]]) -> Scrapes:
        if not beside:
            raise SystemExit(f"no {encoding} scrape ran beside a poll: scrape for longer (--scrape-seconds)")
        p50, p99 = np.quantile([ended - began for began, ended, _ in beside], [0.5, 0.99]).tolist()
        return Scrapes(encoding, len(beside), p50, p99, beside[-1][2] / 2**20)

    def _await_polls(self, count: int) -> _Counters:
        """Scrape each ``INTERVAL`` until there were so many more polls."""
        first = now = _counters(scrape(self._url))
        deadline = time.monotonic() + count * _POLL_TIMEOUT
        while now.polls < first.polls + count:
            if time.monotonic() > deadline:
                raise SystemExit(
                    f"{now.polls - first.polls} of {count} polls were good within {_POLL_TIMEOUT:g} s each"
                )
            time.sleep(INTERVAL)
            now = _counters(scrape(self._url))
        return now


def add_options(parser: argparse.ArgumentParser, polls: int, scrape_seconds: float) -> None:
    """Add the options that benches of the whole exporter share."""
    parser.add_argument("--polls", type=int, default=polls, help="polls to measure at each share of moving partitions")
    parser.add_argument("--scrape-seconds", type=float, default=scrape_seconds, help="how long to time scrapes")
    parser.add_argument("--yardstick-rounds", type=int, default=4, help="rounds of the yardstick")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")


def plan_of(parser: argparse.ArgumentParser, arguments: argparse.Namespace, shares: Sequence[float]) -> Plan:
    """Return what the options ask for; ends the program where they make no sense."""
    if min(arguments.polls, arguments.yardstick_rounds) < 1 or arguments.scrape_seconds <= 0:
        parser.error("--polls and --yardstick-rounds must be at least 1, --scrape-seconds more than 0")
    return Plan(shares, arguments.polls, arguments.scrape_seconds)


def show(costs: Costs, held_against: Mapping[float, Yardstick]) -> None:
    """Print the figures of one exporter beside the yardstick's."""
    print(
        f"start to first good scrape {costs.start_seconds:.1f} s, memory then {_memory_text(costs.start_memory)}\n"
        f"{'moving':<8}{'polls':>6}{'missed':>8}{'CPU s a poll':>14}{'yardstick':>11}{'ratio':>7}{'wall s':>9}"
        "  memory after half of the polls, and after all"
    )
    for each in costs.polls:
        least = held_against[each.moving].cpu
        print(
            f"{each.moving:<8.0%}{each.polls:>6}{each.missed:>8}{each.cpu:>14.3f}{least:>11.3f}{each.cpu / least:>7.2f}"
            f"{each.wall:>9.2f}  {_memory_text(each.memory_halfway)}; {_memory_text(each.memory)}"
        )
    for scraped in costs.scrapes:
        print(
            f"scrape while a poll runs, {scraped.encoding}: p50 {scraped.p50 * 1000:.0f} ms, p99 "
            f"{scraped.p99 * 1000:.0f} ms of {scraped.count}, {scraped.size_mib:.2f} MiB"
        )


def as_json(costs: Costs, held_against: Mapping[float, Yardstick]) -> dict[str, Any]:
    """Return the same for a file."""
    return {**asdict(costs), "yardstick": {f"{share:g}": asdict(each) for share, each in held_against.items()}}


def _memory_text(memory: Memory) -> str:
    if memory.pss is None or memory.anonymous is None:
        return f"RSS {memory.rss:.0f} MiB"
    return f"RSS {memory.rss:.0f}, PSS {memory.pss:.0f}, anonymous {memory.anonymous:.0f} MiB"

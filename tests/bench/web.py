"""What the server, the API and the pages cost: ``make bench-web ARGS="--partitions 1000 20000 100000"``.

A process of its own serves a fleet of twelve partitions a topic, 3 % of the topics dead and 1 % suspect, without a
broker. A consumer group for every four topics reads 20 topics each. Prints what a scrape takes, a second after the one
before, and the memory of the process, with no and with so many silent connections, half of which send a byte a second,
in the clear and over TLS; how many requests the API answers in a second; and how long Chromium takes to open pages, the
best of three. Fails where a scrape is not answered.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import quantiles

import httpx
import trustme
from playwright.sync_api import Browser, sync_playwright

from exporter.clock import SystemClock
from exporter.collectors.poller import Poller
from exporter.domain.expectations.columns import table_of
from exporter.domain.groups.consumer_groups import GroupState
from exporter.domain.polls.readings import TopicPartition
from exporter.history.published import Published
from exporter.state.cluster import Rhythm
from exporter.state.monitor import Monitor
from exporter.state.monitor_settings import MonitorSettings
from exporter.web.config_file import WebConfigFile
from exporter.web.server import WebServer
from tests.bench.process_tree import usage
from tests.groups import Group, sweep_of
from tests.unit.expectations import by_clock
from tests.unit.readings import TableSource

PER_TOPIC, TOPICS_PER_GROUP, TOPICS_OF_GROUP = 12, 4, 20
HOUR = 3600.0
API = ("clusters", "topics?limit=100", "topics?limit=1000", "partitions?limit=100", "explain/prod/topic.000000")
PAGES = ("/", "/topics", "/topics/prod/topic.000000")

_DRIPS = {"http": b"GET /metrics HTTP/1.1", "https": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(20)}
"""What a connection sends bit by bit: the beginning of a request, and of a TLS handshake."""


def serve(partitions: int, config: Path | None) -> None:
    """Serve such a fleet until standard input ends; print the port."""
    now, source, rows, chance = time.time(), TableSource(), [], random.Random(7)
    for number in range(partitions // PER_TOPIC):
        silent = {0: 90 * HOUR, 1: 6 * HOUR}.get(min(2, int(chance.random() * 100) // 3), 60.0)
        name, last = f"topic.{number:06}", now - silent
        source.owners[name] = f"team-{number % 50}"
        for partition in (None, *range(PER_TOPIC)):
            if partition is not None:
                source.offsets[TopicPartition(name, partition)] = (0, 4000, last)
            columns = {"partition": partition, "last_advance": last, "end_offset": 4000, "as_of": now - HOUR}
            rows.append(by_clock([0.9] * 168, topic=name, evidence="silent; never silent over 3 h", **columns))
    monitor = Monitor(
        MonitorSettings(
            {"prod": Rhythm(24 * HOUR)},
            partition_switches=["current_offset", "last_record_timestamp", "silence", "staleness"],
            expectations_max_age_seconds=24 * HOUR,
        ),
        SystemClock(),
        version="bench",
    )
    monitor.take_expectations(Published(now - HOUR, now - HOUR, {}, {}, table_of(rows)), None)
    Poller("prod", source, [monitor], SystemClock()).poll()
    monitor.take_sweep(sweep_of("prod", groups(sorted(source.owners), chance), taken_at=now))
    server = WebServer("127.0.0.1:0", monitor, WebConfigFile(config))
    server.start()
    print(server.port, flush=True)
    sys.stdin.read()
    server.stop()


def groups(topics: Sequence[str], chance: random.Random) -> dict[str, Group]:
    """Return groups that read some of these topics each; one in ten has no member."""
    found = {}
    for number in range(len(topics) // TOPICS_PER_GROUP):
        members = 0 if number % 10 == 0 else 3
        chosen = frozenset(chance.choices(topics, k=TOPICS_OF_GROUP))
        state = GroupState.STABLE if members else GroupState.EMPTY
        found[f"group-{number:05}"] = Group(state, members, assigned=chosen if members else frozenset())
    return found


@contextmanager
def served(partitions: int, config: Path | None = None) -> Iterator[tuple[int, int]]:
    """Yield the process id and the port of a process that serves such a fleet."""
    command = [sys.executable, "-m", "tests.bench.web", "--serve", str(partitions)]
    command += [] if config is None else ["--config", str(config)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdin is not None
        yield process.pid, int(process.stdout.readline())
        process.stdin.close()


@contextmanager
def silent_connections(port: int, count: int, drip: bytes) -> Iterator[None]:
    """Hold so many connections that ask for nothing; every other sends a byte of ``drip`` a second.

    One that is closed comes again after a second.
    """
    ended, there = threading.Event(), threading.Semaphore(0)

    async def hold(number: int) -> None:
        signalled = False
        while not ended.is_set():
            with suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                if not signalled:
                    signalled = True
                    there.release()
                for byte in drip:
                    if number % 2:
                        writer.write(bytes([byte]))
                    with suppress(TimeoutError):
                        await asyncio.wait_for(reader.read(1), 1)
                    if reader.at_eof() or ended.is_set():
                        break
                writer.close()
            await asyncio.sleep(1)

    async def hold_all() -> None:
        await asyncio.gather(*(hold(number) for number in range(count)))

    thread = threading.Thread(target=lambda: asyncio.run(hold_all()))
    thread.start()
    try:
        for _ in range(count):
            there.acquire()
        yield
    finally:
        ended.set()
        thread.join()


def scrapes(client: httpx.Client, count: int) -> list[float]:
    """Return how long each scrape takes, as Prometheus asks: gzip, on a connection that stays open. Seconds."""
    took = []
    for _ in range(count + 1):
        began = time.monotonic()
        try:
            answer = client.get("/metrics")
        except httpx.TransportError:
            answer = client.get("/metrics")  # its connection made room for another, as it may between two scrapes
        if answer.status_code != httpx.codes.OK:
            raise SystemExit(f"a scrape was answered with {answer.status_code}")
        took.append(time.monotonic() - began)
        time.sleep(1.05)  # what is rendered is kept for a second
    return took[1:]


def requests_a_second(client: httpx.Client, path: str, at_once: int, seconds: float) -> float:
    """Return how many requests are answered in a second, where so many are under way all the time."""
    counted = [0] * at_once
    until = time.monotonic() + seconds

    def ask(number: int) -> None:
        while time.monotonic() < until:
            client.get(f"/api/v1/{path}").raise_for_status()
            counted[number] += 1

    threads = [threading.Thread(target=ask, args=[number]) for number in range(at_once)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counted) / seconds


def opened(browser: Browser, url: str) -> float:
    """Return how long a page takes until it is drawn, in seconds."""
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    began = time.monotonic()
    page.goto(url)
    page.evaluate("() => new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
    took = time.monotonic() - began
    page.close()
    return took


def show_scrapes(partitions: int, silent: int, count: int) -> None:
    """Print a row in the clear and over TLS, each without and with silent connections."""
    print(f"scrapes of {partitions:,} partitions\n| | silent connections | p50, ms | p99, ms | RSS, MiB |")
    with tempfile.TemporaryDirectory() as folder:
        ca = trustme.CA()
        made = ca.issue_cert("localhost")
        made.private_key_and_cert_chain_pem.write_to_path(f"{folder}/server.pem")
        ca.cert_pem.write_to_path(f"{folder}/ca.pem")
        config = Path(folder, "web.yml")
        config.write_text("tls_server_config: {cert_file: server.pem, key_file: server.pem}")
        for scheme in ("http", "https"):
            with (
                served(partitions, config if scheme == "https" else None) as (pid, port),
                httpx.Client(base_url=f"{scheme}://localhost:{port}", verify=f"{folder}/ca.pem", timeout=60) as client,
            ):
                for connections in (0, silent):
                    with silent_connections(port, connections, _DRIPS[scheme]):
                        took = scrapes(client, count)
                        memory = usage(pid).rss_mib
                    cuts = quantiles(took, n=100, method="inclusive")
                    print(
                        f"| {scheme} | {connections:,} | {1e3 * cuts[49]:.0f} | {1e3 * cuts[98]:.0f} | {memory:.0f} |"
                    )


def show_pages(browser: Browser, partitions: int, seconds: float) -> None:
    """Print a row of the API's answers a second, and one of pages."""
    with served(partitions) as (_, port), httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        for path in API:
            client.get(f"/api/v1/{path}")
            one, four = (requests_a_second(client, path, at_once, seconds) for at_once in (1, 4))
            print(f"| {partitions:,} | {path} | {one:.0f} | {four:.0f} |")
        for path in PAGES:
            best = min(opened(browser, str(client.base_url.join(path))) for _ in range(3))
            print(f"| {partitions:,} | page {path} | {best:.2f} s |", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, nargs="+", default=[1000, 20_000, 100_000], help="of each fleet")
    parser.add_argument("--scraped", type=int, default=20_000, help="partitions of the fleet that is scraped")
    parser.add_argument("--silent", type=int, default=1000, help="connections that ask for nothing")
    parser.add_argument("--scrapes", type=int, default=50, help="scrapes a row")
    parser.add_argument("--seconds", type=float, default=2.0, help="for which each path of the API is asked")
    parser.add_argument("--serve", type=int, metavar="PARTITIONS", help="only serve such a fleet, until input ends")
    parser.add_argument("--config", type=Path, help="with --serve: a web configuration file")
    options = parser.parse_args()
    if options.serve is not None:
        serve(options.serve, options.config)
        return
    show_scrapes(options.scraped, options.silent, options.scrapes)
    print("| partitions | path | requests a second, one at a time | four at once |, or | opened |")
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for partitions in options.partitions:
            show_pages(browser, partitions, options.seconds)
        browser.close()


if __name__ == "__main__":
    main()

"""The HTTP server of a running exporter under more connections than it can take."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from exporter.demo.broker import free_port
from exporter.web.connections import MAX_CONNECTIONS
from tests.integration.serving import Exporter, until

CONNECTIONS, AT_ONCE = 8_000, 900
"""So many are opened as fast as one client can, and so many of them held."""

AGAIN = "more since the last one"
"""Of a line that is logged once a minute: a busy machine may take longer than that."""


@pytest.fixture
def exporter(tmp_path: Path) -> Iterator[Exporter]:
    """An exporter that serves its pages; no broker is there, and after the first poll none is due."""
    with Exporter(tmp_path, f"127.0.0.1:{free_port()}", TOPIC_LIVENESS_POLL__INTERVAL="300s") as running:
        until(lambda: "topic_liveness_polls_total{" in running.metrics(), "the first poll")
        yield running


def descriptors(exporter: Exporter) -> int:
    """Files and sockets that the exporter holds open."""
    return sum(1 for _ in Path(f"/proc/{exporter.process.pid}/fd").iterdir())


def flood(exporter: Exporter, sent: bytes) -> Iterator[int]:
    """Open connections that send ``sent``, and close those of long ago; yields now and then how many there were.

    While it is at the last, CONNECTIONS, AT_ONCE of them are held open.
    """
    held: deque[socket.socket] = deque()
    try:
        for number in range(1, CONNECTIONS + 1):
            held.append(socket.socket())
            held[-1].setblocking(False)
            held[-1].connect_ex(("127.0.0.1", exporter.port))
            if sent and number > 50:
                with suppress(OSError):  # closed by the exporter, as it may
                    held[-50].send(sent)
            if len(held) > AT_ONCE:
                held.popleft().close()
            if number % 100 == 0:
                yield number
    finally:
        for connection in held:
            connection.close()


@pytest.mark.parametrize("sent", [b"", b"no request\r\n\r\n"])
def test_a_flood_costs_neither_descriptors_nor_the_log_nor_scrapes(exporter: Exporter, sent: bytes) -> None:
    """The limit of connections holds while they come, scrapes are answered in between, and a line is logged at most."""
    resource.prlimit(exporter.process.pid, resource.RLIMIT_NOFILE, (1024, 1024))
    before, log = descriptors(exporter), exporter.log.stat().st_size
    peak = 0
    warning = f"{MAX_CONNECTIONS} connections are open, the most allowed: closing one that waits for its client"
    for opened in flood(exporter, sent):
        peak = max(peak, descriptors(exporter))
        if opened % 1000 == 0:
            assert exporter.page("/metrics").status_code == 200
        if opened == CONNECTIONS and not sent:
            until(lambda: warning in exporter.log.read_text(), "the limit reached")
    assert peak <= before + MAX_CONNECTIONS + 20, "a score for whatever else is opened meanwhile"
    logged = exporter.log.read_text()[log:]
    lines = [line for line in logged.splitlines() if "exporter.state" not in line and AGAIN not in line]
    assert len(lines) <= 1, "what is no request ends its connection, and may so never fill them"
    assert exporter.end() == 0


def test_without_a_descriptor_left_it_waits_and_goes_on(exporter: Exporter) -> None:
    """A process that may open fewer files than there are connections says so once, and serves when they are over."""
    limit = descriptors(exporter) + MAX_CONNECTIONS // 2
    resource.prlimit(exporter.process.pid, resource.RLIMIT_NOFILE, (limit, 1024))
    warning = "a connection could not be taken: [Errno 24] Too many open files"
    for opened in flood(exporter, b""):
        if opened == CONNECTIONS:
            until(lambda: warning in exporter.log.read_text(), "no descriptor left")
    until(lambda: exporter.metrics() != "", "a scrape after the flood")
    logged = exporter.log.read_text()
    assert len([line for line in logged.splitlines() if warning in line and AGAIN not in line]) == 1
    assert "Traceback" not in logged
    assert exporter.end() == 0


def scrape(exporter: Exporter) -> int:
    """Return the status of a scrape. One whose connection made room for another comes again, up to three times."""
    for _ in range(2):
        with suppress(httpx.TransportError):
            return exporter.page("/metrics").status_code
    return exporter.page("/metrics").status_code


async def scrapes_beside(exporter: Exporter, busy: int, scrapes: int) -> tuple[list[int], int]:
    """Return the status of each scrape while so many connections ask all the time, and how many answers those got."""
    answered, asking, all_ask, ended = 0, set[int](), asyncio.Event(), asyncio.Event()

    async def ask(number: int) -> None:
        nonlocal answered
        while not ended.is_set():
            with suppress(OSError, asyncio.IncompleteReadError):  # closed for another, as it may be: it comes again
                reader, writer = await asyncio.open_connection("127.0.0.1", exporter.port)
                try:
                    while not ended.is_set():
                        writer.write(b"GET /-/healthy HTTP/1.1\r\nHost: exporter\r\n\r\n")
                        head = await reader.readuntil(b"\r\n\r\n")
                        length = next(
                            line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
                        )
                        await reader.readexactly(int(length.split(b":")[1]))
                        answered += 1
                        asking.add(number)
                        if len(asking) == busy:
                            all_ask.set()
                finally:
                    writer.close()

    tasks = [asyncio.create_task(ask(number)) for number in range(busy)]
    try:
        await asyncio.wait_for(all_ask.wait(), 90)
        statuses = [await asyncio.to_thread(scrape, exporter) for _ in range(scrapes)]
    finally:
        ended.set()
        await asyncio.gather(*tasks)
    return statuses, answered


def test_a_scrape_is_answered_beside_connections_that_are_all_busy(exporter: Exporter) -> None:
    """With the limit of connections reached, by clients that ask without a pause, each scrape is answered."""
    log = exporter.log.stat().st_size
    statuses, answered = asyncio.run(scrapes_beside(exporter, MAX_CONNECTIONS, 10))
    assert statuses == [200] * 10
    assert answered > MAX_CONNECTIONS
    logged = exporter.log.read_text()[log:]
    limit = [line for line in logged.splitlines() if "connections are open" in line and AGAIN not in line]
    assert len(limit) == 1, "the limit was reached, and that is a line a minute"
    assert "Traceback" not in logged
    assert exporter.end() == 0

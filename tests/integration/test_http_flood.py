"""The HTTP server of a running exporter under more connections than it can take."""

from __future__ import annotations

import resource
import socket
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.demo.broker import free_port
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
def test_a_flood_costs_neither_the_log_nor_scrapes(exporter: Exporter, sent: bytes) -> None:
    """Scrapes are answered in between, a line is logged at most, and what connected is closed in the end."""
    before, log = descriptors(exporter), exporter.log.stat().st_size
    for opened in flood(exporter, sent):
        if opened % 1000 == 0:
            assert exporter.page("/metrics").status_code == 200
    logged = exporter.log.read_text()[log:]
    lines = [line for line in logged.splitlines() if "exporter.state" not in line and AGAIN not in line]
    assert len(lines) <= 1, "what is no request ends its connection"
    until(lambda: descriptors(exporter) <= before + 20, "connections that are closed")
    assert exporter.end() == 0


def test_without_a_descriptor_left_it_waits_and_goes_on(exporter: Exporter) -> None:
    """A process that may open fewer files than there are connections says so once, and serves when they are over."""
    resource.prlimit(exporter.process.pid, resource.RLIMIT_NOFILE, (descriptors(exporter) + 128, 1024))
    warning = "socket.accept() out of system resource"
    for opened in flood(exporter, b""):
        if opened == CONNECTIONS:
            until(lambda: warning in exporter.log.read_text(), "no descriptor left")
    until(lambda: exporter.metrics() != "", "a scrape after the flood")
    logged = exporter.log.read_text()
    assert len([line for line in logged.splitlines() if warning in line and AGAIN not in line]) == 1
    assert exporter.end() == 0

"""The web server over real sockets."""

import contextlib
import gzip
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import httpx
import pytest

from exporter.domain.judging.current_facts import ClusterFacts
from exporter.metrics.lines import Block, compress_blocks
from exporter.web.pages import MAX_WAITING, TEXT_FORMAT
from exporter.web.server import WebServer
from exporter.web.status import ClusterStatus, Status
from tests.monitors import served
from tests.plain_http import NO_TLS, get

EXPOSITION = b'# TYPE up gauge\nup{kafka_cluster="prod"} 1\n' * 100
SCRAPE = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
PIECE_BYTES = 100_000
IDLE_SECONDS = 1
MERCY = 30.0
"""Seconds within which something happens on a machine that is busy, if it happens at all."""


class Shown:
    """Pages whose content the test sets; ``gate`` holds /metrics back while it is closed, ``page_gate`` all pages."""

    def __init__(self) -> None:
        self.exposition = EXPOSITION
        self.is_ready = (True, "ready")
        self.shown = Status(version="1.2.3", now=1_700_000_000.0)
        self.gate = threading.Event()
        self.page_gate = threading.Event()
        for gate in (self.gate, self.page_gate):
            gate.set()
        self.threads: set[str] = set()

    def scrape(self, *, zipped: bool) -> Sequence[bytes]:
        self.threads.add(threading.current_thread().name)
        self.gate.wait(30)
        whole = self.exposition
        pieces = [whole[start : start + PIECE_BYTES] for start in range(0, len(whole), PIECE_BYTES)]
        return compress_blocks(map(Block, pieces)) if zipped else pieces

    def ready(self) -> tuple[bool, str]:
        return self.is_ready

    def cluster_facts(self) -> Sequence[ClusterFacts]:
        return []

    def status(self) -> Status:
        self.page_gate.wait(30)
        return self.shown


@pytest.fixture
def pages() -> Shown:
    return Shown()


@pytest.fixture
def server(pages: Shown) -> Iterator[WebServer]:
    with served(pages, idle_seconds=IDLE_SECONDS) as running:
        yield running
        for gate in (pages.gate, pages.page_gate):
            gate.set()


@pytest.fixture
def client(server: WebServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{server.address}", timeout=60, verify=NO_TLS) as made:
        yield made


def connect(server: WebServer, sent: bytes = b"") -> socket.socket:
    made = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    made.sendall(sent)
    return made


def connected(stack: contextlib.ExitStack, server: WebServer, requests: Iterable[bytes]) -> list[socket.socket]:
    return [stack.enter_context(connect(server, sent)) for sent in requests]


def open_file_count() -> int:
    """Files and sockets that this process, the server included, holds open."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def is_closed(connection: socket.socket) -> bool:
    """Whether the server ends the connection; a socket that stays silent for ten seconds raises TimeoutError."""
    try:
        while connection.recv(65536):
            pass
    except ConnectionResetError:
        pass
    return True


@pytest.mark.parametrize(
    ("accepted", "zipped"), [("gzip", True), ("deflate, gzip;q=0.8", True), ("identity", False), ("xgzip", False)]
)
def test_the_format_is_text_and_zipped_when_asked(client: httpx.Client, accepted: str, zipped: bool) -> None:
    """Prometheus asks for OpenMetrics first, and reads text 0.0.4 by its content type."""
    text = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
    with client.stream("GET", "/metrics", headers={"Accept": text, "Accept-Encoding": accepted}) as answer:
        raw = b"".join(answer.iter_raw())
    assert (answer.status_code, answer.headers["content-type"]) == (200, TEXT_FORMAT)
    assert (answer.headers["vary"], answer.headers["content-length"]) == ("Accept-Encoding", str(len(raw)))
    assert (answer.headers.get("content-encoding") == "gzip") is zipped
    assert (gzip.decompress(raw) if zipped else raw) == EXPOSITION


def test_healthy_tells_of_the_process_only_and_ready_of_the_first_polls(
    server: WebServer, client: httpx.Client, pages: Shown
) -> None:
    pages.is_ready = (False, "waiting for the first poll of prod")
    pages.gate.clear()
    with connect(server, SCRAPE):
        assert client.get("/-/healthy").status_code == 200
        waiting = client.get("/-/ready")
        assert (waiting.status_code, waiting.text) == (503, "waiting for the first poll of prod\n")
        pages.is_ready = (True, "ready")
        assert client.get("/-/ready").status_code == 200


def test_status_page_escapes_what_it_shows(client: httpx.Client, pages: Shown) -> None:
    pages.shown = Status(
        version="<b>",
        now=0.0,
        expectations_problem="<script>alert(1)</script>",
        clusters=(
            ClusterStatus(name='"><img src=x>', up=False, problem="<i>", states={"<u>": 1}),
            ClusterStatus(name="prod", up=True, dead_by_owner={"team-b": 1, "<a>": 2}),
        ),
    )
    page = client.get("/").text
    assert page.count("<dt>Dead topics by owner</dt><dd>&lt;a&gt; 2, team-b 1</dd>") == 1
    assert not any(tag in page for tag in ("Version <b>", "<script>", "<img", "<i>", "<u>"))


def test_unknown_paths_and_methods_are_plain_text(client: httpx.Client) -> None:
    """A slash too many or too few is no redirect: that would lead past the proxy before this server."""
    missing = client.get("/metricss")
    assert (missing.status_code, missing.text) == (404, "not found; the metrics are at /metrics\n")
    refused = client.post("/metrics", content=b"x")
    assert refused.status_code == 405
    assert set(refused.headers["allow"].split(", ")) == {"GET", "HEAD"}
    assert all(answer.headers["content-type"].startswith("text/plain") for answer in (missing, refused))
    for path in ("topics/", "metrics/", "static", "api/v1/topics/"):
        answer = client.get(path)
        assert (answer.status_code, answer.headers.get("location")) == (404, None), path


def test_a_page_that_fails_is_a_500_and_the_next_one_works(client: httpx.Client, pages: Shown) -> None:
    pages.shown = None  # type: ignore[assignment]
    failed = client.get("/")
    assert (failed.status_code, failed.text) == (500, "internal error; the log says more\n")
    assert client.get("/metrics").status_code == 200


@pytest.mark.parametrize("listen", ["[::]:0", ":0"])
def test_ipv6_wildcard_serves_both_families(pages: Shown, listen: str) -> None:
    """``[::]`` answers IPv4 clients as well, and no host at all means it where there is IPv6."""
    with served(pages, listen=listen) as running:
        for host in ("127.0.0.1", "[::1]"):
            assert get(f"http://{host}:{running.port}/-/healthy").status_code == 200


def test_half_open_requests_block_nobody_and_are_closed(server: WebServer, client: httpx.Client) -> None:
    threads = threading.active_count()
    with contextlib.ExitStack() as stack:
        silent = connected(stack, server, [b"", b"GET /metrics HTTP/1.1\r\nHost: x\r\n"] * 150)
        for second in connected(stack, server, [b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n"] * 50):
            assert second.recv(65536).startswith(b"HTTP/1.1 200")
            second.sendall(b"GET /-/hea")
            silent.append(second)
        began = time.monotonic()
        assert client.get("/metrics").status_code == 200
        assert time.monotonic() - began < MERCY
        assert threading.active_count() <= threads + 2
        assert all(is_closed(connection) for connection in silent)


def test_a_client_that_does_not_read_is_closed(server: WebServer, pages: Shown) -> None:
    """An answer nobody reads is given up, so its memory is freed."""
    pages.exposition = b"x" * 50_000_000
    with connect(server, SCRAPE) as connection:
        assert connection.recv(12) == b"HTTP/1.1 200"
        stalled, open_files = time.monotonic(), open_file_count()
        while open_file_count() == open_files:
            assert time.monotonic() - stalled < MERCY
            time.sleep(0.05)


def test_a_slow_reader_gets_the_whole_answer(server: WebServer, pages: Shown) -> None:
    pages.exposition = b"x" * 20_000_000
    taken = 0
    with connect(server, b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") as connection:
        began = time.monotonic()
        while block := connection.recv(1_000_000):
            taken += len(block)
            if time.monotonic() - began < 3 * IDLE_SECONDS:
                time.sleep(IDLE_SECONDS / 10)
    assert taken > len(pages.exposition)


def test_a_frozen_page_cannot_pile_up_work(server: WebServer, client: httpx.Client, pages: Shown) -> None:
    pages.gate.clear()
    threads = threading.active_count()
    with contextlib.ExitStack() as stack:
        hanging = connected(stack, server, [SCRAPE] * MAX_WAITING)
        answer = client.get("/metrics")
        while answer.status_code != 503:
            answer = client.get("/metrics")
        assert answer.text == f"busy: {MAX_WAITING} requests are waiting already\n"
        assert threading.active_count() <= threads + 2
        pages.gate.set()
        assert all(connection.recv(12) == b"HTTP/1.1 200" for connection in hanging)


def test_a_scrape_waits_for_no_page(server: WebServer, client: httpx.Client, pages: Shown) -> None:
    pages.page_gate.clear()
    paths = [b"/", b"/api/v1/clusters"] * (MAX_WAITING // 2)
    with contextlib.ExitStack() as stack:
        hanging = connected(stack, server, [b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % path for path in paths])
        while client.get("/api/v1/clusters").status_code != 503:
            pass
        assert client.get("/metrics", timeout=20).content == EXPOSITION
        pages.page_gate.set()
        assert all(connection.recv(12) == b"HTTP/1.1 200" for connection in hanging)


def test_stop_lets_a_running_answer_finish(pages: Shown) -> None:
    pages.gate.clear()
    with contextlib.ExitStack() as stack:
        with served(pages) as running:
            [connection] = connected(stack, running, [SCRAPE])
            while not pages.threads:
                time.sleep(0.01)
            threading.Timer(0.5, pages.gate.set).start()
        assert connection.recv(12) == b"HTTP/1.1 200"
    with pytest.raises(ConnectionRefusedError):
        connect(running)


def test_stop_does_not_wait_for_silent_clients(pages: Shown) -> None:
    with contextlib.ExitStack() as stack:
        with served(pages) as running:
            connected(stack, running, [b"", b"GET /metrics HT"])
            began = time.monotonic()
        assert time.monotonic() - began < 3

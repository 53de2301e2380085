"""A report, and servers that take messages about it: real ones, which refuse, hang and die as told."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import StreamRequestHandler, TCPServer, ThreadingTCPServer
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from exporter.demo.broker import free_port

SECRET = "hunter2-of-this-test"  # noqa: S105 - that it shows nowhere is tested
AS_OF = "2026-03-03T12:00:00.000Z"
HOSTILE = "<!channel> <b>*bold*</b> `x` & [link](http://evil.example)"


OF_READERS = {
    "told": "2 consumer groups still read it: billing, audit",
    "readers": ["billing", "audit"],
    "replica_of": None,
}


def entry(
    topic: str, owner: str | None, *partitions: int, plain: str = "Nothing was written for 2 d.", dead: bool = True
) -> dict[str, Any]:
    """An entry of a section of the report; the partitions died hour by hour, the last one first."""
    findings = [
        {
            "partition": number,
            "plain": plain,
            "evidence": f"score 9.1 of {topic}",
            "dead_since": f"2026-03-01T{22 - place}:30:00.000Z" if dead else None,
            "expected_by": f"2026-03-01T{22 - place}:30:00.000Z",
        }
        for place, number in enumerate(partitions or (None,))
    ]
    return {"cluster": "prod", "topic": topic, "owner": owner, "findings": findings, "relations": OF_READERS}


def topic_line(cluster: str, topic: str, owner: str) -> dict[str, Any]:
    """A line of a list of topics."""
    evidence = {"plain": "Nothing was written for 40 d.", "evidence": "silent 40 d", "dead_since": None}
    unread: dict[str, Any] = {
        "told": "no consumer group reads it",
        "readers": [],
        "replica_of": "prod/copied" if cluster == "dr" else None,
    }
    return {"cluster": cluster, "topic": topic, "owner": owner, **evidence, "relations": unread}


def write_report(folder: Path, *, died: int = 2, as_of: str = AS_OF, zone: str = "UTC") -> Path:
    """Write what delivery reads of a report: two owners with dead topics, one without, and one that nobody owns."""
    folder.mkdir(parents=True, exist_ok=True)
    counts = {"died": {"topics": died, "partitions": 0}}
    newly = [entry("orders", "team-a"), entry("<b>x</b>", "team-b", plain=HOSTILE), entry("lost", None)]
    sections = [
        {"key": "newly-dead", "title": "Newly dead", "advice": "Ask.", "entries": newly},
        {
            "key": "suspect",
            "title": "Suspect",
            "advice": "Look.",
            "entries": [entry("clicks", "team-a", 3, 1, dead=False)],
        },
        {"key": "learning", "title": "Too new", "advice": "", "entries": [entry("new", "team-c")]},
    ]
    owners = [
        {"owner": name, "summary": f"{name or 'Nobody'}: something died.", "counts": counts, "html": page}
        for name, page in (
            ("team-a", "owners/a.html"),
            ("team-b", "../../outside.html"),
            ("team-c", None),
            ("team-d", None),
            (None, None),
        )
    ]
    report = {
        "report_version": 2,
        "as_of": as_of,
        "summary": f"In the week to 3 Mar 2026 {died} topics died.",
        "counts": counts,
        "warnings": ["prod: only 80 % of the week is covered"],
        "sections": sections,
        "owners": owners,
        "candidates": [topic_line("prod", "old", "team-a")],
        "cut_off": [topic_line("dr", "copy", "team-d")],
        "zone": zone,
    }
    (folder / "liveness.json").write_text(json.dumps(report))
    (folder / "liveness.html").write_text("<!DOCTYPE html>whole")
    (folder / "owners").mkdir(exist_ok=True)
    (folder / "owners" / "a.html").write_text("<!DOCTYPE html>of a")
    (folder.parent.parent / "outside.html").write_text("not for anybody")
    return folder


@dataclass
class MailBox:
    """What a mail server took. ``answers`` are given to recipients in order, then all is taken.

    ``die`` lets it end so many connections when it has a whole mail. A mail of more than ``most`` bytes is refused, and
    no client is told that number.
    """

    mails: list[EmailMessage] = field(default_factory=list)
    to: list[str] = field(default_factory=list)
    users: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    die: int = 0
    most: int = 2**25

    async def handle_RCPT(  # noqa: N802 - the name that aiosmtpd calls
        self, _server: SMTP, _session: Session, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        if self.answers:
            return self.answers.pop(0)
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, _session: Session, envelope: Envelope) -> str:  # noqa: N802
        assert isinstance(envelope.content, bytes)
        if len(envelope.content) > self.most:
            return "552 5.3.4 Message size exceeds fixed maximum message size"
        self.mails.append(message_from_bytes(envelope.content, policy=default))
        self.to.append(envelope.rcpt_tos[0])
        if self.die:
            self.die -= 1
            assert isinstance(server.transport, asyncio.Transport)
            server.transport.abort()
        return "250 OK"

    def authenticate(self, _server: SMTP, _session: Session, _envelope: Envelope, _way: str, given: Any) -> AuthResult:
        assert isinstance(given, LoginPassword)
        self.users.append(given.login.decode())
        return AuthResult(success=given.password.decode() == SECRET, handled=False)


@contextmanager
def mail_server(
    box: MailBox, tls: ssl.SSLContext | None = None, *, login: bool = False, utf8: bool = True, most: int = 2**25
) -> Iterator[str]:
    """Serve mail; yields ``host:port``. With ``tls`` it offers STARTTLS, with ``utf8`` SMTPUTF8.

    A mail of more than ``most`` bytes is refused.
    """
    running = Controller(
        box,
        hostname="127.0.0.1",
        port=free_port(),
        tls_context=tls,
        require_starttls=tls is not None,
        authenticator=box.authenticate,
        auth_required=login,
        ready_timeout=60,
        enable_SMTPUTF8=utf8,
        data_size_limit=most,
    )
    running.start()
    try:
        yield f"localhost:{running.port}"
    finally:
        running.stop()


@dataclass
class Hook:
    """What an HTTP server got. ``answers`` are status, headers and body in order, then all is taken.

    A status of 0 ends the connection without an answer.
    """

    bodies: list[Any] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    answers: list[tuple[int, dict[str, str], str]] = field(default_factory=list)


@contextmanager
def http_server(hook: Hook) -> Iterator[str]:
    """Serve HTTP; yields the URL of the hook, with a secret in its path."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            hook.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            hook.headers.append(dict(self.headers))
            hook.paths.append(self.path)
            status, headers, body = hook.answers.pop(0) if hook.answers else (200, {}, "ok")
            if not status:
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    with _serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as address:
        yield f"http://{address}/services/{SECRET}"


@contextmanager
def _serving(running: TCPServer) -> Iterator[str]:
    """Serve in a thread; yields ``host:port``."""
    thread = threading.Thread(target=running.serve_forever, args=(0.05,))
    with running:
        thread.start()
        try:
            yield f"127.0.0.1:{running.server_address[1]}"
        finally:
            running.shutdown()
            thread.join()


@contextmanager
def dribbling_server(first: bytes) -> Iterator[str]:
    """Answer with ``first``, then a byte every 50 ms for ever, whatever is asked; yields ``host:port``."""
    ended = threading.Event()

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                self.wfile.write(first)
                while not ended.wait(0.05):
                    self.wfile.write(b"x")

    running = ThreadingTCPServer(("127.0.0.1", 0), Handler)
    running.daemon_threads = True
    with _serving(running) as address:
        try:
            yield address
        finally:
            ended.set()


@contextmanager
def silent_server() -> Iterator[str]:
    """Take connections and never answer; yields ``host:port``."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"

"""A report, and servers that take messages about it: real ones, which refuse, hang and die as told."""

import json
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import EmailMessage, Message
from email.policy import default
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from spark_rollups.report.wording import markdown
from tests.answers import Reply, replying
from tests.demo.broker import free_port

SECRET = "hunter2-of-this-test"  # noqa: S105 - that it shows nowhere is tested
AS_OF = "2026-03-03T12:00:00.000Z"
HOSTILE = "<!channel> <b>*bold*</b> `x` & [link](http://evil.example)"


def write_report(folder: Path, *, as_of: str = AS_OF) -> Path:
    """Write what delivery reads of a report: two owners with dead topics, two without, and one that nobody owns."""
    (folder / "owners").mkdir(parents=True, exist_ok=True)
    pages = {"team-a": "a", "team-b": "b", "team-c": None, "team-d": None, None: "_nobody"}
    owners = [{"owner": owner, "page": name and f"owners/{name}"} for owner, name in pages.items()]
    report = {"as_of": as_of, "owners": owners}
    week = "week to Tue 2026-03-03"
    files = {
        "liveness.json": json.dumps(report),
        "liveness.html": "<!DOCTYPE html>whole",
        "liveness.md": f"# Topic liveness, {week}: 2 topics died\n\n- `prod/orders`: newly dead\n",
        "owners/a.html": "<!DOCTYPE html>of a",
        "owners/a.md": f"# Topic liveness of team-a\\_1, {week}: 1 topic died\n\n- `prod/orders`: newly dead\n",
        "owners/b.html": "<!DOCTYPE html>of b",
        "owners/b.md": f"# Topic liveness of team-b, {week}: 1 topic died\n\n- {markdown(HOSTILE)}\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


@dataclass
class MailBox:
    """What a mail server took. ``answers`` are given to recipients in order, then all is taken."""

    mails: list[EmailMessage] = field(default_factory=list)
    to: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)

    async def handle_RCPT(  # noqa: N802 - the name that aiosmtpd calls
        self, _server: SMTP, _session: Session, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        if self.answers:
            return self.answers.pop(0)
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: SMTP, _session: Session, envelope: Envelope) -> str:  # noqa: N802
        assert isinstance(envelope.content, bytes)
        self.mails.append(message_from_bytes(envelope.content, policy=default))
        self.to.append(envelope.rcpt_tos[0])
        return "250 OK"


@contextmanager
def mail_server(box: MailBox, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serve mail; yields ``host:port``."""
    running = Controller(box, hostname="127.0.0.1", port=free_port(), ready_timeout=60, ssl_context=tls)
    running.start()
    try:
        yield f"localhost:{running.port}"
    finally:
        running.stop()


@dataclass
class Hook:
    """What an HTTP server got. ``answers`` are status, headers and body in order, then all is taken.

    ``before_answer`` is called when a message has come.
    """

    bodies: list[Any] = field(default_factory=list)
    answers: list[tuple[int, dict[str, str], str]] = field(default_factory=list)
    before_answer: Callable[[], object] = lambda: None


@contextmanager
def http_server(hook: Hook, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serve HTTP; yields the URL of the hook, with a secret in its path."""

    def reply(_path: str, _headers: Message, body: bytes) -> Reply:
        hook.bodies.append(json.loads(body))
        status, headers, text = hook.answers.pop(0) if hook.answers else (200, {}, "ok")
        hook.before_answer()
        return status, headers, text.encode()

    with replying(reply, tls) as address:
        yield f"{address}/services/{SECRET}"


@contextmanager
def silent_server() -> Iterator[str]:
    """Take connections and never answer; yields ``host:port``."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"

"""Reports that are sent to people, by servers that take, refuse, hang and die."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiosmtpd.smtp import SMTP, AuthResult
from click import UsageError

from exporter.clock import SystemClock
from exporter.commands.delivery import finish, last_dated, last_written, week_end
from exporter.delivery.channels import Channel, Kind, Mail, MailServer, Post, Recipient
from exporter.delivery.ledger import Ledger, LedgerError, opened, outcome
from exporter.delivery.message import read_report
from exporter.delivery.run import Delivered, Delivery
from exporter.domain.exit_codes import ExitCode
from exporter.domain.links import Links
from exporter.settings import load_settings
from tests.integration.receiving import (
    HOSTILE,
    SECRET,
    Hook,
    MailBox,
    dribbling_server,
    http_server,
    mail_server,
    silent_server,
    write_report,
)
from tests.integration.serving import Exporter, until
from tests.unit.readings import ManualClock

NOT_TLS = ssl.create_default_context()
LINKS = Links("https://grafana.example.org/", None, "https://wiki.example.org/dead", "https://liveness.example.org")


READ_BY = "2 consumer groups still read it: billing, audit."


@dataclass
class Sent:
    """Deliveries of one report, and the lines that report them."""

    folder: Path
    recipients: list[Recipient]
    attempts: int = 3
    timeout: float = 30.0
    lines: list[str] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)

    def send(self) -> Delivered:
        delivery = Delivery(
            self.recipients, LINKS, SystemClock(), self.pauses.append, self.lines.append, self.attempts, self.timeout
        )
        return delivery.send(read_report(self.folder), self.folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a report."""
    return write_report(tmp_path / "reports" / "2026-03-03")


@pytest.fixture
def box() -> MailBox:
    """What the mail server took."""
    return MailBox()


@pytest.fixture
def server(box: MailBox) -> Iterator[MailServer]:
    """A mail server without encryption."""
    with mail_server(box) as address:
        yield MailServer(address, "liveness@example.org", "none", NOT_TLS)


@pytest.fixture
def hook() -> Hook:
    """What the HTTP server got."""
    return Hook()


@pytest.fixture
def url(hook: Hook, tmp_path: Path) -> Iterator[Path]:
    """The file with the URL of an HTTP server."""
    with http_server(hook) as address:
        path = tmp_path / "url"
        path.write_text(f"{address}\n")
        yield path


def to(channel: Channel, owner: str | None = None) -> Recipient:
    """A recipient of all, or of the parts of owners."""
    return Recipient(None if owner is None else re.compile(owner), lambda _: channel)


def mails_to(server: MailServer, template: str, owner: str) -> Recipient:
    """A recipient whose address is made of the name of the owner."""
    return Recipient(re.compile(owner), lambda match: Mail(match.expand(template) if match else "", server))


def text_of(mail: EmailMessage, kind: str = "plain") -> str:
    """The text of a mail."""
    body = mail.get_body((kind,))
    assert body is not None
    text: str = body.get_content()
    return text


def attached(mail: EmailMessage) -> dict[str, str]:
    """The files that come with a mail."""
    return {str(part.get_filename()): part.get_content() for part in mail.iter_attachments()}


def test_everybody_gets_the_summary_and_each_owner_its_own_part(folder: Path, box: MailBox, server: MailServer) -> None:
    """By mail, as text and HTML with the page; owners with nothing to do get none, and nobody a file from outside."""
    sent = Sent(folder, [to(Mail("boss@example.org", server)), mails_to(server, r"\1@example.org", r"team-(\w)")])
    assert sent.send() == Delivered(4, 0, 0)
    assert box.to == ["boss@example.org", "a@example.org", "b@example.org", "d@example.org"]
    of_all, of_a, of_b, _ = box.mails
    assert of_all["Subject"] == "Topic liveness 2026-03-03: 2 topics died"
    text = text_of(of_all)
    for phrase in (
        "In the week to 3 Mar 2026",
        "only 80 %",
        "prod/orders",
        "prod/lost",
        "prod/clicks, partitions 1, 3",
    ):
        assert phrase in text
    assert "What to do: https://wiki.example.org/dead" in text
    assert "prod/new" not in text, "what needs no action stays in the report"
    assert attached(of_all) == {"liveness.html": "<!DOCTYPE html>whole"}
    assert of_a["Subject"] == "Topic liveness 2026-03-03: team-a: 2 topics died"
    text = text_of(of_a)
    assert "prod/orders" in text and "prod/old" in text
    assert "prod/lost" not in text and "<b>x</b>" not in text
    assert attached(of_a) == {"a.html": "<!DOCTYPE html>of a"}
    assert attached(of_b) == {}
    assert "prod/&lt;b&gt;x&lt;/b&gt;" in text_of(of_b, "html") and "<b>*bold*" not in text_of(of_b, "html")


def test_copies_that_are_cut_off_are_reported_to_their_owner(folder: Path, box: MailBox, server: MailServer) -> None:
    """Also where nothing else is to do, and to who gets the whole report."""
    recipients = [to(Mail("boss@example.org", server)), mails_to(server, r"\1@example.org", r"team-(d)")]
    assert Sent(folder, recipients).send() == Delivered(2, 0, 0)
    for mail in box.mails:
        assert "COPIES CUT OFF FROM THEIR SOURCE (1)" in text_of(mail)
        assert "- dr/copy\r\n  A copy of prod/copied. Nothing was written for 40 d." in text_of(mail)


def test_a_message_leads_to_the_page_of_its_owner(folder: Path, box: MailBox, server: MailServer) -> None:
    """And to the whole report where it has everything, or where the owner has no page in the report's folder."""
    Sent(folder, [to(Mail("boss@example.org", server)), mails_to(server, r"\1@example.org", r"team-(\w)")]).send()
    of_all, of_a, of_b, _ = (text_of(mail).splitlines() for mail in box.mails)
    assert "This part of the last report: https://liveness.example.org/report/owners/a.html" in of_a
    for lines in (of_all, of_b):
        assert "The last report: https://liveness.example.org/report" in lines


def test_a_message_says_since_when_what_speaks_for_it_and_who_reads_it(
    tmp_path: Path, box: MailBox, server: MailServer
) -> None:
    """In plain words and in the zone of the report, as is the date of the subject; never the exact numbers."""
    folder = write_report(tmp_path / "reports" / "2026-03-03", as_of="2026-03-03T23:30:00.000Z", zone="Europe/Berlin")
    assert Sent(folder, [to(Mail("boss@example.org", server))]).send() == Delivered(1, 0, 0)
    [mail] = box.mails
    assert mail["Subject"] == "Topic liveness 2026-03-04: 2 topics died"
    for text in (text_of(mail), text_of(mail, "html")):
        assert f"Dead since Sun 2026-03-01 23:30 CET. Nothing was written for 2 d. {READ_BY}" in text
        assert (
            f"Dead from Sun 2026-03-01 22:30 CET, unless it is written. Nothing was written for 2 d. {READ_BY}" in text
        )
        assert "Nothing was written for 40 d. No consumer group reads it." in text
        assert "score 9.1" not in text


def test_a_page_that_is_too_large_is_not_attached_and_the_mail_says_so(
    folder: Path, box: MailBox, server: MailServer
) -> None:
    """Many mail servers refuse more than 10 MiB."""
    (folder / "liveness.html").write_bytes(b"x" * (10 * 2**20 + 1))
    assert Sent(folder, [to(Mail("boss@example.org", server))]).send() == Delivered(1, 0, 0)
    [mail] = box.mails
    assert attached(mail) == {}
    assert "The report is too large to be attached." in text_of(mail)
    assert "The report is too large to be attached." in text_of(mail, "html")


def test_a_page_with_which_a_mail_would_be_too_large_for_its_server_is_not_attached(folder: Path, box: MailBox) -> None:
    """Postfix takes 10,240,000 bytes by default, which is less than 10 MiB, and an attachment takes a third more."""
    (folder / "liveness.html").write_bytes(b"x" * 9 * 2**20)
    with mail_server(box, most=10_240_000) as address:
        server = MailServer(address, "liveness@example.org", "none", NOT_TLS)
        assert Sent(folder, [to(Mail("boss@example.org", server))]).send() == Delivered(1, 0, 0)
    [mail] = box.mails
    assert attached(mail) == {}
    assert "The report is too large to be attached." in text_of(mail)


def test_a_page_is_not_attached_for_a_server_that_refuses_the_mail_for_its_size(
    folder: Path, box: MailBox, server: MailServer
) -> None:
    """The size that it takes at most may be unannounced, or that of another server behind it."""
    box.most = 10_000
    (folder / "liveness.html").write_bytes(b"x" * 20_000)
    assert Sent(folder, [to(Mail("boss@example.org", server))]).send() == Delivered(1, 0, 0)
    [mail] = box.mails
    assert attached(mail) == {}
    assert "The report is too large to be attached." in text_of(mail)


def test_chats_and_programs_get_what_they_read(folder: Path, hook: Hook, url: Path, tmp_path: Path) -> None:
    """Slack text, a card for Teams and JSON for a webhook, in which no name is a link, a mention or markup."""
    authorization = tmp_path / "authorization"
    authorization.write_text(f"Bearer {SECRET}\n")
    kinds: list[Kind] = ["slack", "teams"]
    posts = [Post(kind, url, NOT_TLS) for kind in kinds] + [Post("webhook", url, NOT_TLS, authorization)]
    assert Sent(folder, [to(post, "team-b") for post in posts]).send() == Delivered(3, 0, 0)
    slack, teams, webhook = hook.bodies
    assert (
        "`prod/&lt;b&gt;x&lt;/b&gt;` Dead since Sun 2026-03-01 22:30 UTC. &lt;!channel&gt; &lt;b&gt;*bold*"
        in slack["text"]
    )
    assert "<https://wiki.example.org/dead|What to do>" in slack["text"]
    [attachment] = teams["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    runs = [run["text"] for block in attachment["content"]["body"] for run in block["inlines"]]
    assert f"Dead since Sun 2026-03-01 22:30 UTC. {HOSTILE} {READ_BY}" in runs, "a text run is no Markdown"
    assert webhook["owner"] == "team-b"
    assert webhook["groups"] == [
        {
            "key": "newly-dead",
            "title": "Newly dead",
            "advice": "Ask.",
            "items": [
                {
                    "cluster": "prod",
                    "topic": "<b>x</b>",
                    "partitions": [],
                    "told": f"Dead since Sun 2026-03-01 22:30 UTC. {HOSTILE} {READ_BY}",
                    "evidence": "score 9.1 of <b>x</b>",
                    "dead_since": "2026-03-01T22:30:00.000Z",
                    "readers": ["billing", "audit"],
                }
            ],
        }
    ]
    assert [headers.get("Authorization") for headers in hook.headers] == [None, None, f"Bearer {SECRET}"]
    assert len({headers["Idempotency-Key"] for headers in hook.headers}) == 3


def test_what_was_taken_is_not_sent_again(folder: Path, box: MailBox, server: MailServer) -> None:
    """Whom the server refused gets it from the next run, the others get it once; a later report goes to all."""
    box.answers = ["550 no such user"]
    sent = Sent(folder, [to(Mail("gone@example.org", server)), to(Mail("boss@example.org", server))])
    assert sent.send() == Delivered(1, 0, 1)
    refused = f"not delivered to gone@example.org: {server.address} refused the recipient: 550 no such user"
    assert sent.lines == [refused, "delivered to boss@example.org"]
    assert sent.pauses == [], "a refusal for good is not tried again"
    assert outcome((folder / "deliveries.json").read_bytes())[0] == 1
    assert sent.send() == Delivered(1, 1, 0)
    assert box.to == ["boss@example.org", "gone@example.org"]
    assert sent.send() == Delivered(0, 2, 0)
    write_report(folder, as_of="2026-03-10T12:00:00.000Z")
    assert sent.send() == Delivered(2, 0, 0)


def test_a_week_without_anything_for_the_owners_is_no_missing_delivery(folder: Path, server: MailServer) -> None:
    """A report that is due to nobody counts as sent; a name that no owner has does not."""

    def last_delivery(owner: str) -> float | None:
        sent = Sent(folder, [mails_to(server, r"\g<0>@example.org", owner)])
        assert sent.send() == Delivered(0, 0, 0)
        undelivered, at = outcome((folder / "deliveries.json").read_bytes())
        assert undelivered == 0
        return at

    begun = time.time()
    at = last_delivery("team-c")
    assert at is not None and begun <= at <= time.time()
    assert last_delivery("teem-c") is None
    assert Sent(folder, [to(Mail("boss@example.org", server))]).send() == Delivered(1, 0, 0)


def test_a_passing_refusal_is_tried_again_after_longer_and_longer_pauses(
    folder: Path, box: MailBox, server: MailServer
) -> None:
    """Up to so many times; then it is reported, with the last answer."""
    box.answers = ["451 come back later"] * 2
    sent = Sent(folder, [to(Mail("boss@example.org", server))])
    assert sent.send() == Delivered(1, 0, 0)
    first, second = sent.pauses
    assert 1.0 <= first <= 1.2 and 4.0 <= second <= 4.8
    write_report(folder, as_of="2026-03-10T12:00:00.000Z")
    box.answers = ["451 come back later"] * 3
    assert sent.send() == Delivered(0, 0, 1)
    assert sent.lines[-1].endswith("refused the recipient: 451 come back later")


def test_a_server_that_dies_with_the_mail_gets_it_again_by_the_same_name(
    folder: Path, box: MailBox, server: MailServer
) -> None:
    """Nobody knows whether it was taken: mail programs show the two as one."""
    box.die = 1
    assert Sent(folder, [to(Mail("boss@example.org", server))]).send() == Delivered(1, 0, 0)
    assert box.to == ["boss@example.org"] * 2
    assert box.mails[0]["Message-ID"] == box.mails[1]["Message-ID"]


def test_a_mail_has_the_date_of_its_sending(folder: Path, box: MailBox, server: MailServer) -> None:
    """A mail needs one (RFC 5322): servers put one without it into spam, and mail programs sort by it."""
    sent_at = ManualClock(datetime(2026, 3, 4, 6, 30, tzinfo=UTC).timestamp())
    Sent(folder, [to(Mail("boss@example.org", server, sent_at))]).send()
    assert [mail["Date"] for mail in box.mails] == ["Wed, 04 Mar 2026 06:30:00 +0000"]


def test_a_hook_that_dies_or_is_busy_gets_it_again_by_the_same_key(folder: Path, hook: Hook, url: Path) -> None:
    """After the pause that it asks for."""
    hook.answers = [(0, {}, ""), (429, {"Retry-After": "30"}, "slow down"), (503, {}, "restarting")]
    sent = Sent(folder, [to(Post("webhook", url, NOT_TLS))], attempts=4)
    assert sent.send() == Delivered(1, 0, 0)
    assert len({headers["Idempotency-Key"] for headers in hook.headers}) == 1
    first, second, third = sent.pauses
    assert 1.0 <= first <= 1.2 and 30.0 <= second <= 36.0 and 16.0 <= third <= 19.2


@pytest.mark.parametrize(
    ("after", "least", "most"), [(200.0, 100.0, 240.0), (1e6, 300.0, 360.0), (-200.0, 1.0, 1.2), (None, 1.0, 1.2)]
)
def test_a_hook_may_say_at_which_moment_it_wants_to_be_asked_again(
    folder: Path, hook: Hook, url: Path, after: float | None, least: float, most: float
) -> None:
    """By its own clock, and for no longer than five minutes; one that is over, or no date, asks for nothing."""
    until = "soon" if after is None else formatdate(time.time() + after, usegmt=True)
    hook.answers = [(503, {"Retry-After": until}, "restarting")]
    sent = Sent(folder, [to(Post("webhook", url, NOT_TLS))])
    assert sent.send() == Delivered(1, 0, 0)
    [pause] = sent.pauses
    assert least <= pause <= most


def test_a_refusal_of_a_hook_is_reported_without_its_secret(folder: Path, hook: Hook, url: Path) -> None:
    """Neither the URL nor what the server quotes of it is shown or recorded."""
    hook.answers = [(404, {}, f"no hook /services/{SECRET}\x1b[31m"), (302, {"Location": "http://evil.example/"}, "")]
    sent = Sent(folder, [to(Post("slack", url, NOT_TLS)), to(Post("teams", url, NOT_TLS))])
    assert sent.send() == Delivered(0, 0, 2)
    for line, expected in zip(
        sent.lines, ("answered 404 no hook *** [31m", "answered 302; it leads elsewhere"), strict=True
    ):
        assert expected in line
    assert SECRET not in "".join(sent.lines) + (folder / "deliveries.json").read_text()
    assert len(hook.bodies) == 2, "a redirect is not followed"


@pytest.mark.parametrize(
    ("signature", "answer"),
    [
        (SECRET, f"no flow at /workflow?version=2016-06-01&sig={SECRET}"),
        (SECRET, f"{SECRET} is no signature"),
        (f"a%2Bb%2F{SECRET}%3D", f"signature a+b/{SECRET}= is wrong"),
    ],
)
def test_a_signature_in_the_url_of_a_hook_is_not_shown(
    folder: Path, hook: Hook, url: Path, signature: str, answer: str
) -> None:
    """Workflows of Teams sign in the query; a server may quote path and query, one value, or that decoded."""
    address = url.read_text().strip().removesuffix(f"/services/{SECRET}")
    url.write_text(f"{address}/workflow?version=2016-06-01&sig={signature}")
    hook.answers = [(401, {}, answer)]
    sent = Sent(folder, [to(Post("teams", url, NOT_TLS))])
    assert sent.send() == Delivered(0, 0, 1)
    assert "answered 401" in sent.lines[0]
    assert "***" in sent.lines[0]
    assert SECRET not in sent.lines[0] + (folder / "deliveries.json").read_text()


def test_a_token_that_a_hook_quotes_is_not_shown(folder: Path, hook: Hook, url: Path, tmp_path: Path) -> None:
    """With the scheme before it and without."""
    token = "a-token-of-this-test"  # noqa: S105 - that it shows nowhere is tested
    authorization = tmp_path / "authorization"
    authorization.write_text(f"Bearer {token}")
    hook.answers = [(401, {}, f"Bearer {token}: the token {token} is unknown")]
    sent = Sent(folder, [to(Post("webhook", url, NOT_TLS, authorization))])
    assert sent.send() == Delivered(0, 0, 1)
    assert sent.lines[0].endswith("answered 401 ***: the token *** is unknown")
    assert token not in (folder / "deliveries.json").read_text()


@pytest.mark.parametrize("proxy", ["socks5://proxy:1080", f"socks4://liveness:{SECRET}@proxy:1080", "ftp://proxy"])
def test_a_proxy_that_cannot_be_used_costs_webhooks_alone(
    folder: Path, url: Path, server: MailServer, proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named as such, without its password, and mails leave."""
    monkeypatch.setenv("ALL_PROXY", proxy)
    sent = Sent(folder, [to(Post("slack", url, NOT_TLS)), to(Mail("boss@example.org", server))])
    assert sent.send() == Delivered(1, 0, 1)
    assert "the proxy in HTTPS_PROXY, HTTP_PROXY or ALL_PROXY cannot be used" in sent.lines[0]
    assert SECRET not in "".join(sent.lines) + (folder / "deliveries.json").read_text()


def test_servers_that_say_nothing_or_are_not_there_are_given_up(folder: Path, tmp_path: Path) -> None:
    """Within the time limit, once for all messages to the same server in a round, with the next step."""
    with silent_server() as silent:
        nobody = MailServer("127.0.0.1:1", "liveness@example.org", "none", NOT_TLS)
        mute = MailServer(silent, "liveness@example.org", "none", NOT_TLS)
        url = tmp_path / "url"
        url.write_text(f"http://{silent}/{SECRET}")
        channels = [Mail("a@example.org", mute), Mail("b@example.org", mute), Mail("c@example.org", nobody)]
        recipients = [*map(to, channels), to(Post("slack", url, NOT_TLS))]
        sent = Sent(folder, recipients, attempts=1, timeout=0.5)
        assert sent.send() == Delivered(0, 0, 4)
    late = f"{silent} did not take it within 0.5 s (delivery.timeout)"
    assert sent.lines[0].startswith(f"not delivered to a@example.org: {late}")
    assert sent.lines[1].startswith(f"not delivered to b@example.org: {late}")
    assert "127.0.0.1:1 cannot be reached: Connection refused; check delivery.smtp.server" in sent.lines[2]
    assert sent.lines[3].startswith(f"not delivered to slack {url}: http://{late}")


@pytest.mark.parametrize("first", [b"220-", b"HTTP/1.1 200 OK\r\nX-Slow: "])
def test_a_server_that_sends_a_byte_now_and_then_is_given_up(folder: Path, tmp_path: Path, first: bytes) -> None:
    """The limit is for the whole of a try, not for each step of it."""
    with dribbling_server(first) as slow:
        url = tmp_path / "url"
        url.write_text(f"http://{slow}/{SECRET}")
        by = MailServer(slow, "liveness@example.org", "none", NOT_TLS)
        channel = Mail("a@example.org", by) if first.startswith(b"220") else Post("slack", url, NOT_TLS)
        sent = Sent(folder, [to(channel)], attempts=2, timeout=1.0)
        assert sent.send() == Delivered(0, 0, 1)
    assert f"{slow} did not take it within 1 s (delivery.timeout)" in sent.lines[0]
    assert len(sent.pauses) == 1, "it is tried again"


@contextmanager
def server_with_login(box: MailBox, tmp_path: Path) -> Iterator[MailServer]:
    """A mail server with TLS, as a user with a password that it asks for."""
    authority, password = trustme.CA(), tmp_path / "password"
    password.write_text(f"{SECRET}\n")
    offered, trusted = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("localhost").configure_cert(offered)
    authority.configure_trust(trusted)
    with mail_server(box, offered, login=True) as address:
        yield MailServer(address, "liveness@example.org", "starttls", trusted, "liveness", password)


def test_an_encrypted_connection_and_a_password(folder: Path, box: MailBox, tmp_path: Path) -> None:
    """Over STARTTLS to a server that is trusted; a wrong password, an unknown CA and no TLS are told apart."""
    password = tmp_path / "password"

    def delivery_line(by: MailServer) -> str:
        sent = Sent(folder, [to(Mail("boss@example.org", by))], attempts=1)
        sent.send()
        (folder / "deliveries.json").unlink()
        return sent.lines[0].removeprefix("not delivered to boss@example.org: ")

    with server_with_login(box, tmp_path) as by:
        assert delivery_line(by) == "delivered to boss@example.org"
        assert box.users == ["liveness"]
        untrusted = delivery_line(replace(by, tls=ssl.create_default_context()))
        assert untrusted.startswith(f"the certificate of {by.address} cannot be trusted: unable to get local issuer")
        password.write_text("wrong-one")
        refused = delivery_line(by)
        assert refused.startswith(f"{by.address} refused user name or password (delivery.smtp): 535")
        assert "wrong-one" not in refused
        password.write_text("wröng-one", encoding="utf-8")
        assert "(delivery.smtp) has characters other than ASCII" in delivery_line(by)
    with mail_server(box) as address:
        plain = replace(by, address=address)
        assert "STARTTLS" in delivery_line(plain)
        password.unlink()
        assert "does not exist" in delivery_line(plain)


class Garbling(MailBox):
    """A mail server whose challenges nobody can read."""

    async def auth_CRAM__MD5(self, server: SMTP, _arguments: list[str]) -> AuthResult:  # noqa: N802 - as aiosmtpd calls it
        await server.push("334 this is no base64")
        return AuthResult(success=False, handled=True)


def test_a_mail_server_that_makes_no_sense_keeps_nobody_else_from_the_report(
    folder: Path, hook: Hook, url: Path, tmp_path: Path
) -> None:
    """It is one that cannot be reached; what follows is sent."""
    with server_with_login(Garbling(), tmp_path) as by:
        sent = Sent(folder, [to(Mail("boss@example.org", by)), to(Post("slack", url, NOT_TLS))], attempts=1)
        assert sent.send() == Delivered(1, 0, 1)
    assert f"{by.address} cannot be reached: " in sent.lines[0] and SECRET not in sent.lines[0]
    assert len(hook.bodies) == 1


class Echoing(MailBox):
    """A mail server that refuses a password by quoting the commands that had it."""

    async def auth_PLAIN(self, server: SMTP, arguments: list[str]) -> AuthResult:  # noqa: N802 - as aiosmtpd calls it
        self.users.append(arguments[1])
        await server.push("535 no")
        return AuthResult(success=False, handled=True)

    async def auth_LOGIN(self, server: SMTP, _arguments: list[str]) -> AuthResult:  # noqa: N802 - as above
        await server.push("334 UGFzc3dvcmQ6")
        line = await server._reader.readline()  # noqa: SLF001 - the hook gets no more than the server
        await server.push(f"535 unknown: {self.users[0]} and {line.decode().strip()}")
        return AuthResult(success=False, handled=True)


def test_a_mail_server_that_quotes_the_password_is_not_quoted_with_it(folder: Path, tmp_path: Path) -> None:
    """Neither as it is nor in base64, as AUTH sends it."""
    with server_with_login(Echoing(), tmp_path) as by:
        sent = Sent(folder, [to(Mail("boss@example.org", by))], attempts=1)
        assert sent.send() == Delivered(0, 0, 1)
    assert sent.lines[0].endswith("refused user name or password (delivery.smtp): 535 unknown: *** and ***")


def test_a_damaged_record_sends_nothing(folder: Path, box: MailBox, server: MailServer) -> None:
    """Who got the report is not known then; the message says what removes the doubt."""
    (folder / "deliveries.json").write_text("{")
    with pytest.raises(LedgerError, match="Remove it, and the report is sent to all"):
        Sent(folder, [to(Mail("boss@example.org", server))]).send()
    assert box.mails == []


def test_a_full_disk_sends_nothing(folder: Path, box: MailBox, server: MailServer) -> None:
    """What was sent could not be recorded, and would be sent again; nothing half written stays."""
    before, limits = sorted(folder.iterdir()), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))  # to write on fails, as on a full disk
    try:
        with pytest.raises(LedgerError, match="cannot be written: File too large"):
            Sent(folder, [to(Mail("boss@example.org", server))]).send()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert box.mails == []
    assert sorted(folder.iterdir()) == before


def test_the_name_of_an_owner_adds_no_header(folder: Path, box: MailBox, server: MailServer) -> None:
    """Names come from configuration and topics; a subject is one line whatever they hold."""
    text = (folder / "liveness.json").read_text()
    (folder / "liveness.json").write_text(text.replace('"team-a"', json.dumps("team-a\r\nBcc: evil@example.org")))
    assert Sent(folder, [to(Mail("a@example.org", server), r"(?s)team-a\s.*")]).send() == Delivered(1, 0, 0)
    [mail] = box.mails
    assert mail["Subject"].strip() == "Topic liveness 2026-03-03: team-a Bcc: evil@example.org: 2 topics died"
    assert mail["Bcc"] is None and box.to == ["a@example.org"]


def test_two_processes_do_not_deliver_one_report(folder: Path, server: MailServer) -> None:
    """The second one is refused while the first is at work."""
    report = read_report(folder)
    with opened(folder, report.as_of), pytest.raises(LedgerError, match="another process delivers the report"):
        Sent(folder, [to(Mail("boss@example.org", server))]).send()


@pytest.fixture
def command(folder: Path, tmp_path: Path, url: Path) -> Callable[..., subprocess.Popen[str]]:
    """Start `topic-liveness` with a configuration that delivers to the hook."""

    def start(*arguments: str, **settings: Any) -> subprocess.Popen[str]:
        delivery = {"recipients": [{"slack": {"file": str(url)}}], **settings}
        config = tmp_path / "prod.yaml"
        config.write_text(json.dumps({"delivery": delivery, "history": {"folder": str(tmp_path / "history")}}))
        history = tmp_path / "history" / "published"
        history.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            (history / "reports").symlink_to(folder.parent)
        return subprocess.Popen(
            [sys.executable, "-m", "exporter", *arguments, "--config", str(config)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={name: value for name, value in os.environ.items() if not name.startswith("TOPIC_LIVENESS_")},
        )

    return start


def test_the_command_sends_the_last_report_and_its_code_says_who_has_it(
    command: Callable[..., subprocess.Popen[str]], hook: Hook, url: Path
) -> None:
    """1 and the reason where somebody does not, then 0, and nothing twice."""
    hook.answers = [(403, {}, "invalid_token")]
    with command("deliver") as refused:
        output, errors = refused.communicate(timeout=120)
    assert (refused.returncode, output) == (1, "")
    assert f"not delivered to slack {url}: " in errors
    assert "answered 403 invalid_token" in errors
    assert "Error: 1 not delivered; `topic-liveness deliver` tries them again" in errors
    assert SECRET not in errors
    for expected in (f"delivered to slack {url}\n", "1 delivered before, not sent again\n"):
        with command("deliver") as done:
            assert done.communicate(timeout=120) == (expected, "")
        assert done.returncode == 0
    assert len(hook.bodies) == 2


def test_a_delivery_that_is_terminated_says_one_line(
    command: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    """And ends with 143, also while it waits for a server."""
    with silent_server() as silent:
        (tmp_path / "url").write_text(f"http://{silent}/")
        with command("deliver", timeout="10m") as waiting:
            record = tmp_path / "reports" / "2026-03-03" / "deliveries.json"
            while not record.exists():
                assert waiting.poll() is None
            waiting.send_signal(signal.SIGTERM)
            output, errors = waiting.communicate(timeout=120)
    assert (waiting.returncode, output) == (143, "")
    assert errors == "terminated: run it again, what was delivered is not sent again\n"
    assert outcome(record.read_bytes()) == (1, None)


@pytest.mark.parametrize(
    ("text", "problem"),
    [(None, "cannot be read: No such file or directory"), ("{", "is no report of this version (no JSON)")],
)
def test_what_is_no_report_is_not_sent(
    command: Callable[..., subprocess.Popen[str]], tmp_path: Path, text: str | None, problem: str
) -> None:
    """The message names the file and the next step."""
    other = tmp_path / "other"
    other.mkdir()
    if text is not None:
        (other / "liveness.json").write_text(text)
    with command("deliver", "--report", str(other)) as refused:
        _, errors = refused.communicate(timeout=120)
    assert refused.returncode == 2
    assert f"{other / 'liveness.json'} {problem}" in errors
    assert "topic-liveness report" in errors


def test_a_report_as_it_is_written_can_be_sent(tmp_path: Path, box: MailBox, server: MailServer) -> None:
    """The golden report, whole and by owner: what delivery reads of it is there."""
    folder = tmp_path / "reports" / "golden"
    folder.mkdir(parents=True)
    shutil.copy(Path(__file__).parents[1] / "golden" / "report.json", folder / "liveness.json")
    recipients = [to(Mail("boss@example.org", server)), to(Mail("owners@example.org", server), ".*")]
    assert Sent(folder, recipients).send().failed == 0
    assert box.mails[0]["Subject"] == "Topic liveness 2026-03-03: 3 topics and 1 partition died"
    assert "team-payments" in box.mails[1]["Subject"]
    assert "In the week to Tue 2026-03-03, 3 topics and 1 single partition died" in text_of(box.mails[0])


@pytest.mark.parametrize(("died", "code"), [(2, ExitCode.DIED), (0, ExitCode.DONE)])
def test_the_exit_code_shows_whether_anything_died(tmp_path: Path, died: int, code: ExitCode) -> None:
    """Where that is asked for, as cron may: with a code of its own, which no failure has."""
    folder = write_report(tmp_path / "reports" / "2026-03-03", died=died)
    settings = load_settings(with_clusters=False)
    assert finish(folder, settings, show=False, send=False, exit_code=True) == code
    assert finish(folder, settings, show=False, send=False, exit_code=False) == 0


def test_a_report_that_is_not_delivered_ends_with_1_also_where_something_died(
    tmp_path: Path, folder: Path, hook: Hook, url: Path
) -> None:
    """The failure is reported, since somebody has to fix it."""
    hook.answers = [(410, {}, "gone")]
    config = tmp_path / "prod.yaml"
    config.write_text(json.dumps({"delivery": {"recipients": [{"webhook": {"file": str(url)}}]}}))
    settings = load_settings(config, with_clusters=False)
    assert finish(folder, settings, show=False, send=True, exit_code=True) == ExitCode.FOUND
    assert finish(folder, settings, show=False, send=True, exit_code=True) == ExitCode.DIED


@pytest.mark.parametrize("moment", ["the message was taken", "that is recorded"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_loses_no_message_that_was_taken(
    tmp_path: Path,
    folder: Path,
    hook: Hook,
    url: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    moment: str,
) -> None:
    """It ends the command once that is recorded: the next run sends nothing twice."""
    config = tmp_path / "prod.yaml"
    config.write_text(json.dumps({"delivery": {"recipients": [{"webhook": {"file": str(url)}}]}}))
    settings, record = load_settings(config, with_clusters=False), Ledger.record

    @contextmanager
    def until_taken(_: str) -> Iterator[None]:
        yield
        os.kill(os.getpid(), number)

    def interrupted(ledger: Ledger, to: str, owner: str | None, *, at: float) -> None:
        os.kill(os.getpid(), number)
        record(ledger, to, owner, at=at)

    with monkeypatch.context() as during:
        if moment == "the message was taken":
            during.setattr("exporter.commands.delivery.waiting", until_taken)
        else:
            during.setattr(Ledger, "record", interrupted)
        with pytest.raises((SystemExit, KeyboardInterrupt)) as ended:
            finish(folder, settings, show=False, send=True, exit_code=False)
    assert getattr(ended.value, "code", 130) == 128 + number
    assert outcome((folder / "deliveries.json").read_bytes())[0] == 0
    assert finish(folder, settings, show=False, send=True, exit_code=False) == ExitCode.DONE
    assert len(hook.bodies) == 1


def test_a_past_week_is_not_the_last_report(tmp_path: Path) -> None:
    """What `deliver` sends is of the newest day; the folder that was written last is of the run that has just ended."""
    newest, earlier = (write_report(tmp_path / "reports" / day) for day in ("2026-03-03", "2026-02-23"))
    for folder, written in ((newest, 2000.0), (earlier, 3000.0)):
        os.utime(folder / "liveness.json", (written, written))
    assert last_dated(tmp_path / "reports") == newest
    assert last_written(tmp_path / "reports") == earlier


NOW = datetime(2026, 3, 12, tzinfo=UTC).timestamp()


def test_a_week_is_named_by_its_begin() -> None:
    """In UTC where it names no zone."""
    assert week_end("2026-03-02", None, NOW) == "2026-03-09T00:00:00+00:00"
    assert week_end("2026-03-02T06:00+01:00", None, NOW) == "2026-03-09T06:00:00+01:00"


@pytest.mark.parametrize(
    ("since", "as_of", "problem"),
    [
        ("2026-03-02", "2026-03-09", "--since and --as-of both name the week"),
        ("last week", None, "must be an ISO 8601 moment such as 2026-02-23, got 'last week'"),
        ("2026-03-06", None, "must be at least 7 days ago, got '2026-03-06'"),
        ("9999-12-31", None, "must be"),
    ],
)
def test_what_names_no_past_week_is_refused(since: str, as_of: str | None, problem: str) -> None:
    """The message names the option, the rule and the value."""
    with pytest.raises(UsageError, match=problem):
        week_end(since, as_of, NOW)


def test_the_exporter_shows_who_did_not_get_the_report(tmp_path: Path, hook: Hook, url: Path) -> None:
    """From the record in its history folder, as the alert needs it."""
    folder = write_report(tmp_path / "history" / "published" / "reports" / "2026-03-03")
    hook.answers = [(410, {}, "gone")]
    Sent(folder, [to(Post("slack", url, NOT_TLS)), to(Post("teams", url, NOT_TLS))]).send()
    with Exporter(tmp_path, "127.0.0.1:1") as exporter:
        until(lambda: exporter.value("topic_liveness_report_undelivered") == 1, "the message that was not taken")
        at = outcome((folder / "deliveries.json").read_bytes())[1]
        assert exporter.value("topic_liveness_report_last_delivery_timestamp_seconds") == at
        assert exporter.end() == 0

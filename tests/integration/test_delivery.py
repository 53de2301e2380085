"""Reports that apprise sends to people, by servers that take, refuse, hang and quote what they should not."""

import json
import os
import resource
import shutil
import signal
import ssl
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable, Iterator
from email.message import EmailMessage
from pathlib import Path

import pytest
import trustme

from exporter.clock import SystemClock
from exporter.delivery.send import DeliveryError, Recipient, has_reached_all, send
from exporter.history.published import Expectations
from tests.integration.receiving import SECRET, Hook, MailBox, http_server, mail_server, silent_server, write_report
from tests.integration.serving import Exporter
from tests.waiting import until


class Sent:
    """Deliveries of one report, and the lines that report them."""

    def __init__(self, folder: Path, *recipients: Recipient) -> None:
        self.folder, self.recipients, self.lines = folder, recipients, list[str]()

    def send(self) -> tuple[int, int]:
        """Return how many had it before, and how many did not get it."""
        return send(self.folder, self.recipients, clock=SystemClock(), say=self.lines.append)

    def said(self) -> str:
        return "\n".join(self.lines) + (self.folder / "deliveries.json").read_text()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a report."""
    return write_report(tmp_path / "reports" / "2026-03-03")


@pytest.fixture
def box() -> MailBox:
    """What the mail server took."""
    return MailBox()


@pytest.fixture
def mail(box: MailBox, tmp_path: Path) -> Iterator[Path]:
    """The file with the URL of a mail server without encryption."""
    with mail_server(box) as address:
        yield written(tmp_path / "mail-url", f"mailto://{address}?from=liveness@example.org")


@pytest.fixture
def hook() -> Hook:
    """What the HTTP server got."""
    return Hook()


@pytest.fixture
def url(hook: Hook, tmp_path: Path) -> Iterator[Path]:
    """The file with the URL of a program that takes JSON."""
    with http_server(hook) as address:
        yield written(tmp_path / "url", address.replace("http", "json"))


def written(path: Path, text: str) -> Path:
    """A file with a secret."""
    path.write_text(f"{text}\n")
    return path


def text_of(mail: EmailMessage, kind: str = "plain") -> str:
    """The text of a mail."""
    body = mail.get_body((kind,))
    assert body is not None
    text: str = body.get_content()
    return text


def attached(mail: EmailMessage) -> dict[str, str]:
    """The files that come with a mail."""
    return {str(part.get_filename()): part.get_payload(decode=True).decode() for part in mail.iter_attachments()}  # type: ignore[union-attr]


def test_everybody_gets_the_short_form_with_the_page_and_each_owner_its_own(
    folder: Path, box: MailBox, mail: Path
) -> None:
    """As text and HTML, in which no name of a group or topic is markup; owners without a page have nothing to do."""
    sent = Sent(folder, Recipient(mail, "boss@example.org"), Recipient(mail, r"\1@example.org", r"team-(\w)"))
    assert sent.send() == (0, 0), sent.lines
    assert sent.lines == [
        f"delivered to boss@example.org by {mail}",
        f"delivered to a@example.org by {mail} (team-a)",
        f"delivered to b@example.org by {mail} (team-b)",
    ]
    assert box.to == ["boss@example.org", "a@example.org", "b@example.org"]
    of_all, of_a, of_b = box.mails
    assert of_all["Subject"] == "Topic liveness, week to Tue 2026-03-03: 2 topics died"
    assert of_all["From"] == "liveness@example.org" and of_all["Date"]
    assert "prod/orders" in text_of(of_all) and "# Topic" not in text_of(of_all)
    assert attached(of_all) == {"liveness.html": "<!DOCTYPE html>whole"}
    assert of_a["Subject"] == "Topic liveness of team-a_1, week to Tue 2026-03-03: 1 topic died"
    assert attached(of_a) == {"a.html": "<!DOCTYPE html>of a"}
    assert "<b>*bold*</b> `x` & [link](http://evil.example)" in text_of(of_b)
    assert "&lt;!channel&gt; &lt;b&gt;*bold*&lt;/b&gt; `x` &amp; [link](http://evil.example)" in text_of(of_b, "html")


def test_a_page_that_is_too_large_is_not_attached_and_the_mail_says_so(folder: Path, box: MailBox, mail: Path) -> None:
    """Postfix takes 10,240,000 bytes by default, and an attachment takes a third more than the page."""
    (folder / "liveness.html").write_bytes(b"x" * (7 * 2**20 + 1))
    assert Sent(folder, Recipient(mail, "boss@example.org")).send() == (0, 0)
    [sent] = box.mails
    assert attached(sent) == {}
    assert "The page of the report is too large to be attached." in text_of(sent)


def test_nobody_gets_it_twice(folder: Path, box: MailBox, mail: Path) -> None:
    """Whom the server refused gets it from the next run, the others got it; a later report goes to all."""
    box.answers = ["550 no such user"]
    sent = Sent(folder, Recipient(mail, "gone@example.org"), *[Recipient(mail, "boss@example.org")] * 2)
    assert sent.send() == (0, 1)
    assert sent.lines[0].startswith(f"not delivered to gone@example.org by {mail}: ")
    assert "550" in sent.lines[0] and "no such user" in sent.lines[0]
    assert not has_reached_all(folder)
    assert sent.send() == (1, 0) and has_reached_all(folder)
    assert box.to == ["boss@example.org", "gone@example.org"]
    assert sent.send() == (2, 0) and len(box.to) == 2
    write_report(folder, as_of="2026-03-10T12:00:00.000Z")
    assert sent.send() == (0, 0) and len(box.to) == 4


def test_owners_without_anything_to_do_are_no_missing_delivery_but_a_name_of_none_is(folder: Path, mail: Path) -> None:
    """A report that is due to nobody counts as sent."""
    assert Sent(folder, Recipient(mail, "c@example.org", "team-c")).send() == (0, 0)
    assert has_reached_all(folder)
    with pytest.raises(DeliveryError, match="nobody gets the report, as no owner of a topic matches"):
        Sent(folder, Recipient(mail, "c@example.org", "teem-c")).send()


SIGNED = f"workflow%20version=2016-06-01&sig=a%2Bb%2F{SECRET}%3D"


IN_BASE64 = b64encode(f"\0liveness\0{SECRET}".encode()).decode(), b64encode(SECRET.encode()).decode()
"""The password as AUTH sends it."""


@pytest.mark.parametrize(
    ("user", "path", "answer"),
    [
        ("", "", f"no hook /services/{SECRET}\x1b[31m"),
        ("", f"?{SIGNED}", f"a+b/{SECRET}= is no signature; {SIGNED}"),
        (f"liveness:{SECRET}@", "", "unknown: {} and {}".format(*IN_BASE64)),
    ],
)
def test_a_refusal_is_reported_without_the_secrets_of_the_url(
    folder: Path, hook: Hook, url: Path, user: str, path: str, answer: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither shown nor recorded nor logged, whatever the server quotes; a redirect is not followed."""
    written(url, url.read_text().strip().replace("://", f"://{user}") + path)
    hook.answers = [(404, {}, answer), (302, {"Location": "http://evil.example/"}, "")]
    sent = Sent(folder, Recipient(url))
    assert (sent.send(), sent.send()) == ((0, 1), (0, 1))
    assert "404" in sent.lines[0] and "302" in sent.lines[1]
    said = sent.said() + "".join(capfd.readouterr())
    assert not [secret for secret in (SECRET, *IN_BASE64) if secret in said]


def test_servers_that_are_not_there_or_say_nothing_cost_themselves_alone(
    folder: Path, hook: Hook, url: Path, tmp_path: Path
) -> None:
    """Each is given up in time and named, and the others get the report."""
    with silent_server() as silent:
        mute = written(tmp_path / "mute", f"mailto://{silent}?from=a@example.org&to=b@example.org&cto=1")
        late = written(tmp_path / "late", f"json://{silent}/{SECRET}?rto=1")
        nobody = written(tmp_path / "nobody", f"json://127.0.0.1:1/{SECRET}")
        missing, wrong = tmp_path / "missing", written(tmp_path / "wrong", SECRET)
        several = written(tmp_path / "several", f"mailto://{silent}?from=a@example.org&to=b@example.org,c@example.org")
        files = mute, late, nobody, missing, wrong, several, url
        sent = Sent(folder, *map(Recipient, files))
        assert sent.send() == (0, 6)
    assert [line.partition(": ")[0] for line in sent.lines[:6]] == [f"not delivered to {one}" for one in files[:6]]
    assert "timed out" in sent.lines[0] and "timed out" in sent.lines[1]
    assert "Connection refused" in sent.lines[2]
    assert "No such file" in sent.lines[3] and "no URL of a service that apprise knows" in sent.lines[4]
    assert "names several recipients" in sent.lines[5]
    assert SECRET not in sent.said()
    assert len(hook.bodies) == 1


def test_certificates_of_servers_are_checked(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, box: MailBox, hook: Hook
) -> None:
    """Of a CA that nobody knows nothing is sent; named as the page says, it is."""
    authority, tls = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost", "127.0.0.1").configure_cert(tls)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with mail_server(box, tls) as address, http_server(hook, tls) as secure:
        mail = written(tmp_path / "mails", f"mailtos://{address}?from=liveness@example.org&mode=ssl")
        page = written(tmp_path / "hook", secure.replace("https", "jsons"))
        sent = Sent(folder, Recipient(mail, "boss@example.org"), Recipient(page))
        assert sent.send() == (0, 2) and (box.mails, hook.bodies) == ([], [])
        for variable in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
            monkeypatch.setenv(variable, str(tmp_path / "ca.pem"))
        assert sent.send() == (0, 0), sent.lines
        assert (len(box.mails), len(hook.bodies)) == (1, 1)


def test_a_damaged_record_and_a_full_disk_send_nothing(folder: Path, box: MailBox, mail: Path) -> None:
    """Who got the report is not known then, or could not be recorded; the message says the next step."""
    sent = Sent(folder, Recipient(mail, "boss@example.org"))
    (folder / "deliveries.json").write_text("{")
    with pytest.raises(DeliveryError, match="Remove it, and the report is sent to all again"):
        sent.send()
    (folder / "deliveries.json").unlink()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))  # to write on fails, as on a full disk
    try:
        with pytest.raises(DeliveryError, match="cannot be written: File too large"):
            sent.send()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert box.mails == []


@pytest.fixture
def command(folder: Path, tmp_path: Path, url: Path) -> Callable[..., subprocess.Popen[str]]:
    """Start `topic-liveness` with a configuration that delivers to the hook."""

    def start(*arguments: str) -> subprocess.Popen[str]:
        recipients = [{"url": {"file": str(url)}}, {"url": {"file": str(url)}, "owner": "team-a"}]
        config, history = tmp_path / "prod.yaml", tmp_path / "history"
        config.write_text(json.dumps({"delivery": {"recipients": recipients}, "history": {"folder": str(history)}}))
        (history / "published").mkdir(parents=True, exist_ok=True)
        if not (history / "published" / "reports").exists():
            (history / "published" / "reports").symlink_to(folder.parent)
        return subprocess.Popen(
            [sys.executable, "-m", "exporter", *arguments, "--config", str(config)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={name: value for name, value in os.environ.items() if not name.startswith("TOPIC_LIVENESS_")},
        )

    return start


def test_a_signal_ends_it_after_the_message_that_is_being_sent(
    command: Callable[..., subprocess.Popen[str]], hook: Hook, url: Path
) -> None:
    """What was taken is recorded: the next run sends the rest, and nothing twice."""
    hook.before_answer = lambda: os.kill(running.pid, signal.SIGTERM)
    running = command("deliver")
    out, err = running.communicate(timeout=60)
    assert running.returncode in (-signal.SIGTERM, 130), err
    assert out == f"delivered to {url}\n"
    hook.before_answer = lambda: None
    out, _ = command("deliver").communicate(timeout=60)
    assert out == f"delivered to {url} (team-a)\n1 delivered before, not sent again\n"
    assert len(hook.bodies) == 2


def test_a_report_as_it_is_written_can_be_sent(tmp_path: Path, box: MailBox, mail: Path) -> None:
    """The golden report, whole and by owner: what delivery reads of it is there."""
    golden, folder = Path(__file__).parents[1] / "golden", tmp_path / "report"
    (folder / "owners").mkdir(parents=True)
    for ending in ("json", "md", "html"):
        shutil.copy(golden / f"report.{ending}", folder / f"liveness.{ending}")
    shutil.copy(golden / "report-team-payments.html", folder / "owners" / "team-payments.html")
    (folder / "owners" / "team-payments.md").write_text(
        "# Topic liveness of team-payments, week to Tue 2026-03-03: ..."
    )
    sent = Sent(folder, Recipient(mail, "boss@example.org"), Recipient(mail, "a@example.org", "team-payments"))
    assert sent.send() == (0, 0), sent.lines
    of_all, of_owner = box.mails
    assert of_all["Subject"] == "Topic liveness, week to Tue 2026-03-03: 3 topics and 1 single partition died"
    assert of_owner["Subject"].startswith("Topic liveness of team-payments, week to Tue 2026-03-03: ")
    assert "In the week to Tue 2026-03-03, 3 topics and 1 single partition died" in text_of(of_all)
    assert list(attached(of_owner)) == ["team-payments.html"]


def test_the_exporter_shows_when_a_report_last_reached_everybody(tmp_path: Path, hook: Hook, url: Path) -> None:
    """From the records in its history folder, as the alert needs it; any report counts where nobody is to get one."""
    reports = tmp_path / "history" / "published" / "reports"
    older, newer = (write_report(reports / day) for day in ("2026-02-24", "2026-03-03"))
    assert Sent(older, Recipient(url)).send() == (0, 0)
    hook.answers = [(410, {}, "gone")]
    assert Sent(newer, Recipient(url)).send() == (0, 1)
    for folder, at in ((older, 2000.0), (newer, 3000.0)):
        os.utime(folder / "liveness.html", (at, at))
    assert Expectations(tmp_path / "history").find_report_time() == 3000.0
    metric, recipients = "topic_liveness_report_last_success_timestamp_seconds", [{"url": {"file": str(url)}}]
    with Exporter(tmp_path, "127.0.0.1:1", TOPIC_LIVENESS_DELIVERY__RECIPIENTS=json.dumps(recipients)) as exporter:
        until(lambda: exporter.value(metric) == 2000.0, "the report that reached everybody")

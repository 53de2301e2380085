"""What a real Alertmanager, and servers that are none, tell about acknowledged alerts."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest

from exporter.commands.acknowledgements import AlertmanagerError, read_acknowledgements
from exporter.commands.spark_job import acknowledged
from exporter.settings import Settings
from tests.programs import program, running
from tests.prometheus import free_port

NOW = datetime.now(UTC)
DEAD = ("alertname", "TopicLivenessTopicDead")


def settings(url: str, **more: object) -> Settings:
    """Two clusters, and an Alertmanager."""
    clusters = [{"name": name, "kafka": {"bootstrap.servers": "localhost:1"}} for name in ("prod", "prod-eu")]
    return Settings.model_validate({"clusters": clusters, "rollup": {"alertmanager": {"url": url, **more}}})


@pytest.fixture(scope="module")
def alertmanager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address."""
    folder = tmp_path_factory.mktemp("alertmanager")
    (folder / "a.yml").write_text("{route: {receiver: none}, receivers: [{name: none}]}", encoding="utf-8")
    url = f"http://127.0.0.1:{free_port()}"
    command = [
        program("prometheus-alertmanager"),
        f"--config.file={folder}/a.yml",
        f"--storage.path={folder}/data",
        f"--web.listen-address={url.removeprefix('http://')}",
        "--cluster.listen-address=",
    ]
    with running(command, f"{url}/-/ready", folder / "log"):
        yield url


def silence(url: str, comment: str, *labels: tuple[str, str], regex: bool = False, starts: datetime = NOW) -> str:
    """Make a silence; of a ``regex`` the last matcher is one. Returns its id."""
    told = [
        {"name": name, "value": value, "isRegex": regex and (name, value) == labels[-1], "isEqual": True}
        for name, value in labels
    ]
    ends = starts + timedelta(hours=4)
    times = {"startsAt": starts.isoformat(), "endsAt": ends.isoformat()}
    body = {"matchers": told, "createdBy": "on call", "comment": comment, **times}
    answer = httpx.post(f"{url}/api/v2/silences", json=body, timeout=10).raise_for_status()
    return str(answer.json()["silenceID"])


def test_silences_that_are_acknowledgements_are_read(alertmanager: str) -> None:
    """By comment, alert and topic; also those that are over; for each cluster that a pattern matches."""
    one = silence(alertmanager, "ACK! known", DEAD, ("kafka_cluster", "prod"), ("topic", "a.b"))
    many = silence(alertmanager, "ACK! known", DEAD, ("topic", "x|y"), ("kafka_cluster", "prod.*"), regex=True)
    every = silence(alertmanager, "ACK!", DEAD, ("severity", "critical"), ("topic", "(c|d)"), regex=True)
    httpx.delete(f"{alertmanager}/api/v2/silence/{every}", timeout=10).raise_for_status()
    silence(alertmanager, "a false alarm", DEAD, ("topic", "noisy"))
    silence(alertmanager, "ACK! all", DEAD)
    silence(alertmanager, "ACK! lag", ("alertname", "TopicLivenessGroupStalled"), ("topic", "read"))
    silence(alertmanager, "ACK! planned", DEAD, ("topic", "later"), starts=NOW + timedelta(days=1))
    silence(alertmanager, "ACK! far", DEAD, ("topic", "far"), ("kafka_cluster", "elsewhere"))
    found = read_acknowledgements(settings(f"{alertmanager}/"), datetime.now(UTC) + timedelta(seconds=5))
    told = {(row.silence_id, row.topics, row.cluster) for row in found}
    assert told == {
        (one, r"a\.b", "prod"),
        (many, r"x\|y", "prod"),
        (many, r"x\|y", "prod-eu"),
        (every, "(c|d)", None),
    }
    assert all(0 <= row.at - NOW.timestamp() <= time.time() - NOW.timestamp() for row in found)
    assert read_acknowledgements(Settings()) == []


ANSWERS = {
    "not JSON": (200, b"<html>", "does not answer as Alertmanager does"),
    "another API": (200, b'[{"id": 1}]', "does not answer as Alertmanager does"),
    "refused": (401, b"", "answered 401 Unauthorized for its silences; next step: check rollup.alertmanager.url"),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_a_server_that_does_not_tell_costs_one_line(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rollup goes on without the option; the header, which arrives, is not in the line."""
    code, body, expected = ANSWERS[case]
    seen = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append((self.path, self.headers["Authorization"]))
            self.send_response(code)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:  # to stderr, else
            pass

    secret = tmp_path / "authorization"
    secret.write_text("Bearer sesame\n", encoding="utf-8")
    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/prefix"
        assert acknowledged(settings(url, authorization={"file": str(secret)})) == []
        server.shutdown()
    assert seen == [("/prefix/api/v2/silences", "Bearer sesame")]
    line = capsys.readouterr().err
    assert line.startswith(f"acknowledged alerts are left for the next rollup: {url}") and expected in line
    assert line.count("\n") == 1 and "sesame" not in line


@pytest.mark.parametrize("value", ["Bearer ses\name", "Bearer sesame ", "Bearer s\u00e9same"])
def test_a_header_that_http_does_not_allow_is_named_by_its_file(value: str, tmp_path: Path) -> None:
    """Not by what it holds."""
    secret = tmp_path / "authorization"
    secret.write_text(value, encoding="utf-8")
    asked = settings("http://127.0.0.1:1", authorization={"file": str(secret)})
    with pytest.raises(AlertmanagerError) as refused:
        read_acknowledgements(asked)
    assert str(refused.value).startswith(f"rollup.alertmanager: the file {secret} must hold one line")
    assert "same" not in str(refused.value).replace(str(secret), "")


def test_a_file_of_cas_that_is_none_is_named(tmp_path: Path) -> None:
    """With what is wrong with it."""
    (tmp_path / "ca.pem").write_text("nothing\n", encoding="utf-8")
    with pytest.raises(AlertmanagerError, match=r"rollup\.alertmanager: .*ca\.pem cannot be used"):
        read_acknowledgements(settings("https://127.0.0.1:1", ca_file=str(tmp_path / "ca.pem")))


def test_an_alertmanager_that_is_gone_is_named() -> None:
    """With the setting to check."""
    with pytest.raises(AlertmanagerError, match=r"cannot be asked: .*next step: check rollup\.alertmanager\.url"):
        read_acknowledgements(settings(f"http://127.0.0.1:{free_port()}"))

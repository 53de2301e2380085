"""The command ``status``, against a server with the API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import bcrypt
import pytest
import trustme

from exporter.cli import run
from exporter.domain.polls.readings import Reason, TopicPartition
from exporter.domain.ports import SourceError
from exporter.web.config_file import WebConfigFile
from tests.answers import answering
from tests.monitors import monitor_of, served
from tests.plain_http import get
from tests.unit.expectations import HOUR
from tests.unit.readings import ManualClock
from tests.unit.test_explain_json import scene as fleet
from tests.unit.test_state import NOW, SWEEP, scene


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server of a monitor with a dead partition, an unreadable one, and others."""
    monitor, poller, _, _ = scene()
    poller.poll()
    poller.poll()
    monitor.take_sweep(SWEEP)
    with served(monitor) as running:
        yield f"http://{running.address}"


def test_a_running_exporter_is_asked(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The dead partition of a topic that lives and the unreadable topic, with exit code 1.

    JSON and the line for monitoring have the same counts; only the line has the exit code of a plug-in.
    """
    assert run(["status", "--url", url]) == 1
    _, heads, *rows = capsys.readouterr().out.splitlines()
    assert heads.split() == ["CLUSTER", "TOPIC", "WHAT", "SILENT", "OWNER", "READERS", "EVIDENCE"]
    assert [row.split()[:3] for row in rows] == [["prod", "orders:1", "dead"], ["prod", "lost", "unreadable"]]
    assert "1 of 1 partitions cannot be read" in rows[1]
    assert run(["status", "--url", url, "--format", "json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["counts"] == {"dead": 1, "suspect": 0, "incident": 0, "unreadable": 1}
    assert (answer["items"][0]["topic"], answer["items"][0]["partition"]) == ("orders", 1)
    assert run(["status", "--url", url, "--format", "nagios"]) == 2
    assert capsys.readouterr().out == (
        "CRITICAL: 1 dead, 0 suspect, 0 incident, 1 unreadable (orders:1) | dead=1 suspect=0 incident=0 unreadable=1\n"
    )


def test_a_mass_death_is_no_health(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A running exporter in which twelve topics of forty are held: one item, CRITICAL, and the pages say it first."""
    silent = {f"events-{number}": (6.0,) if number < 12 else (0.5,) for number in range(40)}
    _, monitor = fleet(tmp_path, silent, monkeypatch)
    with served(monitor) as running:
        url = f"http://{running.address}"
        assert run(["status", "--url", url]) == 1
        *_, row = capsys.readouterr().out.splitlines()
        assert row.split()[:4] == ["prod", "12", "topics", "incident"]
        assert "12 of 40 topics fell silent together" in row
        assert run(["status", "--url", url, "--format", "nagios"]) == 2
        assert capsys.readouterr().out == (
            "CRITICAL: 0 dead, 0 suspect, 1 incident, 0 unreadable (12 topics) | "
            "dead=0 suspect=0 incident=1 unreadable=0\n"
        )
        assert run(["status", "--url", url, "--format", "json"]) == 1
        [item] = json.loads(capsys.readouterr().out)["items"]
        assert (item["topic"], item["what"], len(item["topics"])) == (None, "incident", 12)
        assert "<h1>12 topics are held: 1 incident</h1>" in get(url, timeout=20).text


def test_topics_that_nobody_judges_are_not_taken_for_health(capsys: pytest.CaptureFixture[str]) -> None:
    """Without expectations nothing is dead or suspect, and monitoring is told that nobody knows."""
    with served(monitor_of(ManualClock())) as running:
        url = f"http://{running.address}"
        assert run(["status", "--url", url, "--format", "nagios"]) == 3
        assert capsys.readouterr().out.startswith("UNKNOWN: ")
        assert run(["status", "--url", url]) == 1
        assert "verdicts are not known: no expectations are published" in capsys.readouterr().out


def test_one_failed_poll_is_not_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    """What a cluster has shown is shown until its series are withdrawn, and only then it is not read: API and line."""
    monitor, poller, source, clock = scene()
    source.offsets = {TopicPartition("orders", 0): (0, 40, NOW - HOUR)}
    poller.poll()

    def asked(url: str) -> tuple[int, str, int, list[str]]:
        code, answer = run(["status", "--url", url, "--format", "nagios"]), get(f"{url}/api/v1/topics", timeout=20)
        line, body = capsys.readouterr().out, answer.json()
        return code, line.partition(" |")[0], body["total"], [why[:27] for why in body["not_read"].values()]

    with served(monitor) as running:
        url = f"http://{running.address}"
        well: tuple[int, str, int, list[str]] = (0, "OK: 0 dead, 0 suspect, 0 incident, 0 unreadable", 1, [])
        assert asked(url) == well
        source.error = SourceError(Reason.CLUSTER_UNREACHABLE, "no broker answers")
        clock.time += 30
        poller.poll()
        assert asked(url) == well
        clock.time += 120
        text = "UNKNOWN: 0 dead, 0 suspect, 0 incident, 0 unreadable; prod is not read"
        assert asked(url) == (3, text, 0, ["down: cluster-unreachable: "])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--url", "http://127.0.0.1:1"], "http://127.0.0.1:1 cannot be asked: [Errno 111] Connection refused"),
        (["--url", "http://user:hidden@127.0.0.1:1/"], "http://127.0.0.1:1/ cannot be asked"),
        (["--url", "file:///etc/passwd"], "--url must be http://HOST:PORT or https://HOST:PORT"),
        ([], "http://127.0.0.1:1 cannot be asked"),
        (["--config", "/nowhere.yaml"], "/nowhere.yaml cannot be read: No such file or directory"),
    ],
)
def test_what_cannot_be_asked_is_unknown(
    given: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2 with the reason and no password; 3, unknown, and one line: without it 2 would mean a dead topic.

    Without an address it is that of the configuration.
    """
    monkeypatch.setenv("TOPIC_LIVENESS_WEB__LISTEN", "127.0.0.1:1")
    assert run(["status", *given]) == 2
    error = capsys.readouterr().err
    assert message in error and "hidden" not in error
    assert run(["status", *given, "--format", "nagios"]) == 3
    line = capsys.readouterr().out
    assert line.startswith("UNKNOWN: ") and line.count("\n") == 1


def test_a_cluster_that_is_not_there_is_an_error(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt name must not look like a cluster in which all is well."""
    message = "--cluster must be one of prod, got 'prdo'"
    assert run(["status", "--url", url, "--cluster", "prdo"]) == 2
    assert message in capsys.readouterr().err
    assert run(["status", "--url", url, "--cluster", "prdo", "--format", "nagios"]) == 3
    assert f"UNKNOWN: {message}" in capsys.readouterr().out


@pytest.fixture(scope="module")
def protected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A server that asks for a client certificate and a password, and a folder with what a client needs."""
    folder, ca = tmp_path_factory.mktemp("protected"), trustme.CA()
    ca.cert_pem.write_to_path(folder / "ca.crt")
    for name, host in (("server", "localhost"), ("client", "nagios")):
        made = ca.issue_cert(host)
        made.cert_chain_pems[0].write_to_path(folder / f"{name}.crt")
        made.private_key_pem.write_to_path(folder / f"{name}.key")
    (folder / "password").write_text("correct horse\n")
    (folder / "wrong").write_text("hidden")
    (folder / "empty").touch()
    hashed = bcrypt.hashpw(b"correct horse", bcrypt.gensalt(4)).decode()
    tls = {"cert_file": "server.crt", "key_file": "server.key", "client_ca_file": "ca.crt"}
    (folder / "web.yml").write_text(
        json.dumps(
            {
                "tls_server_config": {**tls, "client_auth_type": "RequireAndVerifyClientCert"},
                "basic_auth_users": {"nagios": hashed},
            }
        )
    )
    monitor, poller, _, _ = scene()
    poller.poll()
    with served(monitor, WebConfigFile(folder / "web.yml")) as running:
        yield f"https://localhost:{running.port}", folder


CA, PAIR = ["--ca-file", "ca.crt"], ["--cert-file", "client.crt", "--key-file", "client.key"]
USER = ["--username", "nagios", "--password-file", "password"]


def test_a_protected_exporter_is_asked(
    protected: tuple[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its CA, a client certificate, and a user whose password is in a file; the line for monitoring too."""
    url, folder = protected
    monkeypatch.chdir(folder)
    assert run(["status", "--url", url, *CA, *PAIR, *USER, "--format", "nagios"]) == 2
    assert capsys.readouterr().out.startswith("CRITICAL: 1 dead")
    assert run(["status", "--url", url.replace("//", "//nagios:correct%20horse@"), *CA, *PAIR]) == 1
    assert "correct" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([*PAIR, *USER], "Give --ca-file, the CA that signed its certificate"),
        ([*CA, *USER], "It may ask for a client certificate: give --cert-file and --key-file"),
        ([*CA, *PAIR], "answers 401 Unauthorized; give --username and --password-file"),
        ([*CA, *PAIR, "--username", "nagios", "--password-file", "wrong"], "answers 401 Unauthorized"),
        ([*CA, *PAIR, "--username", "nagios", "--password-file", "empty"], "--password-file: the file empty is empty"),
        ([*CA, "--key-file", "client.key"], "--key-file must be given with --cert-file"),
        ([*CA, "--cert-file", "client.crt", "--key-file", "server.key"], "cannot be used: KEY_VALUES_MISMATCH"),
        (["--ca-file", "password"], "--ca-file, --cert-file or --key-file cannot be used: "),
    ],
)
def test_what_keeps_a_protected_exporter_from_being_asked_is_named(
    given: list[str],
    message: str,
    protected: tuple[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The file or option, the rule and the next step; exit code 2, and 3 for monitoring; no password."""
    url, folder = protected
    monkeypatch.chdir(folder)
    assert run(["status", "--url", url, *given]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "hidden" not in error
    assert run(["status", "--url", url, *given, "--format", "nagios"]) == 3
    assert capsys.readouterr().out.startswith("UNKNOWN: ")


@pytest.mark.parametrize(
    ("code", "body", "message"),
    [
        (302, b"", "answers 302 Found for /api/v1/clusters"),
        (200, b"<html>", "cannot be asked: Expecting value"),
        (200, b"[]", "does not answer as an exporter does"),
        (200, b"{}", "does not answer as an exporter of this version does: KeyError('clusters')"),
    ],
)
def test_what_is_no_exporter_is_unknown(
    code: int, body: bytes, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A redirect is not followed, as it could lead the password elsewhere; other answers are no health."""
    with answering(code, body) as (address, _):
        assert run(["status", "--url", address]) == 2
    assert message in capsys.readouterr().err

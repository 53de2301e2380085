"""How commands ask a running exporter, over TLS and as a user, and what keeps them from it; here ``explain``."""

import json
from collections.abc import Iterator
from pathlib import Path

import bcrypt
import pytest
import trustme

from exporter.cli import run
from exporter.web.config_file import WebConfigFile
from tests.answers import answering
from tests.monitors import served
from tests.unit.test_state import scene


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--url", "http://127.0.0.1:1"], "http://127.0.0.1:1 cannot be asked: [Errno 111] Connection refused"),
        (["--url", "http://user:hidden@127.0.0.1:1/"], "with a user by --username"),
        (["--url", "http://127.0.0.1:1\r"], "--url must be http://HOST:PORT or https://HOST:PORT"),
        (["--url", "file:///etc/passwd"], "--url must be http://HOST:PORT or https://HOST:PORT"),
    ],
)
def test_what_cannot_be_asked_is_named(given: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "orders", *given]) != 0
    error = capsys.readouterr().err
    assert message in error and "hidden" not in error


@pytest.fixture(scope="module")
def protected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    folder, ca = tmp_path_factory.mktemp("protected"), trustme.CA()
    ca.cert_pem.write_to_path(folder / "ca.crt")
    for name, host in (("server", "localhost"), ("client", "ops")):
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
                "basic_auth_users": {"ops": hashed},
            }
        )
    )
    monitor, poller, _, _ = scene()
    poller.poll()
    with served(monitor, WebConfigFile(folder / "web.yml")) as running:
        yield f"https://localhost:{running.port}", folder


CA, PAIR = ["--ca-file", "ca.crt"], ["--cert-file", "client.crt", "--key-file", "client.key"]
USER = ["--username", "ops", "--password-file", "password"]


def test_a_protected_exporter_is_asked(
    protected: tuple[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url, folder = protected
    monkeypatch.chdir(folder)
    assert run(["explain", "orders", "--url", url, *CA, *PAIR, *USER]) == 0
    assert capsys.readouterr().out.startswith("orders, cluster prod")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([*PAIR, *USER], "Give --ca-file, the CA that signed its certificate"),
        ([*CA, *USER], "It may ask for a client certificate: give --cert-file and --key-file"),
        ([*CA, *PAIR], "answers 401 Unauthorized; give --username and --password-file"),
        ([*CA, *PAIR, "--username", "ops", "--password-file", "wrong"], "answers 401 Unauthorized"),
        ([*CA, *PAIR, "--username", "ops", "--password-file", "empty"], "--password-file: the file empty is empty"),
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
    url, folder = protected
    monkeypatch.chdir(folder)
    assert run(["explain", "orders", "--url", url, *given]) != 0
    error = capsys.readouterr().err
    assert message in error
    assert "hidden" not in error


@pytest.mark.parametrize(
    ("code", "body", "message"),
    [
        (302, b"", "answers 302 Found for /api/v1/clusters"),
        (200, b"<html>", "cannot be asked: Expecting value"),
        (200, b"[]", "does not answer as an exporter does"),
        (200, b"{}", "does not answer as an exporter of this version does: KeyError('clusters')"),
    ],
)
def test_what_is_no_exporter_is_not_believed(
    code: int, body: bytes, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A redirect is not followed, as it could lead the password elsewhere; other answers are none."""
    with answering(code, body) as (address, _):
        assert run(["explain", "orders", "--url", address]) == 1
    assert message in capsys.readouterr().err

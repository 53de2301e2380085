"""Secrets from files: what is refused, what is warned of, and what is taken up when a file changes."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from exporter.domain.ports import SourceError
from exporter.kafka.client import Client
from exporter.kafka.credentials import Credentials, Property
from exporter.secret_files import MAX_BYTES
from exporter.settings.load import dump_yaml, load_settings

SECRET = "hunter2-of-the-file"  # noqa: S105 - of nothing
NOWHERE = "127.0.0.1:9"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text(f"{SECRET}\n")
    path.chmod(0o440)
    return path


@pytest.mark.parametrize(
    ("put", "rule"),
    [
        (
            Path.exists,
            f"the file {{}} cannot be read by user id {os.geteuid()}: No such file or directory; next",
        ),
        (lambda path: path.write_text("\n"), "the file {} is empty; next step: check what wrote it, or the key of"),
        (Path.mkdir, "{} must be a file; next step: check the path"),
        (lambda path: path.symlink_to(path), f"the file {{}} cannot be read by user id {os.geteuid()}: Too many"),
        (lambda path: path.write_text(SECRET + "x" * MAX_BYTES), "the file {} is larger than 1048576 bytes; next"),
        (lambda path: path.write_bytes(SECRET.encode() + b"\xff"), "the file {} is not UTF-8 text; next step: check"),
    ],
    ids=["nothing", "empty", "a folder", "a link to itself", "huge", "binary"],
)
def test_a_secret_file_that_cannot_be_used_is_named_and_its_text_is_not(
    tmp_path: Path, put: Callable[[Path], object], rule: str
) -> None:
    put(path := tmp_path / "password")
    with pytest.raises(ValueError, match=r"sasl\.password") as refused:
        Credentials({"bootstrap.servers": NOWHERE, "sasl.password": path})
    assert str(refused.value).startswith(f"sasl.password: {rule.format(path)}")
    assert SECRET not in str(refused.value)


def test_every_file_that_cannot_be_used_is_named_at_once_and_who_may_not_read_it(secret: Path) -> None:
    missing = secret.with_name("missing")
    with pytest.raises(ValueError, match=r"ssl\.ca\.location: the file .*; sasl\.password: the file "):
        Credentials({"sasl.password": missing, "ssl.ca.location": str(missing)})
    secret.chmod(0o000)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        with pytest.raises(ValueError, match=rf"cannot be read by user id {os.geteuid()}: Permission denied"):
            Credentials({"sasl.password": secret})
    finally:
        os.seteuid(user)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_password_is_what_stands_before_the_end_of_the_line(secret: Path, encoding: str) -> None:
    """Neither the line's end of editors is part of it nor their byte order mark; spaces are. It is always redacted."""
    secret.chmod(0o600)
    secret.write_text(f" {SECRET} \r\n", encoding=encoding)
    credentials = Credentials({"client.id": secret})
    assert credentials.properties["client.id"] == f" {SECRET} "
    assert credentials.redact(f"wrong: ' {SECRET} '") == "wrong: '***'"


def test_what_only_looks_like_a_secret_by_its_name_is_not_redacted() -> None:
    oauth = "sasl.oauthbearer"
    harmless: dict[str, Property | Path] = {
        f"{oauth}.token.endpoint.url": "https://idp/token",
        f"{oauth}.client.credentials.client.id": "liveness",
        f"{oauth}.assertion.claim.exp.seconds": 60,
        f"{oauth}.assertion.algorithm": "RS256",
        f"{oauth}.assertion.file": "/run/jwt",
    }
    hidden = {
        f"{oauth}.client.credentials.client.secret": SECRET,
        f"{oauth}.assertion.private.key.passphrase": "phrase",
        f"{oauth}.config": "principal=x",
    }
    message = f"broker-60:9093 refused {' '.join(map(str, harmless.values()))}: "
    credentials = Credentials({**harmless, **hidden})
    assert credentials.redact(message + " ".join(hidden.values())) == message + "*** *** ***"


def test_what_an_address_carries_to_log_in_is_redacted() -> None:
    address = f"https://me:{SECRET}@home@idp/token?key={SECRET}"
    provider = Credentials({"sasl.oauthbearer.token.endpoint.url": address})
    assert provider.redact(f"no answer from {address}") == "no answer from https://***@idp/token?***"


def test_sasl_without_a_mechanism_is_refused() -> None:
    """The default of librdkafka is GSSAPI, which the wheels of confluent-kafka lack."""
    properties = {"bootstrap.servers": NOWHERE, "security.protocol": "SASL_SSL", "sasl.username": "liveness"}
    with pytest.raises(ValueError, match=r"mechanism GSSAPI: .*; next step: use SCRAM or OAUTHBEARER, or"):
        Client(properties, request_timeout=1.0)


def test_a_short_secret_is_reported_and_not_replaced() -> None:
    """To replace each `e` of a message would destroy it, and show what the password is."""
    credentials = Credentials({"sasl.password": "e"})
    assert credentials.redact("no answer from the broker") == "no answer from the broker"
    assert [line.split(",")[0] for line in credentials.list_exposed()] == ["sasl.password: has fewer than 6 characters"]


def test_a_command_of_kerberos_is_redacted_with_other_values_in_it() -> None:
    """librdkafka quotes the command that it ran, with values in place of the names in braces."""
    command = f"echo {SECRET} | kinit %{{sasl.kerberos.principal}} || kinit -k"
    credentials = Credentials({"sasl.kerberos.kinit.cmd": command})
    ran = command.replace("%{sasl.kerberos.principal}", "me@REALM")
    assert (
        credentials.redact(f"failed: {ran}: exited with code 1")
        == "failed: echo *** | kinit me@REALM || kinit -k: exited with code 1"
    )
    glued = Credentials({"sasl.kerberos.kinit.cmd": f"login {SECRET}%{{sasl.kerberos.principal}}"})
    assert glued.redact(f"failed: login {SECRET}me@REALM") == "failed: login ***me@REALM"


def test_a_part_of_the_oauthbearer_configuration_is_not_repeated() -> None:
    """librdkafka quotes it from the first word on that it does not know."""
    properties: dict[str, Property | Path] = {
        "bootstrap.servers": NOWHERE,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "enable.sasl.oauthbearer.unsecure.jwt": "true",
        "sasl.oauthbearer.config": f"principal=me secret={SECRET}",
    }
    client = Client(properties, request_timeout=1.0)
    with pytest.raises(SourceError, match=r"sasl\.oauthbearer\.config beginning at: \*\*\*") as refused:
        client.topics()
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(("mode", "warned"), [(0o400, False), (0o440, False), (0o444, True), (0o644, True)])
def test_a_secret_that_everybody_may_read_is_warned_of(secret: Path, mode: int, *, warned: bool) -> None:
    secret.chmod(mode)
    files: dict[str, Property | Path] = {
        "sasl.password": secret,
        "ssl.key.location": str(secret),
        "ssl.certificate.location": str(secret),
    }
    credentials = Credentials(files)
    assert credentials.properties["sasl.password"] == SECRET
    lines = list(credentials.list_exposed())
    expected = (
        f"{{}}: {secret} can be read by every user of this host (mode {mode:04o}); next step: chmod o-r, or in "
        "Kubernetes defaultMode: 0440 in the volume of the secret"
    )
    assert lines == ([expected.format("sasl.password"), expected.format("ssl.key.location")] if warned else [])


def test_a_rotated_secret_is_noticed_as_kubernetes_rotates_it(tmp_path: Path) -> None:
    """A moved link is a change, even to a file of the same size and time; reading anew gives the new text."""
    for name, text in (("..1", "old"), ("..2", "new")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "password").write_text(text)
        os.utime(tmp_path / name / "password", (0, 0))
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "password").symlink_to("..data/password")
    credentials = Credentials({"sasl.password": tmp_path / "password"})
    assert credentials.list_changed() == []
    (tmp_path / "..next").symlink_to("..2")
    (tmp_path / "..next").rename(tmp_path / "..data")
    assert credentials.list_changed() == ["sasl.password"]
    renewed = credentials.reload()
    assert (credentials.properties["sasl.password"], renewed.properties["sasl.password"]) == ("old", "new")
    assert renewed.list_changed() == []


def test_a_secret_that_comes_in_the_place_of_another_setting_is_not_logged(
    secret: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """At a rotation with keys mixed up, say."""
    secret.write_text("PLAIN")
    names = {"sasl.username": "u", "sasl.password": "s3cret", "security.protocol": "SASL_PLAINTEXT"}
    client = Client({"bootstrap.servers": NOWHERE, "sasl.mechanism": secret, **names}, request_timeout=1.0)
    connections = client.connections
    secret.write_text("hunter2-the-new-one")
    with pytest.raises(SourceError):
        client.topics()
    assert "the earlier secrets stay in use, a changed file is unusable: " in caplog.text
    assert "hunter2" not in caplog.text
    assert client.connections == connections, "the one that is there goes on"


def test_a_secret_file_is_printed_by_its_path_and_loads_back(secret: Path) -> None:
    kafka = {"bootstrap.servers": NOWHERE, "sasl.password": {"file": str(secret)}}
    path = secret.with_name("prod.yaml")
    path.write_text(yaml.safe_dump({"clusters": [{"name": "prod", "kafka": kafka}]}))
    settings = load_settings(path)
    shown = dump_yaml(settings)
    assert SECRET not in shown
    path.write_text(shown)
    assert load_settings(path) == settings

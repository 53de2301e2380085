"""Secrets of a running exporter: rotated without a restart, and shown nowhere (Kafka 4.3.1)."""

import shutil
import subprocess
import sys
from base64 import urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from exporter.domain.polls.readings import Reason
from exporter.kafka.msk_iam import AwsIam
from tests.integration.secured import SECRET, WRONG, Secured, Watched
from tests.integration.serving import Exporter
from tests.views import readings_of
from tests.waiting import until


class Serving(Exporter):
    """`topic-liveness serve` on the secured broker, its password in a file."""

    def __init__(self, folder: Path, secured: Secured) -> None:
        self.secret, self.config = folder / "password", folder / "prod.yaml"
        kafka: dict[str, object] = {name: str(value) for name, value in secured.by_password().items()}
        # librdkafka's own debugging must not show it either.
        kafka |= {"sasl.password": {"file": str(self.secret)}, "debug": "conf,security,broker"}
        self.config.write_text(
            yaml.safe_dump({"clusters": [{"name": "prod", "kafka": kafka}], "log": {"level": "debug"}})
        )
        self.write(f"{WRONG}\n")
        super().__init__(folder, TOPIC_LIVENESS_POLL__REQUEST_TIMEOUT="10s")

    def write(self, text: str) -> None:
        """Rotate the secret, whole or not at all."""
        new = self.secret.with_suffix(".new")
        new.write_text(text)
        new.chmod(0o400)
        new.rename(self.secret)

    def log_lines(self) -> list[str]:
        """What a user reads in the log of this: lines from warning on, and of the rotation."""
        lines = [line.split(" ", 1)[1] for line in self.log.read_text().splitlines() if " exporter." in line]
        return [line for line in lines if line.startswith(("WARNING", "ERROR")) or "read again, because" in line]


def test_a_rotated_password_is_taken_up_and_no_password_is_ever_shown(tmp_path: Path, secured: Secured) -> None:
    texts: list[str] = []
    with Serving(tmp_path, secured) as serving:
        refused = 'topic_liveness_polls_total{kafka_cluster="prod",outcome="authentication-failed"}'
        until(lambda: refused in serving.metrics(), "a refusal")
        texts += [serving.page(path).text for path in ("/", "/metrics", "/-/ready", "/-/healthy")]
        for pid in (serving.process.pid, *serving.clients()):
            texts += [Path(f"/proc/{pid}/{name}").read_text() for name in ("cmdline", "environ")]
        serving.write(SECRET)
        until(lambda: serving.value("topic_liveness_cluster_up") == 1, "the new password in use")
        until(lambda: serving.count("group_sweeps", outcome="ok") > 0, "and by sweeps over groups")
        serving.write("\n")
        until(lambda: "stay in use" in serving.log.read_text(), "the empty file noticed")
        before = serving.count("polls", outcome="ok")
        until(lambda: serving.count("polls", outcome="ok") > before, "another poll")
        texts += [serving.page(path).text for path in ("/", "/metrics")]
        assert serving.value("topic_liveness_cluster_up") == 1
        assert serving.end() == 0
    # Polls and sweeps over groups have a connection each: both take the file up, in the same words.
    failure, renewal, unusable = dict.fromkeys(serving.log_lines())
    servers = secured.address("PASSWORD")
    refused = f"poll failed: authentication-failed: could not sign in to {servers}: "
    assert failure.startswith(f"WARNING exporter.state: cluster prod: {refused}")
    assert renewal.endswith(f"{servers}: read again, because the file changed: sasl.password")
    assert f"sasl.password: the file {serving.secret} is empty; next step: " in unusable
    serving.write(WRONG)
    for command in ("check-config", "once"):
        ended = subprocess.run(
            [sys.executable, "-m", "exporter", command, "--config", str(serving.config)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        texts += [ended.stdout, ended.stderr]
    assert "could not sign in to " in texts[-1]
    texts.append(serving.log.read_text())
    assert not [text for text in texts if SECRET in text or WRONG in text]


def test_a_renewed_certificate_is_taken_up_once_its_key_has_come(
    secured: Secured, tmp_path: Path, logged_warnings: Callable[[], list[str]]
) -> None:
    made = secured.certificates.folder
    paths = {"crt": tmp_path / "tls.crt", "key": tmp_path / "tls.key"}

    def renew(kind: str, name: str) -> None:
        shutil.copy(made / f"{name}.{kind}", tmp_path / "new")
        (tmp_path / "new").rename(paths[kind])

    for kind in paths:
        renew(kind, "liveness-expired")
    properties = {**secured.by_certificate(), "ssl.certificate.location": str(paths["crt"])}
    watched = Watched({**properties, "ssl.key.location": str(paths["key"])})
    assert watched.fail().reason is Reason.TLS_FAILED
    renew("crt", "liveness")
    assert [watched.fail().reason for _ in range(2)] == [Reason.TLS_FAILED] * 2
    renew("key", "liveness")
    assert len(readings_of(watched.poll())) >= 1
    failed, unusable = logged_warnings()
    assert "poll failed: tls-failed: no secure connection to " in failed
    assert "the earlier secrets stay in use, a changed file is unusable: " in unusable
    assert "ssl.key.location failed: " in unusable


def test_a_token_of_aws_reaches_the_broker_and_its_refusal_is_logged(
    secured: Secured,
    logged_warnings: Callable[[], list[str]],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broker, which is no MSK, answers that the token is none of its own: one line, and the token in no text."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLEEXAMPLE00")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    properties = secured.by_token()
    for name in ("security.protocol", "sasl.mechanism"):
        del properties[name]
    watched = Watched(properties, iam=AwsIam("eu-central-1"))
    failures = [watched.fail() for _ in range(2)]
    assert [failure.reason for failure in failures] == [Reason.AUTHENTICATION_FAILED] * 2
    [line] = logged_warnings()
    assert 'SASL authentication error: {"status":"invalid_token"}' in line
    assert "or aws_msk_iam, the role and its policy" in line
    start = urlsafe_b64encode(b"https://kafka.eu-central-1.amazonaws.com/?Action").decode().rstrip("=")
    texts = [*caplog.messages, watched.shown(), *(failure.detail for failure in failures)]
    assert not [text for text in texts if start in text or SECRET in text]

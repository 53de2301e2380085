"""What stands in the log, and which secrets never do."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from exporter.logs import OnceAMinute, set_up_logging
from tests.answers import answering

log = logging.getLogger("exporter.test")


def test_text_from_elsewhere_cannot_forge_an_event_or_steer_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging("info", "text")
    forged = "2026-01-01T00:00:00Z ERROR it"
    log.warning("the broker said %s", f"no\r\x1b[2Jyes\x9b31m\x7f\u2028\u202e\udc80, über\n{forged}")
    log.error("failed", exc_info=ValueError(f"\x1b]0;title\a\n{forged}"))
    first, second, third, *traceback = capsys.readouterr().err.removesuffix("\n").split("\n")
    escaped = r"the broker said no\r\x1b[2Jyes\x9b31m\x7f\u2028\u202e\udc80, über"
    assert first.endswith(f" WARNING exporter.test: {escaped}")
    assert second == f"  {forged}"
    assert third.endswith(" ERROR exporter.test: failed")
    assert traceback == [r"  ValueError: \x1b]0;title\x07", f"  {forged}"]


def test_an_event_is_one_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging("info", "json")
    text = "no\r\x1b[2J\n\x85\x9b31m\x7f\u2028\u2029\u202e\udc80\U000e0001, über"
    log.warning("the broker said %s", text)
    [line] = capsys.readouterr().err.splitlines()
    assert line.isprintable() and "über" in line
    assert json.loads(line)["message"] == f"the broker said {text}"


def test_the_same_thing_is_logged_once_a_minute() -> None:
    """What one line of a program says again within a minute is counted in its next one; other lines are not held."""
    limited, at = OnceAMinute(), 1_700_000_000.0

    def say(line: int, text: str) -> str | None:
        record = log.makeRecord(log.name, logging.WARNING, "a.py", line, "said %s", (text,), None)
        record.created = at
        return record.getMessage() if limited.filter(record) else None

    assert [say(1, "a"), say(1, "b"), say(2, "c")] == ["said a", None, "said c"]
    at += 59.9
    assert say(1, "d") is None
    at += 0.2
    assert [say(1, "e"), say(2, "f")] == ["said e (2 more since the last one)", "said f"]
    at -= 7200
    assert say(1, "g") == "said g", "a clock set back holds nothing back for hours"


LOUD = """\
import logging
for name in ("apscheduler", "asyncio", "aws_msk_iam_sasl_signer", "boto3", "botocore", "concurrent", "kafka",
             "prometheus_client", "s3transfer", "starlette", "urllib3", "uvicorn"):
    logging.getLogger(name).setLevel(logging.DEBUG)
"""
"""A ``sitecustomize``: third-party loggers with a level of their own, as a library may set it at any time."""

KEY, SECRET, SESSION = "AKIAEXAMPLEEXAMPLE00", "canary-of-the-key", "canary-of-the-session"
ROLE_SECRET, ROLE_SESSION = "canary-of-the-role", "canary-of-its-session"

ASSUMED = f"""\
<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>
<AccessKeyId>ASIAEXAMPLEEXAMPLE00</AccessKeyId><SecretAccessKey>{ROLE_SECRET}</SecretAccessKey>
<SessionToken>{ROLE_SESSION}</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration>
</Credentials></AssumeRoleResult></AssumeRoleResponse>""".encode()
"""What AWS's Security Token Service answers that lets everybody take on every role."""


@pytest.mark.parametrize(("role", "form"), [(None, "text"), ("arn:aws:iam::123456789012:role/liveness", "json")])
def test_no_secret_of_aws_is_logged_at_debug(tmp_path: Path, role: str | None, form: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(LOUD)
    iam = {"region": "eu-central-1", **({} if role is None else {"role_arn": role})}
    config = tmp_path / "prod.yaml"
    settings = {
        "clusters": [{"name": "prod", "kafka": {"bootstrap.servers": "127.0.0.1:9"}, "aws_msk_iam": iam}],
        "poll": {"request_timeout": "1s"},
        "history": {"folder": str(tmp_path / "history")},
        "log": {"level": "debug", "format": form},
    }
    config.write_text(yaml.safe_dump(settings))
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
        "PYTHONPATH": f"{tmp_path}{os.pathsep}{Path(__file__).parents[2]}",
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_SESSION_TOKEN": SESSION,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
    }
    command = [sys.executable, "-m", "exporter", "once", "--config", str(config)]
    with answering(200, ASSUMED) as (sts, _):
        environment["AWS_ENDPOINT_URL_STS"] = sts
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1, ended.stderr
    assert "DEBUG" in ended.stderr.upper()
    assert "cluster-unreachable" in ended.stderr, "the token was made, and only the broker is not there"
    canaries = [SECRET, SESSION, ROLE_SECRET, ROLE_SESSION, "X-Amz-Signature", "Signature=", "AWS4-HMAC-SHA256"]
    output = ended.stdout + ended.stderr
    assert [canary for canary in canaries if canary in output] == []

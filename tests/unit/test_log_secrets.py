"""Secrets of AWS and the log of a process that tells all it can."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml

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
</Credentials></AssumeRoleResult></AssumeRoleResponse>"""


class Sts(BaseHTTPRequestHandler):
    """AWS's Security Token Service, which lets everybody take on every role."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(ASSUMED.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the standard library
        """Say nothing."""


@pytest.fixture
def sts() -> Iterator[str]:
    """The address of a token service."""
    with HTTPServer(("127.0.0.1", 0), Sts) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("role", "form"), [(None, "text"), ("arn:aws:iam::123456789012:role/liveness", "json")])
def test_no_secret_of_aws_is_logged_at_debug(sts: str, tmp_path: Path, role: str | None, form: str) -> None:
    """The log holds no key, session token, signature or signed request, also where AWS's libraries log at debug."""
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
        "AWS_ENDPOINT_URL_STS": sts,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
    }
    command = [sys.executable, "-m", "exporter", "once", "--config", str(config)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1, ended.stderr
    assert "DEBUG" in ended.stderr.upper()
    assert "cluster-unreachable" in ended.stderr, "the token was made, and only the broker is not there"
    canaries = [SECRET, SESSION, ROLE_SECRET, ROLE_SESSION, "X-Amz-Signature", "Signature=", "AWS4-HMAC-SHA256"]
    output = ended.stdout + ended.stderr
    assert [canary for canary in canaries if canary in output] == []

"""Amazon MSK with IAM, as far as it goes without AWS: the token, and what is said where there is none."""

import sys
import time
from base64 import urlsafe_b64decode
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from exporter.kafka.client import Client
from exporter.kafka.msk_iam import AwsIam, TokenMaker

KEY, SECRET = "AKIAEXAMPLEEXAMPLE00", "aws-secret-of-nobody"


@pytest.fixture(autouse=True)
def _nothing_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep away what credentials and region the machine of the tests may have."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ROLE_ARN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


@pytest.mark.usefixtures("credentials")
def test_a_token_is_a_signed_request_to_connect_to_the_region() -> None:
    secrets: set[str] = set()
    make = TokenMaker(AwsIam("eu-central-1"), secrets)
    token, expires = make()
    signed = urlsplit(urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    query = {name: values[0] for name, values in parse_qs(signed.query).items()}
    assert signed.netloc == "kafka.eu-central-1.amazonaws.com"
    assert query["Action"] == "kafka-cluster:Connect"
    assert query["X-Amz-Credential"].startswith(f"{KEY}/")
    assert query["X-Amz-Credential"].endswith("/eu-central-1/kafka-cluster/aws4_request")
    assert query["X-Amz-Expires"] == "900"
    assert 0 < expires - time.time() <= 900
    assert make() == (token, expires), "it is kept while it lasts"
    assert {SECRET, token} <= secrets, "neither is ever shown"


def test_without_credentials_the_next_step_is_named() -> None:
    with pytest.raises(ValueError, match="no AWS credentials found; next step: give the pod or instance a role, or"):
        TokenMaker(AwsIam("eu-central-1"), set())()


@pytest.mark.usefixtures("credentials")
def test_a_role_that_cannot_be_taken_on_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    role = "arn:aws:iam::123456789012:role/liveness"
    with pytest.raises(ValueError, match=f"AWS gave no credentials for {role}: EndpointConnectionError: ") as refused:
        TokenMaker(AwsIam("eu-central-1", role), set())()
    assert SECRET not in str(refused.value)


def test_what_is_wrong_is_refused_before_anything_is_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    iam, servers = AwsIam("eu-central-1"), {"bootstrap.servers": "127.0.0.1:9"}
    with pytest.raises(ValueError, match=r"No such configuration property: \"ssl\.ca\.loction\""):
        Client({**servers, "ssl.ca.loction": "x"}, request_timeout=1.0, aws_iam=iam)
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    with pytest.raises(ValueError, match=r"not installed; next step: pip install '.\[msk\]' in a checkout"):
        Client(servers, request_timeout=1.0, aws_iam=iam)

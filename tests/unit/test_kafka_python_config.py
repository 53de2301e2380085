"""librdkafka's properties in kafka-python's words: in full, or not at all."""

import ssl
from pathlib import Path

import pytest

from exporter.kafka.kafka_python import translate

SERVERS = {"bootstrap.servers": "SASL_SSL://one:9093, two:9093"}


def context(**properties: str) -> ssl.SSLContext:
    given = {name.replace("_", "."): value for name, value in properties.items()}
    made = translate({**SERVERS, "security.protocol": "ssl", **given})["ssl_context"]
    assert isinstance(made, ssl.SSLContext)
    return made


@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
def test_a_password_under_either_spelling(name: str) -> None:
    login = {"security.protocol": "sasl_plaintext", name: "SCRAM-SHA-512", "sasl.username": "u", "sasl.password": "p"}
    arguments = translate({**SERVERS, **login})
    assert arguments["security_protocol"] == "SASL_PLAINTEXT"
    assert arguments["sasl_mechanism"] == "SCRAM-SHA-512"
    assert (arguments["sasl_plain_username"], arguments["sasl_plain_password"]) == ("u", "p")


@pytest.mark.parametrize("mechanism", ["GSSAPI", "OAUTHBEARER", None])
def test_a_mechanism_without_a_counterpart_is_refused(mechanism: str | None) -> None:
    login = {"security.protocol": "SASL_SSL"} | ({"sasl.mechanism": mechanism} if mechanism else {})
    with pytest.raises(ValueError, match=rf"sasl\.mechanism {mechanism or 'GSSAPI'} .* one of PLAIN, SCRAM"):
        translate({**SERVERS, **login})


@pytest.mark.parametrize("name", ["ssl.keystore.location", "ssl.key.pem", "ssl.cipher.suites", "ssl.crl.location"])
def test_protection_without_a_counterpart_is_refused(name: str) -> None:
    """The second client never connects with less than was asked for; the value is not shown."""
    with pytest.raises(ValueError, match=name.replace(".", r"\.")) as refused:
        translate({**SERVERS, "security.protocol": "SSL", name: "not-to-be-told"})
    assert "not-to-be-told" not in str(refused.value)


def test_tls_checks_as_much_as_librdkafka_does() -> None:
    default = context()
    assert (default.check_hostname, default.verify_mode) == (True, ssl.CERT_REQUIRED)
    nameless = context(ssl_endpoint_identification_algorithm="none")
    assert (nameless.check_hostname, nameless.verify_mode) == (False, ssl.CERT_REQUIRED)
    unchecked = context(enable_ssl_certificate_verification="false")
    assert (unchecked.check_hostname, unchecked.verify_mode) == (False, ssl.CERT_NONE)


@pytest.mark.parametrize("name", ["ssl.ca.location", "ssl.certificate.location"])
def test_a_file_that_cannot_be_loaded_is_an_error(name: str, tmp_path: Path) -> None:
    rubbish = tmp_path / "rubbish.pem"
    rubbish.write_text("rubbish")
    for path in (tmp_path / "missing.pem", rubbish):
        given = {**SERVERS, "security.protocol": "SSL", name: str(path), "ssl.key.password": "not-to-be-told"}
        with pytest.raises(ValueError, match="cannot be loaded for kafka-python: ") as refused:
            translate(given)
        assert "not-to-be-told" not in str(refused.value)

"""One security configuration for two clients: librdkafka's properties, said in kafka-python's words.

What protects a connection is carried over in full or the connection is not made: a second client that
checks less than the first would be a hole in the first one's configuration.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exporter.kafka.credentials import Property

_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_FALSE = ("false", "f", "0")


class TranslationError(Exception):
    """The security configuration cannot be carried over. Names the properties, never their values."""


@dataclass(frozen=True, slots=True)
class Translation:
    """``arguments`` are kafka-python's; ``left_out`` names what only tunes librdkafka."""

    arguments: Mapping[str, Any]
    left_out: tuple[str, ...] = ()


def translate(properties: Mapping[str, Property]) -> Translation:
    """Return the properties of one cluster as arguments of kafka-python 3.

    Raises TranslationError where a property that protects the connection has no counterpart there, or a
    certificate or key cannot be loaded.
    """
    given = {name: str(value) for name, value in properties.items() if str(value)}
    taken = {"bootstrap.servers", "client.id", "security.protocol", "allow.auto.create.topics", "api.version.request"}
    protocol = given.get("security.protocol", "plaintext").upper()
    arguments: dict[str, Any] = {
        "bootstrap_servers": [_address(part) for part in given.get("bootstrap.servers", "").split(",")],
        "client_id": given.get("client.id", "topic-liveness"),
        "security_protocol": protocol,
    }
    if protocol in ("SASL_PLAINTEXT", "SASL_SSL"):
        arguments |= _sasl(given, taken)
    if protocol in ("SSL", "SASL_SSL"):
        arguments["ssl_context"] = _context(given, taken)
        if lost := sorted(name for name in given if name.startswith("ssl.") and name not in taken):
            raise TranslationError(
                f"{', '.join(lost)} cannot be carried over from librdkafka to kafka-python; next step: give "
                "certificates and keys as PEM files (ssl.ca.location, ssl.certificate.location, ssl.key.location)"
            )
    return Translation(arguments, tuple(sorted(set(given) - taken)))


def _address(part: str) -> str:
    return part.strip().rpartition("://")[2]


def _sasl(given: Mapping[str, str], taken: set[str]) -> dict[str, Any]:
    mechanism = given.get("sasl.mechanism") or given.get("sasl.mechanisms") or "GSSAPI"
    if mechanism not in _MECHANISMS:
        raise TranslationError(
            f"sasl.mechanism {mechanism} cannot be carried over from librdkafka to kafka-python; next step: use one "
            f"of {', '.join(_MECHANISMS)}"
        )
    taken |= {"sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password"}
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": given.get("sasl.username"),
        "sasl_plain_password": given.get("sasl.password"),
    }


def _context(given: Mapping[str, str], taken: set[str]) -> ssl.SSLContext:
    """Return TLS as librdkafka would do it. Raises TranslationError where a file cannot be loaded."""
    taken |= {
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.crl.location",
        "ssl.cipher.suites",
        "ssl.endpoint.identification.algorithm",
        "enable.ssl.certificate.verification",
    }
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = given.get("ssl.endpoint.identification.algorithm", "https").lower() != "none"
    if given.get("enable.ssl.certificate.verification", "true").lower() in _FALSE:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    loading = "ssl.cipher.suites"
    try:
        if "ssl.cipher.suites" in given:
            context.set_ciphers(given["ssl.cipher.suites"])
        loading = "ssl.ca.location"
        authorities = given.get("ssl.ca.location", "probe")
        if authorities != "probe":
            folder = Path(authorities).is_dir()
            context.load_verify_locations(
                cafile=None if folder else authorities, capath=authorities if folder else None
            )
        elif "ssl.ca.pem" not in given:
            context.load_default_certs()
        if "ssl.ca.pem" in given:
            loading = "ssl.ca.pem"
            context.load_verify_locations(cadata=given["ssl.ca.pem"])
        if "ssl.crl.location" in given:
            loading = "ssl.crl.location"
            context.load_verify_locations(cafile=given["ssl.crl.location"])
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        if "ssl.certificate.location" in given:
            loading = "ssl.certificate.location"
            # Without a password OpenSSL would ask for one on the terminal.
            password = given.get("ssl.key.password", "")
            context.load_cert_chain(given["ssl.certificate.location"], given.get("ssl.key.location"), lambda: password)
    except (OSError, ValueError) as error:
        what = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
        raise TranslationError(
            f"{loading} could not be loaded for kafka-python: {what}; next step: check the file, its format (PEM), "
            "its rights and the key's password"
        ) from None
    return context

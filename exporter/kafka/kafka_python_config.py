"""Translates one security configuration for two clients: librdkafka's properties as arguments of kafka-python.

Protection of the connection is translated completely or the connection is not made: a second client with fewer checks
would be a hole in the configuration of the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from exporter.kafka.credentials import Property
from exporter.kafka.tls import CARRIED, ContextError, ssl_context

_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class TranslationError(Exception):
    """The security configuration cannot be translated. Names the properties, never their values."""


@dataclass(frozen=True, slots=True)
class Translation:
    """``arguments`` are for kafka-python; ``left_out`` names properties that only tune librdkafka."""

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
        taken |= CARRIED
        if lost := sorted(name for name in given if name.startswith("ssl.") and name not in taken):
            raise TranslationError(
                f"{', '.join(lost)} cannot be carried over from librdkafka to kafka-python; next step: give "
                "certificates and keys as PEM files (ssl.ca.location, ssl.certificate.location, ssl.key.location)"
            )
        try:
            arguments["ssl_context"] = ssl_context(given)
        except ContextError as error:
            raise TranslationError(
                f"{error}, so kafka-python is not used; next step: check the file, its format (PEM), its rights and "
                "the key's password"
            ) from None
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

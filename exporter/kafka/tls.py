"""Diagnoses failed TLS handshakes.

librdkafka (2.16.1) reports "certificate verify failed" for every fault of a broker's certificate. A Java broker
distinguishes an expired client certificate from an unknown one only in its own log.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Mapping
from typing import NamedTuple

from exporter.kafka.sslcontext import ssl_context

_TLS = re.compile(r"SSL routines|SSL handshake|SSL connection|certificate")
_ADDRESS = re.compile(r"\w+://\[?(?P<host>[^/]+?)\]?:(?P<port>\d+)/")

_EXPIRED = (10,)
_NOT_YET = (9,)
_UNKNOWN_ISSUER = (2, 18, 19, 20, 21)
_WRONG_NAME = (62, 64)
"""OpenSSL's numbers for faults of certificates (X509_V_ERR_*)."""


class Fault(NamedTuple):
    """What went wrong, and the next step."""

    what: str
    step: str


def is_tls(text: str) -> bool:
    """Return whether an error text of librdkafka is about TLS."""
    return _TLS.search(text) is not None


def fault(text: str, properties: Mapping[str, object], patience: float) -> Fault:
    """Return the cause of an error text of librdkafka; may connect to the broker once, for ``patience`` seconds."""
    if "certificate verify failed" in text:
        return _fault_of_broker(text, properties, patience)
    if re.search(r"alert (bad certificate|certificate|unknown ca|handshake failure)|alert number 116", text):
        return _fault_of_client(properties)
    plain = "PLAINTEXT broker listener" in text or "wrong version number" in text
    if plain or ("closed by peer" in text and _hangs_up_on_tls(text, patience)):
        return Fault("the listener does not speak TLS", "check the port in bootstrap.servers, and security.protocol")
    step = "check security.protocol and the ssl.* properties against the broker's listener"
    return Fault(re.sub(r"^\w+://\S+: ", "", text), step)


def _hangs_up_on_tls(text: str, patience: float) -> bool:
    """Return whether the listener does not speak TLS; librdkafka reports that only in some cases."""
    if (found := _ADDRESS.search(text)) is None:
        return False
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((found["host"], int(found["port"])), timeout=patience) as connection:
            context.wrap_socket(connection, server_hostname=found["host"]).close()
    except (ssl.SSLEOFError, ConnectionResetError):
        return True
    except OSError:
        pass
    return False


def _fault_of_broker(text: str, properties: Mapping[str, object], patience: float) -> Fault:
    found = _ADDRESS.search(text)
    code, message = (0, "") if found is None else _verify(found["host"], int(found["port"]), properties, patience)
    broker = "the broker's certificate" if found is None else f"the certificate of {found['host']}:{found['port']}"
    if code in _EXPIRED:
        return Fault(f"{broker} has expired", "renew it on the broker")
    if code in _NOT_YET:
        return Fault(f"{broker} is not valid yet", "check the clocks of this host and of the broker")
    if code in _WRONG_NAME:
        return Fault(
            f"{broker} was issued for another host name",
            "use one of its names in bootstrap.servers and advertised.listeners, or have it issued for this one",
        )
    if code in _UNKNOWN_ISSUER:
        return Fault(f"{broker} was issued by a CA that is not trusted here", "put its CA into ssl.ca.location")
    return Fault(
        f"{broker} could not be verified{f': {message}' if message else ''}",
        "check ssl.ca.location and that certificate",
    )


def _verify(host: str, port: int, properties: Mapping[str, object], patience: float) -> tuple[int, str]:
    """Do a handshake as librdkafka does; return OpenSSL's number and text of the fault, 0 where there is none."""
    try:
        context = ssl_context({name: str(value) for name, value in properties.items() if str(value)})
        with socket.create_connection((host, port), timeout=patience) as connection:
            context.wrap_socket(connection, server_hostname=host).close()
    except ssl.SSLCertVerificationError as error:
        return error.verify_code, error.verify_message
    except (OSError, ValueError):
        pass
    return 0, ""


def _fault_of_client(properties: Mapping[str, object]) -> Fault:
    given = properties.get("ssl.certificate.location")
    if given is None and not {"ssl.certificate.pem", "ssl.keystore.location"} & properties.keys():
        return Fault(
            "the broker asks for a client certificate, and none is configured",
            "set ssl.certificate.location and ssl.key.location",
        )
    named = f"the client certificate{'' if given is None else f' {given}'}"
    if given is not None and "ssl.key.location" in properties:
        code = _verify_own_certificate(
            str(given), str(properties["ssl.key.location"]), properties.get("ssl.key.password")
        )
        if code in _EXPIRED:
            return Fault(f"{named} has expired", "renew it; a changed file is read automatically")
        if code in _NOT_YET:
            return Fault(f"{named} is not valid yet", "check the clock of this host")
    return Fault(
        f"the broker refused {named}",
        "check that its issuer is in the broker's ssl.truststore, and that it has not expired",
    )


def _verify_own_certificate(certificate: str, key: str, password: object) -> int:
    """Return what OpenSSL finds wrong with our own certificate, 0 where there is nothing.

    The standard library verifies a certificate only in a handshake, so this does one with itself.
    """
    try:
        server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        for context in (server, client):
            context.load_cert_chain(certificate, key, password="" if password is None else str(password))
        client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
        server.verify_mode = ssl.CERT_REQUIRED
        server.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        server.load_verify_locations(certificate)
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        ends = (
            client.wrap_bio(to_client, to_server, server_side=False),
            server.wrap_bio(to_server, to_client, server_side=True),
        )
        for _ in range(4):
            for end in ends:
                try:
                    end.do_handshake()
                except ssl.SSLWantReadError:
                    continue
    except ssl.SSLCertVerificationError as error:
        return error.verify_code
    except (OSError, ValueError):
        pass
    return 0

"""TLS by librdkafka's properties: contexts for kafka-python, and what a failed handshake means.

librdkafka (2.16.1) reports "certificate verify failed" for every fault of a broker's certificate. A Java broker
distinguishes an expired client certificate from an unknown one only in its own log.
"""

from __future__ import annotations

import re
import socket
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

_TLS = re.compile(r"SSL routines|SSL handshake|SSL connection|certificate")
_ADDRESS = re.compile(r"\w+://\[?(?P<host>[^/]+?)\]?:(?P<port>\d+)/")

_EXPIRED = (10,)
_NOT_YET = (9,)
_UNKNOWN_ISSUER = (2, 18, 19, 20, 21)
_WRONG_NAME = (62, 64)
"""OpenSSL's numbers for faults of certificates (X509_V_ERR_*)."""


CARRIED = frozenset(
    {
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
)
"""The properties of librdkafka that a context uses."""

_FALSE = ("false", "f", "0")


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
    if given is not None and (valid := _validity(str(given))) is not None:
        if time.time() > valid[1]:
            return Fault(f"{named} has expired", "renew it; a changed file is read automatically")
        if time.time() < valid[0]:
            return Fault(f"{named} is not valid yet", "check the clock of this host")
    return Fault(
        f"the broker refused {named}",
        "check that its issuer is in the broker's ssl.truststore, and that it has not expired",
    )


def _validity(certificate: str) -> tuple[float, float] | None:
    """Return from and until when the first certificate in a file is valid, Unix seconds; None where it has none."""
    try:
        # Without a handshake the standard library decodes a certificate by this function of its tests alone.
        found = ssl._ssl._test_decode_cert(certificate)  # type: ignore[attr-defined] # noqa: SLF001
        begin, end = (ssl.cert_time_to_seconds(found[name]) for name in ("notBefore", "notAfter"))
    except (OSError, ValueError, KeyError, AttributeError):
        return None
    return begin, end


def ssl_context(given: Mapping[str, str]) -> ssl.SSLContext:
    """Return the context for librdkafka's properties.

    Raises ValueError where a file or value cannot be loaded; it names the property, never the value.
    """
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
            # Comments beside the blocks may be in any language, and ssl takes ASCII alone.
            context.load_verify_locations(cadata=given["ssl.ca.pem"].encode("ascii", "replace").decode())
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
        raise ValueError(f"{loading} could not be loaded: {what}") from None
    return context

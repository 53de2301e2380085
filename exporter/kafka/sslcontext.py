"""TLS contexts from librdkafka's properties, for kafka-python and for diagnosis."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path

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


class ContextError(ValueError):
    """A file or value cannot be loaded. Names the property and what is wrong, never the value."""


def ssl_context(given: Mapping[str, str]) -> ssl.SSLContext:
    """Return the context for librdkafka's properties. Raises ContextError."""
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
        raise ContextError(f"{loading} could not be loaded: {what}") from None
    return context

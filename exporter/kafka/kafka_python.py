"""kafka-python, the second Kafka client, for requests that librdkafka does not support. An optional extra.

Only this module imports it, and only when it is used.
"""

from __future__ import annotations

import contextlib
import logging
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exporter.domain.polls.readings import Reason
from exporter.domain.ports import SourceError
from exporter.kafka.credentials import Credentials, Property
from exporter.kafka.errors import reason_of_code
from exporter.kafka.msk_iam import AwsIam

if TYPE_CHECKING:
    from kafka.admin import KafkaAdminClient

log = logging.getLogger(__name__)

_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_TLS = {
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
}
"""The properties of librdkafka that a context of TLS is made of."""


class KafkaPythonClient:
    """A client of one cluster, for one round of requests."""

    wants = "what this asks"
    """What it reads, in the words of error texts."""

    def __init__(
        self, properties: Mapping[str, Property | Path], *, aws_iam: AwsIam | None = None, request_timeout: float
    ) -> None:
        """Connect. Raises SourceError without kafka-python, without a translation, or without an answer.

        ``request_timeout`` is in seconds, for each address and each request.
        """
        try:
            # An optional extra, and a third of a second to import: only where it is needed.
            import kafka.admin  # noqa: PLC0415
            import kafka.errors  # noqa: PLC0415
            import kafka.protocol.admin  # noqa: PLC0415
            import kafka.protocol.consumer  # noqa: PLC0415
        except ImportError:
            raise SourceError(
                Reason.OTHER,
                f"kafka-python is not installed, and librdkafka cannot read {self.wants}; "
                "next step: pip install '.[kafka-python]' in a checkout",
            ) from None
        try:
            arguments = translate(Credentials(properties, aws_iam).properties)
        except ValueError as error:
            raise SourceError(Reason.OTHER, str(error)) from None
        # At level DEBUG it logs its whole configuration, passwords included; we log failures.
        logging.getLogger("kafka").setLevel(logging.CRITICAL)
        self._kafka = kafka
        self._manager: Any = None
        self._timeout_ms = round(request_timeout * 1000)
        servers = arguments["bootstrap_servers"]
        # kafka-python would pick one by chance, and stay with it until the timeout.
        clients = (self._connected({**arguments, "bootstrap_servers": [server]}) for server in servers)
        admin = next((client for client in clients if client is not None), None)
        if admin is None:
            raise SourceError(
                Reason.OTHER,
                f"kafka-python got no answer from {', '.join(servers)} within {request_timeout:g} s each; next step: "
                "if ordinary polls are answered, compare the security properties with docs/mirrors-and-tiers.md",
            )
        self._admin = admin

    def _connected(self, arguments: Mapping[str, Any]) -> KafkaAdminClient | None:
        """Return a client with a connection to a broker that answers, None where there is none."""
        kafka = self._kafka
        made: list[Any] = []

        def make(**configs: object) -> Any:
            # Its admin client has no setting for it, and waits 10 s for a broker that takes a connection in silence.
            configs["socket_connection_setup_timeout_ms"] = self._timeout_ms
            net = kafka.net.selector.NetworkSelector(**configs)
            self._manager = kafka.net.manager.KafkaConnectionManager(net, **configs)
            made.append(kafka.net.compat.KafkaNetClient(net, self._manager))
            return made[-1]

        try:
            admin = kafka.admin.KafkaAdminClient(
                **arguments,
                kafka_client=make,
                request_timeout_ms=self._timeout_ms,
                bootstrap_timeout_ms=self._timeout_ms,
                # Once is enough: by default it retries a refused password 20 times a second.
                reconnect_backoff_ms=self._timeout_ms,
            )
        except (kafka.errors.KafkaError, ValueError, OSError) as error:
            log.debug("kafka-python, %s: %s", arguments["bootstrap_servers"][0], type(error).__name__)
            for client in made:
                client.close()  # it failed with its thread running
            return None
        for _ in range(3):
            # A request to any broker goes to a connected one, else to a random one.
            with contextlib.suppress(kafka.errors.KafkaError):
                admin.describe_topics([])
                break
        return admin

    def close(self) -> None:
        """End the connections and the thread that served them."""
        self._admin.close()

    def _send(self, request: object, broker: int) -> Any:
        """Return one broker's answer to one request of ``kafka.protocol``. Raises KafkaError."""
        return self._manager.run(self._manager.send, request, broker)

    def _reason(self, error: Exception) -> Reason:
        errors = self._kafka.errors
        if isinstance(error, errors.KafkaTimeoutError):
            return Reason.TIMED_OUT
        if isinstance(error, (errors.KafkaConnectionError, errors.NodeNotReadyError, errors.UnknownBrokerIdError)):
            return Reason.LEADER_UNREACHABLE
        if isinstance(error, errors.IncompatibleBrokerVersion):
            return Reason.UNSUPPORTED_VERSION
        return reason_of_code(getattr(error, "errno", None))


def translate(properties: Mapping[str, Property]) -> dict[str, Any]:
    """Return the properties of one cluster as arguments of kafka-python 3, without those that only tune librdkafka.

    Protection of the connection is translated completely or the connection is not made: a second client with fewer
    checks would be a hole in the configuration of the first. Raises ValueError, which names properties and never their
    values, where one that protects the connection has no counterpart there, or a certificate or key cannot be loaded.
    """
    given = {name: str(value) for name, value in properties.items() if str(value)}
    protocol = given.get("security.protocol", "plaintext").upper()
    arguments: dict[str, Any] = {
        "bootstrap_servers": [_address(part) for part in given.get("bootstrap.servers", "").split(",")],
        "client_id": given.get("client.id", "topic-liveness"),
        "security_protocol": protocol,
    }
    if protocol in ("SASL_PLAINTEXT", "SASL_SSL"):
        arguments |= _sasl(given)
    if protocol in ("SSL", "SASL_SSL"):
        if lost := sorted(name for name in given if name.startswith("ssl.") and name not in _TLS):
            raise ValueError(
                f"{', '.join(lost)} cannot be carried over from librdkafka to kafka-python; next step: give "
                "certificates and keys as PEM files (ssl.ca.location, ssl.certificate.location, ssl.key.location)"
            )
        try:
            arguments["ssl_context"] = _ssl_context(given)
        except (OSError, ValueError) as error:
            what = getattr(error, "strerror", None) or type(error).__name__
            raise ValueError(
                f"the files of ssl.* cannot be loaded for kafka-python: {what}; next step: check the files, their "
                "format (PEM), their rights and the key's password"
            ) from None
    return arguments


def _address(part: str) -> str:
    return part.strip().rpartition("://")[2]


def _sasl(given: Mapping[str, str]) -> dict[str, Any]:
    mechanism = given.get("sasl.mechanism") or given.get("sasl.mechanisms") or "GSSAPI"
    if mechanism not in _MECHANISMS:
        raise ValueError(
            f"sasl.mechanism {mechanism} cannot be carried over from librdkafka to kafka-python; next step: use one "
            f"of {', '.join(_MECHANISMS)}"
        )
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": given.get("sasl.username"),
        "sasl_plain_password": given.get("sasl.password"),
    }


def _ssl_context(given: Mapping[str, str]) -> ssl.SSLContext:
    """Return the context for librdkafka's properties. Raises OSError and ValueError, whose text may hold a value."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = given.get("ssl.endpoint.identification.algorithm", "https").lower() != "none"
    if given.get("enable.ssl.certificate.verification", "true").lower() in ("false", "f", "0"):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    authorities, pem = given.get("ssl.ca.location", "probe"), given.get("ssl.ca.pem")
    if authorities != "probe":
        folder = Path(authorities).is_dir()
        context.load_verify_locations(None if folder else authorities, authorities if folder else None)
    elif pem is None:
        context.load_default_certs()
    if pem is not None:
        # Comments beside the blocks may be in any language, and ssl takes ASCII alone.
        context.load_verify_locations(cadata=pem.encode("ascii", "replace").decode())
    if "ssl.certificate.location" in given:
        # Without a password OpenSSL would ask for one on the terminal.
        password = given.get("ssl.key.password", "")
        context.load_cert_chain(given["ssl.certificate.location"], given.get("ssl.key.location"), lambda: password)
    return context

"""The connection to one cluster: librdkafka's admin client, its log and its errors.

librdkafka does not return the reason of a failed connection: every call just times out or reports "broker transport
failure", while the cause goes to a callback. This module combines both.
"""

# ruff: noqa: SLF001 - librdkafka's own error codes begin with an underscore
import logging
import math
import re
import time
from collections.abc import Collection, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._metadata import ClusterMetadata

from exporter.background_call import call_in_thread
from exporter.domain.polls.readings import Reason
from exporter.domain.ports import SourceError
from exporter.kafka.credentials import Credentials, Property
from exporter.kafka.msk_iam import AwsIam

log = logging.getLogger(__name__)

DEFAULTS: Mapping[str, Property] = {
    "client.id": "topic-liveness",
    # librdkafka 2.16.1 retries a refused connection 40 times a second by default.
    "reconnect.backoff.ms": 500,
    "reconnect.backoff.max.ms": 5000,
    "log.connection.close": False,
}
"""Properties that a configuration may override."""

_AUTHENTICATION = (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED)
_PATIENCE = 1.0
"""Seconds for the other brokers after one has refused the credentials, or failed in TLS."""
_LEAST = 1.0
"""Seconds for a call when the budget is used up: enough for a healthy broker."""
_DRAWS = 4
_LEADERS_SECONDS = 120.0
"""Polls read metadata more often than that, so that they never need this."""

_IDLE_SECONDS = 45.0
"""Firewalls forget connections that were idle for a minute or more."""

_LOG_AGAIN_SECONDS = 600.0
"""A message of librdkafka is logged once in this time."""

_INCIDENTAL = re.compile(
    r"\s*\(after \d+ms in state [A-Z_]+(?:, \d+ identical error\(s\) suppressed)?\)|\[[^]]*#[a-z]+-\d+\] (?=\[thrd:)"
    r"| after \d+ ms(?=: )"
)
_BROKER_PREFIX = re.compile(r"^\w+://\S+?: ")
_TLS = re.compile(r"SSL routines|SSL handshake|SSL connection|certificate")

_SIGN_IN_STEP = (
    "check security.protocol and sasl.* of this cluster, or its client certificate, or aws_msk_iam, the role and its "
    "policy"
)
_REACH_STEP = (
    "check bootstrap.servers, the network, that the brokers run, that security.protocol fits the listener, and that no "
    "quota throttles this client"
)
_WORDS: Mapping[Reason, tuple[str, str]] = {
    Reason.AUTHENTICATION_FAILED: ("could not sign in to", _SIGN_IN_STEP),
    Reason.TLS_FAILED: (
        "no secure connection to",
        "check security.protocol and ssl.*, and dates, CA and host name of the certificates of both sides",
    ),
    Reason.CLUSTER_UNREACHABLE: ("no answer in time from", _REACH_STEP),
}
"""What went wrong with the brokers of a cluster, and the next step."""


class Client:
    """One connection to a cluster. Not for several threads at once."""

    def __init__(
        self,
        properties: Mapping[str, Property | Path],
        *,
        request_timeout: float,
        budget: float | None = None,
        aws_iam: AwsIam | None = None,
    ) -> None:
        """Connect; without an answer that shows with the first call.

        A ``Path`` in place of a value is a file with the text; files are read again when they change. ``budget`` is how
        many seconds all calls together may take after one ``begin``; None: no limit. Raises ValueError when librdkafka
        refuses a property, or a file cannot be used.
        """
        self.bootstrap = str(properties.get("bootstrap.servers", ""))
        self._request_timeout = request_timeout
        self._budget = math.inf if budget is None else budget
        self._ends = math.inf
        self._trouble: KafkaError | None = None
        self._logged_at: dict[str, float] = {}
        self._failed: tuple[Reason, str, str] | None = None
        self._answered = False
        self._read_at = self._used_at = -math.inf
        self.connections = 0
        """How many admin clients were made: one more after credentials changed or connections were dropped."""
        try:
            self._credentials = Credentials(properties, aws_iam)
        except ValueError as error:
            raise ValueError(f"properties of the cluster at {self.bootstrap}: {error}") from None
        try:
            self._admin = self._prepared()
        except (KafkaException, ValueError, TypeError) as error:
            message = self._redact(_text(error))
            step = "compare the properties under `kafka` with librdkafka's CONFIGURATION.md"
            if "mechanism GSSAPI" in message:
                step = "use SCRAM or OAUTHBEARER, or install confluent-kafka from source with Kerberos"
            raise ValueError(
                f"librdkafka refuses a property of the cluster at {self.bootstrap}: {message}; next step: {step}"
            ) from None

    def list_exposed_secrets(self) -> list[str]:
        """Return one line for each secret that every user of this host may read, or that is too short to be hidden."""
        return list(self._credentials.list_exposed())

    @property
    def admin(self) -> AdminClient:
        """The admin client; a new one after credentials were refused."""
        if self._admin is None:
            self._admin = self._connect()
        return self._admin

    def begin(self) -> None:
        """Start the budget again."""
        self._ends = time.monotonic() + self._budget

    @property
    def request_timeout(self) -> float:
        """Seconds that a call started now may take."""
        return max(_LEAST, min(self._request_timeout, self._ends - time.monotonic()))

    @property
    def overdue(self) -> bool:
        """Whether the budget is used up."""
        return time.monotonic() >= self._ends

    @property
    def patience(self) -> float:
        """Seconds to wait for a call: librdkafka takes up to twice the timeout, once to find the broker."""
        return 2 * self.request_timeout + 5

    def topics(self, avoid: Collection[int] = (), only: str | None = None) -> ClusterMetadata:
        """Return brokers and topics, all topics or ``only`` one.

        Raises SourceError when no broker answers within the request timeout. Credentials or certificates that never
        worked are reported after about a second, not after the timeout. Where the cluster answered before, the request
        goes to a second broker, because the first may hang; after a pause through new connections, because a firewall
        may have dropped idle ones without a word. Topic ids and settings are requested from the controller in
        this answer. KRaft names any broker, so the request is repeated a few times while the named one is among those
        to ``avoid``.
        """
        idle = time.monotonic() - self._used_at > _IDLE_SECONDS
        try:
            self._renew()
            try:
                found = self._list_topics(only)
            except SourceError as error:
                if not self._answered or error.reason is not Reason.CLUSTER_UNREACHABLE:
                    raise
                if idle:
                    self.close()
                found = self._list_topics(only)
            for _ in range(_DRAWS):
                if found.controller_id not in avoid:
                    break
                found = self._list_topics(only)
        except SourceError as error:
            if error.reason is Reason.AUTHENTICATION_FAILED:
                # Left alone, librdkafka would go on trying once a second, which locks accounts. It does so at a broker
                # that refuses alone, every reconnect.backoff.max.ms: the client is needed for the others.
                self._admin = None
            raise
        finally:
            self._used_at = time.monotonic()
        self._answered = True
        self._trouble = self._failed = None
        if only is None:
            self._read_at = time.monotonic()
        return found

    def count_topics(self) -> int:
        """Return how many topics this principal may Describe, internal ones included. Raises SourceError."""
        return len(self.topics().topics)

    def cluster_id(self) -> str | None:
        """Return the id of the cluster that answers now, None where none does.

        That in a list of topics is the one that the client saw first (librdkafka 2.16.0).
        """
        timeout = self.request_timeout
        try:
            # Typed as a dict of futures; it returns one future (confluent_kafka 2.16.0).
            described: Any = self.admin.describe_cluster(request_timeout=timeout)
            answer = described.result(timeout=timeout + 1)
        except (KafkaException, FutureTimeoutError):
            return None
        return str(answer.cluster_id) if answer.cluster_id else None

    def know_leaders(self, *, anew: bool = False) -> bool:
        """Let librdkafka read the leaders, unless it did within two minutes; return whether it read them.

        Otherwise librdkafka (2.16.1) keeps sending look-ups to the old leader of a partition, which answers with an
        error.
        """
        if not anew and time.monotonic() - self._read_at < _LEADERS_SECONDS:
            return False
        try:
            self.topics()
        except SourceError as error:
            log.debug("%s: leaders could not be read: %s", self.bootstrap, error.detail)
            return False
        return True

    def _renew(self) -> None:
        """Connect again where a secret file changed; where that fails, keep the connection."""
        if names := self._credentials.list_changed():
            before, changed = (self._credentials, self._admin), ", ".join(names)
            try:
                self._credentials = before[0].reload()
                self._admin = self._prepared()
            except (KafkaException, ValueError, TypeError) as error:
                # Redacted by the new secrets, of which one may be in the text.
                message = f"the earlier secrets stay in use, a changed file is unusable: {self._redact(_text(error))}"
                self._credentials, self._admin = before
                self._log_once(logging.WARNING, f"{self.bootstrap}: {message}")
            else:
                log.info("%s: read again, because the file changed: %s", self.bootstrap, changed)

    def _list_topics(self, only: str | None) -> ClusterMetadata:
        started, timeout = time.monotonic(), self.request_timeout
        refused_at: float | None = None
        # list_topics blocks, and while it does no error is handed over; so it waits in a thread of its own.
        try:
            admin = self.admin
        except (KafkaException, ValueError) as error:
            raise SourceError(Reason.AUTHENTICATION_FAILED, self._redact(f"{self.bootstrap}: {_text(error)}")) from None
        named = {} if only is None else {"topic": only}
        awaited = call_in_thread(lambda: admin.list_topics(**named, timeout=timeout), "kafka metadata")
        while not awaited.done():
            self.serve(0.02)
            now = time.monotonic()
            if not self._answered and (self._refused() or self._insecure()):
                refused_at = now if refused_at is None else refused_at
                if now - refused_at > _PATIENCE:
                    raise self.failure("refused the client")
            if now - started > 2 * timeout:
                raise self.failure(f"gave no answer within {timeout:g} s")
        self.serve()
        if isinstance(failed := awaited.exception(), KafkaException):
            raise self.failure(_text(failed))
        return awaited.result()

    def _connect(self) -> AdminClient:
        settings = self._settings()
        if (make_token := self._credentials.make_token) is not None:
            make_token()  # an error of AWS is raised here, and not lost behind a timeout of the client
            settings["oauth_cb"] = make_token
        made = AdminClient({**settings, "error_cb": self._on_error}, logger=self)
        self._answered, self._trouble = False, None
        self.connections += 1
        return made

    def make_consumer(self, group: str) -> Consumer:
        """Return a consumer that joins no group and logs nothing, because the admin client logs the same errors.

        Raises KafkaException or ValueError as the admin client would.
        """
        settings = {name: value for name, value in self._settings().items() if name != "debug"}
        if self._credentials.make_token is not None:
            settings["oauth_cb"] = self._credentials.make_token
        own = {"group.id": group, "isolation.level": "read_uncommitted", "enable.auto.commit": False, "log_level": 0}
        return Consumer({**settings, **own, "error_cb": lambda _: None}, logger=log)

    def _prepared(self) -> AdminClient | None:
        """Return a client; None where the properties are valid, but a token must arrive first."""
        if self._credentials.make_token is None:
            return self._connect()
        AdminClient({**self._settings(), "bootstrap.servers": "", "security.protocol": "SSL"}, logger=self)
        return None

    def _settings(self) -> dict[str, object]:
        # A metadata request that nobody waits for any more blocks its connection, and is the reason why librdkafka
        # (2.16.1) picks it for the next one: by default for a minute.
        longest = min(self._request_timeout, max(_LEAST, self._budget))  # that a call of ours may take
        patience = min(max(longest - 1, longest / 2), 300)
        hang_up = {"socket.timeout.ms": round(1000 * patience)}
        return {**DEFAULTS, **hang_up, **self._credentials.properties, "allow.auto.create.topics": False}

    def failure(self, what: str) -> SourceError:
        """Return the error with the reason why the cluster does not answer, and the next step.

        The text stays the same while the failure stays the same, whichever broker it comes from.
        """
        text = what if self._trouble is None else _BROKER_PREFIX.sub("", _INCIDENTAL.sub("", self._trouble.str()))
        reason, essence = Reason.CLUSTER_UNREACHABLE, re.sub(r"^\d+/\d+", "", text)
        if self._refused():
            reason = Reason.AUTHENTICATION_FAILED
        elif _TLS.search(text):
            reason, essence = Reason.TLS_FAILED, "certificate verify failed" if "verify failed" in text else "tls"
        if self._failed is None or self._failed[:2] != (reason, essence):
            problem, step = _WORDS[reason]
            detail = f"{problem} {self.bootstrap}: {text}; next step: {step}"
            self._failed = reason, essence, self._redact(detail)
        return SourceError(reason, self._failed[2])

    def log_unexplained(self, request: str, answer: BaseException | str) -> None:
        """Log an answer to ``request`` that has no Reason, such as an unknown error code; not at every poll."""
        cause = answer.args[0] if isinstance(answer, KafkaException) else answer
        what = f"error {cause.code()} ({cause.str()})" if isinstance(cause, KafkaError) else str(cause)
        if isinstance(cause, Exception):
            what = f"{type(cause).__name__}: {what}"
        self._log_once(logging.WARNING, f"{self.bootstrap}: {request}: {self._redact(what)}, counted as {Reason.OTHER}")

    def serve(self, wait: float = 0.0) -> None:
        """Handle librdkafka's callbacks: log lines and errors arrive only here."""
        self.admin.poll(wait)

    def close(self) -> None:
        """Drop the connections; a further call connects again."""
        # AdminClient (2.16.1) has no close(): the last reference closes it.
        self._admin = None

    def log(self, level: int, template: str, *values: object) -> None:
        """Take a line of librdkafka's log (it calls this as a logger): what stops a poll is reported by the poll."""
        text = f"librdkafka: {self._redact(template % values if values else template)}"
        self._log_once(min(level, logging.INFO), text)

    def _log_once(self, level: int, text: str) -> None:
        essence, now = _INCIDENTAL.sub("", text), time.monotonic()
        logged_at = self._logged_at.get(essence)
        if level > logging.DEBUG:
            if len(self._logged_at) >= 1000:
                self._logged_at.clear()
            self._logged_at[essence] = now
        log.log(logging.DEBUG if logged_at is not None and now - logged_at < _LOG_AGAIN_SECONDS else level, "%s", text)

    def _on_error(self, error: KafkaError) -> None:
        # "All brokers down" follows each real cause and must not hide it.
        if error.code() == KafkaError._ALL_BROKERS_DOWN and self._trouble is not None:
            return
        self._trouble = error

    def _refused(self) -> bool:
        return self._trouble is not None and self._trouble.code() in _AUTHENTICATION

    def _insecure(self) -> bool:
        return self._trouble is not None and _TLS.search(self._trouble.str()) is not None

    def _redact(self, text: str) -> str:
        return self._credentials.redact(text)


def _text(error: Exception) -> str:
    cause = error.args[0] if error.args else error
    return (cause.str() if isinstance(cause, KafkaError) else str(cause)).strip()

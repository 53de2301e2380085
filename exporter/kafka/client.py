"""The connection to one cluster: librdkafka's admin client, its log and its errors.

librdkafka keeps the reason of a failed connection to itself: every call just times out or says
"broker transport failure", while the cause goes to a callback. Both are brought together here.
"""

# ruff: noqa: SLF001 - librdkafka's own error codes begin with an underscore
from __future__ import annotations

import logging
import math
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._metadata import ClusterMetadata

from exporter.model import Reason
from exporter.poller import SourceError

log = logging.getLogger(__name__)

Property = str | int | float | bool

DEFAULTS: Mapping[str, Property] = {
    "client.id": "topic-liveness",
    # By default a client that waits for an answer knocks at a closed door 40 times a second (2.16.1).
    "reconnect.backoff.ms": 500,
    "reconnect.backoff.max.ms": 5000,
    "log.connection.close": False,
}
"""What a configuration may override."""

_AUTHENTICATION = (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED)
_PATIENCE = 1.0
"""Seconds given to the other brokers once one has refused the credentials."""
_LEAST = 1.0
"""Seconds that a call may take when the budget is used up: a broker that is well answers within them."""
_DRAWS = 4

_SECRET = re.compile(r"pass|secret|token|jaas|credential|assertion|oauthbearer\.config|key\.pem")
_INCIDENTAL = re.compile(r"\s*\(after \d+ms in state [A-Z_]+(?:, \d+ identical error\(s\) suppressed)?\)")


class Client:
    """One cluster's connection. Not for several threads at once."""

    def __init__(
        self, properties: Mapping[str, Property], *, request_timeout: float, budget: float | None = None
    ) -> None:
        """Make the client; nothing is connected yet.

        ``budget`` is how many seconds all calls together may take from one ``begin`` on; None: any time.
        Raises ValueError when librdkafka refuses a property.
        """
        self._secrets = tuple(
            str(value) for name, value in properties.items() if _SECRET.search(name.lower()) and str(value)
        )
        self.bootstrap = str(properties.get("bootstrap.servers", ""))
        self._request_timeout = request_timeout
        self._budget = math.inf if budget is None else budget
        self._ends = math.inf
        self._trouble: KafkaError | None = None
        self._told: set[str] = set()
        self._answered = False
        # A metadata request that nobody waits for any more blocks its connection, and is the reason why librdkafka
        # (2.16.1) picks it for the next one: by default for a minute.
        hang_up = {"socket.timeout.ms": round(1000 * min(max(request_timeout - 1, request_timeout / 2), 300))}
        self._settings: dict[str, Property] = {
            **DEFAULTS,
            **hang_up,
            **properties,
            "allow.auto.create.topics": False,
        }
        try:
            self._admin: AdminClient | None = self._connect()
        except (KafkaException, ValueError, TypeError) as error:
            said = _text(error)
            raise ValueError(
                f"librdkafka refuses a property of the cluster at {self.bootstrap}: {self._redact(said)}; "
                "next step: compare the properties under `kafka` with librdkafka's CONFIGURATION.md"
            ) from None

    @property
    def admin(self) -> AdminClient:
        """The admin client; a new one after credentials were refused."""
        if self._admin is None:
            self._admin = self._connect()
        return self._admin

    def begin(self) -> None:
        """Begin to count the budget anew."""
        self._ends = time.monotonic() + self._budget

    @property
    def request_timeout(self) -> float:
        """Seconds that a call which starts now may take."""
        return max(_LEAST, min(self._request_timeout, self._ends - time.monotonic()))

    def topics(self, avoid: Collection[int] = ()) -> ClusterMetadata:
        """Return brokers and topics. Raises SourceError when no broker answers within the request timeout.

        Credentials that never worked are reported after about a second, without using up the timeout. Where
        the cluster answered before, one more broker is asked: the first may hang while the others are well.

        Topic ids and settings are asked of the controller that is named here. KRaft names any broker, so this
        is repeated a few times while the one named is among those to ``avoid``.
        """
        try:
            try:
                found = self._list_topics()
            except SourceError as error:
                if not self._answered or error.reason is not Reason.CLUSTER_UNREACHABLE:
                    raise
                found = self._list_topics()
            for _ in range(_DRAWS):
                if found.controller_id not in avoid:
                    break
                found = self._list_topics()
        except SourceError as error:
            if error.reason is Reason.AUTHENTICATION_FAILED:
                # Left alone, librdkafka would go on trying once a second, which locks accounts.
                self._admin = None
            raise
        self._answered = True
        self._trouble = None
        self._told.clear()
        return found

    def _list_topics(self) -> ClusterMetadata:
        started, timeout = time.monotonic(), self.request_timeout
        refused_at: float | None = None
        # list_topics blocks, and while it does no error is handed over; so it waits in a thread of its own.
        admin = self.admin
        awaited = _in_thread(lambda: admin.list_topics(timeout=timeout))
        while not awaited.done():
            self.serve(0.02)
            now = time.monotonic()
            if self._refused() and not self._answered:
                refused_at = now if refused_at is None else refused_at
                if now - refused_at > _PATIENCE:
                    raise self.failure("refused the credentials")
            if now - started > 2 * timeout:
                raise self.failure(f"gave no answer within {timeout:g} s")
        self.serve()
        if isinstance(error := awaited.exception(), KafkaException):
            raise self.failure(_text(error))
        return awaited.result()

    def _connect(self) -> AdminClient:
        self._answered = False
        self._trouble = None
        return AdminClient({**self._settings, "error_cb": self._on_error}, logger=self)

    def failure(self, what: str) -> SourceError:
        """Return the error that says why the cluster cannot be asked, and what to do about it."""
        trouble = self._trouble
        said = what if trouble is None else _INCIDENTAL.sub("", trouble.str())
        if self._refused():
            return SourceError(
                Reason.AUTHENTICATION_FAILED,
                self._redact(
                    f"{self.bootstrap} refused the credentials: {said}; next step: check security.protocol, "
                    "sasl.mechanism, sasl.username and sasl.password (or the client certificate) of this cluster"
                ),
            )
        step = "check bootstrap.servers, the network and that the brokers run"
        if trouble is not None and trouble.code() == KafkaError._SSL:
            step = "check security.protocol and the ssl.* properties against the broker's listener"
        elif trouble is not None and trouble.code() == KafkaError._RESOLVE:
            step = "check the host names in bootstrap.servers and the name service"
        elif trouble is None or trouble.code() == KafkaError._ALL_BROKERS_DOWN:
            step += ", and that security.protocol fits the listener"
        return SourceError(
            Reason.CLUSTER_UNREACHABLE,
            self._redact(
                f"no broker of {self.bootstrap} answered within {self._request_timeout:g} s: {said}; next step: {step}"
            ),
        )

    def serve(self, wait: float = 0.0) -> None:
        """Take up what librdkafka has to tell: log lines and errors arrive only here."""
        self.admin.poll(wait)

    def close(self) -> None:
        """Close the connections."""
        # AdminClient (2.16.1) has no close(): the last reference closes it.
        self._admin = None

    def log(self, level: int, template: str, *values: object) -> None:
        """Take a line of librdkafka's log (it calls this as a logger). Repeated complaints are said once."""
        text = self._redact(template % values if values else template)
        essence = _INCIDENTAL.sub("", text)
        again = essence in self._told
        if not again and len(self._told) < 1000:
            self._told.add(essence)
        # What stops a poll is reported by the poll: librdkafka's "error" is a warning to us.
        log.log(logging.DEBUG if again else min(level, logging.WARNING), "librdkafka: %s", text)

    def _on_error(self, error: KafkaError) -> None:
        # "All brokers down" follows each real cause, and must not hide it.
        if error.code() == KafkaError._ALL_BROKERS_DOWN and self._trouble is not None:
            return
        self._trouble = error

    def _refused(self) -> bool:
        return self._trouble is not None and self._trouble.code() in _AUTHENTICATION

    def _redact(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


def _text(error: Exception) -> str:
    told = error.args[0] if error.args else error
    return told.str() if isinstance(told, KafkaError) else str(told)


def _in_thread(call: Callable[[], ClusterMetadata]) -> Future[ClusterMetadata]:
    """Run a call that blocks; a daemon thread, so that nobody waits for one that is given up."""
    outcome: Future[ClusterMetadata] = Future()

    def run() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:  # noqa: BLE001 - whatever it is belongs to who asked
            # Its frames hold the client, and would keep a refused one alive and knocking.
            outcome.set_exception(error.with_traceback(None))

    threading.Thread(target=run, name="kafka metadata", daemon=True).start()
    return outcome

"""How a message leaves: by mail, or by HTTP. Each try takes the message or raises NotTakenError, without secrets."""

from __future__ import annotations

import hashlib
import queue
import re
import smtplib
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar, cast

import httpx

from exporter.clock import SystemClock
from exporter.delivery import bodies
from exporter.delivery.mail_sizes import fits, is_too_large
from exporter.delivery.message import Message
from exporter.delivery.quoting import place_of, quoted, secrets_of, sent_as
from exporter.domain.ports import Clock
from exporter.secret_files import header_in, text_in

_PORTS = {"starttls": 587, "tls": 465, "none": 25}
_LATER = (408, 425, 429)
"""HTTP answers, beside those from 500 on, after which another try may succeed."""

_ADDRESS = re.compile(r"[^\s@,;:<>()\[\]\\\"]{1,64}@[A-Za-z0-9.-]{1,253}")
_MAX_READ_BYTES = 2000

_T = TypeVar("_T")

Kind = Literal["slack", "teams", "webhook"]

_BODIES: Mapping[Kind, Callable[[Message], dict[str, Any]]] = {
    "slack": bodies.slack,
    "teams": bodies.teams,
    "webhook": bodies.webhook,
}


class NotTakenError(Exception):
    """A message was not taken; the text says by whom, why and what to do.

    ``passing`` says that another try may succeed, ``unreachable`` that this holds for all messages to that server.
    ``after`` are the seconds for which the server asks to wait.
    """

    def __init__(self, text: str, *, passing: bool, unreachable: bool = False, after: float = 0.0) -> None:
        super().__init__(text)
        self.passing = passing
        self.unreachable = unreachable
        self.after = after


class Channel(Protocol):
    """Where a message can be sent."""

    @property
    def name(self) -> str:
        """What people and the record of deliveries call it; no secret."""

    @property
    def server(self) -> str:
        """Channels of one server are unreachable together."""

    def send(self, message: Message, timeout: float) -> None:
        """Send a message in ``timeout`` seconds at most. Raises NotTakenError."""


@dataclass(frozen=True, slots=True)
class Recipient:
    """Who gets a report: all of it, or (``owner``, a pattern for whole names) the parts of owners.

    ``channel`` returns the channel of an owner that matches, or of the whole report (None).
    """

    owner: re.Pattern[str] | None
    channel: Callable[[re.Match[str] | None], Channel]


@dataclass(frozen=True, slots=True)
class MailServer:
    """A server that takes mails, and who sends them. ``address`` is ``host`` or ``host:port``."""

    address: str
    sender: str
    encryption: Literal["starttls", "tls", "none"]
    tls: ssl.SSLContext
    username: str | None = None
    password: Path | None = None

    @property
    def host(self) -> str:
        """The host alone."""
        return re.sub(r":\d+$", "", self.address).strip("[]")

    @property
    def port(self) -> int:
        """The port, that of the kind of encryption where none is given."""
        given = re.search(r":(\d+)$", re.sub(r"\[.*\]", "", self.address))
        return int(given[1]) if given else _PORTS[self.encryption]


@dataclass(frozen=True, slots=True)
class Mail:
    """One mail address."""

    to: str
    by: MailServer
    clock: Clock = field(default_factory=SystemClock)

    @property
    def name(self) -> str:
        """The address."""
        return self.to

    @property
    def server(self) -> str:
        """The mail server."""
        return f"{self.by.host}:{self.by.port}"

    def send(self, message: Message, timeout: float) -> None:
        """Send it in a connection of its own. Raises NotTakenError."""
        given_up, connections = threading.Event(), list[smtplib.SMTP]()
        try:
            within(timeout, lambda: self._send(message, timeout, given_up, connections))
        except TimeoutError:
            # A server that goes on after this must not get the rest of the mail: it is sent again.
            given_up.set()
            for connection in connections:
                connection.close()
            raise _late(self.server, timeout) from None

    def _send(
        self, message: Message, timeout: float, given_up: threading.Event, connections: list[smtplib.SMTP]
    ) -> None:
        if not _ADDRESS.fullmatch(self.to):
            raise NotTakenError(f"{self.to!r} is no mail address: check delivery.recipients and owners", passing=False)
        password = _secret(self.by.password)
        domain, sending = self.by.sender.rpartition("@")[2], False
        name = f"<{key(self.name, message)}@{domain}>"
        headers = self.by.sender, self.to, name, self.clock.now()
        made = bodies.mail(message, *headers)
        try:
            connection = self._connected(timeout)
            connections.append(connection)
            try:
                if given_up.is_set():
                    return
                self._log_in(connection, password)
                too_large = is_too_large(made, connection)
                sending = True
                if too_large or not fits(made, connection, self.by.sender, self.to):
                    made = bodies.mail(message, *headers, attach=False)
                    connection.send_message(made, self.by.sender, [self.to])
                with suppress(OSError, smtplib.SMTPException):  # it was taken, whatever follows
                    connection.quit()
            finally:
                connection.close()
        except smtplib.SMTPRecipientsRefused as error:
            [(code, reply)] = error.recipients.values()
            raise self._refused("the recipient", code, reply, password) from None
        except smtplib.SMTPSenderRefused as error:
            what = f"the sender {self.by.sender}"
            raise self._refused(what, error.smtp_code, error.smtp_error, password) from None
        except smtplib.SMTPAuthenticationError as error:
            what = "user name or password (delivery.smtp)"
            raise self._refused(what, error.smtp_code, error.smtp_error, password, unreachable=True) from None
        except smtplib.SMTPResponseException as error:
            raise self._refused("the mail", error.smtp_code, error.smtp_error, password) from None
        except smtplib.SMTPNotSupportedError as error:
            raise self._unsupported(error, sending=sending) from None
        except ssl.SSLCertVerificationError as error:
            raise _untrusted(self.server, error) from None
        except smtplib.SMTPServerDisconnected as error:
            if isinstance(error.__context__, TimeoutError):
                raise _late(self.server, timeout) from None
            # One that ends it during a mail may take the next one.
            raise NotTakenError(
                f"{self.server} ended the connection before it had taken the mail; see its log",
                passing=True,
                unreachable=not sending,
            ) from None
        except TimeoutError:
            raise _late(self.server, timeout) from None
        except (OSError, ValueError, smtplib.SMTPException) as error:
            text = (
                f"{self.server} cannot be reached: {_cause(error, password)}; check delivery.smtp.server and encryption"
            )
            raise NotTakenError(text, passing=True, unreachable=True) from None

    def _connected(self, timeout: float) -> smtplib.SMTP:
        by = self.by
        if by.encryption == "tls":
            return smtplib.SMTP_SSL(by.host, by.port, timeout=timeout, context=by.tls)
        connection = smtplib.SMTP(by.host, by.port, timeout=timeout)
        if by.encryption == "starttls":
            try:
                connection.starttls(context=by.tls)
            except BaseException:
                connection.close()
                raise
        return connection

    def _log_in(self, connection: smtplib.SMTP, password: str) -> None:
        try:
            if self.by.username is not None:
                connection.login(self.by.username, password)
        except UnicodeEncodeError:  # its text has a part of the password
            text = "the user name or password (delivery.smtp) has characters other than ASCII, which cannot be sent"
            raise NotTakenError(f"{text} to {self.server}: choose others", passing=False, unreachable=True) from None

    def _unsupported(self, error: smtplib.SMTPNotSupportedError, *, sending: bool) -> NotTakenError:
        if sending and not self.to.isascii() and self.by.sender.isascii():
            text = f"{self.server} takes no address with letters such as those of {self.to} (SMTPUTF8)"
            return NotTakenError(f"{text}: check delivery.recipients and owners", passing=False)
        text = f"{self.server} cannot do what delivery.smtp asks for: {error}"
        return NotTakenError(text, passing=False, unreachable=True)

    def _refused(
        self, what: str, code: int, reply: bytes | str, password: str, *, unreachable: bool = False
    ) -> NotTakenError:
        text = reply.decode("utf-8", "replace") if isinstance(reply, bytes) else reply
        answer = quoted(text, *sent_as(self.by.username, password))
        return NotTakenError(
            f"{self.server} refused {what}: {code} {answer}".rstrip(),
            passing=400 <= code < 500,
            unreachable=unreachable or code == 421,
        )


@dataclass(frozen=True, slots=True)
class Post:
    """One address that takes messages by HTTP POST. The URL is in the file ``url``, as who knows it may post."""

    kind: Kind
    url: Path
    tls: ssl.SSLContext
    authorization: Path | None = None

    @property
    def name(self) -> str:
        """The kind, and the file."""
        return f"{self.kind} {self.url}"

    @property
    def server(self) -> str:
        """The file: who serves is in it."""
        return str(self.url)

    def send(self, message: Message, timeout: float) -> None:
        """Send it. Raises NotTakenError."""
        url, authorization = _secret(self.url), _secret(self.authorization, header_in)
        place = place_of(url)
        if place is None:
            raise NotTakenError(f"{self.url} holds no URL that begins with https:// or http://", passing=False)
        headers = {"Idempotency-Key": key(self.name, message)}
        if authorization:
            headers["Authorization"] = authorization
        try:
            with _client(self.tls, timeout) as client:
                answer, refusal = within(timeout, lambda: _posted(client, url, _BODIES[self.kind](message), headers))
        except (TimeoutError, httpx.TimeoutException):
            raise _late(place, timeout) from None
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, ValueError):
            raise NotTakenError(f"{self.url} holds no URL that can be asked", passing=False) from None
        except httpx.HTTPError as error:
            if _untrusted_by(error):
                raise _untrusted(place, error) from None
            text = f"{place} cannot be reached: {_cause(error, *secrets_of(url, authorization))}"
            raise NotTakenError(text, passing=True, unreachable=True) from None
        if answer.is_success:
            return
        code = answer.status_code
        hint = f"; it leads elsewhere, write that URL into {self.url}" if answer.is_redirect else ""
        reply = quoted(refusal.decode("utf-8", "replace"), *secrets_of(url, authorization))
        raise NotTakenError(
            f"{place} answered {code} {reply}".rstrip() + hint,
            passing=code in _LATER or code >= 500,
            after=_seconds(answer.headers),
        )


def _client(tls: ssl.SSLContext, timeout: float) -> httpx.Client:
    try:
        return httpx.Client(verify=tls, timeout=timeout)
    except (ImportError, ValueError, httpx.InvalidURL):  # its text may have the password of the proxy
        text = "the proxy in HTTPS_PROXY, HTTP_PROXY or ALL_PROXY cannot be used: its URL must begin with http:// or https://"
        raise NotTakenError(text, passing=False) from None


def _posted(
    client: httpx.Client, url: str, body: dict[str, Any], headers: dict[str, str]
) -> tuple[httpx.Response, bytes]:
    """Return the answer, and the first bytes of a refusal's body."""
    with client.stream("POST", url, json=body, headers=headers) as answer:
        refusal = b""
        with suppress(httpx.HTTPError):
            for piece in answer.iter_bytes() if not answer.is_success else ():
                refusal += piece
                if len(refusal) >= _MAX_READ_BYTES:
                    break
    return answer, refusal


def within(seconds: float, call: Callable[[], _T]) -> _T:
    """Return what a call returns, or raise what it raises. Raises TimeoutError where it takes longer.

    Libraries limit each read alone, and a server that sends a byte now and then is never late for them.
    """
    ended: queue.SimpleQueue[tuple[_T | None, Exception | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            ended.put((call(), None))
        except Exception as error:  # noqa: BLE001 - the caller raises it
            ended.put((None, error))

    threading.Thread(target=run, daemon=True).start()
    try:
        result, error = ended.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError from None
    if error is not None:
        raise error
    return cast("_T", result)


def _late(place: str, timeout: float) -> NotTakenError:
    return NotTakenError(
        f"{place} did not take it within {timeout:g} s (delivery.timeout); see whether it is slow, or raise that",
        passing=True,
        unreachable=True,
    )


def key(name: str, message: Message) -> str:
    """Return what a message to one recipient has in common with each repetition of it."""
    identity = f"{name}\0{message.owner}\0{message.as_of.isoformat()}"
    return hashlib.sha256(identity.encode()).hexdigest()[:32]


def _secret(path: Path | None, read: Callable[[Path], str] = text_in) -> str:
    try:
        return "" if path is None else read(path)
    except ValueError as error:
        raise NotTakenError(str(error), passing=False) from None


def _cause(error: Exception, *secrets: str) -> str:
    if isinstance(error, socket.gaierror):
        return "the host name does not resolve"
    detail = error.strerror if isinstance(error, OSError) else None
    return quoted(detail or str(error) or type(error).__name__, *secrets)


def _untrusted_by(error: BaseException) -> bool:
    causes: BaseException | None = error
    while causes is not None:
        if isinstance(causes, ssl.SSLCertVerificationError):
            return True
        causes = causes.__cause__ or causes.__context__
    return False


def _untrusted(server: str, error: Exception) -> NotTakenError:
    reason = re.sub(r"^.*certificate verify failed: | \(_ssl\.c:\d+\)", "", str(error))
    return NotTakenError(
        f"the certificate of {server} cannot be trusted: {reason}; name the file of its CA in delivery.ca_file",
        passing=False,
        unreachable=True,
    )


def _seconds(headers: Mapping[str, str]) -> float:
    """Return the seconds for which a server asks to wait, 0 where it asks for none. A date is one of its own clock."""
    until = headers.get("Retry-After", "")
    if re.fullmatch(r"\d{1,6}", until):
        return float(until)
    with suppress(ValueError, TypeError, OverflowError):
        sent_at = parsedate_to_datetime(headers.get("Date", ""))
        return max(0.0, (parsedate_to_datetime(until) - sent_at).total_seconds())
    return 0.0

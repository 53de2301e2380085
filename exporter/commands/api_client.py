"""Asks the API of a running exporter, over TLS and as a user where that is wanted."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import httpx

from exporter.secret_files import refuse_password, text_in, unusable

if TYPE_CHECKING:
    from exporter.settings.schema import WebSettings

TIMEOUT_SECONDS = 10.0


class ApiError(Exception):
    """The exporter cannot be asked, or answers with an error; the text says why and what to do, and holds no secret."""


class NotFoundError(ApiError):
    """The exporter does not know what it was asked for."""


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach an exporter that its web configuration file protects; named as in Prometheus' ``http_config``."""

    ca_file: Path | None = None
    """The CA that signed its certificate; None: those that the system trusts."""
    cert_file: Path | None = None
    key_file: Path | None = None
    username: str | None = None
    password_file: Path | None = None


class ApiClient:
    """Asks one exporter. A redirect is an error: it could send the password elsewhere."""

    def __init__(self, url: str, access: Access) -> None:
        """Raises ApiError for an address, file or combination of them that cannot be used."""
        secure = _is_secure(url)
        if (access.username is None) != (access.password_file is None):
            raise ApiError("--username and --password-file must be given together")
        if access.key_file is not None and access.cert_file is None:
            raise ApiError("--key-file must be given with --cert-file")
        if not secure and (access.ca_file or access.cert_file):
            raise ApiError("--ca-file and --cert-file need an address that begins with https://, got one with http://")
        self.shown = url.rstrip("/")
        self._shows_none = secure and access.cert_file is None
        self._http = httpx.Client(
            base_url=f"{self.shown}/api/v1/",
            timeout=TIMEOUT_SECONDS,
            auth=_auth(access),
            verify=_tls(access),
            trust_env=False,  # exporters are reached within a network, not by its proxy
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def ask(self, path: str, given: Sequence[tuple[str, str]] = ()) -> Mapping[str, Any]:
        """Return one answer. Raises ApiError."""
        try:
            answer = self._http.get(path, params=list(given))
            known = answer.status_code in (httpx.codes.OK, httpx.codes.NOT_FOUND)
            body: Mapping[str, Any] = answer.json() if known else {}
        except (httpx.HTTPError, ValueError) as error:
            raise ApiError(f"{self.shown} cannot be asked: {str(error).rstrip('.')}. {self._step(error)}") from None
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            raise ApiError(f"{self.shown} answers 401 Unauthorized; give --username and --password-file that it knows")
        if answer.status_code == httpx.codes.NOT_FOUND and isinstance(body, dict) and "error" in body:
            raise NotFoundError(f"{self.shown}: {body['error']}")
        if answer.status_code != httpx.codes.OK:
            raise ApiError(f"{self.shown} answers {answer.status_code} {answer.reason_phrase} for /api/v1/{path}")
        if not isinstance(body, dict):
            raise ApiError(f"{self.shown} does not answer as an exporter does")
        return body

    def _step(self, error: Exception) -> str:
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            return "Give --ca-file, the CA that signed its certificate, and a host name that stands in it"
        # TLS 1.3 lets a client without a certificate connect, and the server closes the connection afterwards.
        if self._shows_none and isinstance(error, (httpx.RemoteProtocolError, httpx.ReadError)):
            return "It may ask for a client certificate: give --cert-file and --key-file"
        return "Is an exporter running there?"


def exporter_here(web: WebSettings, access: Access) -> ApiClient:
    """Return a client of the exporter on this host that has these settings. Raises ApiError and WebConfigError."""
    from exporter.web.config_file import WebConfigFile  # noqa: PLC0415 - who names an address needs no server
    from exporter.web.server import host_and_port  # noqa: PLC0415 - likewise

    tls = WebConfigFile(web.config_file).current().tls
    host, port = host_and_port(web.listen)
    shown = f"[{host}]" if ":" in host else host
    return ApiClient(f"{'http' if tls is None else 'https'}://{shown}:{port}", access)


def _is_secure(url: str) -> bool:
    """Return whether an address is asked over TLS. Raises ApiError where it is none, and does not repeat it."""
    try:
        split = urlsplit(url)
        usable = split.scheme in ("http", "https") and split.hostname and split.port != 0 and httpx.URL(url)
    except (ValueError, httpx.InvalidURL):  # a port or an IPv6 address that is none
        usable = False
    if not usable or set("@?#") & set(url):
        raise ApiError("--url must be http://HOST:PORT or https://HOST:PORT, with a user by --username")
    return url.lower().startswith("https:")


def _auth(access: Access) -> tuple[str, str] | None:
    if access.username is None or access.password_file is None:
        return None
    return access.username, _read(access.password_file, "--password-file")


def _tls(access: Access) -> ssl.SSLContext:
    for option, file in (("ca", access.ca_file), ("cert", access.cert_file), ("key", access.key_file)):
        if file is not None and (rule := unusable(file)):
            raise ApiError(f"--{option}-file: {rule}")
    try:
        context = ssl.create_default_context(cafile=access.ca_file)
        if access.cert_file is not None:
            context.load_cert_chain(access.cert_file, access.key_file, refuse_password)
    except (OSError, ValueError) as error:
        what = getattr(error, "reason", None) or str(error)
        raise ApiError(f"--ca-file, --cert-file or --key-file cannot be used: {what}") from None
    return context


def _read(file: Path, option: str) -> str:
    try:
        return text_in(file)
    except ValueError as error:
        raise ApiError(f"{option}: {error}") from None

"""The web configuration file of Prometheus exporters: TLS, client certificates and users.

Its format is that of exporter-toolkit (``docs/web-configuration.md`` there). What Python's TLS cannot do is refused.
"""

import logging
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, Self

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails

from exporter.secret_files import check_path, refuse_password

log = logging.getLogger(__name__)

_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_VERIFIED = "RequireAndVerifyClientCert"

_BCRYPT = re.compile(r"\$2[aby]\$(0[4-9]|[12]\d|3[01])\$[./A-Za-z0-9]{53}", re.ASCII)


class WebConfigError(Exception):
    """The web configuration file cannot be used; the message names it, the setting and the rule, and no secret."""


@dataclass(frozen=True, slots=True)
class WebConfig:
    """How clients are spoken to; without a file in the clear, by anybody."""

    tls: ssl.SSLContext | None = None
    users: Mapping[str, str] = field(default_factory=dict)
    """User name -> bcrypt hash; empty: everybody."""
    fixed: object = None
    """What OpenSSL takes from the first context alone: whether there is one, and how it checks clients."""


class WebConfigFile:
    """The web configuration, read again after changes. The last good one stays in force while files are unusable.

    A file that was cut off while it was written must not open the exporter to everybody. So a file that is read again
    cannot take TLS or all users away: only a restart can.
    """

    def __init__(self, path: Path | None, took: Callable[[bool], None] = lambda _: None) -> None:
        """Read it. Raises WebConfigError.

        ``took`` is called after each later change of a file, with whether it could be used.
        """
        self._path = path
        self._took = took
        self._seen: object = None
        self._current = WebConfig()
        self._files: tuple[Path, ...] = ()
        if path is not None:
            self._files = (path,)
            self._take(path)

    def current(self) -> WebConfig:
        """Return the configuration, read again if any of its files changed."""
        if self._path is None or self._state() == self._seen:
            return self._current
        try:
            self._take(self._path)
        except WebConfigError as error:
            log.error("%s; what was read before stays in force", error)
            self._took(False)
        else:
            log.info("%s or a file that it names changed, and was read again", self._path)
            self._took(True)
        return self._current

    def _take(self, path: Path) -> None:
        # Files that change while they are read count as changed at the next check.
        before = self._state()
        try:
            given = _parse(path)
            if (files := (path, *given.files(path.parent))) != self._files:
                self._files = files
                before = self._state()
            config = given.config(path)
            if self._seen is not None:
                self._require_alike(path, config)
            self._current = config
        finally:
            self._seen = before

    def _require_alike(self, path: Path, config: WebConfig) -> None:
        """Raise WebConfigError where only a restart can take ``config``."""
        if self._current.users and not config.users:
            raise WebConfigError(f"{path} has no basic_auth_users any more: restart the exporter to serve without it")
        if self._current.fixed != config.fixed:
            raise WebConfigError(
                f"{path} turns TLS on or off, or has another client_auth_type, client CA or min_version: restart the "
                "exporter to serve so"
            )

    def _state(self) -> object:
        return [_state_of(file) for file in self._files]


def _state_of(file: Path) -> object:
    try:
        seen = file.stat()
    except OSError as error:
        return error.errno
    return seen.st_mtime_ns, seen.st_size, seen.st_ino


class _FileSection(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    @field_validator("*", mode="before")
    @classmethod
    def _given(cls, value: object) -> object:
        """Refuse a key without a value, as a file has that was cut off."""
        if value is None or value == "":
            raise ValueError("has no value: give it one, or leave it out")
        return value


_FilePath = Annotated[Path, AfterValidator(check_path)]


class _Tls(_FileSection):
    """What is not here, as cipher suites and allowed names, is refused: OpenSSL and the client CA choose as well."""

    cert_file: _FilePath
    key_file: _FilePath
    client_ca_file: _FilePath | None = None
    client_auth_type: Literal[
        "NoClientCert", "RequestClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"
    ] = "NoClientCert"
    min_version: Literal["TLS12", "TLS13"] = "TLS12"

    @model_validator(mode="after")
    def _whole(self) -> Self:
        verifies = self.client_auth_type in (_VERIFIED, "VerifyClientCertIfGiven")
        if verifies != (self.client_ca_file is not None):
            raise ValueError(
                f"must hold client_ca_file with client_auth_type {_VERIFIED} or VerifyClientCertIfGiven, and only then"
            )
        return self

    def context(self, folder: Path) -> ssl.SSLContext:
        """Return the context for connections. Raises OSError, ValueError."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = _VERSIONS[self.min_version]
        certificate, key = (_readable(folder / file) for file in (self.cert_file, self.key_file))
        context.load_cert_chain(certificate, key, refuse_password)
        if self.client_ca_file:
            context.load_verify_locations(_readable(folder / self.client_ca_file))
            context.verify_mode = ssl.CERT_REQUIRED if self.client_auth_type == _VERIFIED else ssl.CERT_OPTIONAL
        return context

    def list_fixed(self, folder: Path) -> tuple[object, ...]:
        """Return what a running server cannot change. Raises OSError."""
        authority = self.client_ca_file and (folder / self.client_ca_file).read_bytes()
        return self.client_auth_type, self.min_version, authority


class _File(_FileSection):
    tls_server_config: _Tls | None = None
    basic_auth_users: Mapping[str, str] = {}

    @model_validator(mode="after")
    def _hashed(self) -> Self:
        for user, password in self.basic_auth_users.items():
            if ":" in user or not user:
                raise ValueError(f"basic_auth_users: a user's name must not be empty or hold a colon, got {user!r}")
            if not _BCRYPT.fullmatch(password):
                raise ValueError(
                    f"basic_auth_users: the password of {user!r} must be a bcrypt hash: `htpasswd -nBC 10 {user}`"
                )
        return self

    def files(self, folder: Path) -> tuple[Path, ...]:
        """Return the files that it names."""
        tls = self.tls_server_config
        named = () if tls is None else (tls.cert_file, tls.key_file, tls.client_ca_file)
        return tuple(folder / file for file in named if file is not None)

    def config(self, path: Path) -> WebConfig:
        """Return its settings, with the contents of its files. Raises WebConfigError."""
        tls = self.tls_server_config
        try:
            context = None if tls is None else tls.context(path.parent)
            fixed = None if tls is None else tls.list_fixed(path.parent)
        except (OSError, ValueError) as error:
            what = "cert_file, key_file or client_ca_file"
            raise WebConfigError(f"{path}: tls_server_config: {what} cannot be used: {error}") from None
        return WebConfig(context, self.basic_auth_users, fixed)


def _parse(path: Path) -> _File:
    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise WebConfigError(f"{path} cannot be read: {error.strerror}. Set web.config_file to the file.") from None
    # PyYAML lets through what its constructors raise for a value that does not fit its tag, such as `!!timestamp x`.
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f":{mark.line + 1}"
        raise WebConfigError(f"{path}{line} is not valid YAML") from None
    if given is None:
        raise WebConfigError(f"{path} is empty: to serve without TLS and users, leave web.config_file out")
    try:
        return _File.model_validate(given)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False, include_context=False)
        problems = (f"{'.'.join(map(str, one['loc']))}: {_rule(one)}".removeprefix(": ") for one in faults)
        raise WebConfigError(f"{path}: {'; '.join(problems)}") from None


def _rule(fault: ErrorDetails) -> str:
    match fault["type"]:
        case "extra_forbidden":
            return "is not supported: leave it out"
        case "missing":
            return "is missing"
    return fault["msg"].removeprefix("Value error, ")


def _readable(file: Path) -> Path:
    """Return the file. Raises OSError, which names it; OpenSSL would not say which file is missing."""
    with file.open("rb"):
        return file

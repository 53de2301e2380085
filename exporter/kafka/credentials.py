"""The credentials of one client: properties whose secrets are in files, which are read and watched."""

import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

from exporter.kafka.msk_iam import AwsIam, TokenMaker
from exporter.secret_files import is_secret, text_in, unusable

Property = str | int | float | bool

_IN_URL = re.compile(r"://(?:([^/?#\s]+)@)?[^?\s]*(?:\?(\S+))?")
_WORD = re.compile(r"\w{3}")
_BETWEEN_WORDS = re.compile(r"%\{[^}]*\}|\s+")
_PRIVATE = re.compile(r"ssl\.key\.location|ssl\.keystore\.location|sasl\.kerberos\.keytab|.*private\.key\.file")
_FILE = re.compile(rf"{_PRIVATE.pattern}|ssl\.(ca|certificate|crl)\.location")

LEAST_SECRET = 6
"""Characters. A shorter secret is not replaced in messages: that would destroy them, and show what it is."""

_AWS_IAM = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
"""The properties that Amazon MSK needs for IAM, where the configuration gives no others."""

Seen = tuple[int, int, int, int]
"""Device, inode, size and time of change (ns): Kubernetes replaces a mounted secret by moving a link."""


class Credentials:
    """The properties of one cluster for librdkafka, as of the time of reading.

    A ``Path`` in place of a value is a file with the text, without the end of the line.
    """

    def __init__(self, given: Mapping[str, Property | Path], aws_iam: AwsIam | None = None) -> None:
        """Read every file. Raises ValueError naming each property and path that cannot be used, and the rule."""
        self._given = given
        self._aws_iam = aws_iam
        named = {name: value for name, value in given.items() if isinstance(value, Path)}
        beside = {name: Path(str(value)) for name, value in given.items() if _FILE.fullmatch(name) and value != "probe"}
        self._files = {**beside, **named}
        # Stat before reading: a change in between causes one read too many, never one too few.
        self._seen = self._read_files()
        rules = {name: unusable(path, folder=True) for name, path in sorted(beside.items())}
        problems = [f"{name}: {rule}" for name, rule in rules.items() if rule]
        self.properties: dict[str, Property] = {}
        for name, value in given.items():
            if not isinstance(value, Path):
                self.properties[name] = value
                continue
            try:
                self.properties[name] = text_in(value)
            except ValueError as error:
                problems.append(f"{name}: {error}")
        if problems:
            raise ValueError("; ".join(problems))
        secrets: set[str] = set()
        self._short = []
        for name, value in self.properties.items():
            if name in named or is_secret(name):
                secrets.update(_quoted(name, str(value)))
                if len(str(value)) < LEAST_SECRET:
                    self._short.append(name)
            for login, query in _IN_URL.findall(str(value)):
                secrets.update((login, *filter(_WORD.search, [query])))
        self.secrets = {secret for secret in secrets if len(secret) >= LEAST_SECRET}
        self.make_token: TokenMaker | None = None
        if aws_iam is not None:
            self.properties = {**_AWS_IAM, **self.properties}
            self.make_token = TokenMaker(aws_iam, self.secrets)

    def list_changed(self) -> list[str]:
        """Return the properties whose file has changed since it was read, sorted."""
        now = self._read_files()
        return sorted(name for name, seen in self._seen.items() if now[name] != seen)

    def reload(self) -> Self:
        """Return them with the present files. Raises ValueError as the constructor does."""
        return type(self)(self._given, self._aws_iam)

    def list_exposed(self) -> Iterator[str]:
        """Yield one line for each secret that is too short to be hidden, and each file that every user may read."""
        for name in sorted(self._short):
            yield (
                f"{name}: has fewer than {LEAST_SECRET} characters, and a message that quotes it would show it; "
                "next step: choose a longer one"
            )
        for name, path in sorted(self._files.items()):
            seen = self._seen[name]
            if seen is None or not (isinstance(self._given[name], Path) or _PRIVATE.fullmatch(name)):
                continue
            mode = stat.S_IMODE(path.stat().st_mode)
            if mode & stat.S_IROTH and path.is_file():
                yield (
                    f"{name}: {path} can be read by every user of this host (mode {mode:04o}); next step: chmod o-r, "
                    "or in Kubernetes defaultMode: 0440 in the volume of the secret"
                )

    def redact(self, text: str) -> str:
        """Return ``text`` with every secret replaced by ``***``."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    def _read_files(self) -> dict[str, Seen | None]:
        return {name: _seen(path) for name, path in self._files.items()}


def _quoted(name: str, secret: str) -> Iterator[str]:
    """Yield a secret, and the words in it where librdkafka (2.16.1) quotes parts in errors, or values for %{NAME}."""
    yield secret
    if name in ("sasl.kerberos.kinit.cmd", "sasl.oauthbearer.config"):
        yield from _BETWEEN_WORDS.split(secret)


def _seen(path: Path) -> Seen | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns

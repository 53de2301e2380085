"""URLs and the answers of servers as an error message may show them: in one line and without secrets."""

from __future__ import annotations

from base64 import b64encode
from urllib.parse import unquote_plus, urlsplit

_MAX_QUOTED = 200
_LEAST_VALUE = 8
"""Characters of a value in a URL from which on it may be a secret; a shorter one would hide words of an error."""


_LEAST_SECRET = 6
"""Characters. To replace a shorter one would destroy the text, and show by the gaps what it is."""


def secrets_of(url: str, authorization: str) -> tuple[str, ...]:
    """Return the secrets of a request: what no message may show.

    Of the URL these are all that follows the host, and each value of its query, because some services sign there. Of
    the header Authorization it is the whole value, and the value without its scheme.
    """
    split = urlsplit(url)
    values = [value for pair in split.query.split("&") if len(value := pair.partition("=")[2]) >= _LEAST_VALUE]
    header = (authorization, authorization.partition(" ")[2])
    return (url, split.path, split.query, *values, *map(unquote_plus, values), *header)


def place_of(url: str) -> str | None:
    """Return scheme, host and port of a URL, none of its secrets; None where it is no URL of HTTP."""
    try:
        split = urlsplit(url)
        port = "" if split.port is None else f":{split.port}"
    except ValueError:
        return None
    return f"{split.scheme}://{split.hostname}{port}" if split.scheme in ("http", "https") and split.hostname else None


def sent_as(username: str | None, password: str) -> tuple[str, ...]:
    """Return a password as it is, and as AUTH sends it: a server may quote the command that it refuses."""
    if not password:
        return ()
    encoded = (b64encode(text.encode()).decode() for text in (f"\0{username}\0{password}", password))
    return (password, *encoded)


def quoted(text: str, *secrets: str) -> str:
    """Return the text of a server as one printable line, without secrets."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, "***") if len(secret) >= _LEAST_SECRET else text
    line = "".join(one if one.isprintable() else " " for one in text)
    return " ".join(line.split())[:_MAX_QUOTED]

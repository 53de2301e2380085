"""The services of apprise: what a file with a URL names, and one message to it. No text has a secret."""

from __future__ import annotations

import logging
import re
from base64 import b64encode
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from exporter.background_call import call_in_thread
from exporter.secret_files import text_in

if TYPE_CHECKING:
    from apprise import NotifyBase

TRY_SECONDS = 60.0
"""After this a message is given up, however slowly the server answers."""

_LEAST_SECRET = 4
"""Characters: to replace a shorter text would destroy an error, and show by the gaps what it is."""

_ADDRESSES = ("from", "to", "smtp", "name")
"""Parameters of a URL that hold no secret."""


def service_in(file: Path, to: str | None) -> NotifyBase:
    """Return the service whose URL a file holds; ``to`` is the recipient where the URL names none.

    Raises ValueError with the file, the rule and the next step.
    """
    try:
        from apprise import Apprise, AppriseAsset  # noqa: PLC0415 - an exporter that sends nothing needs no apprise
    except ImportError:
        raise ValueError("apprise is not installed; next step: pip install '.[spark]' in a checkout") from None
    # Its own lines may quote a URL: nobody gets them but `post`, whose error says what a person needs of them.
    log = logging.getLogger("apprise")
    log.propagate = False
    log.setLevel(logging.DEBUG)
    asset = AppriseAsset(app_id="Topic liveness", app_desc="Topic liveness", http_redirects=False, service_timeout=0)
    found = Apprise.instantiate(_url(file, to), asset=asset)
    if found is None:
        raise ValueError(
            f"{file} holds no URL of a service that apprise knows; next step: write it as "
            "https://appriseit.com/services/ says, such as mailtos://USER:PASSWORD@HOST?from=ADDRESS&to=ADDRESS"
        )
    if len(found) > found.retry + 1:  # apprise counts each try of each recipient
        raise ValueError(f"{file} names several recipients; next step: give each its own entry in delivery.recipients")
    return found


def post(file: Path, to: str | None, title: str, body: str, page: tuple[str, bytes] | None) -> None:
    """Send a message in Markdown, with a page (name, HTML) attached. Raises ValueError with the reason of a refusal."""
    service = service_in(file, to)
    from apprise import Apprise  # noqa: PLC0415 - as above
    from apprise.attachment import memory  # noqa: PLC0415 - as above

    attachment: Any = memory.AttachMemory
    attached = None if page is None else attachment(page[1], name=page[0], mimetype="text/html")
    send = partial(Apprise([service]).notify, body, title, attach=attached, body_format="markdown")
    options: dict[str, Any] = {"log_level": logging.DEBUG, "interpret_escapes": False}
    try:
        # In a thread that Python does not wait for at its end: a server may send a byte now and then, and no answer.
        result = call_in_thread(lambda: send(**options), "delivery").result(TRY_SECONDS)
    except TimeoutError:
        raise ValueError(f"timed out: no answer within {TRY_SECONDS:.0f} s") from None
    if result:
        return
    lines = [line.message for line in result.logs() if line.level in ("WARNING", "ERROR") or "xception" in line.message]
    reason = "; ".join(dict.fromkeys(lines)) or "the service did not take it"
    raise ValueError(_shown(reason, set(_secrets_of(_url(file, to)))))


def _url(file: Path, to: str | None) -> str:
    url = text_in(file)
    return url if to is None else f"{url}{'&' if '?' in url else '?'}to={quote(to)}"


def _secrets_of(url: str) -> Iterator[str]:
    """Yield what no text may show: all of a URL but its host and the addresses of a mail, as written and decoded."""
    split = urlsplit(url)
    public_texts = [split.hostname or "", *(value for name, value in parse_qsl(split.query) if name in _ADDRESSES)]
    public = {piece for text in public_texts for piece in (text, *re.split(r"[@:,]", text))}
    rest = url.partition("://")[2]
    for piece in (rest, split.path, split.query, *re.split(r"[/?&=:@]", rest), split.password or ""):
        for secret in (piece, unquote(piece)):
            if len(secret) >= _LEAST_SECRET and secret not in public:
                yield secret
    # As AUTH sends a password: a server may quote the command that it refuses.
    user, password = unquote(split.username or ""), unquote(split.password or "")
    if password:
        yield from (b64encode(text.encode()).decode() for text in (f"\0{user}\0{password}", password))


def _shown(text: str, secrets: set[str]) -> str:
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    line = "".join(one if one.isprintable() else " " for one in text)
    return " ".join(line.split())[:400]

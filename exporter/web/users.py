"""Basic authentication (RFC 7617) of the users in the web configuration file."""

import asyncio
import base64
import binascii
import hashlib
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import bcrypt
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from exporter.web.config_file import WebConfig

REALM = "topic-liveness"
"""The realm in every refusal: it shows clients which service asks for a password."""

MAX_REMEMBERED = 100
"""Passwords whose hash is known already; a hash takes a tenth of a second."""

MAX_WAITING = 16
"""Password checks under way; requests beyond them are refused with 503, so that guesses cost no scrape."""

_NOBODY = "$2b$10$abcdefghijklmnopqrstuuHJ1BMmzGnSGr5HRm1pzWsW9vjEaXBSG"
"""What an unknown user's password is compared with, so that the time of an answer does not show which users exist."""

_REFUSED = PlainTextResponse(
    "Unauthorized\n", 401, headers={"WWW-Authenticate": f'Basic realm="{REALM}", charset="UTF-8"'}
)
_BUSY = PlainTextResponse("busy: too many passwords are being checked\n", 503)


class Users:
    """ASGI middleware: lets in whom the web configuration names."""

    def __init__(self, app: ASGIApp, config: Callable[[], WebConfig]) -> None:
        self._app = app
        self._config = config
        # One thread of its own: guesses take turns with one another, and not with pages.
        self._hashing = ThreadPoolExecutor(1, thread_name_prefix="web-users")
        self._waiting = 0
        self._known: set[bytes] = set()
        """Salted hashes of users with their passwords that were let in."""
        self._salt = os.urandom(16)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        refusal = await self._refusal(Headers(scope=scope).get("authorization", ""), self._config().users)
        await (refusal or self._app)(scope, receive, send)

    def close(self) -> None:
        """Let its thread end."""
        self._hashing.shutdown(wait=False, cancel_futures=True)

    async def _refusal(self, authorization: str, users: Mapping[str, str]) -> PlainTextResponse | None:
        """Return the refusal for a client that is not let in, None for others."""
        scheme, _, encoded = authorization.partition(" ")
        if not users:
            return None
        try:
            user, _, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            return _REFUSED
        if scheme.lower() != "basic":
            return _REFUSED
        hashed = users.get(user, _NOBODY)
        credentials = f"{user}\0{hashed}\0{password}".encode()
        key = hashlib.blake2b(credentials, key=self._salt).digest()
        if key in self._known:
            return None
        if self._waiting >= MAX_WAITING:
            return _BUSY
        self._waiting += 1
        try:
            fits = await asyncio.get_running_loop().run_in_executor(self._hashing, _fits, password, hashed)
        finally:
            self._waiting -= 1
        if not fits or user not in users:
            return _REFUSED
        if len(self._known) >= MAX_REMEMBERED:  # passwords that were replaced since
            self._known.clear()
        self._known.add(key)
        return None


def _fits(password: str, hashed: str) -> bool:
    try:
        return bcrypt.checkpw(password.encode(), hashed.encode())
    except ValueError:  # more than 72 bytes: bcrypt hashes none such
        return False

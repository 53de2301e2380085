"""A connection of uvicorn that a silent client cannot hold for good."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from exporter.logs import OnceAMinute
from exporter.web.config_file import WebConfig

log = logging.getLogger(__name__)

for _name in (__name__, "asyncio", "uvicorn.error"):
    # They log each connection, so whoever can connect could fill the disk.
    logging.getLogger(_name).addFilter(OnceAMinute())


class Connection(H11Protocol):
    """One client's connection. uvicorn closes it when it is idle after an answer; here it is closed before one too."""

    def __init__(self, web_config: Callable[[], WebConfig], **given: Any) -> None:
        super().__init__(**given)
        self._web_config = web_config

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # noqa: D102 - of asyncio
        super().connection_made(transport)
        self._first = self.loop.call_later(self.timeout_keep_alive, self._close_without_request)
        allowed = self._web_config().allowed_sans
        if allowed and allowed.isdisjoint(_names(transport)):
            log.warning("HTTP: a client's certificate holds none of client_allowed_sans")
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: D102 - of asyncio
        self._first.cancel()
        super().connection_lost(exc)

    def _close_without_request(self) -> None:
        if self.cycle is None:  # until the first request is whole
            self.transport.abort()


def _names(transport: asyncio.Transport) -> set[str]:
    """Return the alternative names in the certificate that a client showed."""
    shown = transport.get_extra_info("peercert") or {}
    return {name for _, name in shown.get("subjectAltName", ())}

"""Limits that uvicorn lacks: on the number of connections, and on the time for which a client may be silent.

uvicorn (0.54) takes every connection, and waits without end for a TLS handshake, for a request's headers and for an
answer to be read. One that waits costs its socket here, for ten seconds at most.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import IntEnum
from functools import partial
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from exporter.logs import OnceAMinute
from exporter.web.config_file import WebConfig

IDLE_SECONDS = 10.0
"""Time a client has for its TLS handshake, for the whole of its next request, and to take something of an answer."""

MAX_CONNECTIONS = 256
"""Largest number of open connections. At this number an idle one is closed before another is accepted."""

ACCEPT_AGAIN_SECONDS = 1.0
"""Pause after a connection that could not be taken: most likely this process has no descriptor left."""

DATE_SECONDS = 1.0
"""How often the date in the headers of answers is set."""

log = logging.getLogger(__name__)

for _name in (__name__, "asyncio", "uvicorn.error"):
    # They log each connection, so whoever can connect could fill the disk.
    logging.getLogger(_name).addFilter(OnceAMinute())


class Server(uvicorn.Server):
    """uvicorn's server, which takes connections one by one, never more than MAX_CONNECTIONS.

    An asyncio server takes all that wait at once, before any of them can be counted or closed, and has one TLS
    context for good.
    """

    def __init__(self, config: uvicorn.Config, web_config: Callable[[], WebConfig], idle_seconds: float) -> None:
        super().__init__(config)
        self._web_config = web_config
        self._idle_seconds = idle_seconds
        self._opening: dict[asyncio.Task[None], float] = {}
        """Connections whose TLS handshake is not over, and since when."""
        self._ending = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def end(self) -> None:
        """Serve no longer. For any thread."""
        self.should_exit = True
        if self._loop is not None:
            with suppress(RuntimeError):  # it has ended by itself
                self._loop.call_soon_threadsafe(self._ending.set)

    async def main_loop(self) -> None:
        """Serve until ``end``. uvicorn checks ten times a second whether to end, for 9 ms of CPU in 5 s."""
        self._loop = asyncio.get_running_loop()
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), DATE_SECONDS)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve on the one socket given."""
        await super().startup(sockets=[])
        assert sockets is not None
        [listening] = sockets
        listening.setblocking(False)
        self._accepting = asyncio.create_task(self._accept(listening))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more connections, then end those there are."""
        ending = [self._accepting, *self._opening]
        for task in ending:
            task.cancel()
        await asyncio.wait(ending)
        await super().shutdown(sockets)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                taken, _ = await loop.sock_accept(listening)
                await self._make_room()
                task = loop.create_task(self._open(taken))
                self._opening[task] = loop.time()
                task.add_done_callback(partial(self._opened, taken))
            except Exception as error:  # noqa: BLE001 - a server that stops accepting would be up and deaf
                log.warning("HTTP: a connection could not be taken: %s", error)
                await asyncio.sleep(ACCEPT_AGAIN_SECONDS)

    def _opened(self, taken: socket.socket, task: asyncio.Task[None]) -> None:
        del self._opening[task]
        if task.cancelled():
            taken.close()
        elif isinstance(error := task.exception(), OSError):
            taken.close()
            reason = getattr(error, "reason", None) or str(error) or type(error).__name__
            log.warning("HTTP: a TLS handshake failed: %s", reason)

    async def _open(self, taken: socket.socket) -> None:
        """Shake hands, and hand over to uvicorn."""
        config = self._web_config()
        limit = None if config.tls is None else self._idle_seconds
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: _Connection(self, config, self._idle_seconds), taken, ssl=config.tls, ssl_handshake_timeout=limit
        )

    async def _make_room(self) -> None:
        while len(self._opening) + len(self.server_state.connections) >= MAX_CONNECTIONS:
            _, _, close = min(self._waiting(), key=lambda one: one[:2], default=(_Need.ANSWERED, 0.0, None))
            if close is not None:
                log.warning(
                    "HTTP: %d connections are open, the most allowed: closing one that waits for its client",
                    MAX_CONNECTIONS,
                )
                close()
                await asyncio.sleep(0)
            else:
                # All of them are being answered, by threads that need the processor, or closed.
                await asyncio.sleep(0.01)

    def _waiting(self) -> Iterator[tuple[_Need, float, Callable[[], Any]]]:
        """Yield each connection that waits for its client: how much it is needed, since when, and what closes it."""
        for task, since in self._opening.items():
            if not task.cancelling():
                yield _Need.NO_REQUEST, since, task.cancel
        for one in self.server_state.connections:
            if isinstance(one, _Connection) and not one.working and not one.transport.is_closing():
                yield one.need, one.waiting_since, one.transport.abort


class _Need(IntEnum):
    """The order in which idle connections are closed for new ones: the lowest first."""

    ANSWERED = 0
    """It has its answer, and connects again when it wants another, as clients do."""
    NO_REQUEST = 1
    TAKES_ANSWER = 2


class _Connection(H11Protocol):
    """One client connection with a time limit.

    A silent client, one that trickles its headers and one that does not read its answer are all closed.
    """

    def __init__(self, server: Server, web_config: WebConfig, idle_seconds: float) -> None:
        super().__init__(server.config, server.server_state, server.lifespan.state)
        self._allowed_sans = web_config.allowed_sans
        self._idle_seconds = idle_seconds

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.waiting_since = self.loop.time()
        self._unsent = 0
        self._timer = self.loop.call_later(self._idle_seconds, self._check_progress)
        if self._allowed_sans and self._allowed_sans.isdisjoint(_names(transport)):
            log.warning("HTTP: a client's certificate holds none of client_allowed_sans")
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self.waiting_since = self.loop.time()
        self._unsent = self.transport.get_write_buffer_size()
        self._timer.cancel()
        self._timer = self.loop.call_later(self._idle_seconds, self._check_progress)
        super().on_response_complete()

    @property
    def working(self) -> bool:
        """Whether an answer is in the making, for a client that took all that was sent before."""
        return self._has_request and not self.cycle.response_complete and not self.transport.get_write_buffer_size()

    @property
    def _has_request(self) -> bool:
        return bool(self.cycle)  # uvicorn: None until the first request

    @property
    def need(self) -> _Need:
        """How much its client needs it, where it waits for the client."""
        if self.transport.get_write_buffer_size():
            return _Need.TAKES_ANSWER
        return _Need.ANSWERED if self._has_request else _Need.NO_REQUEST

    def _check_progress(self) -> None:
        unsent = self.transport.get_write_buffer_size()
        # An answer in pieces fills the buffer again as it empties: a client that takes nothing leaves it as it was.
        if not self.working and unsent == self._unsent:
            self.transport.abort()
            return
        self._unsent = unsent
        self._timer = self.loop.call_later(self._idle_seconds, self._check_progress)


def _names(transport: asyncio.Transport) -> set[str]:
    """Return the alternative names in the certificate that a client showed."""
    shown = transport.get_extra_info("peercert") or {}
    return {name for _, name in shown.get("subjectAltName", ())}

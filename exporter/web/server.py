"""The HTTP server: uvicorn in a thread of its own; signals stay with ``app``."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from exporter.logs import OnceAMinute
from exporter.web.pages import Pages, make_app

IDLE_SECONDS = 10.0
"""Time a client has for the whole of its next request, and to take something of an answer."""

MAX_CONNECTIONS = 256
"""With so many open, the one that has been waiting longest makes room before another is taken."""

ACCEPT_AGAIN_SECONDS = 1.0
"""Pause after a connection that could not be taken: most likely this process has no descriptor left."""

DRAIN_SECONDS = 3

_WORKERS = 2

log = logging.getLogger(__name__)

for _name in (__name__, "asyncio", "uvicorn.error"):
    # Whoever can connect could fill the disk with what they say of each connection.
    logging.getLogger(_name).addFilter(OnceAMinute())


class WebError(Exception):
    """The address cannot be listened on; the text names it, the cause and the next step."""


class WebServer:
    """Serves ``pages`` on ``listen`` (``host:port``, ``[::]:port``; port 0 takes a free one)."""

    def __init__(self, listen: str, pages: Pages, *, idle_seconds: float = IDLE_SECONDS) -> None:
        self._listen = listen
        self._workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="web")
        self._socket: socket.socket | None = None
        self._port: int | None = None
        self._server = _Server(
            uvicorn.Config(
                make_app(pages, self._workers),
                http=type("Connection", (_Connection,), {"idle_seconds": idle_seconds}),
                ws="none",
                lifespan="off",
                loop="asyncio",
                log_config=None,
                log_level="error",  # below it says each request that is none
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=DRAIN_SECONDS,
            )
        )
        self._thread = threading.Thread(target=self._serve, name="web-server", daemon=True)

    @property
    def port(self) -> int:
        """The port that is bound. Raises RuntimeError before ``start``."""
        if self._port is None:
            raise RuntimeError("the web server is not started")
        return self._port

    @property
    def address(self) -> str:
        """``host:port`` with the port that is bound. Raises RuntimeError before ``start``."""
        return f"{self._listen.rpartition(':')[0] or '0.0.0.0'}:{self.port}"

    def start(self) -> None:
        """Bind and serve; returns once clients can connect. Raises WebError."""
        self._socket = bind(self._listen)
        self._port = int(self._socket.getsockname()[1])
        self._thread.start()

    def stop(self) -> None:
        """Take no more connections, finish running answers, end within a few seconds."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(DRAIN_SECONDS + 5)
        self._workers.shutdown(wait=False, cancel_futures=True)

    def _serve(self) -> None:
        assert self._socket is not None
        self._server.run(sockets=[self._socket])


class _Server(uvicorn.Server):
    """uvicorn's server, which takes connections one by one and never more than MAX_CONNECTIONS.

    An asyncio server takes all that wait at once, before any of them can be counted or closed.
    """

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve on the one socket given."""
        await super().startup(sockets=[])
        assert sockets is not None
        [listening] = sockets
        listening.setblocking(False)
        self._accepting = asyncio.create_task(self._accept(listening))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more connections, then end those there are."""
        self._accepting.cancel()
        await asyncio.wait([self._accepting])
        await super().shutdown(sockets)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                taken, _ = await loop.sock_accept(listening)
                await self._make_room()
                await loop.connect_accepted_socket(self._connection, taken)
            except Exception as error:  # noqa: BLE001 - a server that stops accepting would be up and deaf
                log.warning("HTTP: a connection could not be taken: %s", error)
                await asyncio.sleep(ACCEPT_AGAIN_SECONDS)

    async def _make_room(self) -> None:
        while len(connections := self._connections()) >= MAX_CONNECTIONS:
            waiting = (one for one in connections if not one.working and not one.transport.is_closing())
            if (longest := min(waiting, key=lambda one: one.waiting_since, default=None)) is not None:
                log.warning("HTTP: %d connections are open: the one that waits longest is closed", MAX_CONNECTIONS)
                longest.transport.abort()
                await asyncio.sleep(0)
            else:
                # All of them are being answered, by threads that need the processor.
                await asyncio.sleep(0.01)

    def _connections(self) -> list[_Connection]:
        return [one for one in self.server_state.connections if isinstance(one, _Connection)]

    def _connection(self) -> _Connection:
        kind = cast("type[_Connection]", self.config.http_protocol_class)
        return kind(self.config, self.server_state, self.lifespan.state)


class _Connection(H11Protocol):
    """One client connection with a time limit: uvicorn has none before the first request is complete.

    A silent client, one that trickles its headers and one that does not read its answer are all closed;
    none of them costs more than its own socket meanwhile.
    """

    idle_seconds = IDLE_SECONDS

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.waiting_since = self.loop.time()
        self._unsent = 0
        self._timer = self.loop.call_later(self.idle_seconds, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self.waiting_since = self.loop.time()
        self._unsent = self.transport.get_write_buffer_size()
        self._timer.cancel()
        self._timer = self.loop.call_later(self.idle_seconds, self._look)
        super().on_response_complete()

    @property
    def working(self) -> bool:
        """Whether an answer is in the making, for a client that took all that was sent before."""
        cycle: RequestResponseCycle | None = self.cycle  # uvicorn: None until the first request
        return cycle is not None and not cycle.response_complete and not self.transport.get_write_buffer_size()

    def _look(self) -> None:
        unsent = self.transport.get_write_buffer_size()
        # An answer in pieces fills the buffer again as it empties: a client that takes nothing leaves it as it was.
        if not self.working and unsent == self._unsent:
            self.transport.abort()
            return
        self._unsent = unsent
        self._timer = self.loop.call_later(self.idle_seconds, self._look)


def bind(listen: str) -> socket.socket:
    """Return a socket that listens on ``host:port``. Raises WebError."""
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdecimal():
        raise WebError(f"cannot listen on {listen}: it is not HOST:PORT, such as 0.0.0.0:9797")
    host = host.strip("[]") or "0.0.0.0"
    try:
        family, _, _, _, address = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
        return socket.create_server(address, family=family, backlog=1024, dualstack_ipv6=host == "::")
    except (OSError, OverflowError) as error:
        raise WebError(f"cannot listen on {listen}: {_cause(error, port)}") from None


def _cause(error: OSError | OverflowError, port: str) -> str:
    if isinstance(error, OverflowError):
        return "ports end at 65535."
    if isinstance(error, socket.gaierror):
        return "the host name does not resolve. Set web.listen to an address of this machine, such as 0.0.0.0:9797."
    match error.errno:
        case errno.EADDRINUSE:
            return (
                f"the port is in use. `ss -ltnp 'sport = :{port}'` shows by whom; or set web.listen "
                "(TOPIC_LIVENESS_WEB__LISTEN) to another port."
            )
        case errno.EACCES:
            return "no right to it. Ports below 1024 need CAP_NET_BIND_SERVICE; set web.listen to a higher port."
        case errno.EADDRNOTAVAIL:
            return "this machine has no such address. `ip addr` lists them; 0.0.0.0 means all."
    return f"{os.strerror(error.errno or 0)}. Set web.listen (TOPIC_LIVENESS_WEB__LISTEN) to another address."

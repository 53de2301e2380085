"""The HTTP server: uvicorn in a thread of its own; signals stay with ``app``."""

import asyncio
import errno
import logging
import socket
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from exporter.logs import OnceAMinute
from exporter.web.config_file import WebConfig, WebConfigFile
from exporter.web.pages import make_app
from exporter.web.status import Pages
from exporter.web.users import Users

DRAIN_SECONDS = 3

IDLE_SECONDS = 10
"""Time a client has for its first request, and for each further one."""

_WORKERS = 2
"""Threads that make pages and answers of the API; scrapes have one more, so that none waits for them."""


log = logging.getLogger(__name__)

for _name in (__name__, "asyncio", "uvicorn.error"):
    # They log each connection, so whoever can connect could fill the disk.
    logging.getLogger(_name).addFilter(OnceAMinute())


class Connection(H11Protocol):
    """One client's connection. uvicorn closes it only while nothing of a request is there; here one must be whole."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # noqa: D102 - of asyncio
        super().connection_made(transport)
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: D102 - of asyncio
        self._deadline.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:  # noqa: D102 - of uvicorn
        super().on_response_complete()
        self._deadline.cancel()
        self._await_request()

    def _await_request(self) -> None:
        self._deadline = self.loop.call_later(self.timeout_keep_alive, self._close_without_request)

    def _close_without_request(self) -> None:
        if self.cycle is None or self.cycle.response_complete:  # type: ignore[redundant-expr]
            self.transport.close()  # a slow client still gets its last answer


class WebError(Exception):
    """The address cannot be listened on; the text names it, the cause and the next step."""


class WebServer:
    """Serves ``pages`` on ``listen`` (``host:port``, ``[::]:port``; port 0 takes a free one)."""

    def __init__(
        self,
        listen: str,
        pages: Pages,
        config: WebConfigFile | None = None,
        *,
        report: Callable[[str], bytes | None] = lambda _: None,
        idle_seconds: int = IDLE_SECONDS,
    ) -> None:
        """``report`` returns a file of the last report, None where there is none."""
        self._listen = listen
        self._workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="web")
        self._scraper = ThreadPoolExecutor(1, thread_name_prefix="web-scrapes")
        self._socket: socket.socket | None = None
        self._port: int | None = None
        self._config = WebConfigFile(None) if config is None else config
        self._users = Users(make_app(pages, self._scraper, self._workers, report), self._web_config)
        self._server = uvicorn.Server(
            uvicorn.Config(
                self._users,
                http=Connection,
                ws="none",
                lifespan="off",
                loop="asyncio",
                log_config=None,
                log_level="error",  # below it uvicorn logs each invalid request
                access_log=False,
                server_header=False,
                proxy_headers=False,
                ssl_context_factory=None if self._web_config().tls is None else self._tls,
                timeout_keep_alive=idle_seconds,
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
        every = "[::]" if self._socket is not None and self._socket.family == socket.AF_INET6 else "0.0.0.0"
        return f"{self._listen.rpartition(':')[0] or every}:{self.port}"

    @property
    def scheme(self) -> str:
        """``https`` where the web configuration file holds a certificate."""
        return "http" if self._web_config().tls is None else "https"

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
        for workers in (self._scraper, self._workers):
            workers.shutdown(wait=False, cancel_futures=True)
        self._users.close()

    def _web_config(self) -> WebConfig:
        return self._config.current()

    def _tls(self, *_: object) -> ssl.SSLContext:
        """Return a context that gives each connection the certificate of the web configuration then in force."""
        context = self._web_config().tls
        assert context is not None

        def renew(connection: ssl.SSLObject, *_: object) -> None:
            connection.context = self._web_config().tls or context

        context.sni_callback = renew
        return context

    def _serve(self) -> None:
        assert self._socket is not None
        self._server.run(sockets=[self._socket])


def host_and_port(listen: str) -> tuple[str, int]:
    """Return where a process on this host reaches what listens on ``host:port`` or ``:port``. Raises ValueError."""
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    return {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), int(port)


def bind(listen: str) -> socket.socket:
    """Return a socket that listens on ``host:port``; ``:port`` means all addresses, of IPv6 too. Raises WebError."""
    host, _, port = listen.rpartition(":")
    try:
        listening = _bound(host.strip("[]"), int(port))
    except (OSError, UnicodeError) as error:
        cause = error.strerror if isinstance(error, OSError) else "no host has such a name"
        raise WebError(
            f"cannot listen on {listen}: {cause}. Set web.listen (TOPIC_LIVENESS_WEB__LISTEN) to an address "
            "of this machine and a port that is free and allowed; `:9797` means all addresses"
        ) from None
    # An answer is written in two pieces: the second would wait 40 ms for the client to acknowledge the first.
    # asyncio sees to that for sockets that it opens itself.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A client that takes nothing of its answer is closed by the kernel.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, IDLE_SECONDS * 1000)
    return listening


def _bound(host: str, port: int) -> socket.socket:
    """Raises OSError."""
    if not host and socket.has_dualstack_ipv6():
        try:
            return _bound("::", port)
        except OSError as error:  # a kernel that knows IPv6, on a host without it
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                raise
    family, _, _, _, address = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM)[0]
    return socket.create_server(address, family=family, backlog=1024, dualstack_ipv6=host == "::")

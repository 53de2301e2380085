"""A TCP proxy on loopback that makes a server slow: each request waits before it is passed on."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

_BLOCK = 2**18


class SlowLine:
    """A line to a server; a context manager, which leaves nothing open."""

    def __init__(self, url: str, seconds: float) -> None:
        """``seconds``: so long each request waits; it may be changed at any time."""
        self.seconds = seconds
        self.waiting = 0
        """Requests that wait just now."""
        self.passed = 0
        """Requests that were passed on."""
        self._target = urlsplit(url).hostname, urlsplit(url).port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._open, self._counting = threading.Event(), threading.Lock()
        self._open.set()
        self._sockets = [self._listener]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
        for one in self._sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def hold(self) -> None:
        """Let requests wait from now on until ``release``."""
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                self._sockets += [client, server]
                threading.Thread(target=self._ask, args=(client, server), daemon=True).start()
                threading.Thread(target=_pass, args=(server, client), daemon=True).start()

    def _ask(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while block := client.recv(_BLOCK):
                self._count(waiting=1)
                time.sleep(self.seconds)
                self._open.wait()
                self._count(waiting=-1, passed=1)
                server.sendall(block)
            server.shutdown(socket.SHUT_WR)

    def _count(self, *, waiting: int, passed: int = 0) -> None:
        with self._counting:
            self.waiting += waiting
            self.passed += passed


def _pass(server: socket.socket, client: socket.socket) -> None:
    """Hand on what a server answers."""
    with suppress(OSError):
        while block := server.recv(_BLOCK):
            client.sendall(block)
        client.shutdown(socket.SHUT_WR)

"""Servers over HTTP that answer as a test says."""

import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Reply = tuple[int, Mapping[str, str], bytes]
"""Status, headers and body."""


@contextmanager
def replying(reply: Callable[[str, Message, bytes], Reply], tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """A server that asks ``reply`` about path, headers and body of each request; yields its address."""

    class Answer(BaseHTTPRequestHandler):
        def answer(self) -> None:
            status, headers, body = reply(
                self.path, self.headers, self.rfile.read(int(self.headers["Content-Length"] or 0))
            )
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815 - names that the server looks for

        def log_message(self, *_: object) -> None:  # to stderr, else
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http{'' if tls is None else 's'}://127.0.0.1:{server.server_port}"
        server.shutdown()


@contextmanager
def answering(code: int, body: bytes) -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    """A server with one answer; yields its address and (path, Authorization) of requests."""
    seen: list[tuple[str, str | None]] = []

    def reply(path: str, headers: Message, _: bytes) -> Reply:
        seen.append((path, headers["Authorization"]))
        return code, {}, body

    with replying(reply) as address:
        yield address, seen

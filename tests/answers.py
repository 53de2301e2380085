"""A server that has one answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer


@contextmanager
def answering(code: int, body: bytes) -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    """A server with one answer; yields its address and (path, Authorization) of requests."""
    seen: list[tuple[str, str | None]] = []

    class Answer(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"] or 0))
            seen.append((self.path, self.headers["Authorization"]))
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815 - names that the server looks for

        def log_message(self, *_: object) -> None:  # to stderr, else
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", seen
        server.shutdown()

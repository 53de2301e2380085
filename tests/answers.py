"""A server that has one answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer


@contextmanager
def answering(code: int, body: bytes, pause: float = 0.0) -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    """A server with one answer, byte by byte with a pause; yields its address and (path, Authorization) of requests."""
    seen: list[tuple[str, str | None]] = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append((self.path, self.headers["Authorization"]))
            self.send_response(code)
            self.end_headers()
            with suppress(OSError):
                for at in range(0, len(body), 1 if pause else max(len(body), 1)):
                    self.wfile.write(body[at : at + 1] if pause else body)
                    time.sleep(pause)

        def log_message(self, *_: object) -> None:  # to stderr, else
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", seen
        server.shutdown()

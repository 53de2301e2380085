"""What is served: the Protocol that ``app`` fills, and the routes over it."""

from __future__ import annotations

import asyncio
import gzip
import logging
import re
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Protocol, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from exporter.logs import OnceAMinute
from exporter.web.status import Status, status_page

log = logging.getLogger(__name__)
log.addFilter(OnceAMinute())

T = TypeVar("T")

TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"
"""Content type of the exposition; whatever the client would rather have, this is the one format offered."""

MAX_WAITING = 32
"""Pages in the making; a request beyond them is told to come back, so a frozen part cannot pile up work."""

_GZIP = re.compile(r"(?:^|,)\s*(?:gzip|\*)\s*(?:;\s*q=(?P<q>[\d.]+)\s*)?(?=,|$)", re.IGNORECASE)
_GZIP_LEVEL = 3


class Pages(Protocol):
    """Where the pages come from. All but ``ready`` are called from worker threads, several at a time."""

    def metrics(self) -> bytes:
        """The exposition, Prometheus text format 0.0.4."""

    def ready(self) -> tuple[bool, str]:
        """Whether there is something to scrape, and lines that say so and tell of each cluster."""

    def status(self) -> Status:
        """What the status page shows."""


def make_app(pages: Pages, workers: Executor) -> Starlette:
    """Return the ASGI application; pages that take time are made by ``workers``, off the event loop."""
    waiting = 0

    async def made(make: Callable[[], T]) -> T:
        nonlocal waiting
        if waiting >= MAX_WAITING:
            raise HTTPException(503, f"busy: {waiting} requests are waiting already")
        waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(workers, make)
        except Exception:
            log.exception("a page could not be made")
            raise HTTPException(500, "internal error; the log says more") from None
        finally:
            waiting -= 1

    async def metrics(request: Request) -> Response:
        zipped = _wants_gzip(request.headers.get("accept-encoding", ""))

        def exposition() -> bytes:
            body = pages.metrics()
            return gzip.compress(body, _GZIP_LEVEL, mtime=0) if zipped else body

        headers = {"Vary": "Accept-Encoding", **({"Content-Encoding": "gzip"} if zipped else {})}
        return Response(await made(exposition), headers={**headers, "Content-Type": TEXT_FORMAT})

    async def healthy(_: Request) -> Response:
        return PlainTextResponse("healthy\n")

    async def ready(_: Request) -> Response:
        is_ready, line = pages.ready()
        return PlainTextResponse(f"{line}\n", 200 if is_ready else 503)

    async def status(_: Request) -> Response:
        page = await made(lambda: status_page(pages.status()))
        return HTMLResponse(
            page,
            headers={
                "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
                "Cache-Control": "no-store",
            },
        )

    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        text = "not found; the metrics are at /metrics" if error.status_code == 404 else error.detail
        return PlainTextResponse(f"{text}\n", error.status_code, headers=error.headers)

    return Starlette(
        routes=[
            Route("/metrics", metrics),
            Route("/-/healthy", healthy),
            Route("/-/ready", ready),
            Route("/", status),
        ],
        exception_handlers={HTTPException: refused},
    )


def _wants_gzip(accept_encoding: str) -> bool:
    """Whether gzip is named with a quality above 0 (RFC 9110, 12.5.3)."""
    match = _GZIP.search(accept_encoding)
    return match is not None and (match["q"] is None or match["q"].strip("0.") != "")

"""What is served: the routes, and how long they may take."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor
from typing import TypeVar

from prometheus_client.exposition import gzip_accepted
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from exporter.logs import OnceAMinute
from exporter.web import api, html
from exporter.web.status import Pages

log = logging.getLogger(__name__)
log.addFilter(OnceAMinute())

T = TypeVar("T")

TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"
"""The content type of the exposition."""

MAX_WAITING = 32
"""Pages in the making, and as many scrapes; a request beyond them is refused with 503, so a frozen part cannot pile up
work."""


class _Workers:
    """Threads that make pages, off the event loop, and how many requests wait for them."""

    def __init__(self, threads: Executor) -> None:
        self._threads = threads
        self._waiting = 0

    async def run(self, make: Callable[[], T]) -> T:
        """Return what is made. Raises HTTPException where too many wait already, or it could not be made."""
        if self._waiting >= MAX_WAITING:
            raise HTTPException(503, f"busy: {self._waiting} requests are waiting already")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, make)
        except HTTPException:
            raise
        except Exception:
            log.exception("a page could not be made")
            raise HTTPException(500, "internal error; the log says more") from None
        finally:
            self._waiting -= 1


def make_app(pages: Pages, scraper: Executor, workers: Executor, report: Callable[[str], bytes | None]) -> Starlette:
    """Return the ASGI application; ``scraper`` makes the exposition, ``workers`` all else that takes time.

    ``report`` returns a file of the last report, None where there is none.
    """
    scrapes, run_in_worker = _Workers(scraper), _Workers(workers).run

    async def metrics(request: Request) -> Response:
        zipped = gzip_accepted(request.headers.get("accept-encoding", ""))
        pieces = await scrapes.run(lambda: pages.scrape(zipped=zipped))
        headers = {
            "Content-Type": TEXT_FORMAT,
            "Content-Length": str(sum(map(len, pieces))),
            "Vary": "Accept-Encoding",
            **({"Content-Encoding": "gzip"} if zipped else {}),
        }
        return StreamingResponse(_each(pieces), headers=headers)

    async def healthy(_: Request) -> Response:
        return PlainTextResponse("healthy\n")

    async def ready(_: Request) -> Response:
        is_ready, line = pages.ready()
        return PlainTextResponse(f"{line}\n", 200 if is_ready else 503)

    async def refuse(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if request.url.path.startswith("/api/"):
            message = (
                "no such path; /api/v1/openapi.json describes all" if error.detail == "Not Found" else error.detail
            )
            return JSONResponse({"error": message}, error.status_code, headers=error.headers)
        text = "not found; the metrics are at /metrics" if error.status_code == 404 else error.detail
        return PlainTextResponse(f"{text}\n", error.status_code, headers=error.headers)

    app = Starlette(
        routes=[
            Route("/metrics", metrics),
            Route("/-/healthy", healthy),
            Route("/-/ready", ready),
            *html.routes(pages, run_in_worker, report),
            *api.routes(pages, run_in_worker),
        ],
        exception_handlers={HTTPException: refuse},
    )
    # A redirect would name this host and http, whatever a proxy before it is called and speaks.
    app.router.redirect_slashes = False
    return app


async def _each(pieces: Sequence[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece

"""A monitor of the exporter, and a web server in front of it for as long as a block lasts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from exporter.domain.ports import Clock
from exporter.state.cluster import MonitorSettings, Rhythm
from exporter.state.monitor import Monitor
from exporter.web.server import WebServer
from exporter.web.status import Pages


def monitor_of(
    clock: Clock,
    clusters: Mapping[str, Rhythm] | None = None,
    *,
    max_age: float = 8 * 86_400.0,
    version: str = "0",
    **settings: Any,
) -> Monitor:
    """Return the monitor of ``clusters``, of ``prod`` alone by default.

    It judges by expectations up to ``max_age`` seconds old; ``settings`` are further fields of MonitorSettings.
    """
    given = {"partition_switches": (), "expectations_max_age_seconds": max_age, **settings}
    return Monitor(MonitorSettings(clusters or {"prod": Rhythm(30.0)}, **given), clock, version=version)


@contextmanager
def served(pages: Pages, *config: Any, listen: str = "127.0.0.1:0", **options: Any) -> Iterator[WebServer]:
    """Serve pages until the block ends; what else is given goes to the server."""
    server = WebServer(listen, pages, *config, **options)
    server.start()
    try:
        yield server
    finally:
        server.stop()

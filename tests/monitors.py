"""A monitor of the exporter, and a web server in front of it for as long as a block lasts."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from exporter.domain.ports import Clock
from exporter.settings.schema import Settings
from exporter.state.monitor import Monitor
from exporter.web.server import WebServer
from exporter.web.status import Pages


def monitor_of(
    clock: Clock,
    clusters: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    max_age: float = 8 * 86_400.0,
    version: str = "0",
    **settings: Any,
) -> Monitor:
    """Return the monitor of ``clusters``, name -> own settings; of ``prod`` alone by default.

    It judges by expectations up to ``max_age`` seconds old, and without further ``settings`` shows no optional series.
    """
    kafka = {"bootstrap.servers": "broker:9092"}
    known = [{"name": name, "kafka": kafka, **own} for name, own in (clusters or {"prod": {}}).items()]
    given = {"metrics": {"partition": ()}, "expectations": {"max_age": max_age}, **settings}
    return Monitor(Settings.model_validate({"clusters": known, **given}), clock, version=version)


@contextmanager
def served(pages: Pages, *config: Any, listen: str = "127.0.0.1:0", **options: Any) -> Iterator[WebServer]:
    """Serve pages until the block ends; what else is given goes to the server."""
    server = WebServer(listen, pages, *config, **options)
    server.start()
    try:
        yield server
    finally:
        server.stop()

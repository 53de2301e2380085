"""HTTP: ``/metrics``, ``/-/healthy``, ``/-/ready`` and a status page."""

from typing import TYPE_CHECKING

from exporter.domain.lazy_names import lazy_names

if TYPE_CHECKING:
    from exporter.web.config_file import WebConfig, WebConfigError, WebConfigFile
    from exporter.web.pages import Pages
    from exporter.web.server import WebError, WebServer, bind
    from exporter.web.status import ClusterStatus, Status
    from exporter.web.users import REALM

__all__ = [
    "REALM",
    "ClusterStatus",
    "Pages",
    "Status",
    "WebConfig",
    "WebConfigError",
    "WebConfigFile",
    "WebError",
    "WebServer",
    "bind",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        __name__,
        {
            "config_file": ["WebConfig", "WebConfigError", "WebConfigFile"],
            "pages": ["Pages"],
            "server": ["WebError", "WebServer", "bind"],
            "status": ["ClusterStatus", "Status"],
            "users": ["REALM"],
        },
    )

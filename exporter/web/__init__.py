"""HTTP: ``/metrics``, ``/-/healthy``, ``/-/ready`` and a status page."""

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

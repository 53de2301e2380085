"""The present state of all clusters, fed by polls and collectors and shown as pages."""

from exporter.state.cluster import Rhythm
from exporter.state.monitor import Monitor
from exporter.state.monitor_settings import MonitorSettings

__all__ = ["Monitor", "MonitorSettings", "Rhythm"]

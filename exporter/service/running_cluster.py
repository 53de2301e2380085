"""One cluster that the service polls."""

from __future__ import annotations

from dataclasses import dataclass, field

from exporter.factory import ClusterCollectors
from exporter.history import History, HistoryCounts


@dataclass(slots=True)
class RunningCluster:
    """The parts of one cluster, its history, and whether a poll is running."""

    parts: ClusterCollectors
    history: History | None
    interval: float
    ends_within: float
    """Seconds that a running poll gets to end when the service stops."""
    window: float
    """Seconds of history that a window holds."""
    counted: HistoryCounts = field(default_factory=HistoryCounts)
    polling: bool = False
    leaving: bool = False
    """A reload replaces this cluster by one with other settings: its jobs no longer start."""

    @property
    def name(self) -> str:
        """The cluster's name in the configuration."""
        return self.parts.settings.name

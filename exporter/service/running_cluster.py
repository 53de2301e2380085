"""One cluster that the service polls."""

from __future__ import annotations

from dataclasses import dataclass, field

from exporter.factory import ClusterCollectors
from exporter.history import History, HistoryCounts
from exporter.service.result_gate import ResultGate


@dataclass(slots=True)
class RunningCluster:
    """The collectors of one cluster, its history, and whether a poll is running."""

    collectors: ClusterCollectors
    history: History | None
    interval: float
    ends_within: float
    """Seconds that a running poll gets to end when the service stops."""
    window: float
    """Seconds of history that a window holds."""
    counted: HistoryCounts = field(default_factory=HistoryCounts)
    polling: bool = False
    gate: ResultGate = field(default_factory=ResultGate)
    """Closed when a reload takes this cluster out, or gives it other settings: its jobs no longer start."""

    @property
    def name(self) -> str:
        """The cluster's name in the configuration."""
        return self.collectors.settings.name

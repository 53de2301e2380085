"""One cluster that the service polls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from exporter.factory.clusters import ClusterCollectors
from exporter.history.recorder import History
from exporter.history.unwritten import HistoryCounts

_Result = TypeVar("_Result")


class Collector(Protocol):
    """What runs beside the polls of a cluster, in a job of its own."""

    @property
    def waiting(self) -> bool:
        """Whether it has nothing to do yet: it begins after the first good poll."""


@dataclass(frozen=True, slots=True)
class CollectorJob(Generic[_Result]):
    """A collector as a periodic job of one cluster."""

    name: str
    interval: float
    """Seconds."""
    collector: Collector
    collect: Callable[[Callable[[], bool]], _Result]
    """Runs the collector once, until its argument returns True."""
    take: Callable[[_Result], None]
    """Called with the result."""


@dataclass(slots=True)
class RunningCluster:
    """The collectors of one cluster, its history, and whether a poll is running."""

    collectors: ClusterCollectors
    history: History | None
    interval: float
    ends_within: float
    """Seconds that a running poll gets to end when the service stops."""
    counted: HistoryCounts = field(default_factory=HistoryCounts)
    polling: bool = False

    @property
    def name(self) -> str:
        """The cluster's name in the configuration."""
        return self.collectors.settings.name

    def end(self, at: float) -> None:
        """Write the open window and, unless a poll is under way, end the collectors. Raises HistoryError."""
        if self.history is not None:
            self.history.flush(at)
        if not self.polling:
            self.collectors.close()

"""One cluster that the service polls."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from exporter.factory import ClusterCollectors
from exporter.history import History, HistoryCounts, HistoryError
from exporter.service.result_gate import ResultGate

log = logging.getLogger(__name__)

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
    """Called with the result, unless a reload has taken the cluster out meanwhile."""


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
    jobs: list[str] = field(default_factory=list)
    """Names of the jobs that are scheduled for it."""

    @property
    def name(self) -> str:
        """The cluster's name in the configuration."""
        return self.collectors.settings.name

    def poll_hangs(self, begun: float, now: Callable[[], float], stopping: Callable[[], bool]) -> bool:
        """Wait for a poll under way, unless the service is ``stopping``; return whether it took too long.

        The wait has ``begun`` at this time, by the clock that ``now`` reads.
        """
        ends = begun + 2 * (self.interval + self.ends_within)
        while self.polling and not stopping():  # not wait: a signal that comes then would wait for this thread
            if now() >= ends:
                return True
            time.sleep(0.05)
        return False

    def history_in(self, interval: float, window: float) -> History | None:
        """Return the history if it goes on where polls and windows take so many seconds, else None."""
        same = (self.interval, self.window) == (interval, window)
        return self.history if same and self.history is not None and not self.history.ended else None

    def end(self, at: float) -> None:
        """Write the open window and, unless a poll is under way, end the collectors. Raises HistoryError."""
        if self.history is not None:
            self.history.flush(at)
        if not self.polling:
            self.collectors.close()

    def close_history(self, at: float) -> None:
        """Write the open window of a cluster that is watched no more, or in other intervals. Logs what fails."""
        try:
            if self.history is not None:
                self.history.flush(at)
        except HistoryError as error:
            log.error("cluster %s: %s", self.name, error)

"""What happens to the exporter itself besides polls: its configuration, history, client processes and report."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping

from exporter.history.spool import Loss
from exporter.history.unwritten import HistoryCounts
from exporter.kafka.process import Restart
from exporter.metrics.self_metrics import SelfMetrics

UPKEEP = ("expectations", "spool")
"""The steps of upkeep: read expectations, keep the spool within its limits."""

_WRITE_ERRORS = (errno.EACCES, errno.EDQUOT, errno.EIO, errno.ENOSPC, errno.EROFS)
"""Why a write to the spool mostly fails."""


class Upkeep:
    """Takes what happened to the exporter itself, and counts it in its own metrics."""

    def __init__(self, self_metrics: SelfMetrics) -> None:
        self._self_metrics = self_metrics
        for step in UPKEEP:
            self._self_metrics.add("upkeep_failures_total", 0, step=step)
        self.problems: dict[str, str] = {}
        """Present problems of upkeep, by step of UPKEEP."""
        self.take_web_configuration(good=True)

    def count_from_zero(self, cluster: str) -> None:
        """Show the counters of a cluster at 0: an alert on the increase of a counter misses what it first has."""
        for reason in Loss:
            self._self_metrics.add("history_windows_dropped_total", 0, kafka_cluster=cluster, reason=reason)
        for number in _WRITE_ERRORS:
            self._self_metrics.add("history_write_failures_total", 0, kafka_cluster=cluster, reason=os.strerror(number))
        for why in Restart:
            self._self_metrics.add("client_restarts_total", 0, kafka_cluster=cluster, reason=why)

    def take_web_configuration(self, *, good: bool) -> None:
        """Show whether the web configuration file and the files that it names are in force as they are now."""
        self._self_metrics.set("web_config_last_reload_successful", int(good))

    def take_report(self, written_at: float | None) -> None:
        """Take the time of the last report that reached everybody, None where there is none."""
        if written_at is not None:
            self._self_metrics.set("report_last_success_timestamp_seconds", written_at)

    def take_history(self, cluster: str, before: HistoryCounts, counts: HistoryCounts) -> None:
        """Add the difference between two states of the counters of history."""
        labels = {"kafka_cluster": cluster}
        for reason, lost in (counts.dropped - before.dropped).items():
            self._self_metrics.add("history_windows_dropped_total", lost, **labels, reason=reason)
        for reason, failed in (counts.failed_writes - before.failed_writes).items():
            self._self_metrics.add("history_write_failures_total", failed, **labels, reason=reason)
        if counts.last_write is not None:
            self._self_metrics.set("history_last_write_timestamp_seconds", counts.last_write, **labels)

    def take_client_restart(self, cluster: str, why: Restart) -> None:
        """Count a process with a Kafka client that was replaced."""
        self._self_metrics.add("client_restarts_total", 1, kafka_cluster=cluster, reason=why)

    def take_client_memory(self, cluster: str, held: int | None) -> None:
        """Take the bytes that the process with the Kafka clients of a cluster holds, None where there is none."""
        if held is None:
            self._self_metrics.forget("client_resident_memory_bytes", kafka_cluster=cluster)
        else:
            self._self_metrics.set("client_resident_memory_bytes", held, kafka_cluster=cluster)

    def take_step(self, step: str, problem: str) -> None:
        """Take the result of a step of upkeep; ``problem`` is "" where it succeeded."""
        if problem:
            self._self_metrics.add("upkeep_failures_total", 1, step=step)
            self.problems[step] = problem
        else:
            self.problems.pop(step, None)

    def take_spool_loss(self, lost: Mapping[str, int]) -> None:
        """Count windows that were deleted because the spool was full, by cluster."""
        for cluster, windows in lost.items():
            self._self_metrics.add(
                "history_windows_dropped_total", windows, kafka_cluster=cluster, reason=Loss.SPOOL_FULL
            )

"""The monitor of all clusters, with published expectations, and what the exporter knew before a restart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from exporter import __version__
from exporter.clock import SystemClock
from exporter.domain.overrides import Overrides
from exporter.factory.sources import owners_of
from exporter.history.cluster_states import LastState, read_state
from exporter.history.published import Expectations
from exporter.history.spool import HistoryError
from exporter.settings.schema import ClusterSettings, Settings
from exporter.state.cluster import MonitorSettings, Rhythm
from exporter.state.monitor import Monitor
from exporter.storage.storage_thread import StorageThread


def make_monitor(settings: Settings, clock: SystemClock, expectations: Expectations) -> Monitor:
    """Return the monitor of all configured clusters, with published expectations."""
    expectations.refresh()
    monitor = Monitor(monitor_settings(settings), clock, version=__version__)
    monitor.take_expectations(expectations.published, expectations.problem)
    return monitor


def monitor_settings(settings: Settings) -> MonitorSettings:
    """Return which clusters the monitor shows and how, and what is configured of their topics."""
    return MonitorSettings(
        clusters={cluster.name: _rhythm(cluster, settings) for cluster in settings.clusters},
        partition_switches=settings.metrics.partition,
        partitions=settings.metrics.granularity == "partition",
        expectations_max_age_seconds=settings.expectations.max_age,
        overrides=Overrides([override.make_override() for override in settings.overrides]),
        owners=owners_of(settings),
        links=settings.links.make_links(),
    )


def last_states(settings: Settings, clusters: Sequence[ClusterSettings]) -> Mapping[str, LastState]:
    """Return what the exporter knew of each of these clusters when it ended. Raises HistoryError."""
    folder = settings.history.folder

    def read() -> Mapping[str, LastState]:
        found = {cluster.name: read_state(folder, cluster.name, settings.exporter) for cluster in clusters}
        return {name: last for name, last in found.items() if last is not None}

    try:
        return StorageThread("history-reader").call(read)
    except OSError as error:
        raise HistoryError(
            f"history.folder {str(folder)!r} cannot be read: {error.strerror}. Fix that and start it again"
        ) from error


def _rhythm(cluster: ClusterSettings, settings: Settings) -> Rhythm:
    poll, groups = settings.poll_of(cluster), settings.groups_of(cluster)
    sweep_interval = groups.interval if groups.enabled else None
    return Rhythm(poll.interval, poll.missed_polls, sweep_interval)

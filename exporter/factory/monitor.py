"""The monitor of all clusters, with published expectations, and what the exporter knew before a restart."""

from collections.abc import Mapping

from exporter import __version__
from exporter.clock import SystemClock
from exporter.history.cluster_states import LastState, read_state
from exporter.history.published import Expectations
from exporter.history.spool import HistoryError
from exporter.settings.schema import Settings
from exporter.state.monitor import Monitor
from exporter.storage.storage_thread import StorageThread


def make_monitor(settings: Settings, clock: SystemClock, expectations: Expectations) -> Monitor:
    """Return the monitor of all configured clusters, with published expectations."""
    expectations.refresh()
    monitor = Monitor(settings, clock, version=__version__)
    monitor.take_expectations(expectations.published, expectations.problem)
    return monitor


def last_states(settings: Settings) -> Mapping[str, LastState]:
    """Return what the exporter knew of each cluster when it ended. Raises HistoryError."""
    folder = settings.history.folder

    def read() -> Mapping[str, LastState]:
        found = {cluster.name: read_state(folder, cluster.name, settings.exporter) for cluster in settings.clusters}
        return {name: last for name, last in found.items() if last is not None}

    try:
        return StorageThread("history-reader").call(read)
    except OSError as error:
        raise HistoryError(
            f"history.folder {str(folder)!r} cannot be read: {error.strerror}. Fix that and start it again"
        ) from error

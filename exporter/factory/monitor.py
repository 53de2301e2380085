"""The monitor of all clusters, with what published expectations and the spool know already."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from exporter import __version__
from exporter.clock import SystemClock
from exporter.domain.overrides import Overrides
from exporter.domain.polls.last_advances import LastAdvances
from exporter.domain.polls.unchanged_offsets import UnchangedOffsets
from exporter.factory.sources import owners_of
from exporter.history.last_advances import last_advances
from exporter.history.published import Expectations
from exporter.history.spool import HistoryError
from exporter.history.unchanged_offsets import unchanged_since
from exporter.settings import ClusterSettings, Settings
from exporter.state import Monitor, MonitorSettings, Rhythm
from exporter.storage.storage_thread import StorageThread

_SPOOL_SECONDS = 3600.0
"""So long a start may read the spool: 16,384 files in object storage, one after the other."""


def make_monitor(settings: Settings, clock: SystemClock, expectations: Expectations) -> Monitor:
    """Return the monitor of all configured clusters, with published expectations and later advances."""
    expectations.refresh()
    published = expectations.published
    monitor = Monitor(
        monitor_settings(settings),
        clock,
        version=__version__,
        advances=advances_since(settings, None if published is None else published.as_of),
    )
    monitor.take_expectations(published, expectations.problem)
    return monitor


def monitor_settings(settings: Settings) -> MonitorSettings:
    """Return which clusters the monitor shows and how, and what is configured of their topics."""
    return MonitorSettings(
        clusters={cluster.name: _rhythm(cluster, settings) for cluster in settings.clusters},
        partition_switches=settings.metrics.partition,
        partitions=settings.metrics.granularity == "partition",
        expectations_max_age_seconds=settings.expectations.max_age,
        overrides=Overrides([override.as_override() for override in settings.overrides]),
        owners=owners_of(settings),
        links=settings.links.as_links(),
        replicas={(pair.source, pair.target) for pair in settings.replicas},
        recipients=len(settings.delivery.recipients),
    )


def advances_since(settings: Settings, as_of: float | None) -> LastAdvances:
    """Return the last advances in the spool since ``as_of``, the time of the expectations.

    With ``as_of`` None (nothing published) they are read only where ``overrides`` judge silences. Raises HistoryError
    where the spool cannot be read.
    """
    if as_of is None and all(override.max_silence is None for override in settings.overrides):
        return LastAdvances({})
    since = 0.0 if as_of is None else as_of
    found: LastAdvances = _of_spool(settings, partial(last_advances, settings.history.folder, since))
    return found


def unchanged_offsets(settings: Settings) -> Mapping[str, UnchangedOffsets]:
    """Return since when end offsets are unchanged, by cluster, of topics with a ``max_silence``.

    Raises HistoryError where the spool cannot be read.
    """
    limits = Overrides([one.as_override() for one in settings.overrides if one.max_silence is not None])
    if all(one.max_silence is None for one in settings.overrides):
        return {}
    find = partial(unchanged_since, settings.history.folder, limits.ever)
    found: Mapping[str, UnchangedOffsets] = _of_spool(settings, find)
    return found


def _of_spool(settings: Settings, read: Callable[[], Any]) -> Any:
    folder = settings.history.folder
    try:
        return StorageThread("history-reader").call(read, _SPOOL_SECONDS)
    except OSError as error:
        raise HistoryError(
            f"history.folder {str(folder)!r} cannot be read: {error.strerror}. Fix that and start it again"
        ) from error


def _rhythm(cluster: ClusterSettings, settings: Settings) -> Rhythm:
    poll, groups = settings.poll_of(cluster), settings.groups_of(cluster)
    sweep_interval = groups.interval if groups.enabled else None
    return Rhythm(poll.interval, poll.missed_polls, sweep_interval, groups.missed_sweeps)

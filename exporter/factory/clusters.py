"""The parts of a cluster: its poller, and the collectors that polls feed."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from exporter.collectors.consumer_groups import GroupWatch
from exporter.collectors.log_sizes import Inspector
from exporter.collectors.poller import Poller
from exporter.collectors.remote_tier import TierWatch
from exporter.collectors.replicas import ReplicaWatch
from exporter.collectors.time_lags import TimeLags
from exporter.domain.ports import METADATA_SECONDS, Clock, SnapshotSink
from exporter.domain.replicas.comparison import Comparison, ReplicaLimits
from exporter.domain.replicas.matching import ReplicaNames
from exporter.factory.sources import make_kafka_python_client, make_poll_source, make_source
from exporter.history.cluster_states import ClusterState
from exporter.kafka.process import EARLIEST_LOCAL, LATEST_TIERED, LOG_SIZES, TIERS, ClientProcess, RemoteClient
from exporter.settings.schema import ClusterSettings, ReplicaSettings, Settings

_REMOTE_STORAGE_IS_SLOWER = 20
"""A look-up in remote storage may read an index from there: brokers get this many times fewer of them."""

_EARLIEST_SECONDS = 300.0
"""About the largest age of the first offset of a partition."""


@dataclass(frozen=True, slots=True)
class ClusterCollectors:
    """The poller and the other collectors of one cluster, which close together."""

    settings: ClusterSettings
    source: RemoteClient
    poller: Poller
    tier: TierWatch
    inspector: Inspector | None
    groups: GroupWatch | None
    process: ClientProcess
    """The process of its clients."""

    def close(self) -> None:
        """End the process with all connections."""
        self.process.close()


def build_cluster(
    cluster: ClusterSettings,
    settings: Settings,
    clock: Clock,
    *,
    process: ClientProcess | None = None,
    source: RemoteClient | None = None,
    state: ClusterState | None = None,
    before: Sequence[SnapshotSink] = (),
    after: Sequence[SnapshotSink] = (),
) -> ClusterCollectors:
    """Return the poller of one configured cluster, and the collectors that its polls feed.

    Its clients run in ``process``, by default in a new one. ``source`` is that of its polls, where it is there
    already; the poller goes on from ``state``. Snapshots go to the sinks ``before``, then to the collectors, then to
    the sinks ``after``. Raises ValueError as ``make_source`` does.
    """
    poll = settings.poll_of(cluster)
    process = process or ClientProcess(cluster.name)
    try:
        source = source or make_poll_source(cluster, settings, process=process)
    except ValueError:
        process.close()
        raise
    tier = make_tier_watch(cluster, settings, clock, process)
    inspector = make_inspector(cluster, settings, clock, process)
    groups = make_group_watch(cluster, settings, clock, process)
    collectors: list[SnapshotSink] = [sink for sink in (tier, inspector, groups) if sink is not None]
    poller = Poller(
        cluster.name,
        source,
        [*before, *collectors, *after],
        clock,
        earliest_polls=max(1, int(_EARLIEST_SECONDS / poll.interval)),
        # With short intervals somebody probably waits for a new topic.
        metadata_seconds=min(METADATA_SECONDS, 2 * poll.interval),
        tier=tier,
        inspections=inspector,
        state=state,
    )
    return ClusterCollectors(cluster, source, poller, tier, inspector, groups, process)


def make_tier_watch(
    cluster: ClusterSettings, settings: Settings, clock: Clock, process: ClientProcess | None = None
) -> TierWatch:
    """Return the collector of partitions with remote storage. It looks up only gauges that are exposed."""
    shown = settings.metrics.partition if settings.metrics.granularity == "partition" else ()
    gauges = {"earliest_local_offset": EARLIEST_LOCAL, "latest_tiered_offset": LATEST_TIERED}
    rate = settings.lookups_per_second / _REMOTE_STORAGE_IS_SLOWER
    return TierWatch(
        cluster.name,
        clock,
        interval=settings.tiered.interval,
        lookups_per_second=rate,
        specs=[spec for switch, spec in gauges.items() if switch in shown],
        times=partial(make_source, cluster, settings, lookups_per_second=rate, process=process),
        tiers=partial(make_kafka_python_client, TIERS, cluster, settings, process=process),
    )


def make_group_watch(
    cluster: ClusterSettings, settings: Settings, clock: Clock, process: ClientProcess | None = None
) -> GroupWatch | None:
    """Return the collector of the cluster's consumer groups, with connections of its own; None where it is off."""
    groups = settings.groups_of(cluster)
    if not groups.enabled:
        return None
    source = make_source(
        cluster,
        settings,
        times_per_second=settings.lookups_per_second,
        budget=groups.interval,
        # Sweeps begin after the first good poll: until then only one client connects and authenticates.
        at_once=False,
        process=process,
    )
    return GroupWatch(
        cluster.name,
        clock,
        source,
        interval=groups.interval,
        include=groups.include,
        exclude=groups.exclude,
        time_lags=TimeLags(clock, source, tolerance=groups.tolerance) if groups.time_lag else None,
    )


def make_naming(pair: ReplicaSettings, settings: Settings) -> ReplicaNames:
    """Return how the replicas of a pair of clusters are named."""
    # MirrorMaker copies heartbeats from cluster to cluster like other topics.
    heartbeats = sorted({re.escape(f"{one.alias or one.source}{one.separator}heartbeats") for one in settings.replicas})
    # Nor does it copy back to a cluster what came from there.
    back = (pair.target, pair.source, "default", "default")
    came = [
        f"{re.escape((one.alias or one.source) + one.separator)}.*"
        for one in settings.replicas
        if (one.source, one.target, one.policy, pair.policy) == back
    ]
    return ReplicaNames.compile(*pair.naming, pair.include, [*pair.exclude, *heartbeats, *came])


def make_replica_watches(settings: Settings, clock: Clock, take: Callable[[Comparison], object]) -> list[ReplicaWatch]:
    """Return the collectors that compare each configured pair of clusters, in their order."""
    return [
        ReplicaWatch(
            pair.source,
            pair.target,
            make_naming(pair, settings),
            clock,
            take,
            ReplicaLimits(pair.behind_after, pair.stopped_after, pair.trailing_markers),
        )
        for pair in settings.replicas
    ]


def make_inspector(
    cluster: ClusterSettings, settings: Settings, clock: Clock, process: ClientProcess | None = None
) -> Inspector | None:
    """Return the collector of log sizes, None where it is off."""
    if not settings.inspection.log_sizes:
        return None
    return Inspector(
        cluster.name,
        clock,
        interval=settings.inspection.interval,
        client=partial(make_kafka_python_client, LOG_SIZES, cluster, settings, process=process),
    )

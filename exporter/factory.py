"""The parts of the exporter, made from its settings."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from contextlib import closing
from functools import partial

from exporter import __version__
from exporter.collectors.consumer_groups import GroupWatch
from exporter.collectors.producers_log_sizes import Inspector
from exporter.collectors.remote_tier import TierWatch
from exporter.collectors.replicas import ReplicaWatch
from exporter.collectors.time_lags import TimeLags
from exporter.domain import Advance, TopicPartition
from exporter.domain.activity import Standing
from exporter.domain.overrides import Overrides
from exporter.domain.owners import Owners
from exporter.domain.ports import Clock
from exporter.domain.replication import Naming
from exporter.history.last_advances import last_advances
from exporter.history.published import Expectations
from exporter.history.standing import standing_since
from exporter.kafka import (
    EARLIEST_LOCAL,
    LATEST_TIERED,
    AwsIam,
    InspectionClient,
    KafkaSource,
    Reached,
    TierClient,
    reach,
)
from exporter.settings import ClusterSettings, ReplicaSettings, Settings
from exporter.state import Monitor, Rhythm

_AWAKE_OR_NOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux stops the monotonic clock while the machine sleeps; elsewhere it goes on."""


class SystemClock:
    """The clocks of the machine."""

    def now(self) -> float:
        """Wall clock, Unix seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds that never go back, and go on while the machine sleeps: sleep is no wrong clock."""
        return time.clock_gettime(_AWAKE_OR_NOT)


def make_source(
    cluster: ClusterSettings,
    settings: Settings,
    clock: Clock,
    *,
    calls_in_flight: int | None = None,
    lookups_per_second: float | None = None,
    times_per_second: float | None = None,
    budget: float | None = None,
    at_once: bool = True,
) -> KafkaSource:
    """Return the source of one configured cluster; how hard and how long it asks is that of its polls, or as given."""
    poll = settings.poll_of(cluster)
    try:
        return KafkaSource(
            cluster.kafka,
            aws_iam=_iam(cluster),
            clock=clock,
            request_timeout=poll.request_timeout,
            chunk_size=poll.chunk_size,
            calls_in_flight=calls_in_flight or poll.calls_in_flight,
            include=cluster.topics.include,
            exclude=cluster.topics.exclude,
            internal=cluster.topics.internal,
            config_refresh=poll.config_refresh,
            lookups_per_second=lookups_per_second,
            times_per_second=times_per_second,
            # What is paced is no poll, and takes its time.
            budget=(budget or poll.interval) if lookups_per_second is None else None,
            at_once=at_once,
            owner_of=partial(owners_of(settings).of, cluster.name),
        )
    except ValueError as error:
        raise ValueError(cluster.kafka.located(str(error))) from None


def owners_of(settings: Settings) -> Owners:
    """Return who answers for which topics."""
    return Owners([each.as_owner() for each in settings.owners])


def make_tier_watch(cluster: ClusterSettings, settings: Settings, clock: Clock) -> TierWatch:
    """Return what looks at the cluster's partitions with remote storage; only gauges that are shown are asked for."""
    shown = settings.metrics.partition if settings.metrics.granularity == "partition" else ()
    gauges = {"earliest_local_offset": EARLIEST_LOCAL, "latest_tiered_offset": LATEST_TIERED}
    rate = settings.tiered.lookups_per_second
    return TierWatch(
        cluster.name,
        clock,
        interval=settings.tiered.interval,
        lookups_per_second=rate,
        specs=[spec for switch, spec in gauges.items() if switch in shown],
        times=lambda: closing(make_source(cluster, settings, clock, calls_in_flight=1, lookups_per_second=rate)),
        tiers=lambda: make_tier_client(cluster, settings, lookups_per_second=rate),
    )


def make_group_watch(cluster: ClusterSettings, settings: Settings, clock: Clock) -> GroupWatch | None:
    """Return what sweeps the cluster's consumer groups, over connections of its own; None where that is off."""
    groups = settings.groups_of(cluster)
    if not groups.enabled:
        return None
    source = make_source(
        cluster,
        settings,
        clock,
        calls_in_flight=groups.calls_in_flight,
        times_per_second=groups.lookups_per_second,
        budget=groups.interval,
        # Sweeps begin after the first good poll: until then one client knocks, and shows its password, not two.
        at_once=False,
    )
    slack = settings.poll_of(cluster).future_slack
    return GroupWatch(
        cluster.name,
        clock,
        source,
        interval=groups.interval,
        include=groups.include,
        exclude=groups.exclude,
        missed_sweeps=groups.missed_sweeps,
        time_lags=TimeLags(clock, source, tolerance=groups.tolerance, future_slack=slack) if groups.time_lag else None,
    )


def make_naming(pair: ReplicaSettings, settings: Settings) -> Naming:
    """Return what the replicas of a pair of clusters are called."""
    # Heartbeats are copied on from cluster to cluster, under names like any other.
    heartbeats = [re.escape(f"{one.alias or one.source}{one.separator}heartbeats") for one in settings.replicas]
    return Naming.of(*pair.naming, pair.include, [*pair.exclude, *heartbeats])


def make_replica_watches(settings: Settings, clock: Clock) -> list[ReplicaWatch]:
    """Return what compares each configured pair of clusters, in their order."""
    clusters = {cluster.name: cluster for cluster in settings.clusters}

    def times(name: str, rate: float) -> closing[KafkaSource]:
        return closing(make_source(clusters[name], settings, clock, calls_in_flight=1, lookups_per_second=rate))

    watches = [
        ReplicaWatch(
            pair.source,
            pair.target,
            make_naming(pair, settings),
            clock,
            times=partial(times, pair.source, pair.lookups_per_second),
            behind_after=pair.behind_after,
            stopped_after=pair.stopped_after,
            trailing_markers=pair.trailing_markers,
        )
        for pair in settings.replicas
    ]
    for watch in watches:
        watch.rivals = [other for other in watches if other is not watch and other.target == watch.target]
    return watches


def make_tier_client(
    cluster: ClusterSettings, settings: Settings, *, lookups_per_second: float | None = None
) -> TierClient:
    """Connect the client that can ask one configured cluster about its tiers. Raises SecondClientError."""
    timeout = settings.poll_of(cluster).request_timeout
    return TierClient(
        cluster.kafka, aws_iam=_iam(cluster), request_timeout=timeout, lookups_per_second=lookups_per_second
    )


def make_inspector(cluster: ClusterSettings, settings: Settings, clock: Clock) -> Inspector | None:
    """Return what asks about the cluster's producers and log sizes, None where neither is wanted."""
    inspection = settings.inspection
    if not (inspection.producers or inspection.log_sizes):
        return None

    def client() -> InspectionClient:
        return InspectionClient(
            cluster.kafka,
            aws_iam=_iam(cluster),
            request_timeout=settings.poll_of(cluster).request_timeout,
            lookups_per_second=inspection.lookups_per_second,
        )

    return Inspector(
        cluster.name,
        clock,
        interval=inspection.interval,
        producers=inspection.producers,
        log_sizes=inspection.log_sizes,
        client=client,
    )


def reach_address(cluster: ClusterSettings, settings: Settings, address: str) -> Reached:
    """Ask one address (``host:port``) alone, and say what came of it. Raises ValueError as ``make_source`` does."""
    timeout = settings.poll_of(cluster).request_timeout
    return reach(cluster.kafka, address, request_timeout=timeout, aws_iam=_iam(cluster))


def _iam(cluster: ClusterSettings) -> AwsIam | None:
    iam = cluster.aws_msk_iam
    return None if iam is None else AwsIam(iam.region, iam.role_arn)


def make_monitor(settings: Settings, clock: SystemClock, expectations: Expectations) -> Monitor:
    """Return the monitor of all configured clusters; it knows what is published, and what was seen since then."""
    expectations.refresh()
    published = expectations.published
    monitor = Monitor(
        {cluster.name: _rhythm(cluster, settings) for cluster in settings.clusters},
        clock,
        version=__version__,
        partition_switches=settings.metrics.partition,
        partitions=settings.metrics.granularity == "partition",
        expectations_max_age_seconds=settings.expectations.max_age,
        overrides=Overrides([override.as_override() for override in settings.overrides]),
        owners=owners_of(settings),
        advances=told_advances(settings, None if published is None else published.as_of),
    )
    monitor.take_expectations(published, expectations.problem)
    return monitor


def told_advances(settings: Settings, as_of: float | None) -> Mapping[tuple[str, str, int], Advance]:
    """Return the last advances that history tells of since ``as_of``, to which expectations know them.

    Where nothing is published (None) they are asked for where silences are judged all the same, by ``overrides``.
    """
    if as_of is None and all(override.max_silence is None for override in settings.overrides):
        return {}
    return last_advances(settings.history.folder, 0.0 if as_of is None else as_of)


def standing_offsets(settings: Settings) -> Mapping[str, Mapping[TopicPartition, Standing]]:
    """Return since when end offsets stand, by cluster, of topics whose silence is judged by a ``max_silence``."""
    limits = Overrides([one.as_override() for one in settings.overrides if one.max_silence is not None])
    if all(one.max_silence is None for one in settings.overrides):
        return {}
    return standing_since(settings.history.folder, lambda cluster, topic: limits.of(cluster, topic, 0.0) is not None)


def _rhythm(cluster: ClusterSettings, settings: Settings) -> Rhythm:
    poll, groups = settings.poll_of(cluster), settings.groups_of(cluster)
    return Rhythm(poll.interval, poll.missed_polls, groups.interval, groups.missed_sweeps)

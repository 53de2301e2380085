"""Builds the parts of the exporter from its settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from exporter import __version__
from exporter.clock import SystemClock
from exporter.collectors.consumer_groups import GroupWatch
from exporter.collectors.poller import Poller
from exporter.collectors.producers_log_sizes import Inspector
from exporter.collectors.remote_tier import TierWatch
from exporter.collectors.replicas import ReplicaWatch
from exporter.collectors.time_lags import TimeLags
from exporter.domain import TopicPartition
from exporter.domain.activity import Standing
from exporter.domain.last_advances import LastAdvances
from exporter.domain.overrides import Overrides
from exporter.domain.owners import Owners
from exporter.domain.ports import METADATA_SECONDS, Clock, SnapshotSink, SourceError
from exporter.domain.replication import Naming
from exporter.history.last_advances import last_advances
from exporter.history.published import Expectations
from exporter.history.standing import standing_since
from exporter.kafka import (
    EARLIEST_LOCAL,
    LATEST_TIERED,
    AwsIam,
    ClientProcess,
    ClientProcesses,
    InspectionClient,
    Reached,
    RemotePollSource,
    RemoteReach,
    RemoteSource,
    TierClient,
    client_process,
)
from exporter.settings import ClusterSettings, ReplicaSettings, Settings, SettingsError
from exporter.state import Monitor, Rhythm

Source = TypeVar("Source", RemoteSource, RemotePollSource)

_PATIENCE = 300.0
"""Seconds after which a call besides polls counts as hung; more where calls are paced."""


def _beside(processes: ClientProcesses | None, cluster: str) -> ClientProcess | None:
    return None if processes is None else processes.beside(cluster)


def make_source(  # noqa: PLR0913 - each may differ from that of polls
    cluster: ClusterSettings,
    settings: Settings,
    clock: Clock,  # noqa: ARG001 - test doubles of this function need it
    *,
    calls_in_flight: int | None = None,
    lookups_per_second: float | None = None,
    times_per_second: float | None = None,
    budget: float | None = None,
    at_once: bool = True,
    process: ClientProcess | None = None,
    name: str = "offsets",
) -> RemoteSource:
    """Return the source of one configured cluster. Rates and time limits are those of its polls, unless given.

    The source runs under ``name`` in ``process``, by default in a process of its own. Raises ValueError where the
    configuration cannot be used, unless the client starts later (not ``at_once``).
    """
    poll = settings.poll_of(cluster)
    source = RemoteSource(
        process or client_process(cluster.name, name),
        name,
        patience=max(_PATIENCE, 3 * (budget or poll.interval)),
        alone=process is None,
        lookups_per_second=lookups_per_second,
        times_per_second=times_per_second,
        # Paced look-ups have no budget.
        **_asking(cluster, settings, None if lookups_per_second is not None else budget or poll.interval),
        calls_in_flight=calls_in_flight or poll.calls_in_flight,
    )
    return _made(source, cluster) if at_once else source


def make_poll_source(
    cluster: ClusterSettings, settings: Settings, *, process: ClientProcess | None = None
) -> RemotePollSource:
    """Return the source of one cluster for its poller. Raises ValueError where the configuration cannot be used."""
    poll = settings.poll_of(cluster)
    source = RemotePollSource(
        process or client_process(cluster.name, "polls"),
        "polls",
        # In addition to the budget of a poll: a call for metadata, and one to the leaders.
        patience=2 * (poll.interval + poll.request_timeout) + 5,
        alone=process is None,
        **_asking(cluster, settings, poll.interval),
        calls_in_flight=poll.calls_in_flight,
        # With short intervals somebody probably waits for a new topic.
        metadata_seconds=min(METADATA_SECONDS, 2 * poll.interval),
    )
    return _made(source, cluster)


def connect(settings: Settings, processes: ClientProcesses | None = None) -> dict[str, RemotePollSource]:
    """Return the source of polls of each cluster, by name, in ``processes`` or in processes of their own.

    Raises SettingsError with every configuration that librdkafka refuses.
    """
    sources, problems = dict[str, RemotePollSource](), []
    for cluster in settings.clusters:
        process = None if processes is None else processes.polls(cluster.name)
        try:
            sources[cluster.name] = make_poll_source(cluster, settings, process=process)
        except ValueError as error:
            problems.append(f"cluster {cluster.name}: {error}")
    if problems:
        for source in sources.values():
            source.close()
        raise SettingsError(tuple(problems))
    return sources


def _made(source: Source, cluster: ClusterSettings) -> Source:
    """Return a remote source after its client has started. Raises ValueError where the configuration cannot be used."""
    try:
        source.exposed  # noqa: B018 - it answers once the client has started
    except SourceError:
        pass  # its process ended: the next poll starts a new one
    except ValueError as error:
        source.close()
        raise ValueError(cluster.kafka.located(str(error))) from None
    return source


def _asking(cluster: ClusterSettings, settings: Settings, budget: float | None) -> dict[str, Any]:
    """Return the arguments of a client in any process."""
    poll = settings.poll_of(cluster)
    return {
        "properties": dict(cluster.kafka),
        "aws_iam": _iam(cluster),
        "request_timeout": poll.request_timeout,
        "chunk_size": poll.chunk_size,
        "include": cluster.topics.include,
        "exclude": cluster.topics.exclude,
        "internal": cluster.topics.internal,
        "config_refresh": poll.config_refresh,
        "budget": budget,
        "owner_of": partial(owners_of(settings).of, cluster.name),
    }


@dataclass(frozen=True, slots=True)
class ClusterParts:
    """The parts of one cluster, which close together."""

    settings: ClusterSettings
    source: RemotePollSource
    poller: Poller
    tier: TierWatch
    inspector: Inspector | None
    groups: GroupWatch | None

    def close(self) -> None:
        """Close all connections."""
        self.source.close()
        if self.groups is not None:
            self.groups.close()


def build_cluster(
    cluster: ClusterSettings,
    settings: Settings,
    clock: Clock,
    *,
    processes: ClientProcesses | None = None,
    source: RemotePollSource | None = None,
    standing: Mapping[TopicPartition, Standing] | None = None,
    before: Sequence[SnapshotSink] = (),
    after: Sequence[SnapshotSink] = (),
) -> ClusterParts:
    """Return the parts of one configured cluster: its poller, and the collectors that its polls feed.

    ``source`` is that of its polls, where it is there already; ``standing`` are its ``standing_offsets``. Snapshots
    go to the sinks ``before``, then to the collectors, then to the sinks ``after``. Raises ValueError as
    ``make_source`` does.
    """
    poll = settings.poll_of(cluster)
    if source is None:
        process = None if processes is None else processes.polls(cluster.name)
        source = make_poll_source(cluster, settings, process=process)
    tier = make_tier_watch(cluster, settings, clock, processes)
    inspector = make_inspector(cluster, settings, clock)
    groups = make_group_watch(cluster, settings, clock, processes)
    collectors: list[SnapshotSink] = [sink for sink in (tier, inspector, groups) if sink is not None]
    poller = Poller(
        cluster.name,
        source,
        [*before, *collectors, *after],
        clock,
        future_slack_seconds=poll.future_slack,
        earliest_interval=poll.earliest_interval,
        tier=tier,
        inspections=inspector,
        readers=groups,
        standing=standing,
    )
    return ClusterParts(cluster, source, poller, tier, inspector, groups)


def owners_of(settings: Settings) -> Owners:
    """Return the owners of topics."""
    return Owners([each.as_owner() for each in settings.owners])


def make_tier_watch(
    cluster: ClusterSettings, settings: Settings, clock: Clock, processes: ClientProcesses | None = None
) -> TierWatch:
    """Return the collector of partitions with remote storage. It looks up only gauges that are exposed."""
    shown = settings.metrics.partition if settings.metrics.granularity == "partition" else ()
    gauges = {"earliest_local_offset": EARLIEST_LOCAL, "latest_tiered_offset": LATEST_TIERED}
    rate = settings.tiered.lookups_per_second

    def times() -> closing[RemoteSource]:
        process = _beside(processes, cluster.name)
        source = make_source(
            cluster, settings, clock, calls_in_flight=1, lookups_per_second=rate, process=process, name="tiers"
        )
        return closing(source)

    return TierWatch(
        cluster.name,
        clock,
        interval=settings.tiered.interval,
        lookups_per_second=rate,
        specs=[spec for switch, spec in gauges.items() if switch in shown],
        times=times,
        tiers=lambda: make_tier_client(cluster, settings, lookups_per_second=rate),
    )


def make_group_watch(
    cluster: ClusterSettings, settings: Settings, clock: Clock, processes: ClientProcesses | None = None
) -> GroupWatch | None:
    """Return the collector of the cluster's consumer groups, with connections of its own; None where it is off."""
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
        # Sweeps begin after the first good poll: until then only one client connects and authenticates.
        at_once=False,
        process=_beside(processes, cluster.name),
        name="groups",
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
    """Return how the replicas of a pair of clusters are named."""
    # MirrorMaker copies heartbeats from cluster to cluster like other topics.
    heartbeats = [re.escape(f"{one.alias or one.source}{one.separator}heartbeats") for one in settings.replicas]
    return Naming.of(*pair.naming, pair.include, [*pair.exclude, *heartbeats])


def make_replica_watches(
    settings: Settings, clock: Clock, processes: ClientProcesses | None = None
) -> list[ReplicaWatch]:
    """Return the collectors that compare each configured pair of clusters, in their order."""
    clusters = {cluster.name: cluster for cluster in settings.clusters}

    def times(pair: ReplicaSettings) -> closing[RemoteSource]:
        source = make_source(
            clusters[pair.source],
            settings,
            clock,
            calls_in_flight=1,
            lookups_per_second=pair.lookups_per_second,
            process=_beside(processes, pair.source),
            name=f"replicas in {pair.target}",
        )
        return closing(source)

    watches = [
        ReplicaWatch(
            pair.source,
            pair.target,
            make_naming(pair, settings),
            clock,
            times=partial(times, pair),
            behind_after=pair.behind_after,
            stopped_after=pair.stopped_after,
            trailing_markers=pair.trailing_markers,
        )
        for pair in settings.replicas
    ]
    introduce(watches)
    return watches


def introduce(watches: Sequence[ReplicaWatch]) -> None:
    """Let watches of the same target know of each other."""
    for watch in watches:
        watch.rivals = [other for other in watches if other is not watch and other.target == watch.target]


def make_tier_client(
    cluster: ClusterSettings, settings: Settings, *, lookups_per_second: float | None = None
) -> TierClient:
    """Connect the client that looks up offsets of tiers. Raises SecondClientError."""
    timeout = settings.poll_of(cluster).request_timeout
    return TierClient(
        cluster.kafka, aws_iam=_iam(cluster), request_timeout=timeout, lookups_per_second=lookups_per_second
    )


def make_inspector(cluster: ClusterSettings, settings: Settings, clock: Clock) -> Inspector | None:
    """Return the collector of producers and log sizes, None where both are off."""
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


@contextmanager
def connectivity(cluster: ClusterSettings, settings: Settings) -> Iterator[Callable[[str], Reached]]:
    """Yield a function that connects to one address (``host:port``) and returns the result. Safe for several threads.

    It raises ValueError where the configuration cannot be used.
    """
    timeout = settings.poll_of(cluster).request_timeout
    process = client_process(cluster.name, "one address")

    def reach(address: str) -> Reached:
        remote = RemoteReach(
            process,
            address,
            patience=4 * timeout + 5,
            properties=dict(cluster.kafka),
            request_timeout=timeout,
            aws_iam=_iam(cluster),
        )
        return remote.reach(address)

    with closing(process):
        yield reach


def _iam(cluster: ClusterSettings) -> AwsIam | None:
    iam = cluster.aws_msk_iam
    return None if iam is None else AwsIam(iam.region, iam.role_arn)


def make_monitor(settings: Settings, clock: SystemClock, expectations: Expectations) -> Monitor:
    """Return the monitor of all configured clusters, with published expectations and later advances."""
    expectations.refresh()
    published = expectations.published
    monitor = Monitor(
        clock=clock,
        version=__version__,
        **_shown(settings),
        advances=advances_since(settings, None if published is None else published.as_of),
    )
    monitor.take_expectations(published, expectations.problem)
    return monitor


def reconfigure(monitor: Monitor, settings: Settings) -> None:
    """Let the monitor show and judge by other settings from now on."""
    monitor.reconfigure(**_shown(settings), replicas={(pair.source, pair.target) for pair in settings.replicas})


def _shown(settings: Settings) -> dict[str, Any]:
    """Return which clusters the monitor shows and how, and what is known of their topics."""
    return {
        "clusters": {cluster.name: _rhythm(cluster, settings) for cluster in settings.clusters},
        "partition_switches": settings.metrics.partition,
        "partitions": settings.metrics.granularity == "partition",
        "expectations_max_age_seconds": settings.expectations.max_age,
        "overrides": Overrides([override.as_override() for override in settings.overrides]),
        "owners": owners_of(settings),
        "links": settings.links.as_links(),
        "recipients": len(settings.delivery.recipients),
    }


def advances_since(settings: Settings, as_of: float | None) -> LastAdvances:
    """Return the last advances in the spool since ``as_of``, the time of the expectations.

    With ``as_of`` None (nothing published) they are read only where ``overrides`` judge silences.
    """
    if as_of is None and all(override.max_silence is None for override in settings.overrides):
        return LastAdvances({})
    return last_advances(settings.history.folder, 0.0 if as_of is None else as_of)


def standing_offsets(settings: Settings) -> Mapping[str, Mapping[TopicPartition, Standing]]:
    """Return since when end offsets are unchanged, by cluster, of topics with a ``max_silence``."""
    limits = Overrides([one.as_override() for one in settings.overrides if one.max_silence is not None])
    if all(one.max_silence is None for one in settings.overrides):
        return {}
    return standing_since(settings.history.folder, lambda cluster, topic: limits.of(cluster, topic, 0.0) is not None)


def _rhythm(cluster: ClusterSettings, settings: Settings) -> Rhythm:
    poll, groups = settings.poll_of(cluster), settings.groups_of(cluster)
    return Rhythm(poll.interval, poll.missed_polls, groups.interval, groups.missed_sweeps)

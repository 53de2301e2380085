"""Sources of a cluster's offsets: the clients that its settings ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import Any, TypeVar

from exporter.domain.owners import Owners
from exporter.domain.ports import METADATA_SECONDS, Clock, SourceError
from exporter.kafka import (
    AwsIam,
    ClientProcess,
    ClientProcesses,
    ConnectResult,
    RemoteAddressCheck,
    RemoteInspections,
    RemotePollSource,
    RemoteSource,
    RemoteTiers,
    client_process,
)
from exporter.settings import ClusterSettings, Settings, SettingsError

Source = TypeVar("Source", RemoteSource, RemotePollSource)

_PATIENCE = 300.0
"""Seconds after which a call besides polls counts as hung; more where calls are paced, or may wait longer."""

_TIMEOUTS = 6
"""Request timeouts that a call may take where brokers do not answer: metadata twice, ids and settings of topics."""


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
        patience=max(_PATIENCE, 3 * (budget or poll.interval), _TIMEOUTS * poll.request_timeout),
        alone=process is None,
        lookups_per_second=lookups_per_second,
        times_per_second=times_per_second,
        # Paced look-ups have no budget.
        **_asking(cluster, settings, None if lookups_per_second is not None else budget or poll.interval),
        calls_in_flight=calls_in_flight or poll.calls_in_flight,
    )
    return _started(source, cluster) if at_once else source


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
        poll_interval=poll.interval,
    )
    return _started(source, cluster)


def make_backfill_source(cluster: ClusterSettings, settings: Settings, clock: Clock) -> RemoteSource:
    """Return the source of one cluster for its backfill, with the rate and calls of ``backfill``.

    Raises ValueError where the configuration cannot be used.
    """
    wanted = settings.backfill
    return make_source(
        cluster,
        settings,
        clock,
        calls_in_flight=wanted.calls_in_flight,
        lookups_per_second=wanted.lookups_per_second,
    )


def connect(settings: Settings, processes: ClientProcesses | None = None) -> dict[str, RemotePollSource]:
    """Return the source of polls of each cluster, by name, in ``processes`` or in processes of their own.

    Raises SettingsError with every configuration that librdkafka refuses.
    """
    problems = []
    with ExitStack() as opened:
        sources = dict[str, RemotePollSource]()
        for cluster in settings.clusters:
            process = None if processes is None else processes.polls(cluster.name)
            try:
                sources[cluster.name] = opened.enter_context(make_poll_source(cluster, settings, process=process))
            except ValueError as error:
                problems.append(f"cluster {cluster.name}: {error}")
        if problems:
            raise SettingsError(tuple(problems))
        opened.pop_all()
    return sources


def _started(source: Source, cluster: ClusterSettings) -> Source:
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
        "aws_iam": iam(cluster),
        "request_timeout": poll.request_timeout,
        "chunk_size": poll.chunk_size,
        "include": cluster.topics.include,
        "exclude": cluster.topics.exclude,
        "internal": cluster.topics.internal,
        "config_refresh": poll.config_refresh,
        "budget": budget,
        "owner_of": partial(owners_of(settings).of, cluster.name),
    }


def owners_of(settings: Settings) -> Owners:
    """Return the owners of topics."""
    return Owners([each.as_owner() for each in settings.owners])


def make_tier_client(
    cluster: ClusterSettings,
    settings: Settings,
    *,
    lookups_per_second: float | None = None,
    process: ClientProcess | None = None,
) -> RemoteTiers:
    """Connect the client that looks up offsets of tiers, as ``make_source`` does. Raises KafkaPythonError."""
    return RemoteTiers(
        process or client_process(cluster.name, "tiers"),
        "offsets of tiers",
        alone=process is None,
        lookups_per_second=lookups_per_second,
        **_kafka_python(cluster, settings),
    )


def make_inspection_client(
    cluster: ClusterSettings, settings: Settings, *, process: ClientProcess | None = None
) -> RemoteInspections:
    """Connect the client that reads producers and log sizes, as ``make_source`` does. Raises KafkaPythonError."""
    return RemoteInspections(
        process or client_process(cluster.name, "inspection"),
        "inspection",
        alone=process is None,
        lookups_per_second=settings.inspection.lookups_per_second,
        **_kafka_python(cluster, settings),
    )


def _kafka_python(cluster: ClusterSettings, settings: Settings) -> dict[str, Any]:
    """Return the arguments that the clients of kafka-python of a cluster have in common."""
    timeout = settings.poll_of(cluster).request_timeout
    return {
        "patience": max(_PATIENCE, _TIMEOUTS * timeout),
        "properties": dict(cluster.kafka),
        "aws_iam": iam(cluster),
        "request_timeout": timeout,
    }


@contextmanager
def connectivity(cluster: ClusterSettings, settings: Settings) -> Iterator[Callable[[str], ConnectResult]]:
    """Yield a function that connects to one address (``host:port``) and returns the result. Safe for several threads.

    It raises ValueError where the configuration cannot be used.
    """
    timeout = settings.poll_of(cluster).request_timeout
    process = client_process(cluster.name, "one address")

    def check(address: str) -> ConnectResult:
        remote = RemoteAddressCheck(
            process,
            address,
            patience=4 * timeout + 5,
            properties=dict(cluster.kafka),
            request_timeout=timeout,
            aws_iam=iam(cluster),
        )
        return remote.check(address)

    with closing(process):
        yield check


def iam(cluster: ClusterSettings) -> AwsIam | None:
    """Return how to sign in to Amazon MSK, None where the cluster is none."""
    found = cluster.aws_msk_iam
    return None if found is None else AwsIam(found.region, found.role_arn)

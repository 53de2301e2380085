"""Sources of a cluster's offsets: the clients that its settings ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any

from exporter.domain.ports import SourceError
from exporter.kafka.msk_iam import AwsIam
from exporter.kafka.process import (
    CONNECTION,
    LOG_SIZES,
    OFFSETS,
    TIERS,
    ClientProcess,
    RemoteClient,
)
from exporter.settings.errors import SettingsError
from exporter.settings.schema import ClusterSettings, Settings

WORTH_BATCHING = 1_000
"""Partitions of a cluster from which on polls look up offsets by a consumer: fewer need no second client."""

_PATIENCE = 300.0
"""Seconds after which a paced call counts as hung, besides its pace."""


def make_source(
    cluster: ClusterSettings,
    settings: Settings,
    *,
    lookups_per_second: float | None = None,
    times_per_second: float | None = None,
    budget: float | None = None,
    at_once: bool = True,
    process: ClientProcess | None = None,
) -> RemoteClient:
    """Return the source of one configured cluster. Rates and time limits are those of its polls, unless given.

    Without a ``process`` it runs in one of its own. Raises ValueError where the configuration cannot be used, unless
    the client starts later (not ``at_once``).
    """
    poll = settings.poll_of(cluster)
    rate, budget = times_per_second or lookups_per_second, budget or poll.interval
    source = RemoteClient(
        process or ClientProcess(cluster.name),
        OFFSETS,
        # Metadata, and once more after the budget of all calls together is used up.
        limit=budget + 3 * poll.request_timeout + 5 if lookups_per_second is None else _PATIENCE + budget,
        rate=rate,
        alone=process is None,
        lookups_per_second=lookups_per_second,
        times_per_second=times_per_second,
        # Paced look-ups have no budget.
        **_asking(cluster, settings, None if lookups_per_second is not None else budget),
    )
    return _started(source) if at_once else source


def make_poll_source(
    cluster: ClusterSettings, settings: Settings, *, process: ClientProcess | None = None
) -> RemoteClient:
    """Return the source of one cluster for its poller. Raises ValueError where the configuration cannot be used."""
    poll = settings.poll_of(cluster)
    source = RemoteClient(
        process or ClientProcess(cluster.name),
        OFFSETS,
        # In addition to the budget of a poll: a call for metadata, and one to the leaders.
        limit=2 * (poll.interval + poll.request_timeout) + 5,
        alone=process is None,
        worth_batching=WORTH_BATCHING,
        **_asking(cluster, settings, poll.interval),
    )
    return _started(source)


def make_backfill_source(cluster: ClusterSettings, settings: Settings) -> RemoteClient:
    """Return the source of one cluster for its backfill. Raises ValueError where the configuration cannot be used."""
    return make_source(cluster, settings, lookups_per_second=settings.lookups_per_second)


def connect(
    settings: Settings, processes: Mapping[str, ClientProcess] = MappingProxyType({})
) -> dict[str, RemoteClient]:
    """Return the source of polls of each cluster, by name, in ``processes`` or in processes of their own.

    Raises SettingsError with every configuration that librdkafka refuses.
    """
    problems = []
    with ExitStack() as opened:
        sources = dict[str, RemoteClient]()
        for cluster in settings.clusters:
            process = processes.get(cluster.name)
            try:
                sources[cluster.name] = opened.enter_context(make_poll_source(cluster, settings, process=process))
            except ValueError as error:
                problems.append(f"cluster {cluster.name}: {error}")
        if problems:
            raise SettingsError(tuple(problems))
        opened.pop_all()
    return sources


def _started(source: RemoteClient) -> RemoteClient:
    """Return a remote source after its client has started. Raises ValueError where the configuration cannot be used."""
    try:
        source.client.list_exposed_secrets()
    except SourceError:
        pass  # its process ended: the next poll starts a new one
    except ValueError:
        source.close()
        raise
    return source


def _asking(cluster: ClusterSettings, settings: Settings, budget: float | None) -> dict[str, Any]:
    return {
        **_connecting(cluster, settings),
        "include": cluster.topics.include,
        "exclude": cluster.topics.exclude,
        "internal": cluster.topics.internal,
        "budget": budget,
        "owner_of": partial(settings.make_owners().get, cluster.name),
    }


def make_tier_client(
    cluster: ClusterSettings,
    settings: Settings,
    *,
    lookups_per_second: float | None = None,
    process: ClientProcess | None = None,
) -> RemoteClient:
    """Return the client of kafka-python that looks up offsets of tiers; its first call connects it."""
    return _kafka_python(
        TIERS, cluster, settings, process, rate=lookups_per_second, lookups_per_second=lookups_per_second
    )


def make_log_size_client(
    cluster: ClusterSettings, settings: Settings, *, process: ClientProcess | None = None
) -> RemoteClient:
    """Return the client of kafka-python that reads log sizes; its first call connects it."""
    return _kafka_python(LOG_SIZES, cluster, settings, process)


def _kafka_python(
    kind: str, cluster: ClusterSettings, settings: Settings, process: ClientProcess | None, **further: Any
) -> RemoteClient:
    return RemoteClient(
        process or ClientProcess(cluster.name),
        kind,
        limit=_PATIENCE + 6 * settings.poll_of(cluster).request_timeout,
        alone=process is None,
        **further,
        **_connecting(cluster, settings),
    )


@contextmanager
def connectivity(cluster: ClusterSettings, settings: Settings) -> Iterator[Callable[[str], int]]:
    """Yield a function that connects to one address (``host:port``) alone, and returns how many topics are visible.

    It is safe for several threads. It raises SourceError where the address does not answer, and ValueError where the
    configuration cannot be used.
    """
    limit = 4 * settings.poll_of(cluster).request_timeout + 5
    given = _connecting(cluster, settings)
    with closing(ClientProcess(cluster.name)) as process:

        def check(address: str) -> int:
            properties = {**given["properties"], "bootstrap.servers": address}
            with RemoteClient(process, CONNECTION, limit=limit, **{**given, "properties": properties}) as client:
                visible: int = client.count_topics()
            return visible

        yield check


def _connecting(cluster: ClusterSettings, settings: Settings) -> Mapping[str, Any]:
    """Return the arguments that the clients of a cluster have in common."""
    iam = cluster.aws_msk_iam
    return {
        "properties": dict(cluster.kafka),
        "aws_iam": None if iam is None else AwsIam(iam.region, iam.role_arn),
        "request_timeout": settings.poll_of(cluster).request_timeout,
    }

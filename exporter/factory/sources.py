"""Sources of a cluster's offsets: the clients that its settings ask for."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any

from exporter.domain.ports import SourceError
from exporter.kafka.msk_iam import AwsIam
from exporter.kafka.process import OFFSETS, ClientProcess, RemoteClient
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
    worth_batching: int | None = None,
    budget: float | None = None,
    at_once: bool = True,
    process: ClientProcess | None = None,
) -> RemoteClient:
    """Return the source of one configured cluster. Paced look-ups have no time limit, others that of its polls.

    Without a ``process`` it runs in one of its own. Raises ValueError where the configuration cannot be used, unless
    the client starts later (not ``at_once``).
    """
    poll, rate = settings.poll_of(cluster), times_per_second or lookups_per_second
    budget = None if lookups_per_second is not None else budget or poll.interval
    source = RemoteClient(
        process or ClientProcess(cluster.name),
        OFFSETS,
        # In addition to the budget of all calls together: a call for metadata, and one to the leaders.
        limit=2 * ((budget or _PATIENCE) + poll.request_timeout) + 5,
        rate=rate,
        alone=process is None,
        lookups_per_second=lookups_per_second,
        times_per_second=times_per_second,
        worth_batching=worth_batching,
        include=cluster.topics.include,
        exclude=cluster.topics.exclude,
        internal=cluster.topics.internal,
        budget=budget,
        owner_of=partial(settings.make_owners().get, cluster.name),
        **_connecting(cluster, settings),
    )
    if at_once:
        try:
            source.client.list_exposed_secrets()
        except ValueError:
            source.close()
            raise
        except SourceError:
            pass  # its process ended: the next call starts a new one
    return source


def make_poll_source(
    cluster: ClusterSettings, settings: Settings, *, process: ClientProcess | None = None
) -> RemoteClient:
    """Return the source of one cluster for its poller. Raises ValueError where the configuration cannot be used."""
    return make_source(cluster, settings, worth_batching=WORTH_BATCHING, process=process)


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


def make_kafka_python_client(
    kind: str, cluster: ClusterSettings, settings: Settings, *, process: ClientProcess | None = None
) -> RemoteClient:
    """Return a client of kafka-python of this kind, TIERS or LOG_SIZES; its first call connects it."""
    limit = _PATIENCE + 6 * settings.poll_of(cluster).request_timeout
    given = _connecting(cluster, settings)
    return RemoteClient(process or ClientProcess(cluster.name), kind, limit=limit, alone=process is None, **given)


@contextmanager
def connectivity(cluster: ClusterSettings, settings: Settings) -> Iterator[Callable[[str], int]]:
    """Yield a function that connects to one address (``host:port``) alone, and returns how many topics are visible.

    It is safe for several threads. It raises SourceError where the address does not answer, and ValueError where the
    configuration cannot be used.
    """
    with closing(ClientProcess(cluster.name)) as process:

        def check(address: str) -> int:
            there = cluster.model_copy(update={"kafka": {**cluster.kafka, "bootstrap.servers": address}})
            with make_source(there, settings, process=process) as source:
                visible: int = source.client.count_topics()
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

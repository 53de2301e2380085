"""Runs all checks, each within its own time limit: a broker that does not answer delays only its own checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial

from exporter.clock import SystemClock
from exporter.doctor import cluster as of_cluster
from exporter.doctor import host
from exporter.doctor.findings import Finding, Severity, call_within, make_finding
from exporter.domain.exit_codes import ExitCode
from exporter.domain.formatting import plural
from exporter.domain.polls.metadata import Metadata
from exporter.domain.polls.readings import PollFailure, Reason
from exporter.domain.ports import Clock, SourceError
from exporter.factory.clusters import ClusterCollectors, build_cluster
from exporter.factory.sources import connectivity
from exporter.settings.errors import SettingsError
from exporter.settings.schema import ClusterSettings, Settings

HOST_SECONDS = 70.0
"""Limit for a check of this host: a network folder may hang, `java -version` may be slow."""

_LOST = {Severity.WARNING, Severity.ERROR}


def exit_code(findings: Iterable[Finding]) -> ExitCode:
    """Return FOUND where a finding is a warning or an error: data or a secret is at risk."""
    return ExitCode.FOUND if any(finding.severity in _LOST for finding in findings) else ExitCode.DONE


def explain_unusable(error: SettingsError) -> list[Finding]:
    """Return a finding for each problem of a configuration that cannot be used."""
    costs, fix = "nothing runs, and nothing else was checked", "correct it: `topic-liveness serve --help` shows how"
    return [Finding("configuration", Severity.ERROR, problem, costs, fix) for problem in error.problems]


def examine(
    settings: Settings,
    clusters: Sequence[ClusterSettings],
    clock: Clock | None = None,
) -> list[Finding]:
    """Run every check, those of this host first. Raises nothing: a check that fails is a finding."""
    clock = SystemClock() if clock is None else clock
    names = ", ".join(cluster.name for cluster in settings.clusters)
    found = [Finding("configuration", Severity.OK, f"valid, with {plural(len(settings.clusters), 'cluster')}: {names}")]
    mine = {check.__name__: partial(_list, check, settings, clock) for check in host.CHECKS}
    for name, outcome in call_within(HOST_SECONDS, mine).items():
        found += _or_failure(name, outcome)
    # No limit here: each part of the examination of a cluster has its own.
    examinations = {cluster.name: partial(_cluster, settings, cluster, clock) for cluster in clusters}
    of_clusters = []
    for name, outcome in call_within(None, examinations, at_once=len(examinations) or 1).items():
        of_clusters += [replace(finding, cluster=name) for finding in _or_failure("examination", outcome)]
    return found + of_clusters


def _list(check: Callable[[Settings, Clock], Iterator[Finding]], settings: Settings, clock: Clock) -> list[Finding]:
    return list(check(settings, clock))


def _or_failure(check: str, outcome: list[Finding] | Exception) -> list[Finding]:
    if not isinstance(outcome, Exception):
        return outcome
    costs = "its result is unknown"
    if isinstance(outcome, TimeoutError):
        what = f"this check failed: {outcome}"
        return [Finding(check, Severity.ERROR, what, costs, "find out what hangs, then run `doctor` again")]
    # The text of the error may contain a secret.
    what = f"this check failed with an internal error ({type(outcome).__name__})"
    return [Finding(check, Severity.ERROR, what, costs, "report it as a bug")]


def _cluster(
    settings: Settings,
    cluster: ClusterSettings,
    clock: Clock,
) -> list[Finding]:
    try:
        collectors = build_cluster(cluster, settings, clock)
    except ValueError as error:
        return [make_finding("connection", Severity.ERROR, str(error), "nothing of this cluster is watched")]
    with closing(collectors):
        return [
            *_secrets(collectors.source.client.list_exposed_secrets()),
            *_probe(settings, collectors),
        ]


def _probe(settings: Settings, collectors: ClusterCollectors) -> Iterator[Finding]:
    """Poll once, connect to each address, and sweep the groups once."""
    cluster, poll = collectors.settings, settings.poll_of(collectors.settings)
    # A poll ends within its interval, except for calls that begin at its end: a second each.
    limit = poll.interval + 2 * poll.request_timeout + 10
    [outcome] = call_within(limit, {cluster.name: collectors.poller.poll}).values()
    if isinstance(outcome, Exception):
        yield from _or_failure("poll", outcome)
        return
    bootstrap = [address.strip().rpartition("://")[2] for address in str(cluster.kafka["bootstrap.servers"]).split(",")]
    if isinstance(outcome, PollFailure):
        yield make_finding("connection", Severity.ERROR, outcome.detail, "nothing of this cluster is watched")
        # After a wrong password each further attempt could lock the account.
        if outcome.reason is not Reason.AUTHENTICATION_FAILED and len(bootstrap) > 1:
            for address, one in _reached(settings, cluster, bootstrap).items():
                if isinstance(one, SourceError):
                    yield make_finding(
                        "listeners", Severity.ERROR, one.detail, "no connection to it", prefix=f"{address}: "
                    )
        return
    metadata = outcome.metadata
    yield connection(metadata)
    addresses = dict.fromkeys([*metadata.brokers.values(), *map(_with_port, bootstrap)])
    seen = of_cluster.ClusterProbe(outcome, _reached(settings, cluster, addresses))
    for check in of_cluster.CHECKS:
        yield from check(seen)
    # A sweep ends within its interval, except for calls that begin at its end.
    sweeping = {"groups": partial(of_cluster.groups, collectors.groups)}
    for name, result in call_within(limit + settings.groups_of(cluster).interval, sweeping).items():
        yield from _or_failure(name, result)


def connection(metadata: Metadata) -> Finding:
    """Return that a cluster with these brokers is connected."""
    cluster_id = "" if metadata.cluster_id is None else f" (cluster id {metadata.cluster_id})"
    return Finding("connection", Severity.OK, f"{plural(len(metadata.brokers), 'broker')} up{cluster_id}")


def _with_port(address: str) -> str:
    return address if ":" in address.rpartition("]")[2] else f"{address}:9092"


def _secrets(exposed: Sequence[str]) -> Iterator[Finding]:
    for line in exposed:
        yield make_finding("secrets", Severity.WARNING, line, "whoever learns it can connect as the exporter")
    if not exposed:
        yield Finding(
            "secrets", Severity.OK, "no secret is short, and no file with one is readable by every user of this host"
        )


def _reached(settings: Settings, cluster: ClusterSettings, addresses: Iterable[str]) -> dict[str, int | SourceError]:
    timeout = settings.poll_of(cluster).request_timeout
    with connectivity(cluster, settings) as check:
        outcomes = call_within(2 * timeout + 5, {address: partial(check, address) for address in addresses})
    return {address: one if isinstance(one, int) else _as_failure(one) for address, one in outcomes.items()}


def _as_failure(error: Exception) -> SourceError:
    if isinstance(error, SourceError):
        return error
    if isinstance(error, TimeoutError):
        return SourceError(Reason.TIMED_OUT, str(error))
    return SourceError(Reason.OTHER, f"an internal error ({type(error).__name__}); next step: report it as a bug")

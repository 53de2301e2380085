"""Runs all checks, each within its own time limit: a broker that does not answer delays only its own checks."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial

from exporter.clock import SystemClock
from exporter.doctor import host
from exporter.doctor.cluster import judge_listeners, judge_poll, judge_sweep
from exporter.doctor.findings import Finding, Severity, call_within, make_finding
from exporter.domain.exit_codes import ExitCode
from exporter.domain.formatting import plural
from exporter.domain.polls.readings import PollFailure
from exporter.domain.ports import Clock
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


def examine(settings: Settings, clusters: Sequence[ClusterSettings], clock: Clock | None = None) -> list[Finding]:
    """Run every check, those of this host first. Raises nothing: a check that fails is a finding."""
    clock = SystemClock() if clock is None else clock
    names = ", ".join(cluster.name for cluster in settings.clusters)
    found = [Finding("configuration", Severity.OK, f"valid, with {plural(len(settings.clusters), 'cluster')}: {names}")]
    mine = {check.__name__: partial(check, settings, clock) for check in host.CHECKS}
    for name, outcome in call_within(HOST_SECONDS, mine).items():
        found.append(_explain_failure(name, outcome) if isinstance(outcome, Exception) else outcome)
    # No limit here: each part of the examination of a cluster has its own.
    examinations = {cluster.name: partial(_cluster, settings, cluster, clock) for cluster in clusters}
    for name, of_one in call_within(None, examinations).items():
        findings = [_explain_failure("examination", of_one)] if isinstance(of_one, Exception) else of_one
        found += [replace(finding, cluster=name) for finding in findings]
    return found


def _explain_failure(check: str, error: Exception) -> Finding:
    costs = "its result is unknown"
    if isinstance(error, TimeoutError):
        what = f"this check failed: {error}"
        return Finding(check, Severity.ERROR, what, costs, "find out what hangs, then run `doctor` again")
    # The text of the error may contain a secret.
    what = f"this check failed with an internal error ({type(error).__name__})"
    return Finding(check, Severity.ERROR, what, costs, "report it as a bug")


def _cluster(settings: Settings, cluster: ClusterSettings, clock: Clock) -> list[Finding]:
    try:
        collectors = build_cluster(cluster, settings, clock)
    except ValueError as error:
        return [make_finding("connection", Severity.ERROR, str(error), "nothing of this cluster is watched")]
    with closing(collectors):
        return [*_secrets(collectors.source.client.list_exposed_secrets()), *_probe(settings, collectors)]


def _probe(settings: Settings, collectors: ClusterCollectors) -> Iterator[Finding]:
    """Poll once, connect to each broker, and sweep the groups once."""
    cluster, poll = collectors.settings, settings.poll_of(collectors.settings)
    # A poll ends within its interval, except for calls that begin at its end: a second each.
    limit = poll.interval + 2 * poll.request_timeout + 10
    [polled] = call_within(limit, {cluster.name: collectors.poller.poll}).values()
    if isinstance(polled, Exception):
        yield _explain_failure("poll", polled)
        return
    if isinstance(polled, PollFailure):
        yield make_finding("connection", Severity.ERROR, polled.detail, "nothing of this cluster is watched")
        return
    brokers, cluster_id = polled.metadata.brokers, polled.metadata.cluster_id
    identity = "" if cluster_id is None else f" (cluster id {cluster_id})"
    yield Finding("connection", Severity.OK, f"{plural(len(brokers), 'broker')} up{identity}")
    with connectivity(cluster, settings) as connect:
        addresses = {address: partial(connect, address) for address in brokers.values()}
        reached = call_within(2 * poll.request_timeout + 5, addresses)
    yield from judge_listeners(polled, reached)
    yield from judge_poll(polled, reached)
    if collectors.groups is None:
        yield Finding("groups", Severity.OK, "consumer groups are not watched: groups.enabled is false")
        return
    # A sweep ends within its interval, except for calls that begin at its end.
    limit += settings.groups_of(cluster).interval
    [swept] = call_within(limit, {cluster.name: collectors.groups.sweep}).values()
    yield from [_explain_failure("groups", swept)] if isinstance(swept, Exception) else judge_sweep(swept)


def _secrets(exposed: Sequence[str]) -> Iterator[Finding]:
    for line in exposed:
        yield make_finding("secrets", Severity.WARNING, line, "whoever learns it can connect as the exporter")
    if not exposed:
        well = "no secret is short, and no file with one is readable by every user of this host"
        yield Finding("secrets", Severity.OK, well)

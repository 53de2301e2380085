"""Checks a cluster: its brokers and topics by one poll and one connection to each, its groups by a sweep."""

from collections.abc import Iterator, Mapping

import numpy as np

from exporter.doctor.findings import STEP, Finding, Severity, make_finding
from exporter.domain.formatting import list_some, plural
from exporter.domain.groups.sweep import GroupSweep
from exporter.domain.polls.readings import ANSWERED, Reason
from exporter.domain.polls.table import Snapshot
from exporter.domain.ports import SourceError
from exporter.state import problems

_GRANT_TOPICS = (
    "kafka-acls.sh --bootstrap-server ... --add --allow-principal User:PRINCIPAL --operation Describe "
    "--operation DescribeConfigs --topic '*' (docs/security.md)"
)
_GRANT_GROUPS = (
    "kafka-acls.sh --bootstrap-server ... --add --allow-principal User:PRINCIPAL --operation Describe --group '*' "
    "(docs/security.md), or groups.enabled: false"
)


Reached = Mapping[str, int | Exception]
"""How many topics are visible at each address of a broker, or why it does not answer."""


def judge_listeners(snapshot: Snapshot, reached: Reached) -> Iterator[Finding]:
    """Check every address that a broker advertises."""
    check, brokers = "listeners", snapshot.metadata.brokers
    good = []
    for broker, address in sorted(brokers.items()):
        found = reached[address]
        if isinstance(found, int):
            good.append(address)
            continue
        # The text of any other error may contain a secret.
        detail = found.detail if isinstance(found, SourceError) else f"it cannot be asked ({type(found).__name__})"
        led = plural(int(np.count_nonzero(snapshot.table.leader_now == broker)), "watched partition")
        costs = f"{led} led by it: unreadable, their silence is not proved"
        yield make_finding(check, Severity.ERROR, f"broker {broker} advertises {address}: {detail}", costs)
    if good:
        what = f"{len(good)} of {plural(len(brokers), 'broker')} reached at the address advertised: {list_some(good)}"
        yield Finding(check, Severity.OK, what)


def judge_poll(snapshot: Snapshot, reached: Reached) -> Iterator[Finding]:
    """Check what the poll could read of brokers, topics and their settings."""
    unreadable = problems.explain_unreadable(snapshot)
    lost = bool((~snapshot.table.read).any() or snapshot.metadata.invisible)
    found = (
        (
            "versions",
            problems.explain_old_brokers(snapshot),
            "what they lead has no newest timestamp (state unsupported)",
            "upgrade to Kafka 3.0 or newer; the exporter notices it within a minute",
        ),
        (
            "poll",
            unreadable,
            "their silence is not proved while this lasts: no verdict dead, and gaps in history"
            if lost
            else "their newest timestamp and staleness are unknown while this lasts; silence is judged by offsets",
            "fix what the other lines name; poll.request_timeout (and poll.interval) where brokers are slow",
        ),
        (
            "rights",
            problems.explain_unmatched(snapshot),
            "topics that it should select are not watched",
            f"correct or remove it; where the topic exists: {_GRANT_TOPICS}",
        ),
        (
            "rights",
            problems.explain_unread_settings(snapshot),
            "back-dated topics, and those with remote storage, are not recognised",
            "nothing, if the brokers are busy: the exporter retries every minute",
        ),
    )
    for check, problem, costs, fix in found:
        if problem:
            what, _, right = problem.partition(STEP)
            yield Finding(
                check, Severity.WARNING, what, costs, f"{fix}; for the missing right: {_GRANT_TOPICS}" if right else fix
            )
    if not lost:
        read = f"{plural(len(snapshot.table), 'partition')} read in {snapshot.duration_seconds:.1f} s"
        yield Finding("poll", Severity.OK, read)
    yield from _judge_rights(snapshot, reached)


def _judge_rights(snapshot: Snapshot, reached: Reached) -> Iterator[Finding]:
    """Say how many topics may be described, and which may not. Kafka lists no topic without the right: only those that
    topics.include names are known.
    """
    visible = max((one for one in reached.values() if isinstance(one, int)), default=None)
    topics = snapshot.metadata.topics
    forbidden = [name for name, topic in topics.items() if topic.reason is Reason.UNAUTHORIZED]
    selected = len(topics) - len(forbidden)
    how_many = f"{plural(selected, 'topic')} selected by topics.include and topics.exclude"
    if visible is not None:
        how_many = f"{plural(visible, 'topic')} visible, {how_many}"
    if selected:
        yield Finding("rights", Severity.OK, f"Describe: {how_many}; topics without the right are not listed")
    else:
        what, costs = f"no topic to watch: {how_many}", "nothing of this cluster is watched"
        fix = _GRANT_TOPICS if not visible else "compare topics.include and topics.exclude with the names of the topics"
        yield Finding("rights", Severity.ERROR, what, costs, fix)
    if forbidden:
        what = f"Describe is missing on {plural(len(forbidden), 'topic')} that topics.include names: "
        costs = "they are unreadable (reason unauthorized): not watched"
        yield Finding("rights", Severity.ERROR, what + list_some(sorted(forbidden)), costs, _GRANT_TOPICS)


def judge_sweep(sweep: GroupSweep) -> Iterator[Finding]:
    """Yield findings about the groups that a sweep could not read."""
    check = "groups"
    if sweep.problem:
        yield make_finding(check, Severity.WARNING, sweep.problem, "no consumer group is watched")
        return
    offsets = plural(int((sweep.positions.reason == ANSWERED).sum()), "committed offset")
    read = f"{plural(sweep.read, 'consumer group')} read in {sweep.duration_seconds:.1f} s, with {offsets}"
    yield Finding(check, Severity.OK, read)
    if problem := problems.explain_unswept(sweep):
        what, _, right = problem.partition(STEP)
        fix = _GRANT_GROUPS if right else "check that their coordinators are up, then run `doctor` again"
        severity = Severity.WARNING if sweep.failures or sweep.unlisted else Severity.NOTE
        yield Finding(check, severity, what, "their lag, and how many groups read a topic, are unknown", fix)

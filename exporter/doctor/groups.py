"""Checks whether consumer groups can be watched: the right to describe them, and coordinators that answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from exporter.collectors.consumer_groups import GroupWatch
from exporter.doctor.findings import Finding, Severity, from_error
from exporter.domain.formatting import plural
from exporter.domain.groups.sweep import GroupSweep
from exporter.domain.polls.readings import Reason

_GRANT = (
    "kafka-acls.sh --bootstrap-server ... --add --allow-principal User:PRINCIPAL --operation Describe --group '*' "
    "(docs/security.md), or groups.enabled: false"
)
_FIXES = {
    Reason.UNAUTHORIZED: _GRANT,
    Reason.TIMED_OUT: "check that their brokers are up, or raise groups.interval",
}


def groups(watch: GroupWatch | None) -> list[Finding]:
    """Sweep once over the groups of the polled topics, and report which could not be read. Closes ``watch``."""
    if watch is None:
        return [Finding("groups", Severity.OK, "consumer groups are not watched: groups.enabled is false")]
    with closing(watch):
        return list(judge(watch.sweep()))


def judge(sweep: GroupSweep) -> Iterator[Finding]:
    """Yield findings about the groups that a sweep could not read."""
    check = "groups"
    if sweep.problem:
        yield from_error(check, Severity.WARNING, sweep.problem, "no consumer group is watched")
        return
    offsets = plural(sweep.partitions.get("ok", 0), "committed offset")
    read = f"{plural(sweep.read, 'consumer group')} read in {sweep.duration_seconds:.1f} s, with {offsets}"
    yield Finding(check, Severity.OK, read)
    for reason, number in sorted(sweep.failures.items()):
        what = f"{plural(number, 'consumer group')} cannot be read: {reason}"
        fix = _FIXES.get(reason, "check that their coordinators are up, then run `doctor` again")
        yield Finding(
            check, Severity.WARNING, what, "their lag and the number of groups that read a topic are unknown", fix
        )
    for reason, number in sorted(sweep.unlisted.items()):
        what = f"{plural(number, 'broker')} did not list the groups that they coordinate: {reason}"
        fix = "check that they are up, then run `doctor` again"
        if reason is Reason.NO_COORDINATOR:
            what = f"{plural(number, 'partition')} of __consumer_offsets without a leader: no broker lists their groups"
            fix = "check that the brokers that hold __consumer_offsets are up, then run `doctor` again"
        yield Finding(check, Severity.WARNING, what, "these groups are not watched", fix)
    if sweep.all_visible is False:
        costs = "hidden groups are not watched, and the number of groups that read a topic is unknown"
        yield Finding(check, Severity.NOTE, "without Describe on all groups some may be hidden", costs, _GRANT)

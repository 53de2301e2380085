"""Checks a cluster: its brokers and topics by one poll and one connection to each address, its groups by a sweep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from exporter.collectors.consumer_groups import GroupWatch
from exporter.doctor.findings import Finding, Severity, make_finding
from exporter.domain.arrays import Codes
from exporter.domain.formatting import list_named, list_some, plural
from exporter.domain.groups.sweep import GroupSweep
from exporter.domain.polls.readings import Reason, State, reason_of_code
from exporter.domain.polls.table import STATE_CODES, UNREADABLE, Snapshot
from exporter.kafka.connect_result import ConnectResult

_GRANT_TOPICS = (
    "kafka-acls.sh --bootstrap-server ... --add --allow-principal User:PRINCIPAL --operation Describe "
    "--operation DescribeConfigs --topic '*' (docs/security.md)"
)
_GRANT_GROUPS = (
    "kafka-acls.sh --bootstrap-server ... --add --allow-principal User:PRINCIPAL --operation Describe --group '*' "
    "(docs/security.md), or groups.enabled: false"
)
_FIXES = {
    Reason.UNAUTHORIZED: _GRANT_GROUPS,
    Reason.TIMED_OUT: "check that their brokers are up, or raise groups.interval",
}


@dataclass(frozen=True, slots=True)
class PolledCluster:
    """One poll of a cluster, and the result of connecting to each address of its brokers and of bootstrap.servers."""

    snapshot: Snapshot
    reached: Mapping[str, ConnectResult]

    def led_by(self, broker: int) -> int:
        """Return how many of the watched partitions a broker leads."""
        return int(np.count_nonzero(self.snapshot.table.leader_now == broker))


def listeners(seen: PolledCluster) -> Iterator[Finding]:
    """Check every address: those that brokers advertise and those of bootstrap.servers."""
    check, brokers = "listeners", seen.snapshot.metadata.brokers
    good = []
    for broker, address in sorted(brokers.items()):
        found = seen.reached[address]
        if found.reason is None:
            good.append(address)
            continue
        led = plural(seen.led_by(broker), "watched partition")
        costs = f"{led} led by it: unreadable, their silence is not proved"
        prefix = f"broker {broker} advertises {address}: "
        yield make_finding(check, Severity.ERROR, found.detail, costs, prefix=prefix)
    for address, found in seen.reached.items():
        if found.reason is not None and address not in brokers.values():
            costs = "the exporter can start only by the other addresses of bootstrap.servers"
            yield make_finding(
                check, Severity.WARNING, found.detail, costs, prefix=f"bootstrap.servers names {address}: "
            )
    if good:
        what = f"{len(good)} of {plural(len(brokers), 'broker')} reached at the address advertised: {list_some(good)}"
        yield Finding(check, Severity.OK, what)


def versions(seen: PolledCluster) -> Iterator[Finding]:
    """Check that each broker supports MAX_TIMESTAMP, as far as its answers say."""
    old = sorted(broker for broker, known in seen.snapshot.max_timestamp_supported.items() if not known)
    if old:
        led = plural(sum(map(seen.led_by, old)), "watched partition")
        yield Finding(
            "versions",
            Severity.WARNING,
            f"{list_named('broker', old)}: MAX_TIMESTAMP is not supported (KIP-734)",
            f"{led} led there without a newest timestamp (state unsupported); silence is judged by offsets",
            "upgrade to Kafka 3.0 or newer; the exporter notices it within a minute",
        )


def readings(seen: PolledCluster) -> Iterator[Finding]:
    """Check how many of the watched partitions could be read, and of how many only the offsets."""
    table = seen.snapshot.table
    lost = _counted(table.unread[~table.read])
    undated = _counted(table.reason[table.read & (table.state == UNREADABLE)])
    # The check of rights reports what is forbidden.
    lost.pop(Reason.UNAUTHORIZED, None)
    partitions, took = plural(len(table), "partition"), f"in {seen.snapshot.duration_seconds:.1f} s"
    if lost:
        yield Finding(
            "poll",
            Severity.WARNING,
            f"{lost.total():,} of {partitions} gave no answer {took}: {_reasons(lost)}",
            "their silence is not proved while this lasts: no verdict dead, and gaps in history",
            "fix what the other lines name; poll.request_timeout (and poll.interval) where brokers are slow",
        )
    else:
        yield Finding("poll", Severity.OK, f"{partitions} read {took}")
    if undated:
        yield Finding(
            "poll",
            Severity.WARNING,
            f"{undated.total():,} of {partitions} returned offsets but no newest record: {_reasons(undated)}",
            "their newest timestamp and staleness are unknown while this lasts; silence is judged by offsets",
            "see the broker's log; storage-error means that it lost a log directory",
        )


def _counted(codes: Codes) -> Counter[Reason | None]:
    """Count reason codes; reasons are in the order in which they first appear."""
    found, first, counts = np.unique(codes, return_index=True, return_counts=True)
    counted: Counter[Reason | None] = Counter()
    for at in np.argsort(first).tolist():
        counted[reason_of_code(int(found[at]))] += int(counts[at])
    return counted


def _reasons(counts: Counter[Reason | None]) -> str:
    return ", ".join(f"{reason} {number:,}" for reason, number in counts.most_common())


def rights(seen: PolledCluster) -> Iterator[Finding]:
    """Check what may be described. Topics without the right are not listed, so their number is unknown."""
    check, metadata = "rights", seen.snapshot.metadata
    counts = [found.visible_topics for found in seen.reached.values() if found.visible_topics is not None]
    visible = max(counts, default=None)
    forbidden = [name for name, topic in metadata.topics.items() if topic.reason is Reason.UNAUTHORIZED]
    selected = len(metadata.topics) - len(forbidden)
    if visible is None:
        how_many = f"{plural(selected, 'topic')} selected"
    else:
        how_many = f"{plural(visible, 'topic')} visible, {selected:,} selected by topics.include and topics.exclude"
    if selected:
        yield Finding(check, Severity.OK, f"Describe on topics: {how_many}; topics without the right are not listed")
    else:
        fix = _GRANT_TOPICS if not visible else "compare topics.include and topics.exclude with the names of the topics"
        what = f"no topic to watch: {how_many}"
        yield Finding(check, Severity.ERROR, what, "nothing of this cluster is watched", fix)
    if forbidden:
        topics = plural(len(forbidden), "topic")
        what = f"Describe is missing on {topics} that topics.include names: {list_some(forbidden)}"
        yield Finding(
            check, Severity.ERROR, what, "they are unreadable (reason unauthorized): not watched", _GRANT_TOPICS
        )
    for pattern in metadata.unmatched if visible else ():
        internal = pattern in metadata.only_internal
        kind = "internal topics only" if internal else "no visible topic"
        fix = (
            "set topics.internal: true"
            if internal
            else f"correct or remove it; where the topic exists: {_GRANT_TOPICS}"
        )
        what = f"topics.include {pattern!r} matches {kind}"
        yield Finding(check, Severity.WARNING, what, "topics that it should select are not watched", fix)
    yield from _unconfigured(check, metadata.unconfigured)


def _unconfigured(check: str, unread: Mapping[str, Reason]) -> Iterator[Finding]:
    for reason, number in Counter(unread.values()).most_common():
        names = list_some(name for name, why in unread.items() if why is reason)
        denied = reason is Reason.UNAUTHORIZED
        what = f"DescribeConfigs is missing on {plural(number, 'topic')}: {names}"
        if not denied:
            what = f"settings of {plural(number, 'topic')} could not be read ({reason}): {names}"
        yield Finding(
            check,
            Severity.WARNING,
            what,
            "their timestamp type, retention and remote storage are unknown: back-dated and tiered topics are not "
            "recognised",
            _GRANT_TOPICS if denied else "nothing, if the brokers are busy: the exporter retries every minute",
        )


def future_records(seen: PolledCluster) -> Iterator[Finding]:
    """Check that no record is dated in the future."""
    table = seen.snapshot.table
    future = np.unique(table.layout.topic[table.state_now == STATE_CODES[State.FUTURE]])
    ahead = [table.layout.topics[number] for number in future.tolist()]
    if ahead:
        yield Finding(
            "timestamps",
            Severity.WARNING,
            f"records from the future in {plural(len(ahead), 'topic')}: {list_some(ahead)}",
            "their staleness is 0 until that time, and backfill sees nothing that was written after such a record",
            "correct the producer's clock or unit (microseconds instead of milliseconds), then "
            "message.timestamp.after.max.ms=3600000 on the topic",
        )


CHECKS = (listeners, versions, readings, rights, future_records)


def groups(watch: GroupWatch | None) -> list[Finding]:
    """Sweep once over the groups of the polled topics, and report which could not be read. Closes ``watch``."""
    if watch is None:
        return [Finding("groups", Severity.OK, "consumer groups are not watched: groups.enabled is false")]
    with closing(watch):
        return list(judge_sweep(watch.sweep()))


def judge_sweep(sweep: GroupSweep) -> Iterator[Finding]:
    """Yield findings about the groups that a sweep could not read."""
    check = "groups"
    if sweep.problem:
        yield make_finding(check, Severity.WARNING, sweep.problem, "no consumer group is watched")
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
        yield Finding(check, Severity.NOTE, "without Describe on all groups some may be hidden", costs, _GRANT_GROUPS)

"""What the log says of a poll, a look or a sweep that is not as it should be; "" where nothing is wrong.

A sentence stays the same while nothing changes: it is said again only when it does.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Container

import numpy as np

from exporter.collectors.producers_log_sizes import Inspection
from exporter.collectors.remote_tier import Look
from exporter.domain import Comparison, GroupSweep, Reason, Snapshot
from exporter.domain.answers import ANSWERED, reason_of_code, rows_with
from exporter.domain.incidents import Incident
from exporter.domain.layout import NO_LEADER
from exporter.domain.readings import GONE
from exporter.kafka import LOG_DIRS, PRODUCERS


def unreadable(snapshot: Snapshot) -> str:
    """Say why which partitions could not be read: at which brokers, or how many and of which topics.

    Of a broker that does not answer it alone is told: how many of its partitions time out changes at every poll.
    """
    table = snapshot.table
    codes, layout = table.reason_now, table.layout
    led_by = np.where(table.read, table.led_by, table.leader)
    unanswered = rows_with(codes, tuple(GONE)) & (led_by != NO_LEADER)
    silent = set(np.unique(led_by[unanswered]).tolist())
    codes = np.where(unanswered, ANSWERED, codes)
    counts: Counter[Reason] = Counter()
    topics: dict[Reason, set[str]] = defaultdict(set)
    leaders: dict[Reason, set[int]] = defaultdict(set)
    for code in np.unique(codes).tolist():
        reason, rows = reason_of_code(code), np.flatnonzero(codes == code)
        if reason is None:
            continue
        counts[reason] = len(rows)
        topics[reason] = {layout.topics[number] for number in np.unique(layout.topic[rows]).tolist()}
        if reason is not Reason.UNAUTHORIZED:
            leaders[reason] = set(np.unique(led_by[rows]).tolist()) - {NO_LEADER}
    for name, topic in snapshot.metadata.topics.items():
        if topic.reason is not None and not topic.partitions:
            counts[topic.reason] += 1
            topics[topic.reason].add(name)
    told = [f"{' or '.join(sorted(GONE))}{_at(silent)}"] if silent else []
    told += [f"{reason} {counts[reason]}{_at(leaders[reason])} ({_some(topics[reason])})" for reason in sorted(counts)]
    return _with_right("unreadable", told, counts, "DESCRIBE on these topics")


def unconfigured(snapshot: Snapshot) -> str:
    """Say why the settings of which topics could not be read."""
    topics: dict[Reason, set[str]] = defaultdict(set)
    for name, reason in snapshot.metadata.unconfigured.items():
        topics[reason].add(name)
    told = [f"{reason} {len(names)} ({_some(names)})" for reason, names in sorted(topics.items())]
    what = "settings of topics could not be read, offsets are read all the same"
    return _with_right(what, told, topics, "DESCRIBE_CONFIGS on topics")


def _with_right(what: str, told: list[str], reasons: Container[Reason], right: str) -> str:
    """Say what could not be read, with the right to grant where that is what lacks; "" where all could."""
    step = f"; next step: grant {right}" if Reason.UNAUTHORIZED in reasons else ""
    return f"{what}: {', '.join(told)}{step}" if told else ""


def _at(brokers: Collection[int]) -> str:
    return f" at broker{'s' if len(brokers) > 1 else ''} {_some(brokers)}" if brokers else ""


def _some(things: Collection[str] | Collection[int]) -> str:
    """The first three of many, in order: ``a, b, c, ...``."""
    return ", ".join([*map(str, sorted(things)[:3]), *(["..."] if len(things) > 3 else [])])


def unanswered(look: Look) -> str:
    """Say which look-ups of partitions with remote storage failed. Without counts: they change at every look."""
    told = ", ".join(f"{spec} {reason}" for spec, reason in sorted(look.failures))
    old = [spec for spec, reason in sorted(look.failures) if reason is Reason.UNSUPPORTED_VERSION]
    if old:
        told += (
            f"; brokers answer earliest-local from 3.5 on and latest-tiered from 3.9 on: {', '.join(old)} stays unknown"
        )
    return f"partitions with remote storage, look-ups that failed: {told}" if told else ""


def not_inspected(inspection: Inspection) -> str:
    """Say what brokers did not tell of producers and log sizes. Without counts: they change at every look."""
    brokers: dict[tuple[str, Reason], set[int]] = {}
    for spec, reason, broker in inspection.failures:
        brokers.setdefault((spec, reason), set()).add(broker)
    told = []
    for (spec, reason), ids in sorted(brokers.items()):
        told.append(f"{spec} {reason}{_at(ids)}{_INSPECTION_STEPS.get((spec, reason), '')}")
    return f"not told when asked: {'; '.join(told)}" if told else ""


_INSPECTION_STEPS = {
    (PRODUCERS, Reason.UNAUTHORIZED): " (next step: grant READ on topics, or set inspection.producers: false)",
    (PRODUCERS, Reason.UNSUPPORTED_VERSION): " (brokers tell from 2.8 on, KIP-664)",
    (LOG_DIRS, Reason.UNAUTHORIZED): " (next step: grant DESCRIBE on the cluster, or set inspection.log_sizes: false)",
}


def unswept(sweep: GroupSweep) -> str:
    """Say why consumer groups could not be read. Without counts: they change at every sweep."""
    told = [str(reason) for reason in sorted(sweep.failures)]
    unlisted = sorted(sweep.unlisted.keys() - {Reason.NO_COORDINATOR})
    told += [f"brokers without a list of their groups {reason}" for reason in unlisted]
    if Reason.NO_COORDINATOR in sweep.unlisted:
        told.append("partitions of __consumer_offsets without a leader")
    said = f"consumer groups that could not be read: {', '.join(told)}" if told else ""
    if sweep.all_visible is False:
        said += f"{'; ' if said else ''}consumer groups may be hidden, so nobody can tell how many read a topic"
    if sweep.all_visible is False or Reason.UNAUTHORIZED in sweep.failures:
        said += "; next step: grant DESCRIBE on groups"
    return said


def fell_silent(incidents: tuple[Incident, ...]) -> str:
    """Say which topics fell silent together."""
    return "; ".join(
        f"{len(incident.topics)} of {incident.promised} topics"
        f"{'' if incident.leader is None else f' led by broker {incident.leader}'} fell silent together, held as one "
        f"incident: {_some(incident.topics)}"
        for incident in incidents
    )


def unmatched(snapshot: Snapshot) -> str:
    """Say which include patterns name no topic that is watched."""
    metadata, told = snapshot.metadata, []
    if nowhere := [pattern for pattern in metadata.unmatched if pattern not in metadata.only_internal]:
        listed = ", ".join(map(repr, nowhere))
        told.append(f"topics.include {listed} matches no visible topic: check the spelling, and the DESCRIBE right")
    if metadata.only_internal:
        listed = ", ".join(map(repr, metadata.only_internal))
        told.append(f"topics.include {listed} matches internal topics only: set topics.internal: true to watch them")
    return "; ".join(told)


def too_old(snapshot: Snapshot) -> str:
    """Say which brokers do not know MAX_TIMESTAMP."""
    brokers = sorted(broker for broker, known in snapshot.max_timestamp_supported.items() if not known)
    if not brokers:
        return ""
    return f"brokers {brokers} do not know MAX_TIMESTAMP (before 3.0, KIP-734): silence is judged from offsets alone"


def unmatched_replicas(comparison: Comparison) -> str:
    """Say what keeps replicas from being compared with their source."""
    return "; ".join(f"{fault.what}; next step: {fault.mend}" for fault in comparison.faults)

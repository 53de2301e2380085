"""Words what is wrong with a poll, look-up or sweep for the log; "" where nothing is wrong.

A text stays the same while nothing changes, because the log repeats a text only when it changes.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Container

import numpy as np

from exporter.collectors.round import Round
from exporter.domain.formatting import duration, list_some, moment
from exporter.domain.groups.sweep import GroupSweep
from exporter.domain.polls.layout import NO_LEADER
from exporter.domain.polls.readings import ANSWERED, GONE, Reason, reason_of_code, rows_with
from exporter.domain.polls.table import Snapshot
from exporter.kafka.process import LOG_DIRS

_NEWS_SECONDS = 86_400.0
"""So long a change of the cluster behind a name is said."""


def explain_unreadable(snapshot: Snapshot) -> str:
    """Return why partitions could not be read: at which brokers, or how many and of which topics.

    For brokers that do not answer only the brokers are named, because the number of their timeouts changes at every
    poll.
    """
    table = snapshot.table
    codes, layout = table.reason_now, table.layout
    led_by = table.leader_now
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
    for name, reason in snapshot.metadata.invisible.items():
        counts[reason] += 1
        topics[reason].add(name)
    causes = [f"{' or '.join(sorted(GONE))}{_at(silent)}"] if silent else []
    causes += [
        f"{reason} {counts[reason]}{_at(leaders[reason])} ({list_some(sorted(topics[reason]))})"
        for reason in sorted(counts)
    ]
    return _with_right("unreadable", causes, counts, "DESCRIBE on these topics")


def explain_unread_settings(snapshot: Snapshot) -> str:
    """Return why settings of topics could not be read."""
    topics: dict[Reason, set[str]] = defaultdict(set)
    for name, reason in snapshot.metadata.unconfigured.items():
        topics[reason].add(name)
    causes = [f"{reason} {len(names)} ({list_some(sorted(names))})" for reason, names in sorted(topics.items())]
    what = "settings of topics could not be read; offsets are read"
    return _with_right(what, causes, topics, "DESCRIBE_CONFIGS on topics")


def _with_right(what: str, causes: list[str], reasons: Container[Reason], right: str) -> str:
    """Return what could not be read, with the right to grant where it is missing; "" where all was read."""
    step = f"; next step: grant {right}" if Reason.UNAUTHORIZED in reasons else ""
    return f"{what}: {', '.join(causes)}{step}" if causes else ""


def _at(brokers: Collection[int]) -> str:
    return f" at broker{'' if len(brokers) == 1 else 's'} {list_some(sorted(brokers))}" if brokers else ""


def explain_unanswered(ended: Round) -> str:
    """Return which look-ups of a round failed, and at which brokers. No counts: they change with every round."""
    brokers = defaultdict[tuple[str, Reason], set[int]](set)
    for spec, reason, broker in ended.failures:
        brokers[spec, reason] |= set() if broker is None else {broker}
    if not brokers:
        return ""
    text = "; ".join(f"{spec} {reason}{_at(numbers)}" for (spec, reason), numbers in sorted(brokers.items()))
    if (LOG_DIRS, Reason.UNAUTHORIZED) in brokers:
        text += " (next step: grant DESCRIBE on the cluster, or set inspection.log_sizes: false)"
    if old := [spec for spec, reason in sorted(brokers) if reason is Reason.UNSUPPORTED_VERSION]:
        text += (
            f"; brokers answer earliest-local from 3.5 on and latest-tiered from 3.9 on: {', '.join(old)} stays unknown"
        )
    return f"{ended.wants}, look-ups that failed: {text}"


def explain_unswept(sweep: GroupSweep) -> str:
    """Return why consumer groups could not be read. No counts: they change at every sweep."""
    causes = [str(reason) for reason in sorted(sweep.failures)]
    unlisted = sorted(sweep.unlisted.keys() - {Reason.NO_COORDINATOR})
    causes += [f"brokers without a list of their groups {reason}" for reason in unlisted]
    if Reason.NO_COORDINATOR in sweep.unlisted:
        causes.append("partitions of __consumer_offsets without a leader")
    text = f"consumer groups that could not be read: {', '.join(causes)}" if causes else ""
    if sweep.all_visible is False:
        text += f"{'; ' if text else ''}consumer groups may be hidden, so it is unknown how many read a topic"
    if sweep.all_visible is False or Reason.UNAUTHORIZED in sweep.failures:
        text += "; next step: grant DESCRIBE on groups"
    return text


def explain_unmatched(snapshot: Snapshot) -> str:
    """Return which include patterns match no watched topic."""
    patterns = snapshot.metadata.unmatched
    if not patterns:
        return ""
    quoted = ", ".join(map(repr, patterns))
    named = any(each.startswith("__") for each in patterns)
    internal = "; set topics.internal: true for names in __" if named else ""
    return f"topics.include {quoted} matches no visible topic: check the spelling, and the DESCRIBE right{internal}"


def explain_another_cluster(snapshot: Snapshot) -> str:
    """Return that another Kafka cluster answers behind this name since less than a day."""
    change = snapshot.cluster_change
    if change is None or snapshot.taken_at - change.at > _NEWS_SECONDS:
        return ""
    return (
        f"another Kafka cluster answers since {moment(change.at)}: its id was {change.before} and is "
        f"{snapshot.metadata.cluster_id}; what silences lasted before is unknown. If that is not meant, check "
        "bootstrap.servers; if it is, give it a name of its own in the settings"
    )


def explain_slow_polls(snapshot: Snapshot, interval: float, *, before: bool) -> str:
    """Return that polls outlast their interval; it ends (``before``: said so far) where one takes half of it."""
    if snapshot.duration_seconds <= (interval / 2 if before else interval):
        return ""
    return (
        f"polls take longer than poll.interval ({duration(interval)}), so there are fewer of them; next step: raise "
        "poll.interval, or see topic_liveness_poll_duration_seconds and why brokers are slow"
    )


def explain_old_brokers(snapshot: Snapshot) -> str:
    """Return which brokers do not support MAX_TIMESTAMP."""
    brokers = sorted(broker for broker, known in snapshot.max_timestamp_supported.items() if not known)
    if not brokers:
        return ""
    return f"brokers {brokers} do not support MAX_TIMESTAMP (before 3.0, KIP-734): silence is judged by offsets alone"

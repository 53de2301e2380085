"""Checks topics by one poll: rights, timestamps, retention."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from exporter.doctor.brokers import PolledCluster
from exporter.doctor.findings import Finding, Severity
from exporter.domain import Reason, State, TopicConfig, TopicInfo
from exporter.domain.formatting import duration, plural, some
from exporter.domain.owners import Owners
from exporter.domain.polls.table import STATE_CODES

FOR_VERDICTS = 20 * 86400.0
"""A backfill of this length holds two weeks from Monday to Sunday, on whichever day it runs."""

FAR_AHEAD_SECONDS = 86400.0

_GRANT = (
    "kafka-acls.sh --bootstrap-server ... --add --allow-principal User:PRINCIPAL --operation Describe "
    "--operation DescribeConfigs --topic '*' (docs/security.md)"
)


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
        fix = _GRANT if not visible else "compare topics.include and topics.exclude with the names of the topics"
        what = f"no topic to watch: {how_many}"
        yield Finding(check, Severity.ERROR, what, "nothing of this cluster is watched", fix)
    if forbidden:
        what = f"Describe is missing on {plural(len(forbidden), 'topic')} that topics.include names: {some(forbidden)}"
        yield Finding(check, Severity.ERROR, what, "they are unreadable (reason unauthorized): not watched", _GRANT)
    for pattern in metadata.unmatched if visible else ():
        internal = pattern in metadata.only_internal
        kind = "internal topics only" if internal else "no visible topic"
        fix = "set topics.internal: true" if internal else f"correct or remove it; where the topic exists: {_GRANT}"
        what = f"topics.include {pattern!r} matches {kind}"
        yield Finding(check, Severity.WARNING, what, "topics that it should select are not watched", fix)
    yield from _unconfigured(check, metadata.unconfigured)


def _unconfigured(check: str, unread: Mapping[str, Reason]) -> Iterator[Finding]:
    for reason, number in Counter(unread.values()).most_common():
        names = some(name for name, why in unread.items() if why is reason)
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
            _GRANT if denied else "nothing, if the brokers are busy: the exporter retries every minute",
        )


def timestamps(seen: PolledCluster) -> Iterator[Finding]:
    """Check which clock sets the timestamps, and whether any lie in the future."""
    check, configs = "timestamps", _configs(seen)
    types = Counter(config.timestamp_type for config in configs.values() if config.timestamp_type)
    if types:
        type_counts = ", ".join(f"{number:,} {kind}" for kind, number in types.most_common())
        by_producers = types.get("CreateTime", 0)
        costs = "staleness and backfilled history of CreateTime topics depend on producers' clocks; silence does not"
        fix = (
            "nothing, where producers' clocks are synchronised; else message.timestamp.type=LogAppendTime on the topic"
        )
        note = (Severity.NOTE, costs, fix) if by_producers else (Severity.OK, None, None)
        yield Finding(check, note[0], f"of {plural(types.total(), 'topic')}: {type_counts}", note[1], note[2])
    table = seen.snapshot.table
    future = np.unique(table.layout.topic[table.state_now == STATE_CODES[State.FUTURE]])
    ahead = [table.layout.topics[number] for number in future.tolist()]
    if ahead:
        yield Finding(
            check,
            Severity.WARNING,
            f"records from the future in {plural(len(ahead), 'topic')}: {some(ahead)}",
            "their staleness is 0 until that time, and backfill sees nothing that was written after such a record",
            "correct the producer's clock or unit (microseconds instead of milliseconds), then "
            "message.timestamp.after.max.ms=3600000 on the topic",
        )
    wide = _names(configs, lambda config: (config.timestamp_after_max_seconds or 0) > FAR_AHEAD_SECONDS)
    if wide:
        yield Finding(
            check,
            Severity.NOTE,
            f"records dated more than a day ahead are accepted by {plural(len(wide), 'topic')}: {some(wide)}",
            "one such record hides the topic's true staleness until that date",
            "message.timestamp.after.max.ms=3600000 on the topic (Kafka 3.6; the default from 4.0 on)",
        )


def retention(seen: PolledCluster) -> Iterator[Finding]:
    """Check that brokers keep enough history for a backfill to give verdicts at once."""
    configs = {name: one for name, one in _configs(seen).items() if one.retention_seconds is not None}
    short = _names(
        configs, lambda one: "delete" in (one.cleanup_policy or "") and _retention_seconds(one) < FOR_VERDICTS
    )
    limit = duration(FOR_VERDICTS)
    if short:
        least = min(_retention_seconds(configs[name]) for name in short)
        yield Finding(
            "retention",
            Severity.NOTE,
            f"{plural(len(short), 'topic')} kept for under {limit} (down to {duration(least)}): {some(short)}",
            "a backfill may show less than two whole weeks, from Monday to Sunday: these topics then stay learning "
            "until the exporter has polled the rest",
            "raise retention.ms of the topic, or wait",
        )
    elif configs:
        yield Finding("retention", Severity.OK, f"{plural(len(configs), 'topic')} kept for {limit} or longer")


def owners(known: Owners, topics: Mapping[str, Mapping[str, TopicInfo] | None]) -> Iterator[Finding]:
    """Check that each entry of ``owners`` matches a topic. ``topics`` by cluster: None where not read."""
    check = "owners"
    everything = [(name, topic) for seen in topics.values() if seen is not None for name, topic in seen.items()]
    unowned = [name for name, topic in everything if topic.owner is None]
    owned = f"{len(everything) - len(unowned):,} of {plural(len(everything), 'topic')} have an owner"
    without = f"; without: {some(unowned)}" if unowned else ""
    yield Finding(check, Severity.OK, owned + without)
    for entry in known.idle(topics):
        yield Finding(
            check,
            Severity.NOTE,
            f"{entry} gives no visible topic an owner",
            "topics that it should match have the owner of another entry, or none",
            "correct or remove it; where an entry before it matches the same topics: put it first",
        )


def tiered(seen: PolledCluster) -> list[str]:
    """Return the topics with remote storage, sorted."""
    return _names(_configs(seen), lambda config: config.remote_storage)


def _configs(seen: PolledCluster) -> dict[str, TopicConfig]:
    topics = seen.snapshot.metadata.topics
    return {name: topic.config for name, topic in topics.items() if topic.config is not None}


def _names(configs: Mapping[str, TopicConfig], true: Callable[[TopicConfig], bool]) -> list[str]:
    return sorted(name for name, config in configs.items() if true(config))


def _retention_seconds(config: TopicConfig) -> float:
    return math.inf if config.retention_seconds is None else config.retention_seconds

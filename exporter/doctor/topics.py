"""Checks topics by one poll: rights, and records from the future."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from exporter.doctor.brokers import PolledCluster
from exporter.doctor.findings import Finding, Severity
from exporter.domain.formatting import plural, some
from exporter.domain.polls.readings import Reason, State
from exporter.domain.polls.table import STATE_CODES

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


def future_records(seen: PolledCluster) -> Iterator[Finding]:
    """Check that no record is dated in the future."""
    table = seen.snapshot.table
    future = np.unique(table.layout.topic[table.state_now == STATE_CODES[State.FUTURE]])
    ahead = [table.layout.topics[number] for number in future.tolist()]
    if ahead:
        yield Finding(
            "timestamps",
            Severity.WARNING,
            f"records from the future in {plural(len(ahead), 'topic')}: {some(ahead)}",
            "their staleness is 0 until that time, and backfill sees nothing that was written after such a record",
            "correct the producer's clock or unit (microseconds instead of milliseconds), then "
            "message.timestamp.after.max.ms=3600000 on the topic",
        )

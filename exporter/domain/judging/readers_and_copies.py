"""Who reads a topic, and which topic it is a copy of. Shown beside a verdict, which never depends on either.

A dead topic that somebody reads is worse than one that nobody reads. A copy that is silent while its source lives is
not dead: its replication stopped.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from exporter.domain.arrays import Flags, Floats
from exporter.domain.formatting import plural
from exporter.domain.groups.readers import Readership
from exporter.domain.judging.detection import Assessment
from exporter.domain.replicas.comparison import REPLICA_STATE_CODES, Comparison, ReplicaState
from exporter.domain.verdicts import RETIRED_AFTER_SECONDS, VERDICT_CODES, Verdict


def mark_dead_sources(compared: Comparison, source: Assessment | None) -> Comparison:
    """Return a comparison that marks replicas in step whose source is dead."""
    if source is None:
        return compared
    here, there = compared.layout.moves_from(source.layout)
    dead = np.isin(source.of_partitions.verdict[there], [VERDICT_CODES[Verdict.DEAD], VERDICT_CODES[Verdict.RETIRED]])
    rows = here[dead]
    in_step, too = (REPLICA_STATE_CODES[each] for each in (ReplicaState.IN_STEP, ReplicaState.SOURCE_DEAD_TOO))
    state = compared.lag.state.copy()
    state[rows[state[rows] == in_step]] = too
    return replace(compared, lag=compared.lag._replace(state=state))


_INTERNAL = re.compile(
    r"_.*|.*-(changelog|repartition|subscription-(registration|response).*)|(.*[-._])?(connect|mm2)[-._].*"
    r"|.*[-._](configs|offsets|status|config|offset|storage)|(.*[-._])?schemas?|.*\.internal|(.*\.)?heartbeats",
    re.IGNORECASE,
)
"""Names as Kafka Streams, Kafka Connect, MirrorMaker and schema registries give them, and those with an underscore."""

PAUSE_TIMES = 2.0
"""Multiple of a topic's longest pause. A topic is not over until its silence reaches this multiple."""


def is_internal(topic: str) -> bool:
    """Return whether a topic holds the state of Kafka or of one of its tools, by the name that these give it."""
    return _INTERNAL.fullmatch(topic) is not None


def are_over(*, gone: Flags, silence: Floats, longest: Floats, mirrored: Flags) -> Flags:
    """Return which topics are ``gone`` (dead or retired), were not written for 28 days and for twice their longest
    pause, and are neither copied nor a copy.

    ``silence`` and the ``longest`` before it are seconds, NaN where unknown: a topic that is retired by an override may
    be written now. ``mirrored`` is true where a topic is copied, or is the copy of a topic that is not dead too.
    """
    long = silence >= np.maximum(RETIRED_AFTER_SECONDS, PAUSE_TIMES * np.nan_to_num(longest))
    over: Flags = gone & long & ~mirrored
    return over


def explain_keep(
    names: Sequence[str],
    policies: Sequence[str | None],
    retention: Floats,
    tiered: Sequence[bool | None],
    readers: Sequence[Readership | None],
) -> list[str | None]:
    """Return for each topic why it may be needed although nobody writes it; "" where it is proved that it is not.

    None: a consumer group reads it. ``retention`` is in seconds, infinite for ever, NaN where unknown; None in other
    columns is unknown as well. A compacted topic, or one that is kept for ever, holds state that is read whenever an
    application starts; so may one whose name Kafka Streams, Kafka Connect or a schema registry would give.
    """
    found: list[str | None] = []
    for name, policy, seconds, remote, of in zip(names, policies, retention.tolist(), tiered, readers, strict=True):
        if of is not None and of.assigned:
            found.append(None)
            continue
        reasons = [
            "its cleanup policy is not known" if policy is None else "it is compacted" if "compact" in policy else "",
            "its retention is not known" if np.isnan(seconds) else "it is kept for ever" if np.isinf(seconds) else "",
            "it may be tiered" if remote is None else "it is tiered" if remote else "",
            "its name is that of an internal topic" if is_internal(name) else "",
            "its readers are not known" if of is None else "",
            f"{plural(of.gone, 'group')} without a member committed in it" if of is not None and of.gone else "",
        ]
        found.append("; ".join(filter(None, reasons)))
    return found

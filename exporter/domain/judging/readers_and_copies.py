"""Who reads a topic, and which topic it is a copy of. Shown beside a verdict, which never depends on either.

A dead topic that somebody reads is worse than one that nobody reads. A copy that is silent while its source lives is
not dead: its replication stopped.
"""

from __future__ import annotations

import numpy as np

from exporter.domain.arrays import Flags, Floats
from exporter.domain.formatting import plural
from exporter.domain.groups.readers import Readership
from exporter.domain.replicas.comparison import ReplicaState
from exporter.domain.verdicts import RETIRED_AFTER_SECONDS, Verdict

SILENT = (Verdict.SUSPECT, Verdict.DEAD, Verdict.RETIRED)
"""Verdicts on a silence that is longer than usual."""

PAUSE_TIMES = 2.0
"""Multiple of a topic's longest pause. A topic is no candidate for deletion until its silence reaches this multiple."""


def readers_line(of: Readership, *, silent: bool) -> str:
    """Return how many consumer groups read a topic, in words; those that only committed in it are listed apart."""
    still, verb = " still" if silent else "", "reads" if of.assigned == 1 else "read"
    read = f"{plural(of.assigned, 'consumer group')}{still} {verb} it" if of.assigned else "no consumer group reads it"
    left = f"{plural(of.committed, 'group')} committed in it and left it" if of.committed else ""
    gone = f"{plural(of.gone, 'group')} without a member committed in it" if of.gone else ""
    return "; ".join(filter(None, (read, left, gone)))


def replica_line(state: str | None, source: str, *, source_lives: bool, whole: bool, silent: bool) -> str | None:
    """Return the replica state of a copy of ``source`` in words, None where it does not help to explain the verdict.

    ``state`` is that of the worst partition of its topic, so for one partition (``whole`` is false)
    the line speaks of some partitions.
    """
    match state:
        case ReplicaState.STOPPED if whole and silent:
            return f"source {source}{' lives' if source_lives else ' went on'}, replica silent: replication stopped"
        case ReplicaState.STOPPED:
            return f"replication of {source} stopped in some partitions"
        case ReplicaState.BEHIND:
            return f"behind its source {source}" if whole else f"replication of {source} is behind in some partitions"
        case ReplicaState.SOURCE_DEAD_TOO:
            return f"its source {source} is dead too"
        case ReplicaState.IN_STEP if silent:
            return f"in step with its source {source}"
    return None


def deletion_candidates(
    *, retired: Flags, dead: Flags, silence: Floats, longest: Floats, unread: Flags, mirrored: Flags
) -> Flags:
    """Return which topics may be deleted: silent for 28 days and for twice their longest pause, unread, not mirrored.

    ``silence`` and the ``longest`` before it are seconds, NaN where unknown. ``unread`` is true where it is
    proved that no group reads the topic, and where none without a member committed in it: it may be a job that runs
    again. ``mirrored`` is true where a topic is copied, or is the copy of a topic that is not dead too.
    """
    long = retired | (dead & (silence >= RETIRED_AFTER_SECONDS))
    paused = silence < PAUSE_TIMES * np.nan_to_num(longest)
    return long & unread & ~mirrored & ~paused

"""Who reads a topic, and what it is a copy of: beside a verdict, which never depends on it.

A dead topic that somebody waits for is worse than one that nobody reads; a copy that is silent while its source
lives is not dead but cut off.
"""

from __future__ import annotations

import numpy as np

from exporter.domain.arrays import Flags, Floats
from exporter.domain.formatting import plural
from exporter.domain.replicas.comparison import ReplicaState
from exporter.domain.verdicts import RETIRED_AFTER_SECONDS, Verdict

SILENT = (Verdict.SUSPECT, Verdict.DEAD, Verdict.RETIRED)
"""Verdicts on a silence that is longer than usual."""

PAUSE_TIMES = 2.0
"""A topic that paused before is no candidate for deletion until it is silent for so many times its longest pause."""


def readers_line(readers: int, without_members: int, *, silent: bool) -> str:
    """Return how many consumer groups read a topic, in words.

    Apart are groups without a member: they may have committed once, and never again.
    """
    still, verb = " still" if silent else "", "reads" if readers == 1 else "read"
    read = f"{plural(readers, 'consumer group')}{still} {verb} it" if readers else "no consumer group reads it"
    if not without_members:
        return read
    return f"{read}; {plural(without_members, 'group')} without a member committed in it"


def replica_line(state: str | None, source: str, *, source_lives: bool, whole: bool, silent: bool) -> str | None:
    """Return how a copy stands to its ``source``, None where that says nothing of its verdict.

    ``state`` is that of the worst partition of its topic, so for one partition (``whole`` is false)
    the line names some partitions.
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
    """Return which topics may be deleted: silent for 28 days, unread, not mirrored, and they never paused so long.

    ``silence`` and the ``longest`` before it are seconds, NaN where unknown; ``unread`` is true where no group with a
    member is known, ``mirrored`` where a topic is copied, or is the copy of one that is not dead too.
    """
    long = retired | (dead & (silence >= RETIRED_AFTER_SECONDS))
    paused = silence < PAUSE_TIMES * np.nan_to_num(longest)
    return long & unread & ~mirrored & ~paused

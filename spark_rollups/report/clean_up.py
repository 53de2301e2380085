"""Which topics may be deleted, and which may hold state: pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from exporter.domain.arrays import Floats
from exporter.domain.judging.readers_and_copies import are_over, why_keep
from exporter.domain.replicas.comparison import ReplicaState
from exporter.domain.verdicts import Verdict
from spark_rollups.report.model import Entry


def with_advice(topics: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return whole topics with ``ask_first``."""
    findings, about = [one.findings[0] for one in topics], [one.about for one in topics]
    verdicts = np.array([finding.verdict for finding in findings], dtype=np.str_)
    copies = [one.replica_of is not None and one.replica_state != ReplicaState.SOURCE_DEAD_TOO for one in about]
    over = are_over(
        retired=verdicts == Verdict.RETIRED.value,
        dead=verdicts == Verdict.DEAD.value,
        silence=_seconds(finding.silence_seconds for finding in findings),
        longest=_seconds(finding.largest_silence_seconds for finding in findings),
        mirrored=np.array([bool(one.mirrored_to) for one in about], dtype=np.bool_) | np.array(copies, dtype=np.bool_),
    )
    why = why_keep(
        [one.topic for one in topics],
        [one.cleanup_policy for one in about],
        _seconds(math.inf if one.for_ever else one.retention_seconds for one in about),
        [one.remote_storage for one in about],
        [one.readership for one in about],
    )
    return tuple(
        replace(one, ask_first=reasons if found else None)
        for one, reasons, found in zip(topics, why, over.tolist(), strict=True)
    )


def _seconds(values: Iterable[float | None]) -> Floats:
    return np.array([math.nan if value is None else value for value in values], dtype=np.float64)


def candidates_of(topics: Iterable[Entry]) -> tuple[Entry, ...]:
    """Return the topics that may be deleted, the largest first."""
    found = [topic for topic in topics if topic.ask_first == ""]
    return tuple(sorted(found, key=lambda topic: (-(topic.about.disk_bytes or 0), topic.cluster, topic.topic)))

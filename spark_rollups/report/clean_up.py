"""Which topics may be deleted, and which may hold state: pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from exporter.domain.arrays import Floats
from exporter.domain.judging.readers_and_copies import are_over, why_keep
from exporter.domain.replicas.comparison import ReplicaState
from exporter.domain.verdicts import Verdict
from spark_rollups.report.facts import Facts, JudgedStream
from spark_rollups.report.model import ListedTopic
from spark_rollups.report.topic_facts import Relations, Storage


def why_ask_first(rows: Sequence[JudgedStream], facts: Facts) -> list[str | None]:
    """Return why each of these topics may be needed, as ``ListedTopic.ask_first``."""
    relations = [facts.relations.get(row.key, Relations()) for row in rows]
    storage = [facts.storage.get((row.key.cluster, row.key.topic), Storage()) for row in rows]
    verdicts = np.array([row.finding.verdict for row in rows], dtype=np.str_)
    over = are_over(
        retired=verdicts == Verdict.RETIRED.value,
        dead=verdicts == Verdict.DEAD.value,
        silence=_seconds(row.finding.silence_seconds for row in rows),
        longest=_seconds(row.finding.largest_silence_seconds for row in rows),
        mirrored=np.array(
            [
                bool(one.mirrored_to)
                or (one.replica_of is not None and one.replica_state != ReplicaState.SOURCE_DEAD_TOO)
                for one in relations
            ],
            dtype=np.bool_,
        ),
    )
    why = why_keep(
        [row.key.topic for row in rows],
        [one.cleanup_policy for one in storage],
        _seconds(math.inf if one.for_ever else one.retention_seconds for one in storage),
        [one.remote_storage for one in storage],
        [one.readership for one in relations],
    )
    return [reasons if found else None for reasons, found in zip(why, over.tolist(), strict=True)]


def _seconds(values: Iterable[float | None]) -> Floats:
    return np.array([math.nan if value is None else value for value in values], dtype=np.float64)


def candidates_of(topics: Iterable[ListedTopic]) -> tuple[ListedTopic, ...]:
    """Return the topics that may be deleted, the largest first."""
    found = [topic for topic in topics if topic.ask_first == ""]
    return tuple(sorted(found, key=lambda topic: (-(topic.relations.disk_bytes or 0), topic.cluster, topic.topic)))

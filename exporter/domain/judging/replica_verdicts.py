"""The verdicts of sources in a comparison: a replica that is in step with a dead source is not a problem of its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from exporter.domain.judging.assessment import Assessment
from exporter.domain.replicas.comparison import REPLICA_STATE_CODES, Comparison, ReplicaState
from exporter.domain.verdicts import VERDICT_CODES, Verdict


def with_verdicts(compared: Comparison, source: Assessment | None) -> Comparison:
    """Return a comparison that marks replicas in step whose source is dead."""
    if source is None:
        return compared
    table = compared.table
    here, there = table.layout.moves_from(source.layout)
    dead = np.isin(source.of_partitions.verdict[there], [VERDICT_CODES[Verdict.DEAD], VERDICT_CODES[Verdict.RETIRED]])
    rows = here[dead]
    state = table.state.copy()
    state[rows[state[rows] == REPLICA_STATE_CODES[ReplicaState.IN_STEP]]] = REPLICA_STATE_CODES[
        ReplicaState.SOURCE_DEAD_TOO
    ]
    return replace(compared, table=replace(table, state=state))

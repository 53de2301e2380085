"""The series of the partitions of one cluster, from the columns of a poll."""

from collections.abc import Callable, Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Flags, Floats
from exporter.domain.judging.detection import Assessment
from exporter.domain.polls.layout import NO_LEADER, Layout
from exporter.domain.polls.metadata import Membership
from exporter.domain.polls.readings import ANSWERED, State
from exporter.domain.polls.table import STATE_CODES, STATES, Snapshot, Table
from exporter.domain.verdicts import VERDICT_CODES, VERDICTS, Verdict
from exporter.metrics.catalogue import PARTITION_METRICS
from exporter.metrics.lines import AgeColumn, Column, RowSeries, Samples, escape, mask_nan

_UNREMARKABLE = [VERDICT_CODES[verdict] for verdict in (Verdict.LIVE, Verdict.QUIET, Verdict.LEARNING)]

_STALENESS = "kafka_topic_partition_staleness_seconds"
_STATE, _VERDICT = "kafka_topic_partition_state", "kafka_topic_partition_verdict"

_STATE_TAILS = [f',state="{state}"}} 1\n' for state in STATES]
_VERDICT_TAILS = [f',verdict="{verdict}"}} 1\n' for verdict in VERDICTS]


class PartitionSeries:
    """Renders a series for each partition and each enabled metric."""

    def __init__(self, cluster: str, switches: Collection[str]) -> None:
        self._names = {each.name for each in PARTITION_METRICS if each.switch is None or each.switch in switches}
        self._start = f'{{kafka_cluster="{escape(cluster)}",topic="'
        self._rendered = RowSeries(
            self._labels_of, {_STATE: _STATE_TAILS.__getitem__, _VERDICT: _VERDICT_TAILS.__getitem__}
        )

    def update(self, snapshot: Snapshot, assessment: Assessment) -> Samples:
        """Take a good poll and return its samples."""
        columns = _columns(snapshot, assessment, self._names)
        growing = {_STALENESS: AgeColumn(_stale_since(snapshot.table))} if _STALENESS in self._names else {}
        return self._rendered.update(snapshot.table.layout, columns, growing)

    def _labels_of(self, layout: Layout) -> list[str]:
        starts = [f'{self._start}{escape(topic)}",partition="' for topic in layout.topics]
        numbers = zip(layout.topic.tolist(), layout.partition.tolist(), strict=True)
        return [f'{starts[topic]}{partition}"' for topic, partition in numbers]


def _columns(snapshot: Snapshot, assessment: Assessment, names: Collection[str]) -> dict[str, Column]:
    """Return the columns of metrics; replicas of topics that could not be described are unknown."""
    table, members, judged = snapshot.table, snapshot.metadata.membership, assessment.of_partitions
    leader, state = table.leader_now, table.state_now
    described = (snapshot.metadata.reason_of_topics == ANSWERED)[table.layout.topic]
    replicas, in_sync = np.diff(members.first_replica), members.in_sync
    found: Mapping[str, Callable[[], Column]] = {
        "current_offset": lambda: (table.latest, table.read),
        "oldest_offset": lambda: (table.earliest, table.read),
        "last_record_timestamp_seconds": lambda: mask_nan(np.where(table.read, table.newest, np.nan)),
        "last_advance_timestamp_seconds": lambda: mask_nan(judged.last_advance),
        "expected_by_timestamp_seconds": lambda: mask_nan(judged.expected_by),
        "leader": lambda: (leader, leader != NO_LEADER),
        "replicas": lambda: (replicas, described),
        "in_sync_replica": lambda: (in_sync, described),
        "leader_is_preferred": lambda: (_led_by_preferred(members), described & (replicas > 0)),
        "under_replicated_partition": lambda: ((in_sync < replicas).astype(np.int8), described),
        "earliest_local_offset": lambda: _in_tiers(table.earliest_local, table.read),
        "latest_tiered_offset": lambda: _in_tiers(table.latest_tiered, table.read),
        "state": lambda: (state, state != STATE_CODES[State.OBSERVED]),
        "verdict": lambda: (judged.verdict, ~np.isin(judged.verdict, _UNREMARKABLE)),
    }
    named = {f"kafka_topic_partition_{name}": column for name, column in found.items()}
    return {name: column() for name, column in named.items() if name in names}


def _led_by_preferred(members: Membership) -> NDArray[np.int8]:
    """Return 1 for each partition that its first replica leads."""
    assigned = np.diff(members.first_replica) > 0
    preferred = np.full(len(assigned), NO_LEADER, dtype=np.int32)
    preferred[assigned] = members.replicas[members.first_replica[:-1][assigned]]
    return np.asarray((members.leader == preferred) & (members.leader != NO_LEADER), np.int8)


def _stale_since(table: Table) -> Floats:
    contradictory = table.state == STATE_CODES[State.CONTRADICTORY]
    return np.where(contradictory | ~table.read, np.nan, table.newest)


def _in_tiers(offsets: Floats, read: Flags) -> Column:
    known = read & ~np.isnan(offsets)
    return np.where(known, offsets, 0).astype(np.int64), known

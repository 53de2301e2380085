"""The series of the partitions of one cluster, from the columns of a poll."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np

from exporter.domain.arrays import Flags, Floats
from exporter.domain.judging.detection import Assessment
from exporter.domain.polls.layout import NO_LEADER, Layout
from exporter.domain.polls.readings import ANSWERED, State
from exporter.domain.polls.table import STATE_CODES, STATES, Snapshot
from exporter.domain.verdicts import VERDICT_CODES, VERDICTS, Verdict
from exporter.metrics.catalogue import PARTITION_METRICS
from exporter.metrics.lines import Column, Growing, Rendered, Samples, escape, mask_nan

_UNREMARKABLE = [VERDICT_CODES[verdict] for verdict in (Verdict.LIVE, Verdict.QUIET, Verdict.LEARNING)]

_STALENESS = "kafka_topic_partition_staleness_seconds"
_STATE, _VERDICT = "kafka_topic_partition_state", "kafka_topic_partition_verdict"

_STATE_TAILS = [f',state="{state}"}} 1\n' for state in STATES]
_VERDICT_TAILS = [f',verdict="{verdict}"}} 1\n' for verdict in VERDICTS]


class PartitionSeries:
    """Renders a series for each partition and each enabled metric."""

    def __init__(self, cluster: str, switches: Collection[str]) -> None:
        self._metrics = [each for each in PARTITION_METRICS if each.switch is None or each.switch in switches]
        self._start = f'{{kafka_cluster="{escape(cluster)}",topic="'
        self._rendered = Rendered(
            self._labels_of, {_STATE: _STATE_TAILS.__getitem__, _VERDICT: _VERDICT_TAILS.__getitem__}
        )

    def update(self, snapshot: Snapshot, assessment: Assessment) -> Samples:
        """Take a good poll and return its samples."""
        columns = {
            metric.name: _COLUMNS[metric.switch or metric.name](snapshot, assessment)
            for metric in self._metrics
            if metric.name != _STALENESS
        }
        shown = {metric.name for metric in self._metrics}
        growing = {_STALENESS: Growing(_stale_since(snapshot))} if _STALENESS in shown else {}
        return self._rendered.update(snapshot.table.layout, columns, growing)

    def _labels_of(self, layout: Layout) -> list[str]:
        starts = [f'{self._start}{escape(topic)}",partition="' for topic in layout.topics]
        numbers = zip(layout.topic.tolist(), layout.partition.tolist(), strict=True)
        return [f'{starts[topic]}{partition}"' for topic, partition in numbers]


def _newest(snapshot: Snapshot) -> Floats:
    newest: Floats = np.where(snapshot.table.read, snapshot.table.newest, np.nan)
    return newest


def _stale_since(snapshot: Snapshot) -> Floats:
    contradictory = snapshot.table.state == STATE_CODES[State.CONTRADICTORY]
    return np.where(contradictory, np.nan, _newest(snapshot))


def _leader(snapshot: Snapshot, _: Assessment) -> Column:
    table = snapshot.table
    leader = table.leader_now
    return leader, leader != NO_LEADER


def _in_tiers(offsets: Floats, read: Flags) -> Column:
    known = read & ~np.isnan(offsets)
    return np.where(known, offsets, 0).astype(np.int64), known


def _state(snapshot: Snapshot, _: Assessment) -> Column:
    state = snapshot.table.state_now
    return state, state != STATE_CODES[State.OBSERVED]


def _verdict(_: Snapshot, assessment: Assessment) -> Column:
    verdict = assessment.of_partitions.verdict
    return verdict, ~np.isin(verdict, _UNREMARKABLE)


def _described(snapshot: Snapshot) -> Flags:
    """Return which partitions belong to topics that could be described: replicas of others are unknown."""
    described: Flags = (snapshot.metadata.reason_of_topics == ANSWERED)[snapshot.table.layout.topic]
    return described


def _replicas(snapshot: Snapshot, _: Assessment) -> Column:
    return np.diff(snapshot.metadata.membership.first_replica), _described(snapshot)


def _in_sync(snapshot: Snapshot, _: Assessment) -> Column:
    return np.diff(snapshot.metadata.membership.first_in_sync), _described(snapshot)


def _under_replicated(snapshot: Snapshot, _: Assessment) -> Column:
    members = snapshot.metadata.membership
    return (np.diff(members.first_in_sync) < np.diff(members.first_replica)).astype(np.int8), _described(snapshot)


def _leader_is_preferred(snapshot: Snapshot, _: Assessment) -> Column:
    members = snapshot.metadata.membership
    assigned = np.diff(members.first_replica) > 0
    preferred = np.full(len(assigned), NO_LEADER, dtype=np.int32)
    preferred[assigned] = members.replicas[members.first_replica[:-1][assigned]]
    led = (members.leader == preferred) & (members.leader != NO_LEADER)
    return led.astype(np.int8), _described(snapshot) & assigned


_COLUMNS: Mapping[str, Callable[[Snapshot, Assessment], Column]] = {
    "current_offset": lambda snapshot, _: (snapshot.table.latest, snapshot.table.read),
    "oldest_offset": lambda snapshot, _: (snapshot.table.earliest, snapshot.table.read),
    "last_record_timestamp": lambda snapshot, _: mask_nan(_newest(snapshot)),
    "last_advance_timestamp": lambda _, assessment: mask_nan(assessment.of_partitions.last_advance),
    "expected_by": lambda _, assessment: mask_nan(assessment.of_partitions.expected_by),
    "leader": _leader,
    "replicas": _replicas,
    "in_sync_replica": _in_sync,
    "leader_is_preferred": _leader_is_preferred,
    "under_replicated_partition": _under_replicated,
    "earliest_local_offset": lambda snapshot, _: _in_tiers(snapshot.table.earliest_local, snapshot.table.read),
    "latest_tiered_offset": lambda snapshot, _: _in_tiers(snapshot.table.latest_tiered, snapshot.table.read),
    _STATE: _state,
    _VERDICT: _verdict,
}
"""The column that each metric shows, by its switch, or its name where it has none."""

"""Compares a pair of clusters, one of them mirrored to the other (MirrorMaker and similar), by the polls of both."""

import threading
from collections.abc import Callable, Sequence

from exporter.domain.polls.table import Snapshot
from exporter.domain.ports import Clock, SnapshotSink
from exporter.domain.replicas.comparison import (
    NOT_COMPARED_CODES,
    Comparison,
    Ends,
    NotCompared,
    ReplicaLimits,
    ReplicaProgress,
    judge,
)
from exporter.domain.replicas.matching import PartitionPairs, ReplicaNames, find_faults

_MAX_SNAPSHOTS = 3


class ReplicaWatch(SnapshotSink):
    """Compares one target cluster with its source after each poll of the target.

    A sink of the polls of both, from any threads. It uses the last poll of the source that began before the target's
    poll. So every record that it calls missing existed when the target was read.
    """

    def __init__(
        self,
        source: str,
        target: str,
        naming: ReplicaNames,
        clock: Clock,
        take: Callable[[Comparison], object],
        limits: ReplicaLimits,
    ) -> None:
        """``take`` gets each comparison, in the thread of the target's poll."""
        self.source = source
        self.target = target
        self._naming = naming
        self._clock = clock
        self._take = take
        self._limits = limits
        self._lock = threading.Lock()
        self._sources: list[Snapshot] = []
        self._pairing: PartitionPairs | None = None
        self._faults: Sequence[str] = ()
        self._progress = ReplicaProgress.blank(0)

    def accept(self, snapshot: Snapshot) -> None:
        """Take a good poll of either cluster; ignore others."""
        if snapshot.cluster == self.source:
            with self._lock:
                self._sources.append(snapshot)
                if len(self._sources) > _MAX_SNAPSHOTS:
                    del self._sources[1]  # the first one is there for a long poll of the target
        elif snapshot.cluster == self.target:
            with self._lock:
                before = [one for one in self._sources if one.taken_at <= snapshot.taken_at]
                del self._sources[: max(0, len(before) - 1)]
            if before:
                self._take(self._compare(before[-1], snapshot))

    def _compare(self, source: Snapshot, target: Snapshot) -> Comparison:
        pairing = self._pair(source, target)
        self._progress, lag = judge(
            self._progress,
            Ends.take(source.table, pairing.source_rows),
            source.taken_at,
            Ends.take(target.table, pairing.target_rows),
            target.taken_at,
            stamped=pairing.stamped,
            now=self._clock.monotonic(),
            limits=self._limits,
        )
        lag.reason[pairing.source_rows < 0] = NOT_COMPARED_CODES[NotCompared.NO_PARTITION_IN_SOURCE]
        lag.reason[pairing.target_rows < 0] = NOT_COMPARED_CODES[NotCompared.NO_PARTITION_IN_REPLICA]
        return Comparison(self.source, self.target, pairing.matching, pairing.layout, lag, self._faults)

    def _pair(self, source: Snapshot, target: Snapshot) -> PartitionPairs:
        """Pair the topics of both clusters again where the metadata of either changed."""
        before = self._pairing
        if before is not None and before.of[0] is source.metadata and before.of[1] is target.metadata:
            return before
        self._pairing = pairing = PartitionPairs.match(self._naming, source.metadata, target.metadata)
        self._faults = find_faults(self.source, self.target, pairing)
        progress = ReplicaProgress.blank(len(pairing.layout))
        if before is not None:
            here, there = pairing.moves_from(before)
            progress.put(here, self._progress[there])
        self._progress = progress
        return pairing

"""Backfills history from the brokers: in which slots a partition was written to. No record is read.

It uses offsets-for-times (KIP-79) at UTC slot boundaries. With LogAppendTime the result is exact. With CreateTime it
shows the times that producers put into their records. A compacted topic shows only slots of records that compaction
left. Retention limits how far back history is known.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from exporter.backfill.cutoff import Cutoffs, FirstPolls, Request, Stream, list_streams, read_cutoffs
from exporter.backfill.slot_search import Stretches, TimeLookups, Windows, search_windows
from exporter.domain.arrays import Codes, Rows
from exporter.domain.polls.layout import NO_LEADER, Layout
from exporter.domain.polls.metadata import Metadata
from exporter.domain.polls.readings import ANSWERED, GONE, Reason, TopicPartition, reason_of_code, rows_with
from exporter.domain.polls.table import UNREADABLE
from exporter.domain.ports import METADATA_SECONDS, Clock, OffsetSource

WINDOWS_PER_BATCH = 200_000
"""Largest number of windows in memory at once (about 60 MB)."""

PARTITIONS_PER_BATCH = 1_000
"""Largest number of partitions that share one cutoff. An interruption loses the look-ups of these."""

Emit: TypeAlias = Callable[[Cutoffs, Windows], object]
"""Takes the cutoffs of a batch, and the windows of its partitions."""


@dataclass(frozen=True, slots=True)
class BackfillResult:
    """What a backfill did."""

    partitions: int
    """All partitions in scope."""
    already_written: int
    """Partitions whose history was there."""
    windows: int
    """Windows with records."""
    failed: Mapping[TopicPartition, Reason]
    """Partitions that could not be read. Each has one window with the reason. The next run tries them again."""
    lookups: Mapping[str, int]


class Backfill:
    """Writes the history of one cluster.

    Partitions are processed in batches, by topic and number. A batch shares one cutoff. Its windows are in order of
    topic, partition and time, one for each slot in which records were written (the first and the last may be shorter).
    ``first_advance`` is exact. ``last_advance`` equals it, except where the newest record is known. A record dated more
    than the slack after the cutoff hides every slot that follows the record before it. These slots become one window
    with ``future_timestamps`` 1 and no times.
    """

    def __init__(
        self,
        source: OffsetSource,
        request: Request,
        *,
        clock: Clock,
        emit: Emit,
        first_polls: Callable[[], FirstPolls] = dict,
        progress: Callable[[int, int, int], None] = lambda *_: None,
    ) -> None:
        """``first_polls`` returns the first poll of partitions that an exporter polls already: their backfill ends
        there, without overlap or gap. ``progress`` is called after every few thousand look-ups, with the partitions
        that are done, all that are not complete, and the look-ups so far.
        """
        self._source = source
        self._request = request
        self._clock = clock
        self._emit = emit
        self._first_polls = first_polls
        self._progress = progress
        self._before = dict(source.lookups())
        self._metadata = Metadata({}, {})
        self._read_at = -math.inf
        self._gone: set[int] = set()
        self._every = Layout.build({})
        """All partitions in scope."""
        self._failed: dict[TopicPartition, Reason] = {}
        self._windows = 0
        self._done = 0
        self._of = 0

    def run(self, backfilled: Collection[Stream] = ()) -> BackfillResult:
        """Write the history of every partition in scope that is not ``backfilled`` yet.

        A partition or broker that fails costs only itself. Raises SourceError when the cluster cannot be queried.
        """
        self._read_metadata()
        self._every = self._metadata.membership.layout
        left = np.flatnonzero([stream not in backfilled for stream in list_streams(self._metadata)])
        self._of = len(left)
        self._write(left)
        return BackfillResult(
            partitions=len(self._every),
            already_written=len(self._every) - len(left),
            windows=self._windows,
            failed=self._failed,
            lookups=self._count_lookups(),
        )

    def _write(self, left: Rows) -> None:
        size = int(WINDOWS_PER_BATCH / (self._request.horizon / self._request.slot + 2))
        size = max(1, min(size, PARTITIONS_PER_BATCH))
        for at in range(0, len(left), size):
            if self._clock.monotonic() - self._read_at > METADATA_SECONDS:
                self._read_metadata()
            batch = self._every.part(left[at : at + size])
            rows = self._metadata.membership.layout.find(batch.topics, batch.topic, batch.partition)
            # A partition that is not listed any more was deleted meanwhile.
            if len(there := rows[rows >= 0]):
                self._batch(self._metadata.part(there))
            self._done += len(batch)
            self._tick()

    def _batch(self, metadata: Metadata) -> None:
        cutoffs = read_cutoffs(
            self._source,
            metadata,
            self._clock,
            gone=self._gone,
            horizon=self._request.horizon,
            first_polls=self._first_polls,
        )
        windows, failed = self._search(cutoffs)
        self._windows += len(windows)
        if len(rows := np.flatnonzero(failed != ANSWERED)):
            cutoffs = replace(
                cutoffs,
                planned=cutoffs.planned & (failed == ANSWERED),
                state=np.where(failed == ANSWERED, cutoffs.state, UNREADABLE).astype(np.int8),
                reason=np.where(failed == ANSWERED, cutoffs.reason, failed).astype(np.int8),
            )
            # Not rounded to slots: a later run that succeeds must not write a window with the same key.
            end = cutoffs.end[rows]
            begin = np.maximum(0.0, end - self._request.horizon)
            windows = Windows.concatenate(
                [windows, replace(Windows.blank(len(rows)), row=rows, start=begin, end=end, reason=failed[rows])]
            )
            gone = metadata.membership.leader[rows_with(failed, list(GONE))]
            self._gone.update(np.unique(gone[gone != NO_LEADER]).tolist())
            self._read_at = -math.inf
            for row in rows.tolist():
                self._failed[metadata.membership.layout.key(row)] = (
                    reason_of_code(int(failed[row])) or Reason.MISSING_ANSWER
                )
        self._emit(cutoffs, windows)

    def _search(self, cutoffs: Cutoffs) -> tuple[Windows, Codes]:
        """Return the windows of a batch, and by row the reason code of a failure, if any."""
        failed = np.where(cutoffs.planned, ANSWERED, cutoffs.reason).astype(np.int8)
        rows = np.flatnonzero(cutoffs.searched)
        stretches = Stretches(
            rows,
            cutoffs.start[rows],
            cutoffs.end[rows],
            cutoffs.earliest[rows],
            cutoffs.end_offset[rows],
            cutoffs.newest[rows],
            cutoffs.at_end[rows],
        )
        lookups = TimeLookups(self._source, cutoffs.metadata.membership, self._tick)
        windows, failed[rows] = search_windows(lookups, stretches, self._request.slot)
        return windows, failed

    def _read_metadata(self) -> None:
        self._metadata = self._source.metadata()
        self._read_at = self._clock.monotonic()

    def _tick(self) -> None:
        self._progress(self._done, self._of, self._count_lookups().total())

    def _count_lookups(self) -> Counter[str]:
        return Counter(self._source.lookups()) - Counter(self._before)

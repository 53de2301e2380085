"""Backfills history from the brokers: in which slots a partition was written to, without reading a record.

It uses offsets-for-times (KIP-79) at UTC slot boundaries. With LogAppendTime the result is exact. With CreateTime it
shows the times that producers put into their records. A compacted topic shows only slots of records that compaction
left. Retention limits how far back anything is known.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from exporter.backfill.cutoff import BackfillSource, Cutoff, CutoffReader, Request
from exporter.backfill.to_windows import WindowBuilder
from exporter.domain import Coverage, Inventory, Metadata, Reason, Source, TopicPartition, Window
from exporter.domain.backfill_plan import Starts, Stream, Written, is_complete
from exporter.domain.ports import METADATA_SECONDS, Clock
from exporter.domain.readings import GONE

WINDOWS_PER_BATCH = 200_000
"""How many windows are held in memory at once, at most (about 60 MB)."""

PARTITIONS_PER_BATCH = 1_000
"""Partitions that share one cutoff, at most. An interruption loses the look-ups of these."""


Emit = Callable[[Sequence[Window], Mapping[Stream, Written]], object]


@dataclass(frozen=True, slots=True)
class Step:
    """Progress of a backfill: partitions done ``of`` all that are not complete, and look-ups made."""

    done: int
    of: int
    lookups: int


@dataclass(frozen=True, slots=True)
class BackfillResult:
    """What a backfill wrote besides its windows, and how it went."""

    coverage: Coverage | None
    """None where nothing was left to write."""
    inventory: tuple[Inventory, ...]
    partitions: int
    """All partitions in scope."""
    already_written: int
    """Partitions whose history was complete before: polls cover what follows."""
    windows: int
    """Windows with records."""
    failed: Mapping[TopicPartition, Reason]
    """Partitions that could not be read. Each has one window with the reason. The next run tries them again."""
    lookups: Mapping[str, int]
    partition_weeks: float
    """The time searched, summed over all partitions that hold records."""


def backfill(
    source: BackfillSource,
    request: Request,
    *,
    clock: Clock,
    emit: Emit,
    written: Mapping[Stream, Written] | None = None,
    starts: Callable[[], Starts] = dict,
    progress: Callable[[Step], None] | None = None,
) -> BackfillResult:
    """Write the history of every partition in scope, as far as it is not ``written`` yet.

    Partitions are processed in batches, by topic and number. A batch shares one cutoff; its windows go to ``emit``
    together with the spans that are then written: both must be kept or neither. Windows are in order of topic,
    partition and time, one for each slot in which records were written (the first and the last of a stretch may be
    shorter). ``first_advance`` is exact. ``last_advance`` equals it, except where the newest record is known. The
    caller writes coverage and inventory last, so that an interrupted backfill proves no silence.

    ``starts`` returns the first poll of partitions that an exporter polls already. Their backfill ends there, without
    overlap and without a hole. It is called after each cutoff, so that an exporter started meanwhile counts. A record
    dated more than the slack after the cutoff hides every slot that follows the record before it. These slots become
    one window with ``future_timestamps`` 1 and no times.

    ``progress`` is called after every few thousand look-ups. Raises SourceError when the cluster cannot be asked. A
    partition or broker that fails costs only itself, and is tried once more at the end.
    """
    run = _Run(source, request, clock, emit, {} if written is None else written, starts, progress)
    return run.whole()


class _Run:
    """One backfill of one cluster, from its first look-up to its result."""

    def __init__(
        self,
        source: BackfillSource,
        request: Request,
        clock: Clock,
        emit: Emit,
        written: Mapping[Stream, Written],
        starts: Callable[[], Starts],
        progress: Callable[[Step], None] | None,
    ) -> None:
        self._source = source
        self._request = request
        self._clock = clock
        self._emit = emit
        self._written = written
        self._progress = progress
        self._cutoffs = CutoffReader(source, clock, written, starts, request)
        self._builder = WindowBuilder(source, request, self._tick)
        self._before = dict(source.lookups())
        self._metadata = Metadata({}, {})
        self._read_at = -math.inf
        self._gone: set[int] = set()
        self._inventory: dict[TopicPartition, Inventory] = {}
        self._failed: dict[TopicPartition, tuple[Cutoff, Reason]] = {}
        self._ends: list[float] = []
        self._windows = 0
        self._weeks = 0.0
        self._done = 0
        self._of = 0

    def whole(self) -> BackfillResult:
        """Write what is missing of every partition, and try once more what failed."""
        self._read_metadata()
        topics = self._metadata.topics
        every = sorted(TopicPartition(name, number) for name, topic in topics.items() for number in topic.partitions)
        left = [key for key in every if not self._is_complete(key)]
        self._of = len(left)
        self._write(left)
        if self._failed:
            # A leader may have moved, or be up again.
            again = sorted(self._failed)
            self._gone.clear()
            self._failed.clear()
            self._read_at = -math.inf
            self._done -= len(again)
            self._write(again)
        rows = [self._builder.failure(key, part, reason) for key, (part, reason) in sorted(self._failed.items())]
        if rows:
            self._keep(rows, {})
        return BackfillResult(
            coverage=self._coverage(min(self._ends)) if self._ends else None,
            inventory=tuple(row for _, row in sorted(self._inventory.items())),
            partitions=len(every),
            already_written=len(every) - len(left),
            windows=self._windows,
            failed={key: reason for key, (_, reason) in self._failed.items()},
            lookups=dict(Counter(self._source.lookups()) - Counter(self._before)),
            partition_weeks=self._weeks,
        )

    def _is_complete(self, key: TopicPartition) -> bool:
        topic = self._metadata.topics[key.topic]
        written = self._written.get(Stream(key, topic.topic_id))
        if self._request.again or written is None:
            return False
        return is_complete(written, self._cutoffs.start(topic.config, written.end))

    def _write(self, keys: Sequence[TopicPartition]) -> None:
        size = int(WINDOWS_PER_BATCH / (self._request.horizon / self._request.slot + 2))
        size = max(1, min(size, PARTITIONS_PER_BATCH))
        for at in range(0, len(keys), size):
            if self._clock.monotonic() - self._read_at > METADATA_SECONDS:
                self._read_metadata()
            batch = keys[at : at + size]
            topics = self._metadata.topics
            # A partition that is not listed any more was deleted meanwhile.
            there = [key for key in batch if key.topic in topics and key.partition in topics[key.topic].partitions]
            if there:
                self._batch(there)
            self._done += len(batch)
            self._tick()

    def _batch(self, keys: Sequence[TopicPartition]) -> None:
        cutoffs = self._cutoffs.read(keys, self._metadata, self._gone)
        failed = {key: part.reason or Reason.MISSING_ANSWER for key, part in cutoffs.items() if part.plan is None}
        plans = {key: part.plan for key, part in cutoffs.items() if part.plan is not None}
        rows: dict[TopicPartition, list[Window]] = {}
        for number in range(max((len(plan.stretches) for plan in plans.values()), default=0)):
            stretches = {
                key: plan.stretches[number]
                for key, plan in plans.items()
                if number < len(plan.stretches) and key not in failed
            }
            for key, windows in self._builder.build(stretches, cutoffs, failed).items():
                rows.setdefault(key, []).extend(windows)
        good = {key: plan for key, plan in plans.items() if key not in failed}
        written = {Stream(key, cutoffs[key].topic_id): plan.written for key, plan in good.items()}
        self._keep([row for key in good for row in rows.get(key, [])], written)
        self._weeks += sum(part.end - part.start for plan in good.values() for part in plan.stretches) / 604_800
        self._ends.append(min(part.end for part in cutoffs.values()))
        for key, part in cutoffs.items():
            self._inventory[key] = part.inventory_row(self._request.cluster, self._request.exporter, key)
        for key, reason in failed.items():
            self._failed[key] = cutoffs[key], reason
            if reason in GONE and (leader := cutoffs[key].leader) is not None:
                self._gone.add(leader)
        if failed:
            self._read_at = -math.inf

    def _keep(self, rows: Sequence[Window], written: Mapping[Stream, Written]) -> None:
        changed = {stream: now for stream, now in written.items() if self._written.get(stream) != now}
        if rows or changed:
            self._emit(rows, changed)
        self._windows += sum(row.reason is None for row in rows)

    def _coverage(self, end: float) -> Coverage:
        failed = len(self._failed)
        return Coverage(
            cluster=self._request.cluster,
            exporter=self._request.exporter,
            source=Source.BACKFILL,
            # Not rounded to a slot: two runs within an hour are two rows.
            window_start=max(0.0, end - self._request.horizon),
            window_end=end,
            polls_total=1,
            polls_ok=1,
            partitions_ok=len(self._inventory) - failed,
            partitions_failed=failed,
            last_good_poll=end,
            interval_seconds=self._request.horizon,
        )

    def _read_metadata(self) -> None:
        self._metadata = self._source.metadata()
        self._read_at = self._clock.monotonic()

    def _tick(self) -> None:
        if self._progress is not None:
            lookups = sum((Counter(self._source.lookups()) - Counter(self._before)).values())
            self._progress(Step(self._done, self._of, lookups))

"""History from the broker itself: which slots saw records, without reading one.

Offsets-for-times (KIP-79) at UTC slot boundaries. What it can tell has limits: with CreateTime the
past is what producers wrote into their records (LogAppendTime is exact); a compacted topic shows only
the slots of records that compaction left; retention bounds how far back anything is known.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from exporter.backfill.cutoff import Freezer, Frozen, PastSource, Request
from exporter.backfill.to_windows import Teller
from exporter.domain import Coverage, Inventory, Metadata, Reason, Source, TopicPartition, Window
from exporter.domain.backfill_plan import Seam, Stream, Told, is_told
from exporter.domain.ports import METADATA_SECONDS, Clock
from exporter.domain.readings import GONE

WINDOWS_PER_BATCH = 200_000
"""How many windows are held in memory at once, at most (about 60 MB)."""

PARTITIONS_PER_BATCH = 1_000
"""Partitions frozen at one moment, at most; an interruption costs what was asked for these."""


Emit = Callable[[Sequence[Window], Mapping[Stream, Told]], object]


@dataclass(frozen=True, slots=True)
class Step:
    """How far a backfill is: partitions done ``of`` all that have something left, and look-ups asked."""

    done: int
    of: int
    lookups: int


@dataclass(frozen=True, slots=True)
class BackfillResult:
    """What a backfill wrote besides its windows, and how it went."""

    coverage: Coverage | None
    """None where nothing was left to tell."""
    inventory: tuple[Inventory, ...]
    partitions: int
    """All partitions in scope."""
    told_before: int
    """Those of which nothing was left to tell: polls tell of what follows."""
    windows: int
    """Windows with records."""
    failed: Mapping[TopicPartition, Reason]
    """Partitions whose past could not be read; each has one window that says so. The next run asks again."""
    lookups: Mapping[str, int]
    partition_weeks: float
    """The time looked into, over all partitions that hold records."""


def backfill(
    source: PastSource,
    request: Request,
    *,
    clock: Clock,
    emit: Emit,
    told: Mapping[Stream, Told] | None = None,
    seam: Callable[[], Seam] = dict,
    progress: Callable[[Step], None] | None = None,
) -> BackfillResult:
    """Reconstruct the past of every partition in scope, as far as it has not been ``told``.

    Partitions are taken in batches, by topic and number. A batch is frozen at one moment, looked into, and
    handed to ``emit`` with what has then been told of each: both must be kept or neither. Its windows are
    in order of topic, partition and time: one for each slot in which records were written (the first and
    the last of a stretch may be shorter), with ``first_advance`` exact and ``last_advance`` equal to it
    but where the newest record is known. Coverage and inventory are for the caller to write last, so that
    an interrupted backfill claims no silence.

    ``seam`` gives the first poll of partitions that an exporter polls already: their past ends there,
    neither doubled nor with a hole. It is asked after each freeze, so that an exporter started meanwhile
    counts. A record dated more than the slack after that end hides every slot that follows the record
    before it; they become one window with ``future_timestamps`` 1 and no times. ``progress`` is told after
    every few thousand look-ups. Raises SourceError when the cluster cannot be asked; what fails for one
    partition or broker costs only that, and is tried once more at the end.
    """
    run = _Run(source, request, clock, emit, {} if told is None else told, seam, progress)
    return run.whole()


class _Run:
    """One backfill of one cluster, from its first look-up to its result."""

    def __init__(
        self,
        source: PastSource,
        request: Request,
        clock: Clock,
        emit: Emit,
        told: Mapping[Stream, Told],
        seam: Callable[[], Seam],
        progress: Callable[[Step], None] | None,
    ) -> None:
        self._source = source
        self._request = request
        self._clock = clock
        self._emit = emit
        self._told = told
        self._progress = progress
        self._freezer = Freezer(source, clock, told, seam, request)
        self._teller = Teller(source, request, self._tick)
        self._before = dict(source.lookups())
        self._metadata = Metadata({}, {})
        self._read_at = -math.inf
        self._gone: set[int] = set()
        self._inventory: dict[TopicPartition, Inventory] = {}
        self._failed: dict[TopicPartition, tuple[Frozen, Reason]] = {}
        self._ends: list[float] = []
        self._windows = 0
        self._weeks = 0.0
        self._done = 0
        self._of = 0

    def whole(self) -> BackfillResult:
        """Tell what is left of every partition; try once more what failed."""
        self._read_metadata()
        topics = self._metadata.topics
        every = sorted(TopicPartition(name, number) for name, topic in topics.items() for number in topic.partitions)
        left = [key for key in every if not self._is_told(key)]
        self._of = len(left)
        self._tell(left)
        if self._failed:
            # A leader may have moved, or come back.
            again = sorted(self._failed)
            self._gone.clear()
            self._failed.clear()
            self._read_at = -math.inf
            self._done -= len(again)
            self._tell(again)
        rows = [self._teller.failure(key, part, reason) for key, (part, reason) in sorted(self._failed.items())]
        if rows:
            self._keep(rows, {})
        return BackfillResult(
            coverage=self._coverage(min(self._ends)) if self._ends else None,
            inventory=tuple(row for _, row in sorted(self._inventory.items())),
            partitions=len(every),
            told_before=len(every) - len(left),
            windows=self._windows,
            failed={key: reason for key, (_, reason) in self._failed.items()},
            lookups=dict(Counter(self._source.lookups()) - Counter(self._before)),
            partition_weeks=self._weeks,
        )

    def _is_told(self, key: TopicPartition) -> bool:
        topic = self._metadata.topics[key.topic]
        told = self._told.get(Stream(key, topic.topic_id))
        return (
            not self._request.again and told is not None and is_told(told, self._freezer.start(topic.config, told.end))
        )

    def _tell(self, keys: Sequence[TopicPartition]) -> None:
        size = int(WINDOWS_PER_BATCH / (self._request.horizon / self._request.slot + 2))
        size = max(1, min(size, PARTITIONS_PER_BATCH))
        for at in range(0, len(keys), size):
            if self._clock.monotonic() - self._read_at > METADATA_SECONDS:
                self._read_metadata()
            batch = keys[at : at + size]
            topics = self._metadata.topics
            # What is listed no longer was deleted meanwhile.
            there = [key for key in batch if key.topic in topics and key.partition in topics[key.topic].partitions]
            if there:
                self._batch(there)
            self._done += len(batch)
            self._tick()

    def _batch(self, keys: Sequence[TopicPartition]) -> None:
        frozen = self._freezer.freeze(keys, self._metadata, self._gone)
        failed = {key: part.reason or Reason.MISSING_ANSWER for key, part in frozen.items() if part.plan is None}
        plans = {key: part.plan for key, part in frozen.items() if part.plan is not None}
        rows: dict[TopicPartition, list[Window]] = {}
        for number in range(max((len(plan.stretches) for plan in plans.values()), default=0)):
            stretches = {
                key: plan.stretches[number]
                for key, plan in plans.items()
                if number < len(plan.stretches) and key not in failed
            }
            for key, windows in self._teller.tell(stretches, frozen, failed).items():
                rows.setdefault(key, []).extend(windows)
        good = {key: plan for key, plan in plans.items() if key not in failed}
        told = {Stream(key, frozen[key].topic_id): plan.told for key, plan in good.items()}
        self._keep([row for key in good for row in rows.get(key, [])], told)
        self._weeks += sum(part.end - part.start for plan in good.values() for part in plan.stretches) / 604_800
        self._ends.append(min(part.end for part in frozen.values()))
        for key, part in frozen.items():
            self._inventory[key] = part.listing(self._request.cluster, self._request.exporter, key)
        for key, reason in failed.items():
            self._failed[key] = frozen[key], reason
            if reason in GONE and (leader := frozen[key].leader) is not None:
                self._gone.add(leader)
        if failed:
            self._read_at = -math.inf

    def _keep(self, rows: Sequence[Window], told: Mapping[Stream, Told]) -> None:
        changed = {stream: now for stream, now in told.items() if self._told.get(stream) != now}
        if rows or changed:
            self._emit(rows, changed)
        self._windows += sum(row.reason is None for row in rows)

    def _coverage(self, end: float) -> Coverage:
        failed = len(self._failed)
        return Coverage(
            cluster=self._request.cluster,
            exporter=self._request.exporter,
            source=Source.BACKFILL,
            # To the instant, and not to the slot: two runs within an hour are two rows.
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

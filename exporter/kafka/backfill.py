"""History from the broker itself: which hours saw records, without reading one.

Offsets-for-times (KIP-79) at UTC hour boundaries. What it can tell has limits: with CreateTime the
past is what producers wrote into their records (LogAppendTime is exact); a compacted topic shows only
the hours of records that compaction left; retention bounds how far back anything is known.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from exporter.kafka.hours import HOUR, ActiveHour, ByTime, Stretch, active_hours
from exporter.liveness import classify
from exporter.model import (
    Answer,
    Coverage,
    Inventory,
    Metadata,
    Reason,
    Source,
    State,
    TopicConfig,
    TopicPartition,
    Window,
)
from exporter.poller import Clock, Extent, OffsetSource

_MISSING = Reason.MISSING_ANSWER

WINDOWS_PER_BATCH = 200_000
"""How many windows are held in memory at once, at most (about 60 MB)."""


class PastSource(OffsetSource, ByTime, Protocol):
    """A cluster that can be asked for offsets, also by time."""


@dataclass(frozen=True, slots=True)
class BackfillResult:
    """What a backfill wrote besides its windows, and how it went."""

    coverage: Coverage
    inventory: tuple[Inventory, ...]
    partitions: int
    windows: int
    failed: Mapping[TopicPartition, Reason]
    """Partitions whose past could not be read; each has one window that says so."""
    lookups: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Frozen:
    """One partition as it stood when its past was cut off from its present."""

    topic_id: str | None
    config: TopicConfig | None
    leader: int | None
    earliest: int | None
    latest: int | None
    untold: int | None
    """One past the last record that no poll told of: where the past ends."""
    start: float
    end: float
    newest: Answer | None
    state: State
    reason: Reason | None


def backfill(  # noqa: PLR0913 - each is said once, at the top
    source: PastSource,
    *,
    cluster: str,
    exporter: str,
    clock: Clock,
    horizon_seconds: float,
    emit: Callable[[Sequence[Window]], object],
    seam: Mapping[TopicPartition, tuple[int, float]] | None = None,
    slack: float = 60.0,
    progress: Callable[[int, int], None] | None = None,
) -> BackfillResult:
    """Reconstruct up to ``horizon_seconds`` of the past of every partition in scope.

    ``emit`` gets the windows in batches, ordered by topic, partition and time: one for each UTC hour in
    which records were written (the last may end at the moment of freezing), with ``first_advance`` exact
    and ``last_advance`` equal to it but where the newest record is known. Coverage and inventory are for
    the caller to write last, so that an interrupted backfill claims no silence.

    ``seam`` holds (end offset, time) of the first poll of partitions that an exporter polls already: their
    past ends there, neither doubled nor with a hole. A record dated more than ``slack`` seconds after that
    end hides every hour that follows the record before it; they become one window with
    ``future_timestamps`` 1 and no times. ``progress`` is told (partitions done, of all). Raises SourceError
    when the cluster cannot be asked; what fails for one partition costs only that partition.
    """
    before = dict(source.lookups())
    metadata = source.metadata()
    frozen = _freeze(source, metadata, clock, horizon_seconds, seam or {}, slack)
    job = _Job(source, cluster, exporter, slack)
    failed: dict[TopicPartition, Reason] = {}
    windows = done = 0
    for batch in _batches(frozen, horizon_seconds):
        rows, failures = job.windows(batch)
        if rows:
            emit(rows)
        failed.update(failures)
        windows += len(rows)
        done += len(batch)
        if progress is not None:
            progress(done, len(frozen))
    end = min((part.end for part in frozen.values()), default=clock.now())
    return BackfillResult(
        coverage=Coverage(
            cluster=cluster,
            exporter=exporter,
            source=Source.BACKFILL,
            window_start=_horizon_start(end, horizon_seconds),
            window_end=end,
            polls_total=1,
            polls_ok=1,
            partitions_ok=len(frozen) - len(failed),
            partitions_failed=len(failed),
            last_good_poll=end,
            interval_seconds=horizon_seconds,
        ),
        inventory=tuple(_inventory_row(cluster, exporter, key, part) for key, part in frozen.items()),
        partitions=len(frozen),
        windows=windows,
        failed=failed,
        lookups=dict(Counter(source.lookups()) - Counter(before)),
    )


def _freeze(
    source: PastSource,
    metadata: Metadata,
    clock: Clock,
    horizon: float,
    seam: Mapping[TopicPartition, tuple[int, float]],
    slack: float,
) -> dict[TopicPartition, _Frozen]:
    """Ask EARLIEST, LATEST and MAX_TIMESTAMP once: nothing written later belongs to this backfill."""
    infos = {
        TopicPartition(name, number): info
        for name, topic in metadata.topics.items()
        for number, info in topic.partitions.items()
    }
    leaders = {key: info.leader for key, info in infos.items() if info.leader is not None}
    # EARLIEST first: asked the other way round, retention in between would give earliest > latest.
    earliest = source.earliest(leaders)
    now = clock.now()
    latest = source.latest({key: leaders[key] for key, answer in earliest.items() if answer.offset is not None})
    extents = {
        key: Extent(leader, first.offset, last.offset)
        for key, leader in leaders.items()
        if (first := earliest[key]).offset is not None
        and (last := latest.get(key, Answer())).offset is not None
        and last.offset > first.offset
    }
    newest = source.max_timestamp(extents)
    supported = source.max_timestamp_supported()
    frozen: dict[TopicPartition, _Frozen] = {}
    for key in sorted(infos):
        topic, leader = metadata.topics[key.topic], infos[key].leader
        first, last = earliest.get(key, Answer()), latest.get(key, Answer())
        state: State = State.UNREADABLE
        reason: Reason | None = Reason.NO_LEADER if leader is None else first.reason or last.reason or _MISSING
        if leader is not None and first.offset is not None and last.offset is not None:
            state, reason = classify(
                first.offset,
                last.offset,
                newest.get(key),
                tiered=topic.config is not None and topic.config.remote_storage,
                unsupported=supported.get(leader) is False,
                latest_allowed=now + slack,
            )
        known_offset, end = last.offset, now
        untold = last.offset
        if key in seam and last.offset is not None:
            if seam[key][0] <= last.offset:
                known_offset, end = seam[key]
                untold = known_offset
            else:  # made again since that poll: every record was written under the exporter's eyes
                untold = 0
        begin = _horizon_start(end, horizon)
        if topic.config is not None and "delete" in (topic.config.cleanup_policy or ""):
            begin = max(begin, _horizon_start(end, topic.config.retention_seconds or math.inf))
        frozen[key] = _Frozen(
            topic_id=topic.topic_id,
            config=topic.config,
            leader=leader,
            earliest=first.offset,
            latest=known_offset,
            untold=untold,
            start=begin,
            end=end,
            newest=newest.get(key) if untold == last.offset else None,
            state=state,
            reason=reason,
        )
    return frozen


def _horizon_start(end: float, seconds: float) -> float:
    return float(max(0, math.floor((end - min(seconds, end)) / HOUR)) * HOUR)


def _batches(frozen: Mapping[TopicPartition, _Frozen], horizon: float) -> Iterator[dict[TopicPartition, _Frozen]]:
    size = max(1, WINDOWS_PER_BATCH // math.ceil(horizon / HOUR + 2))
    items = list(frozen.items())
    for at in range(0, len(items), size):
        yield dict(items[at : at + size])


@dataclass(frozen=True, slots=True)
class _Job:
    """Turns the pasts of partitions into windows."""

    source: PastSource
    cluster: str
    exporter: str
    slack: float

    def windows(self, batch: Mapping[TopicPartition, _Frozen]) -> tuple[list[Window], dict[TopicPartition, Reason]]:
        """Return the windows of these partitions in order, and why some have but one that says so."""
        failed = {
            key: part.reason or _MISSING for key, part in batch.items() if part.earliest is None or part.latest is None
        }
        stretches = {
            key: Stretch(part.start, part.end, part.untold, part.leader)
            for key, part in batch.items()
            if part.leader is not None and part.earliest is not None and part.untold is not None
            if part.earliest < part.untold
        }
        stretches, hidden_from = self._hide_future(stretches, failed)
        hours, unread = active_hours(self.source, stretches)
        failed.update(unread)
        rows: list[Window] = []
        for key, part in batch.items():
            if key in failed:
                rows.append(self._window(key, part, part.start, part.end, polls_ok=0, reason=failed[key]))
            elif key in hours:
                rows.extend(self._past(key, part, hours[key], hidden_from.get(key)))
        return rows, failed

    def _hide_future(
        self, stretches: Mapping[TopicPartition, Stretch], failed: dict[TopicPartition, Reason]
    ) -> tuple[dict[TopicPartition, Stretch], dict[TopicPartition, int]]:
        """Cut each stretch off at its first record from the future; return these offsets too.

        Left in, that record would be the answer at every boundary after it was written.
        """
        asked = [(key, stretch.end + self.slack) for key, stretch in stretches.items()]
        answers = self.source.by_time(asked, {key: stretch.leader for key, stretch in stretches.items()})
        kept: dict[TopicPartition, Stretch] = {}
        hidden: dict[TopicPartition, int] = {}
        for key, at in asked:
            stretch, answer = stretches[key], answers[key, at]
            if answer.reason is not None:
                failed[key] = answer.reason
                continue
            if answer.offset is not None and answer.offset < stretch.end_offset:
                hidden[key] = answer.offset
                stretch = replace(stretch, end_offset=answer.offset)
            kept[key] = stretch
        return kept, hidden

    def _past(
        self, key: TopicPartition, part: _Frozen, hours: Sequence[ActiveHour], hidden_from: int | None
    ) -> Iterator[Window]:
        hidden_at = part.start if not hours else hours[-1].start + HOUR
        if hidden_from is not None and hours and hidden_at >= part.end:
            # Normal and future records share the last hour: which came last is not known.
            hidden_from, hidden_at, hours = hours[-1].start_offset, hours[-1].start, hours[:-1]
        for hour in hours:
            end = min(float(hour.start + HOUR), part.end)
            limit = end if end < part.end else end + self.slack
            first = last = min(hour.first, end)
            newest = part.newest.timestamp if part.newest is not None and hidden_from is None else None
            # A deleted record may still be the newest to a broker 4.3.1, long after the hour of the last one kept.
            if hour is not hours[-1] or newest is None or not first <= newest < limit:
                newest = None
            else:
                last = min(newest, end)
            yield self._window(
                key,
                part,
                hour.start,
                end,
                records=hour.end_offset - hour.start_offset,
                first_advance=first,
                last_advance=last,
                resolution_seconds=float(HOUR),
                start_offset=hour.start_offset,
                end_offset=hour.end_offset,
                max_timestamp=newest,
            )
        if hidden_from is not None and part.untold is not None:
            yield self._window(
                key,
                part,
                hidden_at,
                part.end,
                records=part.untold - hidden_from,
                resolution_seconds=part.end - hidden_at,
                start_offset=hidden_from,
                end_offset=part.untold,
                future_timestamps=1,
            )

    def _window(self, key: TopicPartition, part: _Frozen, start: float, end: float, **seen: Any) -> Window:
        return Window(
            cluster=self.cluster,
            topic=key.topic,
            topic_id=part.topic_id,
            partition=key.partition,
            window_start=float(start),
            window_end=end,
            exporter=self.exporter,
            source=Source.BACKFILL,
            **{
                "polls_ok": 1,
                "observed_seconds": end - start if seen.get("reason") is None else 0.0,
                "log_start_offset": part.earliest,
                "leader": part.leader,
                **seen,
            },
        )


def _inventory_row(cluster: str, exporter: str, key: TopicPartition, part: _Frozen) -> Inventory:
    config = part.config
    return Inventory(
        cluster=cluster,
        topic=key.topic,
        topic_id=part.topic_id,
        partition=key.partition,
        exporter=exporter,
        source=Source.BACKFILL,
        observed_at=part.end,
        leader=part.leader,
        earliest_offset=part.earliest,
        latest_offset=part.latest,
        max_timestamp=None if part.newest is None else part.newest.timestamp,
        state=part.state,
        reason=part.reason,
        timestamp_type=None if config is None else config.timestamp_type,
        cleanup_policy=None if config is None else config.cleanup_policy,
        retention_seconds=None if config is None else config.retention_seconds,
        owner=None,
        deleted=False,
    )

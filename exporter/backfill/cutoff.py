"""The cutoff of each partition: where its backfilled history ends, and which part of it is not written yet."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from exporter.domain import Answer, Inventory, Metadata, Reason, Source, State, TopicConfig, TopicPartition
from exporter.domain.activity import state_of
from exporter.domain.backfill_plan import Plan, Scope, Starts, Stream, Written, plan
from exporter.domain.ports import ByTime, Clock, Extent, OffsetSource

HOUR = 3600


@dataclass(frozen=True, slots=True)
class Request:
    """What to backfill. Times are seconds."""

    cluster: str
    exporter: str
    horizon: float
    slot: int = 3600
    """Length of a slot; an hour or an even part of it."""
    slack: float = 60.0
    """A record dated more than this after the cutoff is from the future."""
    again: bool = False
    """Rewrite also what an earlier backfill wrote."""


class BackfillSource(OffsetSource, ByTime, Protocol):
    """A cluster that answers look-ups of offsets, also by time."""


@dataclass(frozen=True, slots=True)
class Cutoff:
    """One partition at the moment of its cutoff."""

    topic_id: str | None
    config: TopicConfig | None
    leader: int | None
    earliest: int | None
    latest: int | None
    end: float
    newest: Answer | None
    state: State
    reason: Reason | None
    plan: Plan | None
    """What is still to be written. None where that is not known."""
    owner: str | None = None

    def inventory_row(self, cluster: str, exporter: str, key: TopicPartition) -> Inventory:
        """Return the partition's inventory row."""
        config = self.config
        return Inventory(
            cluster=cluster,
            topic=key.topic,
            topic_id=self.topic_id,
            partition=key.partition,
            exporter=exporter,
            source=Source.BACKFILL,
            observed_at=self.end,
            leader=self.leader,
            earliest_offset=self.earliest,
            latest_offset=self.latest,
            max_timestamp=None if self.newest is None else self.newest.timestamp,
            state=self.state,
            reason=self.reason,
            timestamp_type=None if config is None else config.timestamp_type,
            cleanup_policy=None if config is None else config.cleanup_policy,
            retention_seconds=None if config is None else config.retention_seconds,
            owner=self.owner,
            deleted=False,
        )


class CutoffReader:
    """Reads the cutoff of partitions and plans what to write of each."""

    def __init__(
        self,
        source: BackfillSource,
        clock: Clock,
        written: Mapping[Stream, Written],
        starts: Callable[[], Starts],
        request: Request,
    ) -> None:
        """``written`` is by earlier runs. ``starts`` returns the first polls that are known when it is called."""
        self._source = source
        self._clock = clock
        self._written = written
        self._starts = starts
        self._request = request

    def read(
        self, keys: Sequence[TopicPartition], metadata: Metadata, gone: Collection[int]
    ) -> dict[TopicPartition, Cutoff]:
        """Look up EARLIEST, LATEST and MAX_TIMESTAMP once; no record written later belongs to this backfill.

        The look-ups of all ``keys`` must take little time. If LATEST came a minute after the moment of the cutoff,
        records of that minute would seem to be from the future. Brokers that are ``gone`` are not asked.
        """
        infos = {key: metadata.topics[key.topic].partitions[key.partition] for key in keys}
        nameless = metadata.unidentified
        leaders = {
            key: info.leader for key, info in infos.items() if info.leader is not None and info.leader not in gone
        }
        # EARLIEST first: in the other order, retention in between could make earliest larger than latest.
        earliest = self._source.earliest(leaders)
        now = self._clock.now()
        latest = self._source.latest(
            {key: leaders[key] for key, answer in earliest.items() if answer.offset is not None}
        )
        extents = {
            key: Extent(leader, first.offset, last.offset, last.leader_epoch)
            for key, leader in leaders.items()
            if (first := earliest[key]).offset is not None
            and (last := latest.get(key, Answer())).offset is not None
            and last.offset > first.offset
        }
        newest = self._source.max_timestamp(extents)
        supported = self._source.max_timestamp_supported()
        starts = self._starts()
        cutoffs: dict[TopicPartition, Cutoff] = {}
        for key, info in infos.items():
            topic = metadata.topics[key.topic]
            first, last = earliest.get(key, Answer()), latest.get(key, Answer())
            if info.leader is None or first.offset is None or last.offset is None or key.topic in nameless:
                # The topic id is not known, and history is written under a topic id.
                unasked = Reason.LEADER_UNREACHABLE if info.leader in gone else Reason.MISSING_ANSWER
                reason = nameless.get(key.topic) or first.reason or last.reason or unasked
                cutoffs[key] = Cutoff(
                    topic_id=topic.topic_id,
                    config=topic.config,
                    leader=info.leader,
                    earliest=first.offset,
                    latest=None,
                    end=now,
                    newest=None,
                    state=State.UNREADABLE,
                    reason=Reason.NO_LEADER if info.leader is None else reason,
                    plan=None,
                    owner=topic.owner,
                )
                continue
            state, unread = state_of(
                first.offset,
                last.offset,
                newest.get(key),
                tiered=topic.config is not None and topic.config.remote_storage,
                unsupported=supported.get(info.leader) is False,
                latest_allowed=now + self._request.slack,
            )
            left = self._left(Stream(key, topic.topic_id), topic.config, first.offset, last.offset, now, starts)
            cutoffs[key] = Cutoff(
                topic_id=topic.topic_id,
                config=topic.config,
                leader=info.leader,
                earliest=first.offset,
                latest=left.written.end_offset,
                end=left.written.end,
                newest=newest.get(key) if left.written.end_offset == last.offset else None,
                state=state,
                reason=unread,
                plan=left,
                owner=topic.owner,
            )
        return cutoffs

    def start(self, config: TopicConfig | None, end: float) -> float:
        """Return where a history that ends at ``end`` begins: at the horizon, or where retention begins."""
        begin = _hour_before(end, self._request.horizon)
        if config is not None and "delete" in (config.cleanup_policy or ""):
            begin = max(begin, _hour_before(end, config.retention_seconds or math.inf))
        return begin

    def _left(
        self, stream: Stream, config: TopicConfig | None, earliest: int, latest: int, now: float, starts: Starts
    ) -> Plan:
        offset, end = starts.get(stream, (latest, now))
        if offset > latest:
            # Truncated since that poll: the exporter was polling when all present records were written.
            return Plan((), Written(self.start(config, now), now, latest, polled=True))
        scope = Scope(self.start(config, end), end, earliest, offset, polled=stream in starts)
        return plan(scope, self._written.get(stream), again=self._request.again)


def _hour_before(end: float, seconds: float) -> float:
    return float(max(0, math.floor((end - min(seconds, end)) / HOUR)) * HOUR)

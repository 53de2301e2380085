"""Partitions as they stood at one moment: where their past ends and what of it is left to tell."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from exporter.domain import Answer, Inventory, Metadata, Reason, Source, State, TopicConfig, TopicPartition
from exporter.domain.activity import state_of
from exporter.domain.backfill_plan import Plan, Seam, Standing, Stream, Told, plan
from exporter.domain.ports import ByTime, Clock, Extent, OffsetSource

HOUR = 3600


@dataclass(frozen=True, slots=True)
class Request:
    """What is wanted of a backfill. Times are seconds."""

    cluster: str
    exporter: str
    horizon: float
    slot: int = 3600
    """Length of a slot; an hour or an even part of it."""
    slack: float = 60.0
    """A record dated more than this after the moment of freezing is from the future."""
    again: bool = False
    """Tell also what was told before."""


class PastSource(OffsetSource, ByTime, Protocol):
    """A cluster that can be asked for offsets, also by time."""


@dataclass(frozen=True, slots=True)
class Frozen:
    """One partition as it stood when its past was cut off from its present."""

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
    """What is left to tell; None where that could not be found out."""
    owner: str | None = None

    def listing(self, cluster: str, exporter: str, key: TopicPartition) -> Inventory:
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


class Freezer:
    """Freezes partitions and plans what to tell of each."""

    def __init__(
        self,
        source: PastSource,
        clock: Clock,
        told: Mapping[Stream, Told],
        seam: Callable[[], Seam],
        request: Request,
    ) -> None:
        """``told``: by earlier runs. ``seam`` gives the first polls known at the time of asking."""
        self._source = source
        self._clock = clock
        self._told = told
        self._seam = seam
        self._request = request

    def freeze(
        self, keys: Sequence[TopicPartition], metadata: Metadata, gone: Collection[int]
    ) -> dict[TopicPartition, Frozen]:
        """Ask EARLIEST, LATEST and MAX_TIMESTAMP once: nothing written later belongs to this backfill.

        The ``keys`` are few enough that this takes no time to speak of: of a partition whose LATEST came a
        minute later than its moment, records of that minute would look as if they were from the future.
        Brokers that are ``gone`` are not asked.
        """
        infos = {key: metadata.topics[key.topic].partitions[key.partition] for key in keys}
        nameless = metadata.unidentified
        leaders = {
            key: info.leader for key, info in infos.items() if info.leader is not None and info.leader not in gone
        }
        # EARLIEST first: asked the other way round, retention in between would give earliest > latest.
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
        seam = self._seam()
        frozen: dict[TopicPartition, Frozen] = {}
        for key, info in infos.items():
            topic = metadata.topics[key.topic]
            first, last = earliest.get(key, Answer()), latest.get(key, Answer())
            if info.leader is None or first.offset is None or last.offset is None or key.topic in nameless:
                # Under which id its past would be told is not known.
                unasked = Reason.LEADER_UNREACHABLE if info.leader in gone else Reason.MISSING_ANSWER
                reason = nameless.get(key.topic) or first.reason or last.reason or unasked
                frozen[key] = Frozen(
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
            left = self._left(Stream(key, topic.topic_id), topic.config, first.offset, last.offset, now, seam)
            frozen[key] = Frozen(
                topic_id=topic.topic_id,
                config=topic.config,
                leader=info.leader,
                earliest=first.offset,
                latest=left.told.end_offset,
                end=left.told.end,
                newest=newest.get(key) if left.told.end_offset == last.offset else None,
                state=state,
                reason=unread,
                plan=left,
                owner=topic.owner,
            )
        return frozen

    def start(self, config: TopicConfig | None, end: float) -> float:
        """Return how far back a past that ends at ``end`` is wanted: to the horizon, or to retention."""
        begin = _hour_before(end, self._request.horizon)
        if config is not None and "delete" in (config.cleanup_policy or ""):
            begin = max(begin, _hour_before(end, config.retention_seconds or math.inf))
        return begin

    def _left(
        self, stream: Stream, config: TopicConfig | None, earliest: int, latest: int, now: float, seam: Seam
    ) -> Plan:
        offset, end = seam.get(stream, (latest, now))
        if offset > latest:
            # Cut back since that poll: what is there was written under the exporter's eyes.
            return Plan((), Told(self.start(config, now), now, latest, polled=True))
        standing = Standing(self.start(config, end), end, earliest, offset, polled=stream in seam)
        return plan(standing, self._told.get(stream), again=self._request.again)


def _hour_before(end: float, seconds: float) -> float:
    return float(max(0, math.floor((end - min(seconds, end)) / HOUR)) * HOUR)

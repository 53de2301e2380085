"""Looks up partitions with remote storage (KIP-405), slowly and independently of polls.

A poll treats them like others and uses the results of the last look-up: a slow or failed answer costs a gauge, never a
poll.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

import numpy as np

from exporter.collectors.newest_timestamp import LOOKUPS_OF_A_SEARCH, Search, ask_next
from exporter.domain import Answer, PollFailure, Reading, Reason, Snapshot, State, TopicPartition
from exporter.domain.activity import TierFacts
from exporter.domain.arrays import Offsets
from exporter.domain.ports import ByTime, Clock
from exporter.kafka.kafka_python import SecondClientError, tell_left_out
from exporter.kafka.tiered_offsets import EARLIEST_LOCAL, LATEST_TIERED, TierClient

LOOKS_KEPT = 3
"""How many rounds may fail before earlier results are dropped."""

BY_TIME = "by-time"

_TOLD = (State.OBSERVED, State.FUTURE, State.PRESERVED, State.IDLE_IN_TIER)
"""States whose newest timestamp is that of the present end offset."""

_SOUGHT = (*_TOLD, State.PENDING)


@dataclass(frozen=True, slots=True)
class Look:
    """Cost and failures of one round of look-ups of a cluster. Counts are of partition look-ups, by spec."""

    cluster: str
    at: float | None
    """Unix seconds; None where no topic has remote storage."""
    asked: Mapping[str, int] = field(default_factory=dict)
    failures: Mapping[tuple[str, Reason], int] = field(default_factory=dict)
    problem: str = ""
    """Why tiers could not be looked up at all; for a log line."""


@dataclass(frozen=True, slots=True)
class _Known:
    """The results for one partition."""

    topic_id: str | None
    newest: float | None = None
    """The newest timestamp when the partition ended at ``newest_at``; after a move, a good guess."""
    newest_at: int | None = None
    searched: tuple[int, int] | None = None
    """(earliest, latest) of the last search of both tiers."""
    earliest_local: int | None = None
    latest_tiered: int | None = None
    told_at: float = -math.inf
    """Monotonic time of the two offsets."""


class TierWatch:
    """Keeps the results of look-ups of partitions with remote storage, for one cluster.

    A sink of polls, which know these partitions, and a ``TierKnowledge``. One thread polls and one looks up: shared
    objects are replaced, never changed.
    """

    def __init__(
        self,
        cluster: str,
        clock: Clock,
        *,
        interval: float,
        lookups_per_second: float,
        times: Callable[[], AbstractContextManager[ByTime]],
        tiers: Callable[[], TierClient],
        specs: Collection[str] = (),
    ) -> None:
        """``times`` and ``tiers`` connect the clients of one round. Only ``specs`` need the second.

        ``times`` raises ValueError where the configuration became invalid (a secret file is gone). ``interval`` is in
        seconds, and also the time limit of a round.
        """
        self._cluster = cluster
        self._clock = clock
        self._interval = interval
        # A search ends in the round in which it began.
        self._batch = max(1, int(lookups_per_second * interval / LOOKUPS_OF_A_SEARCH))
        self._times = times
        self._tiers = tiers
        self._specs = [spec for spec in (EARLIEST_LOCAL, LATEST_TIERED) if spec in specs]
        self._told = False
        self._lock = threading.Lock()
        self._known: dict[TopicPartition, _Known] = {}
        self._readings: Mapping[TopicPartition, Reading] | None = None

    @property
    def waiting(self) -> bool:
        """True until the first poll."""
        return self._readings is None

    def accept(self, snapshot: Snapshot) -> None:
        """Take the partitions with remote storage from a poll."""
        topics = {
            name: info.topic_id
            for name, info in snapshot.metadata.topics.items()
            if info.config is not None and info.config.remote_storage
        }
        readings = snapshot.readings.of_topics(topics)
        with self._lock:
            known: dict[TopicPartition, _Known] = {}
            for key, reading in readings.items():
                before = self._known.get(key)
                if before is None or before.topic_id != topics[key.topic]:
                    before = _Known(topics[key.topic])
                if reading.newest is not None and reading.state in _TOLD:
                    before = replace(before, newest=reading.newest, newest_at=reading.latest)
                known[key] = before
            self._known, self._readings = known, readings

    def missed(self, failure: PollFailure) -> None:
        """Ignore a failed poll."""

    def facts(
        self, partitions: Sequence[TopicPartition], topic_ids: Sequence[str | None], latest: Offsets
    ) -> TierFacts:
        """Return what is known of partitions that end at ``latest`` now, in their order. Sends no request."""
        unknown = [(math.nan, math.nan, math.nan)] * len(partitions)
        known = self._known
        told = [
            nothing if (one := known.get(key)) is None or one.topic_id != topic_id else self._facts(one, end)
            for key, topic_id, end, nothing in zip(partitions, topic_ids, latest.tolist(), unknown, strict=True)
        ]
        return TierFacts(*np.array(told, dtype=np.float64).reshape(-1, 3).T)

    def _facts(self, known: _Known, latest: int) -> tuple[float, float, float]:
        newest = known.newest if known.newest is not None and known.newest_at == latest else math.nan
        if self._clock.monotonic() - known.told_at > (LOOKS_KEPT + 1) * self._interval:
            return math.nan, math.nan, newest
        local, tiered = known.earliest_local, known.latest_tiered
        return math.nan if local is None else local, math.nan if tiered is None else tiered, newest

    def look(self, stop: Callable[[], bool] = lambda: False) -> Look:
        """Look up what is unknown, for at most one interval or until ``stop``; return cost and failures.

        Partitions with the oldest results come first, so that the next round completes one that was cut short.
        """
        with self._lock:
            known, polled = dict(self._known), self._readings or {}
        readings = {
            key: reading for key, reading in polled.items() if reading.leader is not None and reading.latest is not None
        }
        if not readings:
            return Look(self._cluster, None)
        ends = self._clock.monotonic() + self._interval
        look = Look(self._cluster, self._clock.now())

        def enough() -> bool:
            return stop() or self._clock.monotonic() >= ends

        if self._specs:
            look = self._ask_offsets(readings, known, look, enough)
        return self._ask_times(readings, known, look, enough)

    def _ask_offsets(
        self,
        readings: Mapping[TopicPartition, Reading],
        known: Mapping[TopicPartition, _Known],
        look: Look,
        enough: Callable[[], bool],
    ) -> Look:
        longest_ago = sorted(readings, key=lambda key: (known[key].told_at, key))
        failures: Counter[tuple[str, Reason]] = Counter()
        try:
            with self._tiers() as client:
                if not self._told:
                    tell_left_out(self._cluster, "the offsets of the remote tier", client.left_out)
                    self._told = True
                for keys in self._batches(longest_ago, enough):
                    batch, leaders = {key: known[key] for key in keys}, _leaders(keys, readings)
                    told = {spec: client.tier(spec, leaders) for spec in self._specs}
                    for spec, answers in told.items():
                        failures.update((spec, answer.reason) for answer in answers.values() if answer.reason)
                    self._keep_offsets(batch, told)
                return replace(look, asked=dict(client.counts), failures=failures)
        except SecondClientError as error:
            return replace(look, problem=str(error))

    def _batches(
        self, keys: Sequence[TopicPartition], enough: Callable[[], bool]
    ) -> Iterator[Sequence[TopicPartition]]:
        """Split the keys into batches, until there is no time left."""
        for at in range(0, len(keys), self._batch):
            if enough():
                return
            yield keys[at : at + self._batch]

    def _keep_offsets(
        self, batch: Mapping[TopicPartition, _Known], told: Mapping[str, Mapping[TopicPartition, Answer]]
    ) -> None:
        """Keep the results, except for a topic that was created again meanwhile."""
        now = self._clock.monotonic()
        with self._lock:
            for key, before in batch.items():
                known = self._known.get(key)
                if known is not None and known.topic_id == before.topic_id:
                    local, tiered = (told.get(spec, {}).get(key) for spec in (EARLIEST_LOCAL, LATEST_TIERED))
                    self._known[key] = replace(
                        known,
                        earliest_local=None if local is None else local.offset,
                        latest_tiered=None if tiered is None else tiered.offset,
                        told_at=now,
                    )

    def _ask_times(
        self,
        readings: Mapping[TopicPartition, Reading],
        known: Mapping[TopicPartition, _Known],
        look: Look,
        enough: Callable[[], bool],
    ) -> Look:
        wanted = [key for key, reading in readings.items() if _unsure(reading, known[key])]
        if not wanted or enough():
            return look
        asked, failures = Counter(look.asked), Counter(look.failures)
        try:
            connected = self._times()
        except ValueError as error:
            return replace(look, problem=str(error))
        with connected as source:
            for keys in self._batches(wanted, enough):
                batch, leaders = {key: known[key] for key in keys}, _leaders(keys, readings)
                searches = {
                    key: Search(readings[key].latest or 0, guess=before.newest, now=self._clock.now())
                    for key, before in batch.items()
                }
                while not enough() and (count := ask_next(searches, source, leaders)):
                    asked[BY_TIME] += count
                failures.update((BY_TIME, search.reason) for search in searches.values() if search.reason)
                self._keep_times(readings, batch, searches)
        return replace(look, asked=asked, failures=failures)

    def _keep_times(
        self,
        readings: Mapping[TopicPartition, Reading],
        batch: Mapping[TopicPartition, _Known],
        searches: Mapping[TopicPartition, Search],
    ) -> None:
        """Keep the results, except for partitions where a poll saw something newer meanwhile."""
        with self._lock:
            for key, search in searches.items():
                earliest, latest = readings[key].earliest, readings[key].latest
                known, before = self._known.get(key), batch[key]
                if known is None or (known.topic_id, known.newest_at) != (before.topic_id, before.newest_at):
                    continue
                if search.reason is None and search.target is None:
                    searched = None if earliest is None or latest is None else (earliest, latest)
                    self._known[key] = replace(known, newest=search.newest, newest_at=latest, searched=searched)


def _leaders(keys: Iterable[TopicPartition], readings: Mapping[TopicPartition, Reading]) -> dict[TopicPartition, int]:
    return {key: leader for key in keys if (leader := readings[key].leader) is not None}


def _unsure(reading: Reading, known: _Known) -> bool:
    """Return whether the newest timestamp of an unchanged partition must still be searched in both tiers."""
    if reading.state not in _SOUGHT or reading.earliest is None or reading.latest is None:
        return False
    # The next poll looks up the newest record of a partition that moves.
    rests = reading.activity.advanced_by == 0 or reading.newest is None
    return rests and known.searched != (reading.earliest, reading.latest)

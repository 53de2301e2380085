"""Compares a pair of clusters, one of them mirrored to the other (MirrorMaker and similar), independently of polls.

It uses the polls of both clusters. Only look-ups by time are sent, to the source, and only for partitions where either
side moved. No poll waits for a comparison, and pairs do not wait for each other.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Flags, Floats, Rows
from exporter.domain.polls.answers import Answers, count_failures, reason_code
from exporter.domain.polls.layout import NO_LEADER
from exporter.domain.polls.metadata import Membership, Metadata, TopicInfo
from exporter.domain.polls.readings import PollFailure, Reason
from exporter.domain.polls.table import Snapshot, Table
from exporter.domain.ports import ByTime, Clock, SourceError
from exporter.domain.replicas.comparison import (
    COMPARED,
    NOT_COMPARED_CODES,
    REPLICA_STATE_CODES,
    Comparison,
    Fault,
    Matching,
    NotCompared,
    ReplicaState,
    ReplicaTable,
)
from exporter.domain.replicas.matching import Naming, Pairing, faults
from exporter.domain.replicas.missing_records import (
    LOOK_UP,
    Ends,
    Missing,
    Standstill,
    Times,
    judge,
    missing,
    times_to_ask,
    without_asking,
)

log = logging.getLogger(__name__)

CONNECTED_SECONDS = 600.0
"""How long a connection is used: a new one reads secrets that have changed."""

_PARTITIONS_AT_ONCE = 1_000
_MAX_SNAPSHOTS = 4


_LOOKUP_FAILED = NOT_COMPARED_CODES[NotCompared.LOOKUP_FAILED]


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """The relevant topics in the poll of one side."""

    taken_at: float
    metadata: Metadata
    topics: Mapping[str, TopicInfo]
    table: Table


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """Which topics and partitions are compared: the same until the metadata of either side changes."""

    of: tuple[Metadata, Metadata]
    """What it was made of: the metadata of both sides."""
    matching: Matching
    faults: Sequence[Fault]
    rows: Pairing
    ids: Sequence[tuple[str | None, str | None]]
    """Topic ids in source and target, by topic of the layout."""
    stamped: Flags
    """[n]: whether the replica's brokers set its timestamps."""
    compacted: Flags
    """[n]: whether the source may have removed records before the end of their retention."""

    @classmethod
    def of_sides(cls, pair: tuple[str, str], naming: Naming, source: _Side, target: _Side) -> _Pairs:
        """Match the topics of both sides; ``pair`` are the names of the clusters."""
        matching = naming.match(source.topics, target.topics)
        rows = Pairing.of(matching, source.table.layout, target.table.layout)
        mine = [source.topics[name] for name in rows.layout.topics]
        copies = [target.topics[name] for name in rows.targets]
        stamped = [each.config is not None and each.config.timestamp_type == "LogAppendTime" for each in copies]
        compacted = [each.config is None or "compact" in (each.config.cleanup_policy or "") for each in mine]
        return cls(
            (source.metadata, target.metadata),
            matching,
            faults(*pair, matching, source.topics, target.topics),
            rows,
            [(one.topic_id, other.topic_id) for one, other in zip(mine, copies, strict=True)],
            np.array(stamped, dtype=np.bool_)[rows.layout.topic],
            np.array(compacted, dtype=np.bool_)[rows.layout.topic],
        )

    def topics(self) -> Iterator[tuple[tuple[str, str], tuple[str | None, str | None]]]:
        """Return source and target topic, with their ids, in the order of the layout."""
        return zip(zip(self.rows.layout.topics, self.rows.targets, strict=True), self.ids, strict=True)

    def fits(self, source: _Side, target: _Side) -> bool:
        """Return whether nothing has changed."""
        return self.of[0] is source.metadata and self.of[1] is target.metadata


@dataclass(frozen=True, slots=True, eq=False)
class _Results:
    """The results for the partitions of all replicas, each a column [n] by the layout of ``pairs``."""

    pairs: _Pairs
    standstill: Standstill
    newest: Floats
    """The newest timestamp that the replica ever had: after a deletion the present one may be older."""
    seen: Floats
    """[n, facts]: both readings and the settings when ``found`` was computed."""
    found: Missing

    @classmethod
    def nothing(cls, pairs: _Pairs, standstill: Standstill) -> _Results:
        """Return partitions without any result so far."""
        count = len(pairs.rows.layout)
        found = Missing.nothing(np.full(count, _LOOKUP_FAILED, dtype=np.int8))
        return cls(pairs, standstill, np.full(count, np.nan), np.full((count, _FACTS), np.nan), found)

    def laid_out(self, pairs: _Pairs, standstill: Standstill) -> _Results:
        """Return a copy by other pairs; ``standstill`` is that of new partitions.

        Results of topics that were created again are dropped.
        """
        moved, before = _Results.nothing(pairs, standstill), self.pairs
        here, there = pairs.rows.layout.moves_from(before.rows.layout)
        ids = dict(before.topics())
        same = np.array([ids.get(topics) == both for topics, both in pairs.topics()], dtype=np.bool_)
        keep = same[pairs.rows.layout.topic[here]]
        keep &= (pairs.rows.reason[here] == COMPARED) & (before.rows.reason[there] == COMPARED)
        here, there = here[keep], there[keep]
        moved.standstill.put(here, self.standstill, there)
        moved.newest[here], moved.seen[here] = self.newest[there], self.seen[there]
        moved.found.put(here, self.found[there])
        return moved


_FACTS = 9


class ReplicaWatch:
    """Compares one target cluster with its source.

    A sink of the polls of both, from any threads. It uses the last poll of the source that began before the target's
    poll. So every record that it calls missing existed when the target was read.
    """

    def __init__(
        self,
        source: str,
        target: str,
        naming: Naming,
        clock: Clock,
        *,
        times: Callable[[], AbstractContextManager[ByTime]],
        behind_after: float,
        stopped_after: float,
        trailing_markers: int = 1,
    ) -> None:
        """``times`` connects the client for look-ups in the source. Durations are in seconds.

        It raises ValueError where the configuration became invalid (a secret file is gone).
        """
        self.source = source
        self.target = target
        self._naming = naming
        self._clock = clock
        self._times = times
        self._behind_after = behind_after
        self._stopped_after = stopped_after
        self._markers = trailing_markers
        self._lock = threading.Lock()
        self._sources: list[_Side] = []
        self._target: _Side | None = None
        self._next: tuple[_Side, _Side] | None = None
        self._known: _Results | None = None
        self._connection: tuple[float, ExitStack, ByTime] | None = None
        self._closed = False
        self.mapped: Collection[str] = ()
        """The topics of the target that topics of the source are mapped to, whether they exist or not."""

    def accept(self, snapshot: Snapshot) -> None:
        """Take a good poll of either cluster; ignore others."""
        if snapshot.cluster == self.source:
            self._accept_source(snapshot)
        elif snapshot.cluster == self.target:
            self._accept_target(snapshot)

    def missed(self, failure: PollFailure) -> None:
        """Ignore a failed poll."""

    def _accept_source(self, snapshot: Snapshot) -> None:
        before = self._sources[-1] if self._sources else None
        if before is not None and before.metadata is snapshot.metadata:
            side, mapped = replace(before, taken_at=snapshot.taken_at, table=snapshot.table), self.mapped
        else:
            names = {topic: name for topic in snapshot.metadata.topics if (name := self._naming.replica_of(topic))}
            side, mapped = _side(snapshot, names.keys()), frozenset(names.values())
        with self._lock:
            if self.mapped != mapped:
                self.mapped, self._target = mapped, None  # it lacks topics that are relevant now
            if self._target is not None and side.taken_at <= self._target.taken_at:
                self._next, self._sources = (side, self._target), []
            self._sources.append(side)
            if len(self._sources) > _MAX_SNAPSHOTS:
                del self._sources[1]  # a rarely polled target needs the first one

    def _accept_target(self, snapshot: Snapshot) -> None:
        with self._lock:
            if self._target is not None and self._target.metadata is snapshot.metadata:
                side = replace(self._target, taken_at=snapshot.taken_at, table=snapshot.table)
            else:
                side = _side(snapshot, self.mapped)
            before = [one for one in self._sources if one.taken_at <= side.taken_at]
            self._target = side
            if before:
                self._next = (before[-1], side)
                self._sources = self._sources[len(before) - 1 :]

    def compare(self, stop: Callable[[], bool] = lambda: False) -> Comparison | None:
        """Compare the polls since the last call; None where there are none, or after ``stop``.

        Raises SourceError where times cannot be looked up.
        """
        with self._lock:
            sides, self._next = self._next, None
        if sides is None:
            return None
        source, target = sides
        pairs = self._pairs(source, target)
        mine, copy = Ends.of(source.table, pairs.rows.source_rows), Ends.of(target.table, pairs.rows.target_rows)
        known, times = self._compare_ends(pairs, mine, copy, source.taken_at, target.taken_at)
        # From here on ``found`` is filled in place: after a failure the others are looked up again.
        self._known = known
        lookups, failures, waiting = 0, Counter[Reason](), np.flatnonzero(~np.isnan(times.first))
        for at in range(0, len(waiting), _PARTITIONS_AT_ONCE):
            if stop():
                return None
            rows = waiting[at : at + _PARTITIONS_AT_ONCE]
            wanted = Times(times.first[rows], times.later[rows])
            first, later = self._ask(pairs.rows, rows, wanted, source.table)
            for codes in (first.reason, later.reason[~np.isnan(wanted.later)]):
                lookups += len(codes)
                failures.update(count_failures(codes))
            compacted = pairs.compacted[rows]
            found = missing(mine[rows], known.newest[rows], first, later, compacted=compacted, markers=self._markers)
            known.found.put(rows, found)
        table = self._judge(known, mine, copy, target.taken_at)
        return Comparison(
            self.source, self.target, target.taken_at, pairs.matching, table, pairs.faults, lookups, failures
        )

    def _pairs(self, source: _Side, target: _Side) -> _Pairs:
        if self._known is not None and self._known.pairs.fits(source, target):
            return self._known.pairs
        return _Pairs.of_sides((self.source, self.target), self._naming, source, target)

    def close(self) -> None:
        """Close the connection. A comparison under way in another thread gets no other one: it is a SourceError."""
        self._closed = True
        self._disconnect()

    def _disconnect(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection[1].close()

    def _compare_ends(
        self, pairs: _Pairs, mine: Ends, copy: Ends, source_at: float, target_at: float
    ) -> tuple[_Results, Times]:
        """Return the results with both new readings, and the times to look up."""
        known = self._known
        if known is None or known.pairs is not pairs:
            fresh = Standstill.begin(copy, target_at)
            known = _Results.nothing(pairs, fresh) if known is None else known.laid_out(pairs, fresh)
        seen = _facts(mine, copy, pairs.stamped)
        same = (seen == known.seen) | (np.isnan(seen) & np.isnan(known.seen))
        changed = ~same.all(axis=1) | (known.found.reason == _LOOKUP_FAILED)
        without = without_asking(mine, copy, pairs.stamped)
        # A row whose newest timestamp is unknown keeps that of before.
        newest = np.where(changed & (without == LOOK_UP), np.fmax(known.newest, copy.newest), known.newest)
        found = known.found
        found.put(
            changed, Missing.nothing(np.where(without == LOOK_UP, _LOOKUP_FAILED, without).astype(np.int8)[changed])
        )
        times = times_to_ask(mine, replace(copy, newest=newest), pairs.stamped)
        standstill = known.standstill.update(mine, source_at, copy, target_at)
        return _Results(pairs, standstill, newest, seen, found), Times(
            *(np.where(changed, each, np.nan) for each in times)
        )

    def _judge(self, known: _Results, mine: Ends, copy: Ends, at: float) -> ReplicaTable:
        """Return the result for every partition, and keep since when replicas wait."""
        pairs, found, now = known.pairs, known.found, self._clock.monotonic()
        read = mine.read & copy.read
        standstill = known.standstill.wait(mine, found.at_least, now, read, markers=self._markers)
        self._known = replace(known, standstill=standstill)
        stopped = read & (standstill.lasts(now) >= self._stopped_after)
        state, lag = judge(found, mine.state, at, stopped=stopped, behind_after=self._behind_after)
        paired = pairs.rows.reason == COMPARED
        reason = np.where(paired, found.reason, pairs.rows.reason)
        return ReplicaTable(
            pairs.rows.layout,
            pairs.rows.targets,
            np.where(paired, state, REPLICA_STATE_CODES[ReplicaState.UNKNOWN]).astype(np.int8),
            reason,
            np.where(paired, lag, np.nan),
            reason == COMPARED,
            found.at_least.copy(),
        )

    def _ask(self, pairing: Pairing, rows: Rows, times: Times, source: Table) -> tuple[Answers, Answers]:
        """Look up the times of these rows, and return the answers to the first and to the later one."""
        theirs = pairing.source_rows[rows]
        membership = Membership.led(source.layout, source.led_by)
        led = membership.leader[theirs] != NO_LEADER
        found = [Answers.none(len(rows)) for _ in times]
        for answers, seconds in zip(found, times, strict=True):
            answers.reason[~led & ~np.isnan(seconds)] = reason_code(Reason.NO_LEADER)
        places = [np.flatnonzero(led & ~np.isnan(seconds)) for seconds in times]
        requested = [seconds[some] for seconds, some in zip(times, places, strict=True)]
        milliseconds = np.round(np.concatenate(requested) * 1000).astype(np.int64)
        if len(milliseconds):
            both = self._connected().by_time(membership, theirs[np.concatenate(places)], milliseconds)
            split = len(places[0])
            for answers, some, part in zip(found, places, (both[:split], both[split:]), strict=True):
                answers.put(some, part)
        first, later = found
        return first, later

    def _connected(self) -> ByTime:
        now, before = self._clock.monotonic(), self._connection
        if before is None or now - before[0] > CONNECTED_SECONDS:
            self._disconnect()
            try:
                connection = self._times()
            except ValueError as error:
                raise SourceError(Reason.AUTHENTICATION_FAILED, str(error)) from None
            stack = ExitStack()
            source = stack.enter_context(connection)
            self._connection = now, stack, source
            if self._closed:  # meanwhile
                self._disconnect()
                raise SourceError(Reason.CLIENT_FAILED, "it is compared no more; next step: none")
            return source
        return before[2]


def _side(snapshot: Snapshot, topics: Collection[str]) -> _Side:
    infos = {name: info for name, info in snapshot.metadata.topics.items() if name in topics}
    return _Side(snapshot.taken_at, snapshot.metadata, infos, snapshot.table)


def _facts(mine: Ends, copy: Ends, stamped: Flags) -> Floats:
    """Return all that the look-ups depend on, [n, facts]; NaN where unknown."""
    facts: list[NDArray[Any]] = [stamped]
    for ends in (mine, copy):
        facts += [ends.state, *(np.where(ends.read, column, np.nan) for column in (ends.earliest, ends.latest))]
        facts.append(ends.newest)
    return np.column_stack(facts).astype(np.float64)

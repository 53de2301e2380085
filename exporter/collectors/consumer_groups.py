"""Sweeps the consumer groups of one cluster, slowly and independently of polls.

The order of requests keeps lag correct. Committed offsets are read first and the ends of the logs afterwards, so that a
group that keeps up is never ahead. Groups are read a few at a time, so that such a group is not behind by what was
written while others were read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from exporter.collectors.time_lags import TimeLags
from exporter.domain import (
    Answer,
    Group,
    GroupPartition,
    GroupSweep,
    PollFailure,
    Reason,
    Snapshot,
    TopicPartition,
)
from exporter.domain.answers import reason_of_code
from exporter.domain.consumer_groups import Committed, Description, Listing
from exporter.domain.layout import NO_LEADER
from exporter.domain.ports import Clock, SourceError
from exporter.domain.readings import GONE
from exporter.domain.table import Table

GROUPS_AT_A_TIME = 100
"""How many groups are read before the ends of their partitions."""

_NO_ANSWER = GONE | {Reason.NO_COORDINATOR}


class Groups(Protocol):
    """A cluster that returns its consumer groups."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Requests so far, by kind."""

    def listed(self) -> Listing:
        """List the groups of every coordinator. Raises SourceError when no broker answers."""

    def describe(self, names: Iterable[str]) -> Mapping[str, Description | Reason]:
        """Return state and members of each group, or the reason of a failure; deleted groups are left out."""

    def committed(self, names: Iterable[str]) -> Mapping[str, Committed | Reason]:
        """Return the committed offsets of each group, or the reason of a failure; deleted groups are left out."""


class Ends(Protocol):
    """The same cluster, for the ends of logs."""

    @property
    def groups(self) -> Groups:
        """The interface for groups."""

    def earliest(self, leaders: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, Answer]:
        """EARLIEST (KIP-79) of each partition; every key of ``leaders`` has an answer."""

    def latest(self, leaders: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, Answer]:
        """LATEST (KIP-79) of each partition; every key of ``leaders`` has an answer."""

    def lookups(self) -> Mapping[str, int]:
        """Look-ups since the source was created, by spec."""

    def close(self) -> None:
        """Close connections."""


NEAR_SHARE = 0.1
"""The oldest share of the records of a partition, which retention may delete soon."""


@dataclass(frozen=True, slots=True)
class _Known:
    """The last reading of a group, and how many sweeps have missed it since."""

    group: Group
    missed: int = 0


@dataclass(slots=True)
class _Tally:
    """The counters of a sweep."""

    failures: Counter[Reason]
    partitions: Counter[str]
    read: int = 0


class GroupWatch:
    """Sweeps the consumer groups of one cluster.

    A sink of polls, which know the watched topics and their leaders. One thread polls and one sweeps: shared objects
    are replaced, never changed. A group that cannot be read, or whose coordinator may have given no list, keeps its
    last values for ``missed_sweeps`` sweeps.
    """

    def __init__(
        self,
        cluster: str,
        clock: Clock,
        source: Ends,
        *,
        interval: float,
        include: Sequence[str] = (".*",),
        exclude: Sequence[str] = (),
        missed_sweeps: int = 3,
        time_lags: TimeLags | None = None,
    ) -> None:
        """``interval`` is in seconds, and also the time limit of a sweep. Patterns match whole names.

        With ``time_lags`` a sweep may take half as long again.
        """
        self.cluster = cluster
        self._clock = clock
        self._source = source
        self.interval = interval
        # A name may be any text, also with line breaks, and ".*" must match all names.
        self._include = [re.compile(pattern, re.DOTALL) for pattern in include]
        self._exclude = [re.compile(pattern, re.DOTALL) for pattern in exclude]
        self._missed_sweeps = missed_sweeps
        self._time_lags = time_lags
        self._known: dict[str, _Known] = {}
        self._silent: set[int] = set()
        """Leaders that gave no answer in this sweep: waited for once, not for each hundred groups."""
        self._snapshot: Snapshot | None = None
        self._near_start: frozenset[TopicPartition] = frozenset()

    @property
    def waiting(self) -> bool:
        """True until the first poll."""
        return self._snapshot is None

    def accept(self, snapshot: Snapshot) -> None:
        """Take the watched topics and the leaders of their partitions."""
        self._snapshot = snapshot

    def missed(self, failure: PollFailure) -> None:
        """Ignore a failed poll."""

    def near_log_start(self) -> Collection[TopicPartition]:
        """Return the partitions where a group may soon lose records: its next one is in the oldest tenth."""
        return self._near_start

    def sweep(self, stop: Callable[[], bool] = lambda: False) -> GroupSweep:
        """Read every group in scope, for at most one interval or until ``stop``. Raises no Kafka error.

        Groups with the oldest reading come first, so that the next sweep completes one that was cut short.
        """
        started = self._clock.monotonic()
        requests, lookups = dict(self._source.groups.counts), dict(self._source.lookups())
        tally = _Tally(Counter(), Counter())
        problem, reason = "", None
        unlisted: Mapping[Reason, int] = {}
        all_visible: bool | None = None
        narrowed = False
        known: dict[str, _Known] = {}
        self._silent.clear()
        try:
            listing = self._source.groups.listed()
        except SourceError as error:
            problem, reason = error.detail, error.reason
            self._keep(known, self._known)
        else:
            unlisted, all_visible = listing.unlisted, listing.all_visible
            names = sorted(filter(self._in_scope, listing.names))
            narrowed = len(names) < len(listing.names)
            names.sort(key=lambda name: -self._known[name].missed if name in self._known else -1)
            for at in range(0, len(names), GROUPS_AT_A_TIME):
                batch = names[at : at + GROUPS_AT_A_TIME]
                if stop() or self._clock.monotonic() - started >= self.interval:
                    tally.failures[Reason.TIMED_OUT] += len(names) - at
                    self._keep(known, names[at:])
                    break
                self._read(batch, known, tally)
            if unlisted:
                self._keep(known, self._known.keys() - listing.names)
        self._known = known
        self._near_start = self._soon_lost()
        groups: Mapping[str, Group] = {name: each.group for name, each in sorted(known.items())}
        time_lags: Mapping[str, int] = {}
        if self._time_lags is not None and self._snapshot is not None:
            ends = self._clock.monotonic() + self.interval / 2
            groups, time_lags = self._time_lags.measure(
                groups, self._snapshot, lambda: stop() or self._clock.monotonic() >= ends
            )
        return GroupSweep(
            self.cluster,
            taken_at=self._clock.now(),
            duration_seconds=self._clock.monotonic() - started,
            groups=groups,
            failures=tally.failures,
            partitions=tally.partitions,
            time_lags=time_lags,
            requests=_new(self._source.groups.counts, requests),
            lookups=_new(self._source.lookups(), lookups),
            unlisted=unlisted,
            all_visible=all_visible,
            narrowed=narrowed,
            read=tally.read,
            problem=problem,
            reason=reason,
        )

    def close(self) -> None:
        """Close connections."""
        self._source.close()

    def _in_scope(self, name: str) -> bool:
        included = any(pattern.fullmatch(name) for pattern in self._include)
        return included and not any(pattern.fullmatch(name) for pattern in self._exclude)

    def _keep(self, known: dict[str, _Known], names: Iterable[str]) -> None:
        """Keep the last values of groups, except of those missed too often."""
        for name in names:
            before = self._known.get(name)
            if before is not None and before.missed < self._missed_sweeps:
                known[name] = _Known(before.group, before.missed + 1)

    def _read(self, names: Sequence[str], known: dict[str, _Known], tally: _Tally) -> None:
        # Before the offsets: a later poll proves nothing about them.
        table = None if self._snapshot is None else self._snapshot.table
        described = self._source.groups.describe(names)
        # Wait for a coordinator that does not answer only once.
        committed: Mapping[str, Committed | Reason] = {
            **{name: said for name, said in described.items() if isinstance(said, Reason) and said in _NO_ANSWER},
            **self._source.groups.committed([name for name, said in described.items() if said not in _NO_ANSWER]),
        }
        positions = self._positions(
            {name: offsets for name, offsets in committed.items() if not isinstance(offsets, Reason)}, table
        )
        now = self._clock.now()
        for name, offsets in committed.items():
            description = described[name]
            if isinstance(offsets, Reason):
                tally.failures[offsets] += 1
                self._keep(known, [name])
                continue
            partitions = positions[name]
            topics = {key.topic for key in partitions}
            if isinstance(description, Reason):
                tally.failures[description] += 1
                group = Group(partitions=partitions, topics=frozenset(topics), reason=description, read_at=now)
            else:
                tally.read += 1
                topics |= description.assigned
                group = Group(description.state, description.members, partitions, frozenset(topics), read_at=now)
            tally.partitions.update(each.reason or "ok" for each in partitions.values())
            known[name] = _Known(group)

    def _soon_lost(self) -> frozenset[TopicPartition]:
        if self._snapshot is None:
            return frozenset()
        table = self._snapshot.table
        positions = [pair for each in self._known.values() for pair in each.group.partitions.items() if pair[1].lag]
        rows = table.layout.rows_among(key for key, _ in positions)
        positions = [(key, position) for key, position in positions if key in rows]
        at = np.fromiter((rows[key] for key, _ in positions), dtype=np.intp, count=len(positions))
        offsets = np.fromiter((each.committed for _, each in positions), dtype=np.int64, count=len(positions))
        start, end = table.earliest[at], table.latest[at]
        near = table.read[at] & (offsets - start <= NEAR_SHARE * (end - start))
        return frozenset(positions[place][0] for place in np.flatnonzero(near).tolist())

    def _positions(
        self, committed: Mapping[str, Committed], table: Table | None
    ) -> dict[str, dict[TopicPartition, GroupPartition]]:
        """Compare the committed offsets of some groups with the present ends of the logs."""
        if table is None:
            return {name: {} for name in committed}
        rows = table.layout.rows_among(key for offsets in committed.values() for key in offsets)
        at = np.fromiter(rows.values(), dtype=np.intp, count=len(rows))
        led_by = dict(zip(rows, table.leader[at].tolist(), strict=True))
        leaders = {key: leader for key, leader in led_by.items() if leader != NO_LEADER and leader not in self._silent}
        latest = self._source.latest(leaders)
        self._silent |= {leaders[key] for key, answer in latest.items() if answer.reason in _NO_ANSWER}
        read = at[table.read[at]]
        starts = dict(zip((table.layout.key(row) for row in read.tolist()), table.earliest[read].tolist(), strict=True))
        lost = self._lost(committed, starts, leaders)

        def position(key: TopicPartition, offset: int) -> GroupPartition:
            if (end := latest.get(key)) is None:
                row = rows[key]
                polled = reason_of_code(int(table.reason[row] if table.read[row] else table.unread[row]))
                silent = Reason.LEADER_UNREACHABLE if led_by[key] in self._silent else Reason.NO_LEADER
                return GroupPartition(offset, reason=polled or silent)
            if end.offset is None:
                return GroupPartition(offset, reason=end.reason or Reason.MISSING_ANSWER)
            return GroupPartition(offset, lag=max(0, end.offset - offset), lost=lost(key, offset))

        return {
            name: {key: position(key, offset) for key, offset in sorted(offsets.items()) if key in rows}
            for name, offsets in committed.items()
        }

    def _lost(
        self,
        committed: Mapping[str, Committed],
        starts: Mapping[TopicPartition, int],
        leaders: Mapping[TopicPartition, int],
    ) -> Callable[[TopicPartition, int], int | None]:
        """Return a function for how many offsets after a committed one lie before the log start; None: unknown.

        ``starts`` has the log starts of the last poll. One that a poll saw before the commit, and that is unchanged,
        is proof. One that is seen only afterwards is not: the group may have read on meanwhile.
        """
        behind = {
            key
            for offsets in committed.values()
            for key, offset in offsets.items()
            if key in leaders and (start := starts.get(key)) is not None and offset < start
        }
        now = self._source.earliest({key: leaders[key] for key in behind}) if behind else {}

        def lost(key: TopicPartition, offset: int) -> int | None:
            start = starts.get(key)
            if start is None or offset >= start:
                return None if start is None else 0
            still = now[key].offset
            return None if still is None else max(0, min(start, still) - offset)

        return lost


def _new(now: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    return {kind: count - before.get(kind, 0) for kind, count in now.items() if count > before.get(kind, 0)}

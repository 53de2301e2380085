"""Sweeps the consumer groups of one cluster, slowly and independently of polls.

The order of requests keeps lag correct. Committed offsets are read first and the ends of the logs afterwards, so that a
group that keeps up is never ahead. Groups are read a few at a time, so that such a group is not behind by what was
written while others were read.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from exporter.collectors.time_lags import TimeLags
from exporter.domain.arrays import Codes, Flags, Offsets, Rows
from exporter.domain.groups.consumer_groups import GroupList, GroupOffsets, NoTimeLag
from exporter.domain.groups.positions import NO_POSITIONS, GroupRows, Positions, outcome_code, outcomes
from exporter.domain.groups.sweep import GroupSweep
from exporter.domain.polls.layout import NO_LEADER, Layout
from exporter.domain.polls.metadata import Membership
from exporter.domain.polls.readings import ANSWERED, GONE, Answers, Reason, reason_code, rows_with
from exporter.domain.polls.table import Snapshot, Table
from exporter.domain.ports import Clock, SnapshotSink, SourceError

GROUPS_AT_A_TIME = 100
"""How many groups are read before the ends of their partitions."""

_NO_ANSWER = GONE | {Reason.NO_COORDINATOR}

_NO_LAYOUT = Layout.build({})


@dataclass(slots=True)
class _Tally:
    """What a sweep has found so far."""

    failures: Counter[Reason] = field(default_factory=Counter)
    positions: list[Positions] = field(default_factory=list)
    missed: set[str] = field(default_factory=set)
    """Groups that could not be read, and keep their last values."""
    read: int = 0


class GroupWatch(SnapshotSink):
    """Sweeps the consumer groups of one cluster.

    A sink of polls, which know the watched topics and their leaders. One thread polls and one sweeps: shared objects
    are replaced, never changed. A group that cannot be read, or whose coordinator may have given no list, keeps its
    last values for ``missed_sweeps`` sweeps.
    """

    def __init__(
        self,
        cluster: str,
        clock: Clock,
        source: Any,
        *,
        interval: float,
        include: Sequence[str] = (".*",),
        exclude: Sequence[str] = (),
        missed_sweeps: int = 3,
        time_lags: TimeLags | None = None,
    ) -> None:
        """``source`` is a ``KafkaSource``, a client of its own. Patterns match whole names.

        ``interval`` is in seconds, and also the time limit of a sweep.

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
        self._positions = NO_POSITIONS
        """Of the last sweep."""
        self._silent: set[int] = set()
        """Leaders that gave no answer in this sweep. They get one request, not one for each hundred groups."""
        self._snapshot: Snapshot | None = None
        self._counted = Counter[str]()
        """The look-ups up to the last sweep."""

    def accept(self, snapshot: Snapshot) -> None:
        """Take the watched topics and the leaders of their partitions."""
        self._snapshot = snapshot

    def sweep(self, stop: Callable[[], bool] = lambda: False) -> GroupSweep:
        """Read every group in scope, for at most one interval or until ``stop``. Raises no Kafka error.

        Groups with the oldest reading come first, so that the next sweep completes one that was cut short.
        """
        started, described_topics = self._clock.monotonic(), self._described_topics()
        tally = _Tally()
        problem, reason = "", None
        listing = GroupList(frozenset(), {}, None, None)
        known = dict(zip(self._positions.rows.names, self._positions.missed.tolist(), strict=True))
        narrowed = False
        self._silent.clear()
        try:
            listing = self._source.groups.list_groups()
        except SourceError as error:
            problem, reason = error.detail, error.reason
            tally.missed.update(known)
        else:
            names = sorted(filter(self._in_scope, listing.names))
            narrowed = len(names) < len(listing.names)
            names.sort(key=lambda name: -known.get(name, 1))
            for at in range(0, len(names), GROUPS_AT_A_TIME):
                if stop() or self._clock.monotonic() - started >= self.interval:
                    tally.failures[Reason.TIMED_OUT] += len(names) - at
                    tally.missed.update(names[at:])
                    break
                some = names[at : at + GROUPS_AT_A_TIME]
                try:
                    self._read(some, tally)
                except SourceError as error:
                    tally.failures[error.reason] += len(some)
                    tally.missed.update(some)
            if listing.unlisted:
                tally.missed.update(known.keys() - listing.names)
        snapshot = self._snapshot
        # Groups that were missed too often are left out.
        retained = {name for name in tally.missed if known.get(name, self._missed_sweeps) < self._missed_sweeps}
        layout = _NO_LAYOUT if snapshot is None else snapshot.table.layout
        positions = Positions.concatenate([*tally.positions, self._positions.carry_missed(retained)], layout)
        time_lags: Mapping[str, int] = {}
        if snapshot is not None and self._time_lags is not None:
            ends = self._clock.monotonic() + self.interval / 2
            positions = self._time_lags.measure(positions, snapshot, lambda: stop() or self._clock.monotonic() >= ends)
            time_lags = outcomes(positions.no_time_lag)
        self._positions = positions
        return GroupSweep(
            cluster=self.cluster,
            taken_at=self._clock.now(),
            duration_seconds=self._clock.monotonic() - started,
            positions=positions,
            others=listing.others,
            failures=tally.failures,
            time_lags=time_lags,
            lookups=self._count_lookups(),
            unlisted=listing.unlisted,
            all_visible=listing.all_visible,
            narrowed=narrowed,
            described_topics=described_topics & self._described_topics(),
            read=tally.read,
            problem=problem,
            reason=reason,
        )

    def _count_lookups(self) -> Mapping[str, int]:
        """Return the look-ups since the last sweep, but for those of a process that ended."""
        try:
            now = Counter(self._source.lookups())
        except SourceError:
            return {}
        before, self._counted = self._counted, now
        return now - before

    def _described_topics(self) -> frozenset[str]:
        topics = {} if self._snapshot is None else self._snapshot.metadata.topics
        return frozenset(name for name, topic in topics.items() if topic.reason is None)

    def _in_scope(self, name: str) -> bool:
        included = any(pattern.fullmatch(name) for pattern in self._include)
        return included and not any(pattern.fullmatch(name) for pattern in self._exclude)

    def _read(self, names: Sequence[str], tally: _Tally) -> None:
        # Before the offsets: a later poll proves nothing about them.
        table = Table.empty(_NO_LAYOUT) if self._snapshot is None else self._snapshot.table
        described = self._source.groups.describe(names)
        # Wait for a coordinator that does not answer only once.
        silent = {
            name: answer for name, answer in described.items() if isinstance(answer, Reason) and answer in _NO_ANSWER
        }
        committed = self._source.groups.read_committed([name for name in described if name not in silent])
        failed = {**silent, **committed.failed}
        tally.failures.update(failed.values())
        tally.missed.update(failed)
        rows, offsets = _laid_out(committed, table.layout)
        reason, lag, past_end = self._compared(table, rows.partition, offsets)
        lost, lost_known = self._lost(table, rows.partition, offsets, reason == ANSWERED)
        undescribed = Counter(one for name in rows.names if isinstance(one := described[name], Reason))
        tally.failures += undescribed
        tally.read += len(rows.names) - undescribed.total()
        before = dict(zip(self._positions.rows.names, self._positions.assigned.tolist(), strict=True))
        columns = {"lag": lag, "past_end": past_end, "lost": lost, "lost_known": lost_known}
        tally.positions.append(
            Positions.read(rows, self._clock.now(), described, before, committed=offsets, reason=reason, **columns)
        )

    def _compared(self, table: Table, rows: Rows, offsets: Offsets) -> tuple[Codes, Offsets, Offsets]:
        """Return the codes of unknown lags, the lags, and how far offsets lie past the ends of the logs.

        The ends are read after the offsets, and a log only grows: an offset past its end was so when it was read.
        """
        leader = table.leader[rows]
        silent = np.isin(leader, list(self._silent))
        polled = table.reason_now[rows]
        unled = np.where(silent, reason_code(Reason.LEADER_UNREACHABLE), reason_code(Reason.NO_LEADER))
        reason, lag = np.where(polled > ANSWERED, polled, unled).astype(np.int8), np.zeros(len(rows), dtype=np.int64)
        wanted = np.flatnonzero((leader != NO_LEADER) & ~silent)
        ends, place = self._ask_once(self._source.ends, table, rows[wanted])
        unanswered = rows_with(ends.reason, list(_NO_ANSWER))[place]
        self._silent |= set(leader[wanted][unanswered].tolist()) - set(leader[wanted][~unanswered].tolist())
        reason[wanted] = _why_unknown(ends)[place]
        lag[wanted] = ends.offset[place] - offsets[wanted]
        past_end = np.where(reason == ANSWERED, np.maximum(-lag, 0), 0)
        reason[past_end > 0] = outcome_code(NoTimeLag.PAST_END)
        return reason, np.maximum(lag, 0), past_end

    def _lost(self, table: Table, rows: Rows, offsets: Offsets, readable: Flags) -> tuple[Offsets, Flags]:
        """Return how many offsets after each committed one lie before the log start, and where that is known.

        A log start that a poll saw before the commit, and that is unchanged, is proof. A log start seen only later is
        not: the group may have read more in the meantime.
        """
        starts, lost, known = table.earliest[rows], np.zeros(len(rows), dtype=np.int64), readable & table.read[rows]
        behind = np.flatnonzero(known & (offsets < starts))
        if len(behind):
            still, place = self._ask_once(self._source.starts, table, rows[behind])
            known[behind] = (_why_unknown(still) == ANSWERED)[place]
            lost[behind] = np.maximum(0, np.minimum(starts[behind], still.offset[place]) - offsets[behind])
        return lost, known

    @staticmethod
    def _ask_once(look_up: Callable[[Membership], Answers], table: Table, rows: Rows) -> tuple[Answers, Rows]:
        """Look up each partition once, however many rows it has. Return the answers, and the answer's index by row."""
        each, place = np.unique(rows, return_inverse=True)
        if not len(each):
            return Answers.make_blank(0), place
        return look_up(Membership.make_bare(table.layout.part(each), table.leader[each])), place


def _laid_out(committed: GroupOffsets, layout: Layout) -> tuple[GroupRows, Offsets]:
    """Return committed offsets by group and partition, without partitions that are not watched."""
    partition = layout.find(committed.topics, committed.topic, committed.partition)
    names = tuple(sorted(committed.names))
    numbers = {name: number for number, name in enumerate(names)}
    given = np.array([numbers[name] for name in committed.names], dtype=np.intp)
    group = np.repeat(given, np.diff(committed.first))
    watched = np.flatnonzero(partition >= 0)
    order = watched[np.lexsort((partition[watched], group[watched]))]
    return GroupRows(names, layout, group[order], partition[order]), committed.offset[order]


def _why_unknown(answers: Answers) -> Codes:
    """Return why offsets are unknown, as reason codes; ANSWERED where they are known."""
    missing = reason_code(Reason.MISSING_ANSWER)
    unanswered = np.where(answers.reason > ANSWERED, answers.reason, missing)
    return np.where((answers.reason == ANSWERED) & answers.found, ANSWERED, unanswered).astype(np.int8)

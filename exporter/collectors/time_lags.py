"""Measures the time lag of every consumer group of one cluster after each sweep, for all partitions in parallel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Codes, ColumnSet, Flags, Floats, Offsets, Rows, runs
from exporter.domain.groups.consumer_groups import NoTimeLag
from exporter.domain.groups.positions import NO_POSITIONS, Positions, outcome_code
from exporter.domain.groups.time_lag import UNFINISHED, CommitProgress, TimeLagLimits, TimeLagSearches, are_trailing
from exporter.domain.groups.time_points import Points
from exporter.domain.polls.layout import NO_LEADER, Layout
from exporter.domain.polls.metadata import Membership, Metadata
from exporter.domain.polls.readings import (
    ANSWERED,
    FUTURE_SLACK_SECONDS,
    GONE,
    Answers,
    Reason,
    State,
    reason_code,
    rows_with,
)
from exporter.domain.polls.table import NEWEST_KNOWN, STATE_CODES, Snapshot, Table
from exporter.domain.ports import LOOKUPS_AT_ONCE, Clock, SourceError, TimeIndex

_NEWEST_UNKNOWN = [STATE_CODES[state] for state in (State.UNSUPPORTED, State.IDLE_IN_TIER)]
"""States in which no poll will find a newest timestamp that is not known now."""


@dataclass(frozen=True, slots=True, eq=False)
class _Logs:
    """The log of each position, each a column [n]."""

    row: Rows
    """In the table of the poll, -1 where it is not there."""
    leader: NDArray[np.int32]
    latest: Offsets
    """As the sweep saw it; valid where the lag is known."""
    earliest: Offsets
    """0 where the poll could not read it."""
    topic_id: Offsets
    """A number, 0 where unknown."""
    compacted: Flags


class TimeLags:
    """Adds time lags to the positions of sweeps, and keeps the results of searches for the next sweep.

    A partition that a group has read to its end costs nothing, nor does a committed offset that has not moved. Not
    thread-safe.
    """

    def __init__(self, clock: Clock, source: TimeIndex, *, tolerance: float) -> None:
        """``tolerance`` is in seconds."""
        self._clock = clock
        self._source = source
        self._tolerance = round(tolerance * 1000)
        self._slack = round(FUTURE_SLACK_SECONDS * 1000)
        self._layout = Layout.build({})
        """The layout of the last poll. All columns of partitions follow its rows."""
        self._membership = Membership.make_bare(self._layout, np.zeros(0, dtype=np.int32))
        self._latest: Offsets = np.zeros(0, dtype=np.int64)
        """The end of each log when a group was last behind."""
        self._polled: Offsets = np.zeros(0, dtype=np.int64)
        """The end of each log at the last poll, also where no group is behind."""
        self._points = Points.blank(0)
        self._points_of: Offsets = np.zeros(0, dtype=np.int64)
        """The number of the topic id of each partition when its points were last used."""
        self._turn = 0
        """The row from which the next search begins: the first one for which there was no time left."""
        self._disproved: Flags = np.zeros(0, dtype=np.bool_)
        """The partitions for which an answer of this sweep contradicted an earlier one."""
        self._never_known = self._trusting = self._timeless = self._disproved
        self._ends = self._newest = self._latest
        """The end and the newest timestamp (ms) of each log at the last poll; 0 where the latter is unknown."""
        self._before = NO_POSITIONS
        self._progress = CommitProgress.blank(0)
        """What the rows of ``_before`` did."""

    def measure(self, positions: Positions, snapshot: Snapshot, enough: Callable[[], bool]) -> Positions:
        """Return the positions of a sweep with the time lag of each committed offset, or why there is none.

        A group that could not be read in this sweep keeps its last lags. The search runs until all are found or it is
        ``enough``. The next one continues with unfinished offsets, the oldest first. A leader that does not answer is
        waited for once.
        """
        self._follow(snapshot.table.layout)
        self._membership = Membership.make_bare(self._layout, snapshot.table.leader)
        self._disproved = np.zeros(len(self._layout), dtype=np.bool_)
        logs = self._logs(positions, snapshot)
        here, there = positions.rows.moves_from(self._before.rows)
        now = round(self._clock.now() * 1000)
        wanted = positions.fresh & positions.unread & (logs.leader != NO_LEADER)
        self._forget_fallen(logs, wanted, snapshot.table)
        self._take(snapshot.table, snapshot.metadata)
        self._progress = self._progress.follow(self._before, positions, here, there, now / 1000)
        limits = TimeLagLimits(now, self._tolerance, self._slack)
        found = self._found(np.flatnonzero(wanted), positions, logs, limits, enough)
        self._remember(positions, logs, found.place)
        behind = (self._before.reason == ANSWERED) & (self._before.lag > 0)
        stalled = np.zeros(len(positions), dtype=np.bool_)
        stalled[here] = behind[there] & (self._before.committed[there] == positions.committed[here])
        trailing = wanted & are_trailing(positions.lag, _quiet_for(logs.row, snapshot.table, now), self._progress.added)
        positions = replace(positions, trailing=np.where(positions.fresh, trailing, positions.trailing))
        self._before = _measured(positions, logs, found, stalled)
        return self._before

    def _follow(self, layout: Layout) -> None:
        if layout is self._layout:
            return
        here, there = layout.moves_from(self._layout)
        latest, polled = np.zeros(len(layout), dtype=np.int64), np.zeros(len(layout), dtype=np.int64)
        latest[here], polled[here] = self._latest[there], self._polled[there]
        ids = np.zeros(len(layout), dtype=np.int64)
        ids[here] = self._points_of[there]
        moved = np.full(len(self._layout), -1, dtype=np.intp)
        moved[there] = here
        self._points, self._points_of = self._points.move(moved), ids
        self._layout, self._latest, self._polled = layout, latest, polled

    def _logs(self, positions: Positions, snapshot: Snapshot) -> _Logs:
        table, metadata = snapshot.table, snapshot.metadata
        row = positions.rows.partitions_in(table.layout)
        here = np.flatnonzero(row >= 0)
        at, topic = row[here], table.layout.topic[row[here]]
        leader, earliest = np.full(len(row), NO_LEADER, dtype=np.int32), np.zeros(len(row), dtype=np.int64)
        leader[here], earliest[here] = table.leader[at], np.where(table.read[at], table.earliest[at], 0)
        topic_id, compacted = np.zeros(len(row), dtype=np.int64), np.zeros(len(row), dtype=np.bool_)
        topic_id[here], compacted[here] = metadata.topic_numbers[topic], metadata.compacted[topic]
        return _Logs(row, leader, positions.committed + positions.lag, earliest, topic_id, compacted)

    def _forget_fallen(self, logs: _Logs, wanted: Flags, table: Table) -> None:
        """Drop the points of partitions whose end has fallen: nothing that was proved of them is valid.

        By polls too: while the end is before all committed offsets no group is behind.
        """
        fell = np.flatnonzero(table.read & (table.latest < self._polled))
        self._polled = np.where(table.read, table.latest, self._polled)
        latest = np.zeros(len(self._latest), dtype=np.int64)
        np.maximum.at(latest, logs.row[wanted], logs.latest[wanted])
        rows = np.unique(logs.row[wanted])
        fallen = np.union1d(rows[latest[rows] < self._latest[rows]], fell)
        self._points = self._points[~self._points.are_of(fallen)]
        self._latest = np.where(latest > 0, latest, self._latest)

    def _take(self, table: Table, metadata: Metadata) -> None:
        state = table.state_now
        self._timeless = state == STATE_CODES[State.NO_TIMESTAMP]
        self._ends = np.where(np.isin(state, NEWEST_KNOWN) & ~np.isnan(table.newest), table.latest, 0)
        unknown = np.isin(state, _NEWEST_UNKNOWN) & (self._ends == 0)
        # None is hidden where no record was removed.
        self._trusting = unknown & (table.earliest == 0) & metadata.uncompacted[table.layout.topic]
        self._never_known = unknown & ~self._trusting
        self._newest = np.round(np.where(self._ends > 0, table.newest, 0.0) * 1000).astype(np.int64)

    def _bound(self, rows: Rows) -> None:
        """Add what newest timestamps prove: no record up to the end that the poll saw is newer."""
        rows = np.unique(rows[self._ends[rows] > 0])
        no, zeros = np.zeros(len(rows), dtype=np.bool_), np.zeros(len(rows), dtype=np.int64)
        self._points, disproved = self._points.extend(Points(rows, self._ends[rows], self._newest[rows] + 1, zeros, no))
        self._disproved[disproved] = True

    def _found(
        self, places: Rows, positions: Positions, logs: _Logs, limits: TimeLagLimits, enough: Callable[[], bool]
    ) -> _Found:
        """Search for T of the committed offsets at ``places``, once for all groups that stand at one offset."""
        rows, start = logs.row[places], positions.start[places]
        self._renew(rows, logs.topic_id[places], logs.earliest[places])
        self._bound(rows)
        order = np.lexsort((start, rows))
        new = runs(rows[order], start[order])
        search_of = np.empty(len(order), dtype=np.intp)
        search_of[order] = np.repeat(np.arange(len(new)), np.diff(new, append=len(order)))
        first = order[new]
        row = rows[first]
        ends = np.where(self._ends[row] > start[first], self._ends[row], self._latest[row])
        searches = TimeLagSearches.begin(limits, row, start[first], ends, logs.compacted[places[first]])
        self._search(searches, enough)
        searches.give_up(self._never_known[row] & (searches.hidden_to >= 0), reason_code(Reason.HIDDEN))
        # What was found of any offset of a partition with a contradiction may be wrong.
        searches.outcome[self._disproved[row]] = UNFINISHED
        found = _Found(searches.row, searches.outcome, searches.low, searches.high)
        return replace(found[search_of], place=places)

    def _renew(self, rows: Rows, topic_id: Offsets, earliest: Offsets) -> None:
        """Drop outdated points: all of a topic that was created again, and those before the log start."""
        starts = np.zeros(len(self._layout), dtype=np.int64)
        starts[rows] = earliest
        starts[rows[self._points_of[rows] != topic_id]] = np.iinfo(np.int64).max
        self._points_of[rows] = topic_id
        self._points = self._points[self._points.offset >= starts[self._points.row]]

    def _search(self, searches: TimeLagSearches, enough: Callable[[], bool]) -> None:
        """Look up until all is found or it is ``enough``; the next search goes on where there was no time left."""
        while True:
            # Where answers contradict each other the next sweep begins anew.
            searches.give_up(self._disproved[searches.row], reason_code(Reason.OTHER))
            pending, targets = searches.step(self._points)
            if not len(pending) or enough():
                return
            row = searches.row[pending]
            order = np.lexsort((targets, (row - self._turn) % len(self._layout)))
            pending, targets, row = pending[order], targets[order], row[order]
            once = runs(row, targets)
            pending, targets = pending[once], targets[once]
            for at in range(0, len(pending), LOOKUPS_AT_ONCE):
                if enough():
                    self._turn = int(row[once][at])
                    return
                part = slice(at, at + LOOKUPS_AT_ONCE)
                self._ask(pending[part], targets[part], searches)

    def _ask(self, pending: Rows, targets: Offsets, searches: TimeLagSearches) -> None:
        """Look up a time for each of these searches, which are of different times or partitions."""
        going = searches.outcome[pending] == UNFINISHED
        pending, targets = pending[going], targets[going]
        if not len(pending):
            return
        rows = searches.row[pending]
        try:
            answers = self._source.look_up_times(self._membership, rows, targets)
        except SourceError as error:
            answers = Answers.make_failed(len(rows), error.reason)
        timed = answers.found & ~np.isnan(answers.timestamp)
        failed = np.where(answers.found & ~timed, _NO_TIMESTAMP, answers.reason)
        failed[rows_with(answers.reason, [Reason.UNSUPPORTED_FORMAT])] = _NO_TIMESTAMP
        milliseconds = np.round(np.where(timed, answers.timestamp, 0.0) * 1000)
        unfound = (failed == ANSWERED) & ~timed
        failed[unfound & self._timeless[rows]] = _NO_TIMESTAMP
        hidden = unfound & ~self._trusting[rows] & ~self._timeless[rows]
        self._hide(searches, rows[hidden], targets[hidden])
        proved = (failed == ANSWERED) & ~hidden
        # A record written after the look-up of the end may be the answer: no earlier record is from that time.
        offsets = np.where(timed, answers.offset, searches.latest[pending])
        new = Points(rows, offsets, targets, milliseconds.astype(np.int64), timed)[proved]
        self._points, disproved = self._points.extend(new)
        self._disproved[disproved] = True
        outcome = np.full(len(self._layout), ANSWERED, dtype=np.int8)
        outcome[rows[failed != ANSWERED]] = failed[failed != ANSWERED]
        searches.give_up(outcome[searches.row] != ANSWERED, outcome[searches.row])
        leader = self._membership.leader
        answering = leader[rows[~rows_with(answers.reason, tuple(GONE))]]
        silent = np.isin(leader[searches.row], np.setdiff1d(leader[rows], answering))
        searches.give_up(silent, reason_code(Reason.LEADER_UNREACHABLE))

    def _hide(self, searches: TimeLagSearches, rows: Rows, times: Offsets) -> None:
        """Tell all searches of these partitions which times got no answer."""
        first, last = np.full(len(self._layout), np.iinfo(np.int64).max), np.full(len(self._layout), -1)
        np.minimum.at(first, rows, times)
        np.maximum.at(last, rows, times)
        concerned = np.flatnonzero(last[searches.row] >= 0)
        for bound in (first, last):
            searches.hide(concerned, bound[searches.row[concerned]])

    def _remember(self, positions: Positions, logs: _Logs, searched: Rows) -> None:
        """Keep what the next sweep may need: points around committed offsets."""
        present = np.zeros(len(self._layout), dtype=np.bool_)
        present[logs.row[logs.row >= 0]] = True
        self._points = self._points[present[self._points.row]]
        rows = np.zeros(len(self._layout) + 1, dtype=np.bool_)
        rows[logs.row[searched]] = True
        places = np.flatnonzero(rows[logs.row])
        self._points = self._points.trim(logs.row[places], positions.start[places])


def _quiet_for(rows: Rows, table: Table, now: int) -> Floats:
    """Return for how long nothing was written to each partition, in seconds; NaN where unknown."""
    last = np.concatenate([np.fmax(table.last_advance, np.where(table.read, table.newest, np.nan)), [np.nan]])
    quiet: Floats = now / 1000 - last[rows]
    return quiet


@dataclass(frozen=True, slots=True, eq=False)
class _Found(ColumnSet):
    """Results of the searches of n positions, as in ``TimeLagSearches``."""

    place: Rows
    """The row among the positions."""
    outcome: Codes
    low: Offsets
    high: Offsets


def _measured(positions: Positions, logs: _Logs, found: _Found, stalled: Flags) -> Positions:
    """Return positions with their time lags, and why there is none; those that were not read keep theirs."""
    fresh = positions.fresh
    unknown = np.where(fresh, positions.reason, positions.no_time_lag)
    unknown[fresh & positions.unread & (logs.leader == NO_LEADER)] = outcome_code(Reason.NO_LEADER)
    unknown[found.place] = found.outcome
    known, least, most = np.zeros(len(positions), dtype=np.bool_), *np.zeros((2, len(positions)))
    known[found.place] = found.outcome == ANSWERED
    at = positions.read_at[positions.rows.group[found.place]]
    least[found.place] = np.maximum(0.0, at - found.high / 1000)
    most[found.place] = np.maximum(0.0, at - found.low / 1000)
    rules = [~fresh, known, unknown == ANSWERED]
    return replace(
        positions,
        seconds=np.select(rules, [positions.seconds, (least + most) / 2, 0.0], np.nan),
        error_bound=np.select(rules, [positions.error_bound, (most - least) / 2, 0.0], np.nan),
        stalled=np.where(fresh, known & stalled, positions.stalled),
        no_time_lag=unknown,
    )


_NO_TIMESTAMP = outcome_code(NoTimeLag.NO_TIMESTAMP)

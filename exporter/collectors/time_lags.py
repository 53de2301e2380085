"""Measures the time lag of every consumer group of one cluster after each sweep, for all partitions in parallel."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from exporter.domain import Answer, NoTimeLag, Reason, Snapshot, TopicPartition
from exporter.domain.answers import ANSWERED
from exporter.domain.arrays import Codes, Flags, Offsets, Rows
from exporter.domain.layout import NO_LEADER, Layout
from exporter.domain.metadata import Metadata
from exporter.domain.ports import LOOKUPS_AT_ONCE, ByTime, Clock
from exporter.domain.positions import Positions, outcome_code
from exporter.domain.readings import GONE
from exporter.domain.table import Table
from exporter.domain.time_lag import Point, Points, Search, TimestampRange, still_enough


@dataclass(slots=True)
class _Sought:
    """The searches of one partition: T of committed offsets with something left to read."""

    key: TopicPartition
    leader: int
    latest: int
    points: Points
    searches: dict[int, Search]
    disproved: int
    """``points.disproved`` before the search."""

    def take(self, target: int, answer: Answer) -> None:
        """Take the answer for a time in milliseconds."""
        no_time_lag: NoTimeLag | Reason | None = answer.reason
        if answer.reason is Reason.UNSUPPORTED_FORMAT or (answer.offset is not None and answer.timestamp is None):
            no_time_lag = NoTimeLag.NO_TIMESTAMP
        if no_time_lag is not None:
            self.give_up(no_time_lag)
        elif answer.offset is None or answer.timestamp is None:
            # A record written after the look-up of the end may be the answer: no earlier record is from that time.
            self.points.add(Point(self.latest, target, None))
        else:
            self.points.add(Point(answer.offset, target, round(answer.timestamp * 1000)))

    @property
    def unfinished(self) -> bool:
        """Whether a search is not finished."""
        return any(search.found is None for search in self.searches.values())

    def give_up(self, no_time_lag: NoTimeLag | Reason) -> None:
        """End every unfinished search."""
        for search in self.searches.values():
            search.found = search.found or no_time_lag


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
    topic_id: NDArray[np.object_]
    compacted: Flags


@dataclass(frozen=True, slots=True, eq=False)
class _Proofs:
    """Results of searches, valid until the committed offset or the log before it changes; each a column [n]."""

    known: Flags
    lasting: Flags
    """Whether they are valid in later sweeps, too."""
    start: Offsets
    low: Offsets
    high: Offsets
    earliest: Offsets
    topic_id: NDArray[np.object_]
    compacted: Flags

    @classmethod
    def none(cls, count: int) -> _Proofs:
        """Return that nothing is known of n positions."""
        numbers, no = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.bool_)
        return cls(no, no, numbers, numbers, numbers, numbers, np.full(count, None, dtype=object), no)

    def moved(self, count: int, here: Rows, there: Rows) -> _Proofs:
        """Return the same by ``count`` other rows: ``here`` are the new places of ``there``."""
        moved = _Proofs.none(count)
        columns = {column.name: getattr(moved, column.name).copy() for column in fields(moved)}
        for name, column in columns.items():
            column[here] = getattr(self, name)[there]
        return _Proofs(**columns)

    def hold(self, positions: Positions, logs: _Logs) -> Flags:
        """Return where neither the committed offset nor the log before it changed."""
        holding: Flags = (
            self.lasting
            & (self.start == positions.start)
            & (self.earliest == logs.earliest)
            & (self.topic_id == logs.topic_id)
            & (self.compacted == logs.compacted)
        )
        return holding


class TimeLags:
    """Adds time lags to the positions of sweeps, and keeps what was proved for the next sweep.

    A partition that a group has read to its end costs nothing, nor does a committed offset that has not moved. Not for
    several threads.
    """

    def __init__(self, clock: Clock, source: ByTime, *, tolerance: float, future_slack: float) -> None:
        """``tolerance`` and ``future_slack`` are in seconds."""
        self._clock = clock
        self._source = source
        self._tolerance = round(tolerance * 1000)
        self._slack = round(future_slack * 1000)
        self._layout = Layout.of({})
        """Of the last poll: what is kept of partitions is by its rows."""
        self._latest: Offsets = np.zeros(0, dtype=np.int64)
        """The end of each log when a group was last behind."""
        self._polled: Offsets = np.zeros(0, dtype=np.int64)
        """The end of each log at the last poll, also where no group is behind."""
        self._points: dict[int, Points] = {}
        self._last_sweep: dict[int, int] = {}
        """The last sweep that looked up a partition: those that waited longest come first."""
        self._sweeps = 0
        self._before = Positions.of({})
        self._proofs = _Proofs.none(0)
        """Of the rows of ``_before``."""
        self._topics: tuple[Metadata | None, NDArray[np.object_], Flags]
        self._topics = None, np.zeros(0, dtype=object), np.zeros(0, dtype=np.bool_)
        """Id of each topic of the metadata, and whether it is compacted."""

    def measure(self, positions: Positions, snapshot: Snapshot, enough: Callable[[], bool]) -> Positions:
        """Return the positions of a sweep with the time lag of each committed offset, or why there is none.

        A group that could not be read in this sweep keeps its last lags. The search runs until all are found or it is
        ``enough``. The next one continues with unfinished offsets, the oldest first. A leader that does not answer is
        waited for once.
        """
        self._sweeps += 1
        self._follow(snapshot.table.layout)
        logs = self._logs(positions, snapshot)
        here, there = positions.rows.moves_from(self._before.rows)
        proofs = self._proofs.moved(len(positions), here, there)
        now = round(self._clock.now() * 1000)
        wanted = positions.fresh & positions.unread & (logs.leader != NO_LEADER)
        fallen = np.isin(logs.row, self._fallen(logs, wanted, snapshot.table))
        # Also those of groups that could not be read: when they are, nothing shows any more that the log fell.
        proofs = replace(proofs, lasting=proofs.lasting & ~fallen)
        settled = wanted & proofs.hold(positions, logs)
        settled &= still_enough(proofs.low, proofs.high, now, self._tolerance, self._slack)
        sought = self._sought(np.flatnonzero(wanted & ~settled), positions, logs, now)
        self._search(sought, enough)
        disproved = [row for row, each in sought.items() if each.points.disproved != each.disproved]
        if disproved and (again := settled & np.isin(logs.row, disproved)).any():
            # What was proved of another offset of the partition may be wrong as well.
            settled &= ~again
            more = self._sought(np.flatnonzero(again), positions, logs, now)
            self._search(more, enough)
            for row, each in more.items():
                sought[row].searches.update(each.searches)
        self._remember(positions, logs, sought)
        behind = (self._before.reason == ANSWERED) & (self._before.lag > 0)
        stalled = np.zeros(len(positions), dtype=np.bool_)
        stalled[here] = behind[there] & (self._before.committed[there] == positions.committed[here])
        self._proofs, outcomes = _concluded(positions, proofs, settled, logs, sought)
        self._before = _measured(positions, self._proofs, outcomes, stalled)
        return self._before

    def _follow(self, layout: Layout) -> None:
        """Take the rows of a poll."""
        if layout is self._layout:
            return
        here, there = layout.moves_from(self._layout)
        latest, polled = np.zeros(len(layout), dtype=np.int64), np.zeros(len(layout), dtype=np.int64)
        latest[here], polled[here] = self._latest[there], self._polled[there]
        rows = dict(zip(there.tolist(), here.tolist(), strict=True))
        self._points = {rows[row]: points for row, points in self._points.items() if row in rows}
        self._last_sweep = {rows[row]: sweep for row, sweep in self._last_sweep.items() if row in rows}
        self._layout, self._latest, self._polled = layout, latest, polled

    def _logs(self, positions: Positions, snapshot: Snapshot) -> _Logs:
        table, metadata = snapshot.table, snapshot.metadata
        if self._topics[0] is not metadata:
            infos = [metadata.topics[name] for name in table.layout.topics]
            ids = np.array([info.topic_id for info in infos], dtype=object)
            policies = ["" if info.config is None else info.config.cleanup_policy or "" for info in infos]
            self._topics = metadata, ids, np.array(["compact" in policy for policy in policies], dtype=np.bool_)
        row = positions.rows.partitions_in(table.layout)
        here = np.flatnonzero(row >= 0)
        at, topic = row[here], table.layout.topic[row[here]]
        leader, earliest = np.full(len(row), NO_LEADER, dtype=np.int32), np.zeros(len(row), dtype=np.int64)
        leader[here], earliest[here] = table.leader[at], np.where(table.read[at], table.earliest[at], 0)
        topic_id, compacted = np.full(len(row), None, dtype=object), np.zeros(len(row), dtype=np.bool_)
        topic_id[here], compacted[here] = self._topics[1][topic], self._topics[2][topic]
        return _Logs(row, leader, positions.committed + positions.lag, earliest, topic_id, compacted)

    def _fallen(self, logs: _Logs, wanted: Flags, table: Table) -> Rows:
        """Return the partitions whose end has fallen: nothing that was proved of them is valid.

        By polls too: while the end is before all committed offsets no group is behind.
        """
        fell = np.flatnonzero(table.read & (table.latest < self._polled))
        self._polled = np.where(table.read, table.latest, self._polled)
        latest = np.zeros(len(self._latest), dtype=np.int64)
        np.maximum.at(latest, logs.row[wanted], logs.latest[wanted])
        rows = np.unique(logs.row[wanted])
        fallen: Rows = np.union1d(rows[latest[rows] < self._latest[rows]], fell)
        for row in fallen.tolist():
            self._points.pop(row, None)
        self._latest = np.where(latest > 0, latest, self._latest)
        return fallen

    def _sought(self, wanted: Rows, positions: Positions, logs: _Logs, now: int) -> dict[int, _Sought]:
        """Collect the searches, one set for each partition, however many groups read it."""
        places: dict[int, list[int]] = defaultdict(list)
        for row, place in zip(logs.row[wanted].tolist(), wanted.tolist(), strict=True):
            places[row].append(place)
        starts, sought = positions.start, dict[int, _Sought]()
        for row in sorted(places, key=lambda row: self._last_sweep.get(row, 0)):
            at, latest = places[row][0], int(self._latest[row])
            points = self._points.setdefault(row, Points())
            points.renew(logs.topic_id[at], int(logs.earliest[at]), latest)
            searches = {
                offset: Search(offset, latest, now, self._tolerance, self._slack, bool(logs.compacted[at]))
                for offset in set(starts[places[row]].tolist())
            }
            key, leader = self._layout.key(row), int(logs.leader[at])
            sought[row] = _Sought(key, leader, latest, points, searches, points.disproved)
        return sought

    def _search(self, sought: Mapping[int, _Sought], enough: Callable[[], bool]) -> None:
        """Look up until all is found or it is ``enough``."""
        while (wanted := list(_wanted(sought))) and not enough():
            for at in range(0, len(wanted), LOOKUPS_AT_ONCE):
                if enough():
                    break
                self._ask(wanted[at : at + LOOKUPS_AT_ONCE], sought)

    def _ask(self, wanted: Sequence[tuple[int, int]], sought: Mapping[int, _Sought]) -> None:
        requests = {(sought[row].key, target / 1000): (row, target) for row, target in wanted if sought[row].unfinished}
        rows = {row for row, _ in requests.values()}
        self._last_sweep |= dict.fromkeys(rows, self._sweeps)
        leaders = {sought[row].key: sought[row].leader for row in rows}
        answers = self._source.by_time(list(requests), leaders) if requests else {}
        reasons: dict[int, set[Reason | None]] = defaultdict(set)
        for given, answer in answers.items():
            row, target = requests[given]
            sought[row].take(target, answer)
            reasons[sought[row].leader].add(answer.reason)
        silent = {leader for leader, leader_reasons in reasons.items() if leader_reasons <= GONE}
        for each in sought.values() if silent else ():
            if each.leader in silent:
                each.give_up(Reason.LEADER_UNREACHABLE)

    def _remember(self, positions: Positions, logs: _Logs, sought: Mapping[int, _Sought]) -> None:
        """Keep what the next sweep may need: points around committed offsets."""
        for gone in self._points.keys() - set(logs.row.tolist()):
            del self._points[gone]
            self._last_sweep.pop(gone, None)
        places = np.flatnonzero(np.isin(logs.row, list(sought)))
        committed: dict[int, list[int]] = defaultdict(list)
        for row, start in zip(logs.row[places].tolist(), positions.start[places].tolist(), strict=True):
            committed[row].append(start)
        for row, starts in committed.items():
            self._points[row].trim(starts)


def _wanted(sought: Mapping[int, _Sought]) -> Iterator[tuple[int, int]]:
    """Yield the next time of each search, once for searches with the same time."""
    for row, each in sought.items():
        targets = {target for search in each.searches.values() if (target := search.next(each.points)) is not None}
        yield from ((row, target) for target in targets)


def _concluded(
    positions: Positions, before: _Proofs, settled: Flags, logs: _Logs, sought: Mapping[int, _Sought]
) -> tuple[_Proofs, Codes]:
    """Return T of each committed offset that was read, and why it is unknown; the proofs of others stay."""
    fresh, unread = positions.fresh, positions.unread
    keep = settled | ~fresh
    low, high = before.low.copy(), before.high.copy()
    known, lasting = before.known & keep, before.lasting & keep
    unknown = np.where(fresh, positions.reason, positions.no_time_lag)
    for place in np.flatnonzero(fresh & unread & ~settled).tolist():
        if logs.leader[place] == NO_LEADER:
            unknown[place] = outcome_code(Reason.NO_LEADER)
            continue
        search = sought[int(logs.row[place])].searches[int(positions.start[place])]
        if isinstance(search.found, TimestampRange):
            low[place], high[place] = search.found
            known[place], lasting[place] = True, search.lasting
        else:
            unknown[place] = outcome_code(search.found or NoTimeLag.UNFINISHED)
    logged = {name: np.where(keep, getattr(before, name), getattr(logs, name)) for name in _OF_LOGS}
    return _Proofs(known, lasting, np.where(keep, before.start, positions.start), low, high, **logged), unknown


def _measured(positions: Positions, proofs: _Proofs, unknown: Codes, stalled: Flags) -> Positions:
    """Return positions with their time lags; those that were not read keep theirs."""
    at = positions.read_at[positions.rows.group]
    least, most = np.maximum(0.0, at - proofs.high / 1000), np.maximum(0.0, at - proofs.low / 1000)
    found = proofs.known & positions.unread
    rules = [~positions.fresh, found, unknown == ANSWERED]
    return positions.changed(
        seconds=np.select(rules, [positions.seconds, (least + most) / 2, 0.0], np.nan),
        error_bound=np.select(rules, [positions.error_bound, (most - least) / 2, 0.0], np.nan),
        stalled=np.where(positions.fresh, found & stalled, positions.stalled),
        no_time_lag=unknown,
    )


_OF_LOGS = ("earliest", "topic_id", "compacted")

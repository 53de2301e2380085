"""Looks up partitions with remote storage (KIP-405), slowly and independently of polls.

A poll treats them like others and uses the results of the last look-up: a slow or failed answer costs a gauge, never a
poll.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

import numpy as np

from exporter.collectors.round import MAX_FAILED_ROUNDS, Round
from exporter.domain.arrays import ColumnSet, Floats, Offsets, Rows
from exporter.domain.polls.activity import TierFacts
from exporter.domain.polls.layout import NO_LEADER, Layout
from exporter.domain.polls.metadata import Membership
from exporter.domain.polls.newest_timestamp import LOOKUPS_OF_A_SEARCH, NewestSearches
from exporter.domain.polls.readings import ANSWERED, Reason, rows_with
from exporter.domain.polls.table import NEWEST_KNOWN_OR_SOUGHT, Snapshot, Table
from exporter.domain.ports import Clock, SnapshotSink, SourceError, TimeIndex
from exporter.kafka.process import EARLIEST_LOCAL, LATEST_TIERED, RemoteClient

BY_TIME = "by-time"
_COLUMNS = {EARLIEST_LOCAL: "earliest_local", LATEST_TIERED: "latest_tiered"}


@dataclass(frozen=True, slots=True, eq=False)
class _Results(ColumnSet):
    """What was found of n partitions, each a column [n]."""

    topic_id: Offsets
    """The number of the topic id, as in the table of polls."""
    searched_from: Offsets
    """The log start at the last search of both tiers; -1 where there was none."""
    searched_to: Offsets
    """The end offset at that search."""
    newest: Floats
    """The newest timestamp in both tiers then; NaN where it is unknown."""
    earliest_local: Floats
    latest_tiered: Floats
    answered_at: Floats
    """When these two offsets were last read (monotonic); -inf where they never were."""


def _unknown(topic_id: Offsets) -> _Results:
    """Return the columns of partitions without any look-up so far."""
    return _Results.blank(len(topic_id), topic_id=topic_id, searched_from=-1, searched_to=-1, answered_at=-np.inf)


class TierWatch(SnapshotSink):
    """Keeps the results of look-ups of partitions with remote storage, for one cluster.

    A sink of polls, which know these partitions. One thread polls and one looks up: shared objects are replaced, never
    changed.
    """

    def __init__(
        self,
        cluster: str,
        clock: Clock,
        *,
        interval: float,
        lookups_per_second: float,
        times: Callable[[], AbstractContextManager[TimeIndex]],
        tiers: Callable[[], RemoteClient],
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
        self._specs = [spec for spec in _COLUMNS if spec in specs]
        self._snapshot: Snapshot | None = None
        self._known = Layout.build({}), _unknown(np.zeros(0, dtype=np.int64))
        """The results by the layout of the last round."""

    def accept(self, snapshot: Snapshot) -> None:
        """Take the partitions of a poll."""
        self._snapshot = snapshot

    def facts(self, table: Table, rows: Rows) -> TierFacts:
        """Return the known facts of these rows of a poll, in their order. Sends no request."""
        known, oldest = self._results(table, rows), self._clock.monotonic() - (MAX_FAILED_ROUNDS + 1) * self._interval
        recent = known.answered_at >= oldest
        return TierFacts(
            np.where(recent, known.earliest_local, np.nan),
            np.where(recent, known.latest_tiered, np.nan),
            np.where(known.searched_to == table.latest[rows], known.newest, np.nan),
        )

    def _results(self, table: Table, rows: Rows) -> _Results:
        """Return a copy of the results of these rows of a poll; nothing of topics that were created again."""
        layout, known = self._known
        found = _unknown(table.topic_id[rows])
        at = layout.find(table.layout.topics, table.layout.topic[rows], table.layout.partition[rows])
        here = np.flatnonzero(at >= 0)
        here = here[known.topic_id[at[here]] == found.topic_id[here]]
        found.put(here, known[at[here]])
        return found

    def _keep(self, rows: Rows, **found: Floats | Offsets) -> None:
        """Keep what was found of rows of the poll that this round is about."""
        layout, known = self._known
        known = known[np.arange(len(layout))]
        for name, values in found.items():
            getattr(known, name)[rows] = values
        self._known = layout, known

    def sweep(self, stop: Callable[[], bool] = lambda: False) -> Round:
        """Look up unknown values, for at most one interval or until ``stop``. Return cost and failures.

        The next round completes one that was cut short.
        """
        snapshot, ends = self._snapshot, self._clock.monotonic() + self._interval
        sweep = Round(self._cluster, "partitions with remote storage")
        if snapshot is None:
            return sweep
        table = snapshot.table
        tiered = snapshot.metadata.tiered[table.layout.topic]
        rows = np.flatnonzero(tiered & table.read & (table.led_by != NO_LEADER))
        if not len(rows):
            return sweep
        sweep.at = self._clock.now()
        self._known = table.layout, self._results(table, np.arange(len(table)))
        ask_times = partial(self._ask_times, enough=lambda: stop() or self._clock.monotonic() >= ends)
        for look_up in (self._ask_offsets, ask_times):
            try:
                look_up(table, rows, sweep)
            except SourceError as error:
                sweep.problem = error.detail
            except ValueError as error:
                sweep.problem = str(error)
        return sweep

    def _ask_offsets(self, table: Table, rows: Rows, sweep: Round) -> None:
        if not self._specs:
            return
        part = Membership.make_bare(table.layout, table.led_by).part(rows)
        with self._tiers() as client:
            for spec in self._specs:
                answers = client.tier(spec, part)
                sweep.count(spec, answers)
                self._keep(rows, **{_COLUMNS[spec]: np.where(answers.found, answers.offset, np.nan)})
        self._keep(rows, answered_at=np.full(len(rows), self._clock.monotonic()))

    def _ask_times(self, table: Table, rows: Rows, sweep: Round, enough: Callable[[], bool]) -> None:
        """Search both tiers of partitions at rest: a poll looks up the newest record of one that moves."""
        known = self._results(table, rows)
        searched = (known.searched_from == table.earliest[rows]) & (known.searched_to == table.latest[rows])
        rests = (table.advanced_by[rows] == 0) | np.isnan(table.newest[rows])
        unsure = rows[np.isin(table.state[rows], NEWEST_KNOWN_OR_SOUGHT) & rests & ~searched]
        if not len(unsure) or enough():
            return
        guess = table.newest.copy()
        guess[rows] = np.where(np.isnan(guess[rows]), known.newest, guess[rows])
        membership = Membership.make_bare(table.layout, table.led_by)
        with self._times() as source:
            for at in range(0, len(unsure), self._batch):
                if enough():
                    return
                some = unsure[at : at + self._batch]
                earliest, latest = table.earliest[some], table.latest[some]
                # Topics with remote storage are not compacted.
                searches = NewestSearches(latest, guess=guess[some], now=self._clock.now(), whole=earliest == 0)
                lookups = 0
                while len((step := searches.step())[0]) and not enough():
                    searches.take(step[0], source.look_up_times(membership, some[step[0]], step[1]))
                    lookups += len(step[0])
                found = searches.results()
                sweep.count(BY_TIME, found)
                sweep.lookups[BY_TIME] += lookups - len(found)
                ended = (found.reason == ANSWERED) | rows_with(found.reason, [Reason.HIDDEN])
                newest = np.where(found.found, found.timestamp, np.nan)
                columns = {"newest": newest, "searched_from": earliest, "searched_to": latest}
                self._keep(some[ended], **{name: column[ended] for name, column in columns.items()})

"""Looks up partitions with remote storage (KIP-405), slowly and independently of polls.

A poll treats them like others and uses the results of the last look-up: a slow or failed answer costs a gauge, never a
poll.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from exporter.domain.arrays import Flags, Floats, Offsets, Rows
from exporter.domain.polls.activity import TierFacts
from exporter.domain.polls.answers import ANSWERED, Answers, count_failures, rows_with
from exporter.domain.polls.layout import NO_LEADER, Layout
from exporter.domain.polls.metadata import Membership, Metadata
from exporter.domain.polls.newest_timestamp import LOOKUPS_OF_A_SEARCH, Searches
from exporter.domain.polls.readings import PollFailure, Reason
from exporter.domain.polls.table import NEWEST_KNOWN, NEWEST_KNOWN_OR_SOUGHT, Snapshot, Table
from exporter.domain.ports import ByTime, Clock, SourceError
from exporter.kafka.kafka_python_answers import EARLIEST_LOCAL, LATEST_TIERED, KafkaPythonError, log_ignored_properties
from exporter.kafka.process import RemoteClient

MAX_FAILED_SWEEPS = 3
"""Number of rounds that may fail before earlier results are dropped."""

BY_TIME = "by-time"


@dataclass(frozen=True, slots=True)
class TierSweep:
    """Cost and failures of one round of look-ups of a cluster. Counts are of partition look-ups, by spec."""

    cluster: str
    at: float | None
    """Unix seconds; None where no topic has remote storage."""
    lookups: Mapping[str, int] = field(default_factory=dict)
    failures: Mapping[tuple[str, Reason], int] = field(default_factory=dict)
    problem: str = ""
    """Why tiers could not be looked up at all; for a log line."""


@dataclass(frozen=True, slots=True, eq=False)
class _Results:
    """The results for the partitions of a cluster, each a column [n] by ``layout``; nothing where it has no tiers."""

    layout: Layout
    ids: NDArray[np.object_]
    """Topic ids (text, None where unknown), by topic of the layout."""
    tiered: Flags
    """Whether a topic has remote storage, by topic of the layout."""
    newest: Floats
    """The newest timestamp when the partition ended at ``newest_at``; after a move, a good guess."""
    newest_at: Offsets
    """-1 where ``newest`` was never found."""
    searched_from: Offsets
    """The log start at the last search of both tiers; -1 where there was none."""
    searched_to: Offsets
    """The end offset at that search."""
    earliest_local: Floats
    latest_tiered: Floats
    answered_at: Floats
    """When these two offsets were last read (monotonic); -inf where they never were."""

    @classmethod
    def nothing(cls, metadata: Metadata) -> _Results:
        """Return the columns of partitions without any look-up so far."""
        layout = metadata.membership.layout
        topics = [metadata.topics[name] for name in layout.topics]
        tiered = [topic.config is not None and topic.config.remote_storage for topic in topics]
        count = len(layout)
        return cls(
            layout,
            np.array([topic.topic_id for topic in topics], dtype=object),
            np.array(tiered, dtype=np.bool_),
            *(np.full(count, nothing, dtype=kind) for nothing, kind in _NOTHING.values()),
        )

    def laid_out(self, metadata: Metadata) -> _Results:
        """Return a copy by other metadata. Results of deleted topics, and of topics without tiers, are dropped."""
        moved = _Results.nothing(metadata)
        here = moved.rows_of(self, np.arange(len(self.layout)))
        valid = here >= 0
        for name in _NOTHING:
            getattr(moved, name)[here[valid]] = getattr(self, name)[valid]
        return moved

    def rows_of(self, other: _Results, rows: Rows) -> Rows:
        """Return the row here for each of ``rows`` of ``other``; -1 if its topic has no remote storage, or a new id."""
        topic = other.layout.topic[rows]
        same = other.layout is self.layout
        here = rows.copy() if same else self.layout.find(other.layout.topics, topic, other.layout.partition[rows])
        found = np.flatnonzero(here >= 0)
        now = self.layout.topic[here[found]]
        dropped = ~self.tiered[now] | (self.ids[now] != other.ids[topic[found]])
        here[found[dropped]] = -1
        return here


_NOTHING: Mapping[str, tuple[float, type]] = {
    "newest": (math.nan, np.float64),
    "newest_at": (-1, np.int64),
    "searched_from": (-1, np.int64),
    "searched_to": (-1, np.int64),
    "earliest_local": (math.nan, np.float64),
    "latest_tiered": (math.nan, np.float64),
    "answered_at": (-math.inf, np.float64),
}
"""For each column, its value where nothing was looked up, and its type."""


@dataclass(frozen=True, slots=True, eq=False)
class _Wanted:
    """The partitions of one round: their last poll, and the results so far, by the same layout."""

    table: Table
    known: _Results
    rows: Rows
    """Rows with remote storage that the poll read."""

    def longest_ago(self) -> Rows:
        """Return the rows by the age of their offsets in tiers, the oldest first."""
        order: Rows = np.argsort(self.known.answered_at[self.rows], kind="stable")
        return self.rows[order]

    def unsure(self) -> Rows:
        """Return unchanged partitions whose newest timestamp must still be searched in both tiers."""
        table, known = self.table, self.known
        # The next poll looks up the newest record of a partition that moves.
        rests = (table.advanced_by == 0) | np.isnan(table.newest)
        searched = (known.searched_from == table.earliest) & (known.searched_to == table.latest)
        unsure: Flags = np.isin(table.state, NEWEST_KNOWN_OR_SOUGHT) & rests & ~searched
        return self.rows[unsure[self.rows]]

    def membership(self) -> Membership:
        """Return all partitions with their leaders."""
        return Membership.led(self.table.layout, self.table.led_by)


class TierWatch:
    """Keeps the results of look-ups of partitions with remote storage, for one cluster.

    A sink of polls, which know these partitions, and a ``TierKnowledge``. One thread polls and one looks up: columns
    are read and written under a lock.
    """

    def __init__(
        self,
        cluster: str,
        clock: Clock,
        *,
        interval: float,
        lookups_per_second: float,
        times: Callable[[], AbstractContextManager[ByTime]],
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
        self._specs = [spec for spec in (EARLIEST_LOCAL, LATEST_TIERED) if spec in specs]
        self._ignored_logged = False
        self._lock = threading.Lock()
        self._snapshot: Snapshot | None = None
        self._metadata = Metadata({}, {})
        self._known = _Results.nothing(self._metadata)

    @property
    def waiting(self) -> bool:
        """True until the first poll."""
        return self._snapshot is None

    def accept(self, snapshot: Snapshot) -> None:
        """Take a poll: its partitions, and the newest timestamps that it saw."""
        table = snapshot.table
        with self._lock:
            known = self._follow(snapshot.metadata)
            has_newest = known.tiered[table.layout.topic] & table.read & np.isin(table.state, NEWEST_KNOWN)
            has_newest &= ~np.isnan(table.newest)
            known.newest[has_newest], known.newest_at[has_newest] = table.newest[has_newest], table.latest[has_newest]
            self._snapshot = snapshot

    def missed(self, failure: PollFailure) -> None:
        """Ignore a failed poll."""

    def facts(self, metadata: Metadata, rows: Rows, latest: Offsets) -> TierFacts:
        """Return the known facts of rows whose end offset is now ``latest``, in their order. Sends no request."""
        oldest = self._clock.monotonic() - (MAX_FAILED_SWEEPS + 1) * self._interval
        with self._lock:
            known = self._follow(metadata)
            recent = known.answered_at[rows] >= oldest
            return TierFacts(
                np.where(recent, known.earliest_local[rows], np.nan),
                np.where(recent, known.latest_tiered[rows], np.nan),
                np.where(known.newest_at[rows] == latest, known.newest[rows], np.nan),
            )

    def _follow(self, metadata: Metadata) -> _Results:
        """Return the columns by this metadata; with the lock held."""
        if metadata is not self._metadata:
            self._known, self._metadata = self._known.laid_out(metadata), metadata
        return self._known

    def sweep(self, stop: Callable[[], bool] = lambda: False) -> TierSweep:
        """Look up unknown values, for at most one interval or until ``stop``. Return cost and failures.

        Partitions with the oldest results come first, so that the next round completes one that was cut short.
        """
        wanted = self._wanted()
        if wanted is None or not len(wanted.rows):
            return TierSweep(self._cluster, None)
        ends = self._clock.monotonic() + self._interval
        sweep = TierSweep(self._cluster, self._clock.now())

        def enough() -> bool:
            return stop() or self._clock.monotonic() >= ends

        if self._specs:
            sweep = self._ask_offsets(wanted, sweep, enough)
        return self._ask_times(wanted, sweep, enough)

    def _wanted(self) -> _Wanted | None:
        """Return the partitions with remote storage that the last poll read."""
        with self._lock:
            if self._snapshot is None:
                return None
            snapshot, known = self._snapshot, self._known.laid_out(self._snapshot.metadata)
        table = snapshot.table
        tiered = known.tiered[table.layout.topic] & table.read & (table.led_by != NO_LEADER)
        return _Wanted(table, known, np.flatnonzero(tiered))

    def _ask_offsets(self, wanted: _Wanted, sweep: TierSweep, enough: Callable[[], bool]) -> TierSweep:
        membership, failures = wanted.membership(), Counter[tuple[str, Reason]]()
        try:
            with self._tiers() as client:
                if not self._ignored_logged:
                    log_ignored_properties(self._cluster, "the offsets of the remote tier", client.left_out())
                    self._ignored_logged = True
                for batch in self._batches(wanted.longest_ago(), enough):
                    rows = np.sort(batch)
                    part = membership.part(rows)
                    answers = {spec: client.tier(spec, part) for spec in self._specs}
                    for spec, given in answers.items():
                        failures.update(_failures(spec, given))
                    self._keep_offsets(rows, wanted, answers)
                return replace(sweep, lookups=dict(client.counts()), failures=failures)
        except (KafkaPythonError, SourceError) as error:
            return replace(sweep, failures=failures, problem=error.detail)

    def _batches(self, rows: Rows, enough: Callable[[], bool]) -> Iterator[Rows]:
        """Split the rows into batches, until there is no time left."""
        for at in range(0, len(rows), self._batch):
            if enough():
                return
            yield rows[at : at + self._batch]

    def _keep_offsets(self, rows: Rows, wanted: _Wanted, answers: Mapping[str, Answers]) -> None:
        """Keep the answers to each spec, except for topics that were created again in the meantime."""
        with self._lock:
            known = self._known
            here = known.rows_of(wanted.known, rows)
            valid = here >= 0
            for column, spec in ((known.earliest_local, EARLIEST_LOCAL), (known.latest_tiered, LATEST_TIERED)):
                given = answers.get(spec, Answers.none(len(rows)))[valid]
                column[here[valid]] = np.where(given.found, given.offset, np.nan)
            known.answered_at[here[valid]] = self._clock.monotonic()

    def _ask_times(self, wanted: _Wanted, sweep: TierSweep, enough: Callable[[], bool]) -> TierSweep:
        unsure = wanted.unsure()
        if not len(unsure) or enough():
            return sweep
        lookups, failures = Counter(sweep.lookups), Counter(sweep.failures)
        try:
            connected = self._times()
        except ValueError as error:
            return replace(sweep, problem=str(error))
        membership = wanted.membership()
        with connected as source:
            for rows in self._batches(unsure, enough):
                guess = wanted.known.newest[rows]
                # Topics with remote storage are not compacted.
                whole = wanted.table.earliest[rows] == 0
                searches = Searches(wanted.table.latest[rows], guess=guess, now=self._clock.now(), whole=whole)
                try:
                    while len((step := searches.step())[0]) and not enough():
                        searches.take(step[0], source.by_time(membership, rows[step[0]], step[1]))
                        lookups[BY_TIME] += len(step[0])
                except SourceError as error:
                    return replace(sweep, lookups=lookups, failures=failures, problem=error.detail)
                results = searches.results()
                failures.update(_failures(BY_TIME, results))
                self._keep_times(rows, wanted, results)
        return replace(sweep, lookups=lookups, failures=failures)

    def _keep_times(self, rows: Rows, wanted: _Wanted, results: Answers) -> None:
        """Keep the results, except for partitions where a poll saw a newer record in the meantime."""
        with self._lock:
            known, table = self._known, wanted.table
            here = known.rows_of(wanted.known, rows)
            hidden = rows_with(results.reason, [Reason.HIDDEN])
            valid = np.flatnonzero((here >= 0) & ((results.reason == ANSWERED) | hidden))
            valid = valid[known.newest_at[here[valid]] == wanted.known.newest_at[rows[valid]]]
            here, there, hidden = here[valid], rows[valid], hidden[valid]
            same = (
                hidden
                & (known.newest_at[here] == table.latest[there])
                & (known.newest[here] >= results.timestamp[valid])
            )
            found = np.where(hidden, np.nan, results.timestamp[valid])
            known.newest[here] = np.where(same, known.newest[here], found)
            known.newest_at[here] = known.searched_to[here] = table.latest[there]
            known.searched_from[here] = table.earliest[there]


def _failures(spec: str, answers: Answers) -> dict[tuple[str, Reason], int]:
    return {(spec, reason): count for reason, count in count_failures(answers.reason).items()}

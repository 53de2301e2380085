"""One poll of one cluster: source -> table -> snapshot -> sinks."""

import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from exporter.collectors.log_ends import LogEnds
from exporter.collectors.log_sizes import Inspector
from exporter.collectors.remote_tier import TierWatch
from exporter.domain.arrays import Rows
from exporter.domain.formatting import duration
from exporter.domain.polls.activity import (
    Circumstances,
    apply_tiers,
    clock_set,
    conclude,
    find_unsettled,
    miss_poll,
    observe,
)
from exporter.domain.polls.inspections import NO_INSPECTIONS
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.metadata import Metadata, is_unchanged, restore_known
from exporter.domain.polls.readings import FUTURE_SLACK_SECONDS, Answers, PollFailure, Reason
from exporter.domain.polls.table import ClusterChange, Snapshot, Table
from exporter.domain.ports import Clock, Extents, PollSource, SnapshotSink, SourceError
from exporter.history.cluster_states import ClusterState

log = logging.getLogger(__name__)

CLOCK_SET_SECONDS = 5.0
"""A larger difference between two clocks from poll to poll means that the wall clock was set."""

_NEARLY = 0.9
"""A poll that begins a little early reads metadata all the same."""

_ANOTHER_CLUSTER = (
    "another Kafka cluster answers than at the last poll, so that this one does not count; next step: none if that is "
    "meant, else let bootstrap.servers name brokers of one cluster"
)


class Poller:
    """Polls one cluster: sends look-ups to the source, keeps a table, and passes snapshots to the sinks."""

    def __init__(  # noqa: PLR0913 - each is one setting or source of knowledge
        self,
        cluster: str,
        source: PollSource,
        sinks: Sequence[SnapshotSink],
        clock: Clock,
        *,
        earliest_polls: int = 1,
        metadata_seconds: float = 0.0,
        tier: TierWatch | None = None,
        inspections: Inspector | None = None,
        state: ClusterState | None = None,
    ) -> None:
        """The EARLIEST of a partition is looked up in one of ``earliest_polls``, after the first poll in turns.

        ``metadata_seconds`` is the largest age of metadata. It goes on from ``state``, as if there had been no restart.
        """
        self.cluster = cluster
        self._source = source
        self._sinks = sinks
        self._clock = clock
        self._tier = tier
        self._inspections = inspections
        self._earliest_polls = earliest_polls
        self._table = Table.empty(Layout((), (), np.zeros(0, dtype=np.int32)))
        self._metadata_seconds = metadata_seconds
        self._metadata: Metadata | None = None
        self._metadata_read_at = 0.0
        self._polls = 0
        self._metadata_doubted = True
        self._counted: Mapping[str, int] = {}
        self._clocks_apart: float | None = None
        self._clock_set = 0.0
        self._cluster_id: str | None = None
        self._cluster_change: ClusterChange | None = None
        if state is not None:
            self._go_on(state)

    def _go_on(self, state: ClusterState) -> None:
        self._table = state.table()
        self._cluster_id, self._cluster_change = state.cluster_id, state.cluster_change
        if state.read_at is not None:
            self._clocks_apart = state.taken_at - state.read_at
        elif (ahead := state.taken_at - self._clock.now()) > 0:
            log.warning(
                "cluster %s: the clock of this host is %s behind the last poll before the start",
                self.cluster,
                duration(ahead),
            )
            self._table = clock_set(self._table, -ahead)

    def poll(self) -> Snapshot | PollFailure:
        """Run one poll and return what the sinks got. Never raises, whatever a cluster or a sink does.

        An internal error is a failed poll, and its traceback is logged.
        """
        started = self._clock.monotonic()
        try:
            snapshot = self._read(started)
        except SourceError as error:
            failure = self._failure(started, error.reason, error.detail)
        except Exception as error:
            log.exception("cluster %s: poll failed with an internal error", self.cluster)
            failure = self._failure(started, Reason.OTHER, _own_error(error))
        else:
            return self._hand_over(snapshot, started)
        self._table, self._metadata_doubted = miss_poll(self._table), True
        for sink in self._sinks:
            self._report_failure(sink, failure)
        return failure

    def _hand_over(self, snapshot: Snapshot, started: float) -> Snapshot | PollFailure:
        """Pass the snapshot to every sink. Only a sink that fails has missed the poll."""
        outcome: Snapshot | PollFailure = snapshot
        for sink in self._sinks:
            try:
                sink.accept(snapshot)
            except Exception as error:
                log.exception("cluster %s: a sink failed to process a good poll", self.cluster)
                outcome = self._failure(started, Reason.OTHER, _own_error(error))
                self._report_failure(sink, outcome)
        return outcome

    def _report_failure(self, sink: SnapshotSink, failure: PollFailure) -> None:
        try:
            sink.take_failure(failure)
        except Exception:
            log.exception("cluster %s: a sink failed to process a failed poll", self.cluster)

    def _failure(self, started: float, reason: Reason, detail: str) -> PollFailure:
        return PollFailure(self.cluster, self._clock.now(), self._clock.monotonic() - started, reason, detail)

    def _read(self, started: float) -> Snapshot:
        self._source.begin()
        fresh = self._metadata_doubted
        metadata = self._read_metadata(fresh=fresh)
        taken_at = self._now()
        ends = LogEnds(metadata, self._table)
        turns = self._earliest_polls if self._polls else 1
        ends.ask(self._source, self._polls, turns)
        started_over = ends.list_restarted()
        if started_over or (not fresh and ends.is_outdated()):
            # A topic was deleted, created again or moved: recognise that in this poll, not in the next.
            metadata = self._read_metadata(fresh=True, doubted=started_over)
            ends = LogEnds(metadata, self._table)
            ends.ask(self._source, self._polls, turns)
        table = ends.table.replace(leader=ends.leader, unread=ends.unread)
        table = observe(table, ends.sightings(), taken_at)
        wanted = np.union1d(find_unsettled(table), self._undecided(table))
        newest = Answers.make_blank(0)
        if len(wanted):
            # Batches from the end of the last good poll on were written later.
            appended = np.where(table.restarted | np.isnan(table.previous_poll), -1, ends.table.latest)
            extents = Extents(table.earliest[wanted], table.latest[wanted], appended[wanted])
            newest = self._source.max_timestamp(metadata.membership.part(wanted), extents)
        if self._another_cluster_answered(taken_at):
            raise SourceError(Reason.OTHER, _ANOTHER_CLUSTER)
        self._metadata_doubted = ends.doubtful() or metadata.incomplete
        supported = self._source.max_timestamp_supported()
        self._table = self._concluded(table, wanted, newest, metadata, supported, taken_at)
        set_by, self._clock_set = self._clock_set, 0.0
        return Snapshot(
            cluster=self.cluster,
            taken_at=taken_at,
            read_at=taken_at - (self._clocks_apart or 0.0),
            duration_seconds=self._clock.monotonic() - started,
            metadata=metadata,
            table=self._table,
            max_timestamp_supported=dict(supported),
            lookups=self._new_lookups(),
            clock_set=set_by,
            inspected=NO_INSPECTIONS if self._inspections is None else self._inspections.results(metadata),
            cluster_change=self._cluster_change,
        )

    def _read_metadata(self, *, fresh: bool, doubted: Collection[str] = ()) -> Metadata:
        """Return the topics in scope: read again where ``fresh``, or where the last metadata is old.

        Otherwise, and where nothing changed, returns the same object as before. Ids of ``doubted`` topics, which may
        have been created again, are read again. What could not be read this time stays as it was. Raises SourceError
        when no broker answers.
        """
        now, last = self._clock.monotonic(), self._metadata
        if last is not None and not fresh and now - self._metadata_read_at < _NEARLY * self._metadata_seconds:
            return last
        ids = {} if last is None else {name: topic.topic_id for name, topic in last.topics.items()}
        read = restore_known(self._source.metadata(doubted, ids), last)
        self._metadata_read_at = now
        if last is None or not is_unchanged(last, read):
            self._metadata = last = read
        return last

    def _another_cluster_answered(self, at: float) -> bool:
        """Return whether the cluster has another id than at the last poll; then forget all partitions.

        It is read after the offsets of each poll. Where it is the same after two polls, what grew in between are
        records of this cluster. A cluster without an id is taken for the same.
        """
        before, now = self._cluster_id, self._source.cluster_id()
        self._cluster_id = now or before
        if None in (before, now) or before == now:
            return False
        self._table, self._metadata = Table.empty(Layout((), (), np.zeros(0, dtype=np.int32))), None
        self._cluster_change = ClusterChange(str(before), at)
        return True

    def _concluded(
        self,
        table: Table,
        wanted: Rows,
        newest: Answers,
        metadata: Metadata,
        supported: Mapping[int, bool],
        taken_at: float,
    ) -> Table:
        tiered = metadata.tiered[table.layout.topic]
        unable = [broker for broker, known in supported.items() if not known]
        latest_allowed = taken_at + FUTURE_SLACK_SECONDS
        given = Circumstances(tiered, np.isin(table.led_by, unable), latest_allowed, taken_at)
        table = conclude(table, wanted, newest, given)
        rows = np.flatnonzero(tiered & table.read)
        if self._tier is None or not len(rows):
            return table
        return apply_tiers(table, rows, self._tier.facts(table, rows), given)

    def _undecided(self, table: Table) -> Rows:
        """Return a row of each broker whose support of MAX_TIMESTAMP is not proved yet, another one at each poll."""
        self._polls += 1
        several = table.read & (table.latest - table.earliest > 1)
        undecided = set(np.unique(table.led_by[several]).tolist()) - self._source.max_timestamp_supported().keys()
        rows = [np.flatnonzero(several & (table.led_by == broker)) for broker in sorted(undecided)]
        return np.array([of_broker[self._polls % len(of_broker)] for of_broker in rows], dtype=np.intp)

    def _now(self) -> float:
        """Return the wall clock; where it was set since the last call, shift the remembered times."""
        now = self._clock.now()
        apart = now - self._clock.monotonic()
        step = 0.0 if self._clocks_apart is None else apart - self._clocks_apart
        self._clocks_apart = apart
        if abs(step) > CLOCK_SET_SECONDS:
            log.warning(
                "cluster %s: the clock of this host was set %s by %s: silences keep their length",
                self.cluster,
                "forward" if step > 0 else "back",
                duration(abs(step)),
            )
            self._table = clock_set(self._table, step)
            self._clock_set += step
        return now

    def _new_lookups(self) -> Mapping[str, int]:
        before, self._counted = self._counted, dict(self._source.lookups())
        return Counter(self._counted) - Counter(before)


def _own_error(error: Exception) -> str:
    # Its text may contain a secret; the page and the metrics get its type alone.
    return f"an internal error ({type(error).__name__}); the log has its traceback; next step: report it as a bug"

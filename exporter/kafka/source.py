"""Looks up offsets in one cluster, with ListOffsets, metadata and settings alone."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np

from exporter.clock import SystemClock
from exporter.domain.arrays import Offsets, Rows
from exporter.domain.polls.metadata import Membership, Metadata
from exporter.domain.polls.newest_timestamp import NewestSearches
from exporter.domain.polls.readings import ANSWERED, END_OF_TIME, GONE, Answers, Reason, rows_with
from exporter.domain.ports import Clock, Extents
from exporter.kafka.calls import RateLimiter
from exporter.kafka.client import Client
from exporter.kafka.consumer_groups import GroupReader
from exporter.kafka.credentials import Property
from exporter.kafka.list_offsets import EARLIEST, LATEST, MAX_TIMESTAMP, Lookups
from exporter.kafka.max_timestamp_probe import MaxTimestampProbe
from exporter.kafka.metadata import MetadataReader, Scope
from exporter.kafka.msk_iam import AwsIam
from exporter.kafka.offsets_for_times import OffsetsForTimes


class KafkaSource:
    """``exporter.domain.ports.OffsetSource`` over confluent-kafka's clients.

    Not for several threads at once.

    A look-up that fails is not retried: the next poll is the retry. A call may take up to twice
    ``request_timeout``, since librdkafka first finds the leader and then sends it the request. Uncommitted
    records count, because an open transaction would otherwise make a busy partition look empty.
    """

    def __init__(  # noqa: PLR0913 - each is one setting
        self,
        properties: Mapping[str, Property | Path],
        *,
        aws_iam: AwsIam | None = None,
        clock: Clock | None = None,
        request_timeout: float = 10.0,
        include: Sequence[str] = (".*",),
        exclude: Sequence[str] = (),
        internal: bool = False,
        lookups_per_second: float | None = None,
        times_per_second: float | None = None,
        worth_batching: int | None = None,
        budget: float | None = None,
        owner_of: Callable[[str], str | None] = lambda _: None,
    ) -> None:
        """Connect; without an answer that shows with the first call.

        ``properties`` are librdkafka's; a ``Path`` stands for the text in that file. ``include`` and ``exclude`` match
        whole names of topics. Each broker gets at most ``lookups_per_second`` look-ups, and ``times_per_second`` of
        times, for which it may read a batch of records; None: no limit. From ``worth_batching`` partitions on LATEST
        and EARLIEST are looked up by a consumer; None: never. ``budget`` is how many seconds all calls after ``begin``
        or ``metadata`` may wait for brokers; then each further call has a second, which is enough for those that are
        well. Raises ValueError when librdkafka refuses a property or a file cannot be used.
        """
        self.client = client = Client(properties, request_timeout=request_timeout, budget=budget, aws_iam=aws_iam)
        self._clock = clock = SystemClock() if clock is None else clock
        self.groups = GroupReader(client)
        """Reads the consumer groups of the same cluster."""
        limiter = None if lookups_per_second is None else RateLimiter(lookups_per_second, clock)
        self._lookups = self._timed = Lookups(client, limiter)
        if times_per_second is not None:
            self._timed = Lookups(client, RateLimiter(times_per_second, clock))
        self.batched = OffsetsForTimes(self._lookups)
        """LATEST and EARLIEST by a consumer, where there is one."""
        self._worth_batching = worth_batching
        self.probe = MaxTimestampProbe(self._lookups)
        self.reader = MetadataReader(
            client,
            Scope(include, exclude, internal),
            clock,
            owner_of,
        )
        self._metadata = Metadata({}, {})

    def begin(self) -> None:
        """Start the time limit again, for a poll that needs no metadata."""
        self.client.begin()

    def metadata(
        self, doubted: Collection[str] = (), known: Mapping[str, str | None] = MappingProxyType({})
    ) -> Metadata:
        """Return the topics in scope; ids of ``doubted`` ones are read again. Raises SourceError without any answer.

        ``known`` are topics and their ids from before this source was created.
        """
        before, silent = self._metadata.brokers, self._lookups.unreachable
        self.client.begin()
        try:
            self._metadata = self.reader.read(silent, doubted, known)
        except BaseException:
            self.probe.forget(list(self.probe.supported))
            # The admin client cannot connect: the consumer would only send more attempts, with the same password.
            self.batched.stop()
            raise
        now = self._metadata.brokers
        # A broker that was away or moved must prove itself again; one that did not know it may have been upgraded,
        # however short it was away.
        self.probe.forget(
            [
                broker
                for broker, knows in self.probe.supported.items()
                if not knows or broker in silent or now.get(broker) != before.get(broker)
            ]
        )
        self._lookups.unreachable = set()
        if self._worth_batching is not None:
            membership = self._metadata.membership
            large = len(membership.layout) >= self._worth_batching
            self.batched.follow(membership, wanted=large and self.reader.has_offsets_topic, silent=silent)
        return self._metadata

    def starts(self, membership: Membership) -> Answers:
        """Offset of the first record kept, of partitions that have leaders."""
        return self._bounds(EARLIEST, membership)

    def ends(self, membership: Membership) -> Answers:
        """One past the newest record, of partitions that have leaders. Transaction markers count."""
        return self._bounds(LATEST, membership)

    def max_timestamp(self, membership: Membership, extents: Extents) -> Answers:
        """Largest timestamp among the records, and where it lies, of partitions that hold records and have leaders.

        NO_ANSWER where the leader does not know the spec, or where the answer proved wrong. On brokers 3.0 to 3.7 the
        offset is wrong (KAFKA-16310): rest on the timestamp alone. An answer that may be that of a deleted record
        counts where a look-up by time finds its time.
        """
        answers = Answers.make_blank(len(membership.layout))
        unable = [broker for broker, known in self.probe.supported.items() if not known]
        wanted = np.flatnonzero(~np.isin(membership.leader, unable))
        answers.put(wanted, self._by_row(self._lookups, MAX_TIMESTAMP, membership, wanted))
        wrong = np.flatnonzero(self.probe.check(membership, answers, extents, self._may_be_tiered))
        answers.put(wrong, Answers.make_blank(len(wrong)))
        # Brokers count deleted records until the file of their segment goes, which that of the last one never does.
        # Those from 3.0 to 3.7 name the last record of a batch (KAFKA-16310), in which the log may start.
        whole = (extents.appended >= extents.earliest) & (answers.offset >= extents.appended)
        doubted = np.flatnonzero(answers.found & (answers.timestamp >= 0) & (extents.earliest > 0) & ~whole)
        answers.put(doubted, self._confirmed(membership, doubted, extents[doubted], answers[doubted]))
        return answers

    def max_timestamp_supported(self) -> Mapping[int, bool]:
        """Broker id -> supports MAX_TIMESTAMP, as far as answers prove it."""
        return dict(self.probe.supported)

    def cluster_id(self) -> str | None:
        """Ask for the id of the cluster that answers now; None where no broker tells one in time."""
        return self.reader.cluster_id()

    def look_up_times(self, membership: Membership, rows: Rows, milliseconds: Offsets) -> Answers:
        """The first record (in offset order) whose timestamp is at or after each time (KIP-79).

        ``milliseconds`` [n] are Unix times for ``rows`` [n], which have leaders and may repeat; answers are by their
        places. An answer without an offset proves nothing (``ports.TimeIndex``), and neither does a record from before
        its time, which is ``Reason.OTHER``. Raises ValueError for a negative time.
        """
        if (milliseconds < 0).any():
            [at, *_] = np.flatnonzero(milliseconds < 0)
            key = membership.layout.key(rows[at])
            raise ValueError(
                f"{key.topic}-{key.partition}: time {milliseconds[at] / 1000} is before 1970; ask for 0 or later"
            )
        answers = self._by_row(self._timed, milliseconds, membership, rows)
        with np.errstate(invalid="ignore"):
            early = np.flatnonzero(
                (np.round(answers.timestamp * 1000) < milliseconds) & (answers.timestamp < END_OF_TIME)
            )
        answers.put(early, Answers.make_failed(len(early), Reason.OTHER))
        return answers

    def lookups(self) -> Mapping[str, int]:
        """Look-ups since the source was created, by spec."""
        return dict(sum((each.counts for each in {self._lookups, self._timed}), Counter()))

    def close(self) -> None:
        """Close connections. Further calls are errors."""
        self.batched.stop()
        self.client.close()

    def _bounds(self, spec: int, membership: Membership) -> Answers:
        answers = self.batched.ask(spec, membership)
        rows = np.flatnonzero((answers.reason != ANSWERED) & ~rows_with(answers.reason, list(GONE)))
        answers.put(rows, self._by_row(self._lookups, spec, membership, rows))
        return answers

    def _confirmed(self, membership: Membership, rows: Rows, extents: Extents, newest: Answers) -> Answers:
        """The newest records of rows, after answers that may be those of deleted ones; else ``Reason.HIDDEN``."""
        found = self.look_up_times(membership, rows, np.round(newest.timestamp * 1000).astype(np.int64))
        gone = (newest.offset < extents.earliest) | ~found.found | (found.timestamp != newest.timestamp)
        again = np.flatnonzero(gone & (found.reason == ANSWERED))
        nothing, removed = np.full(len(again), np.nan), np.zeros(len(again), dtype=np.bool_)
        searches = NewestSearches(extents.latest[again], guess=nothing, now=self._clock.now(), whole=removed)
        found.put(again, searches.run(lambda some, at: self.look_up_times(membership, rows[again][some], at)))
        return found

    def _by_row(self, lookups: Lookups, targets: int | Offsets, membership: Membership, rows: Rows) -> Answers:
        """Look up, and repeat once the look-ups that an earlier leader answered."""
        if not len(rows):
            return Answers.make_blank(0)
        self.client.know_leaders()
        answers = lookups.look_up(targets, membership, rows)
        moved = np.flatnonzero(rows_with(answers.reason, [Reason.NOT_LEADER]))
        if len(moved) and self.client.know_leaders(anew=True):
            again = targets if isinstance(targets, int) else targets[moved]
            answers.put(moved, lookups.look_up(again, membership, rows[moved]))
        return answers

    def _may_be_tiered(self, topic: str) -> bool:
        info = self._metadata.topics.get(topic)
        return info is None or info.config is None or info.config.remote_storage

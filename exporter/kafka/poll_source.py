"""The look-ups of a poll, in columns. Large clusters use ``offsets_for_times`` while its answers prove correct."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Collection, Mapping

import numpy as np
from confluent_kafka import KafkaException

from exporter.domain.arrays import Flags, Offsets, Rows
from exporter.domain.polls.answers import ANSWERED, Answers, rows_with
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.metadata import Membership, Metadata, unchanged, with_partitions_known_before
from exporter.domain.polls.readings import GONE, Answer, Reason
from exporter.domain.ports import METADATA_SECONDS, Extents
from exporter.kafka.list_offsets_call import EARLIEST, LATEST, spec_name
from exporter.kafka.messages import BatchesRefused
from exporter.kafka.offsets_for_times import OffsetsForTimes
from exporter.kafka.rate_limiter import MonotonicClock
from exporter.kafka.source import KafkaSource

log = logging.getLogger(__name__)

WORTH_BATCHING = 1_000
"""Smaller clusters use the documented call alone: it costs them at most 20 ms of CPU a poll, and no consumer."""

CHECKED = 100
"""Partitions that a poll looks up by both calls: some milliseconds of CPU."""

_JITTER = 0.1
"""By what share of the interval a poll may begin late."""

_PASSING = (*GONE, Reason.NO_LEADER, Reason.NOT_LEADER, Reason.OFFSET_NOT_AVAILABLE, Reason.STORAGE_ERROR)
"""Temporary reasons: one of two calls may fail for them, and the other succeed a moment later."""


class PollSource:
    """``exporter.domain.ports.PollSource`` over librdkafka. Not for several threads at once.

    LATEST and EARLIEST of at least ``WORTH_BATCHING`` partitions are looked up by a consumer's ``offsets_for_times``. A
    consumer looks up the coordinator of its group. Where ``__consumer_offsets`` is missing, the broker then creates it.
    Where the right is missing, its authorizer writes a log line each time, twice a second. A consumer is therefore
    made only where that topic is listed, and closed when a broker denies the right.
    """

    def __init__(
        self,
        source: KafkaSource,
        clock: MonotonicClock,
        *,
        chunk_size: int = 250,
        calls_in_flight: int = 4,
        worth_batching: int = WORTH_BATCHING,
        metadata_seconds: float = METADATA_SECONDS,
        poll_interval: float = 0.0,
    ) -> None:
        """``metadata_seconds`` is how old metadata of fewer than ``WORTH_BATCHING`` partitions may get.

        With polls every ``poll_interval`` seconds it is read where it would be older than that at the next poll.
        """
        self._source = source
        self._clock = clock
        self._chunk_size = chunk_size
        self._calls_in_flight = calls_in_flight
        self._worth_batching = worth_batching
        self._metadata_seconds = metadata_seconds
        self._until_next_poll = poll_interval * (1 - _JITTER)
        self._metadata: Metadata | None = None
        self._read_at = 0.0
        self._batched: OffsetsForTimes | None = None
        self._connection = 0
        """The number of the admin connection when the consumer was made."""
        self._batched_knows: Membership | None = None
        self._checked = False
        self._checks: Counter[int] = Counter()
        """Chunks looked up by both calls, by spec."""
        self._epoch_of: Layout | None = None
        self._epoch = np.zeros(0, dtype=np.int32)
        """By row, the leader epoch in the last answer to LATEST; -1 where there was none."""
        self._counts: Counter[str] = Counter()
        """Look-ups of consumers that were closed."""
        self.batches_refused: BatchesRefused | None = None
        """Why the documented call alone is used until the exporter is restarted, if it is."""
        self.batched_lookups_trusted: bool | None = None
        """Whether ``offsets_for_times`` answers as the documented call does; None before the first call."""

    def refuse_batches(self, why: BatchesRefused) -> None:
        """Use the documented call alone, from now on."""
        self.batches_refused = why
        self.batched_lookups_trusted = False if why is BatchesRefused.DIFFERS else None

    def resume_from(self, metadata: Metadata) -> None:
        """Take the metadata of another source as the previous one; the next call reads it again."""
        self._metadata, self._read_at = metadata, -math.inf
        self._source.resume_from(metadata)

    def metadata(self, *, fresh: bool, doubted: Collection[str] = ()) -> Metadata:
        """Return the topics in scope. Raises SourceError when no broker answers."""
        now = self._clock.monotonic()
        self._checked = False
        age_at_next_poll = now - self._read_at + self._until_next_poll
        if self._metadata is not None and not fresh and age_at_next_poll < self._metadata_lasts(self._metadata):
            self._source.begin()
            return self._metadata
        if self._batched is not None:
            self._source.unreachable |= self._batched.unreachable
            self._batched.unreachable.clear()
        try:
            read = with_partitions_known_before(self._source.metadata(doubted), self._metadata)
        except BaseException:
            # The admin client cannot connect: the consumer would only send more attempts, with the same password.
            self._stop_batching()
            raise
        self._read_at = now
        if self._metadata is None or not unchanged(self._metadata, read):
            self._metadata = read
        self._start_batching(self._metadata.membership)
        return self._metadata

    def earliest(self, rows: Rows) -> Answers:
        """EARLIEST of rows that have a leader. Raises ValueError where they are not in order, each once."""
        return self._ask(EARLIEST, rows)

    def latest(self, rows: Rows) -> Answers:
        """LATEST of rows that have a leader. Raises ValueError where they are not in order, each once."""
        answers = self._ask(LATEST, rows)
        if self._epoch_of is not self._membership.layout:
            self._epoch_of = self._membership.layout
            self._epoch = np.full(len(self._epoch_of), -1, dtype=np.int32)
        self._epoch[rows] = answers.epoch
        self._source.recheck(self._membership.layout, rows, answers)
        return answers

    def max_timestamp(self, rows: Rows, earliest: Offsets, latest: Offsets) -> Answers:
        """MAX_TIMESTAMP of rows that hold records, with their offsets as just answered."""
        extents = Extents(earliest, latest, self._epoch[rows])
        return self._source.max_timestamp_by_row(self._membership, rows, extents)

    def when_idle(self) -> None:
        """Close the consumer where a broker refuses it. To be called some seconds after the first look-ups, too."""
        if self._batched is not None and self._batched.denied():
            log.info(
                "%s: may not DESCRIBE groups: polls look up offsets by calls that take more CPU (see docs/security.md)",
                self._source.bootstrap,
            )
            self.refuse_batches(BatchesRefused.DENIED)
            self._stop_batching()

    def max_timestamp_supported(self) -> Mapping[int, bool]:
        """Broker id -> knows MAX_TIMESTAMP, as far as answers have proved it."""
        return self._source.max_timestamp_supported()

    def lookups(self) -> Mapping[str, int]:
        """Look-ups sent since the source was made, by spec."""
        batched = Counter() if self._batched is None else self._batched.counts
        return dict(self._counts + batched + Counter(self._source.lookups()))

    def close(self) -> None:
        """Let go of connections. Further calls are errors."""
        self._stop_batching()
        self._source.close()

    @property
    def exposed(self) -> tuple[str, ...]:
        """One line for each secret file that every user of this host may read."""
        return self._source.exposed

    @property
    def _membership(self) -> Membership:
        assert self._metadata is not None, "metadata comes first"
        return self._metadata.membership

    def _metadata_lasts(self, metadata: Metadata) -> float:
        """Return the seconds after which metadata is read again. For many partitions a read costs as much as a poll."""
        large = len(metadata.membership.layout) >= WORTH_BATCHING
        return max(self._metadata_seconds, METADATA_SECONDS) if large else self._metadata_seconds

    def _ask(self, spec: int, rows: Rows) -> Answers:
        # librdkafka (2.16.1) would give both of two equal ones the answer of the last, without a word.
        if not np.all(np.diff(rows) > 0):
            raise ValueError("rows must be in order and without repetition")
        self.when_idle()
        if self._batched is None or len(rows) == 0:
            return self._documented(spec, rows)
        answers, refused = self._batched.ask(spec, self._membership, rows)
        if len(refused):
            self._batched_knows = None
            answers.put(refused, self._documented(spec, rows[refused]))
        if rows_with(answers.reason, [*GONE, Reason.NOT_LEADER]).any():
            self._batched_knows = None
        if not self._holds(spec, rows, answers):
            self._stop_batching()
            return self._documented(spec, rows)
        return answers

    def _documented(self, spec: int, rows: Rows) -> Answers:
        return self._source.by_row(spec, self._membership, rows)

    def _holds(self, spec: int, rows: Rows, answers: Answers) -> bool:
        """Look up some partitions of each poll with the documented call too, and return whether the answers agree.

        Partitions take turns, and so do LATEST and EARLIEST. Those without an answer come first.
        """
        assert self._batched is not None
        if self._checked or (spec == EARLIEST and self._checks[EARLIEST] > self._checks[LATEST]):
            return True
        missing = rows_with(answers.reason, [Reason.MISSING_ANSWER])
        compared = np.flatnonzero(missing | (answers.reason == ANSWERED))
        size = min(self._chunk_size, CHECKED)
        chunks = -(-len(compared) // size)
        if not chunks:
            return True
        self._checked = True
        first = self._checks[spec] % chunks * size
        self._checks[spec] += 1
        places = np.union1d(compared[first : first + size], np.flatnonzero(missing)[:size])
        places = places[_differing(answers[places], self._documented(spec, rows[places]))]
        if len(places):
            # A record written in between makes them differ too: compare only where the documented call is stable.
            before = self._documented(spec, rows[places])
            batched, refused = self._batched.ask(spec, self._membership, rows[places])
            after = self._documented(spec, rows[places])
            steady = ~_differing(before, after) & (before.reason == ANSWERED)
            steady[refused] = False
            wrong = np.flatnonzero(steady & _differing(batched, after))
            if len(wrong):
                row, answer = rows[places][wrong[0]], batched.answer(int(wrong[0]))
                self._distrust(spec, row, answer, after.answer(int(wrong[0])))
                return False
        self.batched_lookups_trusted = True
        return True

    def _distrust(self, spec: int, row: int, batched: Answer | None, documented: Answer | None) -> None:
        self.refuse_batches(BatchesRefused.DIFFERS)
        key = self._membership.layout.key(row)
        log.warning(
            "%s: offsets_for_times answers %s of partition %d of %s with %s, and list_offsets with %s: it is not used "
            "again until restart, and polls cost more; next step: report it with the versions of librdkafka and broker",
            self._source.bootstrap,
            spec_name(spec),
            key.partition,
            key.topic,
            _answer_text(batched),
            _answer_text(documented),
        )

    def _start_batching(self, membership: Membership) -> None:
        """Make a consumer where it pays and does no harm, and let it learn the present leaders."""
        if self._batched is not None and self._connection != self._source.connections:
            self._stop_batching()
        large = len(membership.layout) >= self._worth_batching
        if self.batches_refused is not None or not large or not self._source.has_offsets_topic:
            self._stop_batching()
        elif self._batched is None:
            try:
                self._batched = self._source.batched(self._chunk_size, self._calls_in_flight)
            except (KafkaException, ValueError) as error:
                log.debug("%s: no consumer: %s", self._source.bootstrap, type(error).__name__)
                return
            self._connection = self._source.connections
            self._batched_knows = membership  # it reads leaders with its first call
        elif self._batched_knows is None or not np.array_equal(self._batched_knows.leader, membership.leader):
            self._batched.refresh()
            self._batched_knows = membership

    def _stop_batching(self) -> None:
        if self._batched is not None:
            self._counts += self._batched.counts
            self._batched.close()
            self._batched = None


def _answer_text(answer: Answer | None) -> str:
    if answer is None:
        return "no answer"
    return str(answer.reason or ("no offset" if answer.offset is None else answer.offset))


def _differing(one: Answers, other: Answers) -> Flags:
    """Return the rows in which two answers differ, except for temporary reasons."""
    passing = rows_with(one.reason, _PASSING) | rows_with(other.reason, _PASSING)
    same = (one.reason == other.reason) & (one.found == other.found) & (~one.found | (one.offset == other.offset))
    differ: Flags = ~passing & ~same
    return differ

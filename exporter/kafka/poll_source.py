"""The look-ups of a poll, in columns. Large clusters use ``offsets_for_times`` where its answers prove correct."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from confluent_kafka import KafkaException

from exporter.clock import SystemClock
from exporter.domain.arrays import Flags, Offsets, Rows
from exporter.domain.polls.layout import Layout
from exporter.domain.polls.metadata import Membership, Metadata, is_unchanged, restore_partitions
from exporter.domain.polls.readings import ANSWERED, GONE, Answers, Reason, rows_with
from exporter.domain.ports import METADATA_SECONDS, Clock, Extents, SourceError
from exporter.kafka.list_offsets_call import EARLIEST, LATEST, spec_name
from exporter.kafka.offsets_for_times import OffsetsForTimes
from exporter.kafka.source import KafkaSource

log = logging.getLogger(__name__)

WORTH_BATCHING = 1_000
"""Smaller clusters use the documented call alone, and no consumer."""

COMPARED = 100
"""Partitions of a broker that are looked up by both calls, once."""

_JITTER = 0.1
"""By what share of the interval a poll may begin late."""

_PASSING = (*GONE, Reason.NO_LEADER, Reason.NOT_LEADER, Reason.OFFSET_NOT_AVAILABLE, Reason.STORAGE_ERROR)
"""Temporary reasons: one of two calls may fail for them, and the other succeed a moment later."""


class BrokerPollSource:
    """``exporter.domain.ports.PollSource`` over librdkafka. Not for several threads at once.

    LATEST and EARLIEST of at least ``WORTH_BATCHING`` partitions are looked up by a consumer's ``offsets_for_times``. A
    consumer looks up the coordinator of its group, for which a broker creates ``__consumer_offsets`` where it is
    missing, and writes a line to its log twice a second where the right is missing. So a consumer is made only where
    that topic is listed, and closed with the next poll where a broker denies the right. The first answers of each
    broker are compared with the documented call, which is used for good where they differ.
    """

    def __init__(
        self,
        source: KafkaSource,
        clock: Clock,
        *,
        worth_batching: int = WORTH_BATCHING,
        metadata_seconds: float = METADATA_SECONDS,
        poll_interval: float = 0.0,
    ) -> None:
        """``metadata_seconds`` is how old metadata of fewer than ``WORTH_BATCHING`` partitions may get.

        With polls every ``poll_interval`` seconds it is read where it would be older than that at the next poll.
        """
        self._source = source
        self._clock = clock
        self._worth_batching = worth_batching
        self._metadata_seconds = metadata_seconds
        self._until_next_poll = poll_interval * (1 - _JITTER)
        self._metadata: Metadata | None = None
        self._read_at = 0.0
        self._batched: OffsetsForTimes | None = None
        self._refused = False
        """Whether the documented call alone is used: the other one differs, or its consumer may not see groups."""
        self._connection = 0
        """The number of the admin connection when the consumer was made."""
        self._batched_knows: Membership | None = None
        self._compared: set[tuple[int, int]] = set()
        """Specs and brokers whose answers by both calls were the same, since these brokers were last away."""
        self._dated_layout = Layout.of({})
        self._dated_until = np.zeros(0, dtype=np.int64)
        """By row, the end of the log at the last look-up of its newest timestamp; -1 where there was none."""
        self._counts: Counter[str] = Counter()
        """Look-ups of consumers that were closed."""

    @classmethod
    def of(
        cls,
        *,
        metadata_seconds: float,
        poll_interval: float,
        **settings: Any,
    ) -> BrokerPollSource:
        """Connect; ``settings`` are those of ``KafkaSource``. Raises ValueError as that does."""
        source = KafkaSource(**settings)
        return cls(source, SystemClock(), metadata_seconds=metadata_seconds, poll_interval=poll_interval)

    def resume_from(self, metadata: Metadata) -> None:
        """Take the metadata of another source as the previous one; the next call reads it again."""
        self._metadata, self._read_at = metadata, -math.inf
        self._source.resume_from(metadata)

    def metadata(self, *, fresh: bool, doubted: Collection[str] = ()) -> Metadata:
        """Return the topics in scope. Raises SourceError when no broker answers."""
        now = self._clock.monotonic()
        age_at_next_poll = now - self._read_at + self._until_next_poll
        if self._metadata is not None and not fresh and age_at_next_poll < self._metadata_lasts(self._metadata):
            self._source.client.begin()
            return self._metadata
        away = self._source.unreachable | (set() if self._batched is None else self._batched.unreachable)
        self._source.unreachable = set(away)
        if self._batched is not None:
            self._batched.unreachable.clear()
        try:
            read = restore_partitions(self._source.metadata(doubted), self._metadata)
        except BaseException:
            # The admin client cannot connect: the consumer would only send more attempts, with the same password.
            self._stop_batching()
            raise
        self._read_at = now
        # One that is back may have been upgraded meanwhile.
        self._compared = {pair for pair in self._compared if pair[1] in read.brokers and pair[1] not in away}
        if self._metadata is None or not is_unchanged(self._metadata, read):
            self._metadata = read
        self._start_batching(self._metadata.membership)
        return self._metadata

    def earliest(self, rows: Rows) -> Answers:
        """EARLIEST of rows that have a leader. Raises ValueError where they are not in order, each once."""
        return self._ask(EARLIEST, rows)

    def latest(self, rows: Rows) -> Answers:
        """LATEST of rows that have a leader. Raises ValueError where they are not in order, each once."""
        return self._ask(LATEST, rows)

    def max_timestamp(self, rows: Rows, earliest: Offsets, latest: Offsets) -> Answers:
        """MAX_TIMESTAMP of rows that hold records, with their offsets as just answered."""
        layout = self._membership.layout
        if layout is not self._dated_layout:
            here, there = layout.moves_from(self._dated_layout)
            dated_until = np.full(len(layout), -1)
            dated_until[here] = self._dated_until[there]
            self._dated_layout, self._dated_until = layout, dated_until
        extents = Extents(earliest, latest, self._dated_until[rows])
        self._dated_until[rows] = latest
        return self._source.max_timestamp_by_row(self._membership, rows, extents)

    def cluster_id(self) -> str | None:
        """Ask for the id of the cluster that answers now; None where no broker tells one in time."""
        return self._source.client.cluster_id()

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

    def exposed(self) -> tuple[str, ...]:
        """One line for each secret file that every user of this host may read."""
        return self._source.exposed()

    @property
    def batching(self) -> bool:
        """Whether ``offsets_for_times`` is used now."""
        return self._batched is not None

    @property
    def _membership(self) -> Membership:
        if self._metadata is None:  # this process was started in the middle of a poll
            raise SourceError(Reason.CLIENT_FAILED, "the Kafka client was replaced; next step: none, it is asked again")
        return self._metadata.membership

    def _metadata_lasts(self, metadata: Metadata) -> float:
        """Return the seconds after which metadata is read again. For many partitions a read costs as much as a poll."""
        large = len(metadata.membership.layout) >= WORTH_BATCHING
        return max(self._metadata_seconds, METADATA_SECONDS) if large else self._metadata_seconds

    def _ask(self, spec: int, rows: Rows) -> Answers:
        # librdkafka (2.16.1) would give both of two equal ones the answer of the last, without a word.
        if not np.all(np.diff(rows) > 0):
            raise ValueError("rows must be in order and without repetition")
        self._close_if_denied()
        if self._batched is None or len(rows) == 0:
            return self._documented(spec, rows)
        answers, refused = self._batched.ask(spec, self._membership, rows)
        if rows_with(answers.reason, [*GONE, Reason.NOT_LEADER]).any() or len(refused):
            self._batched_knows = None
        refused = np.union1d(refused, np.flatnonzero(rows_with(answers.reason, [Reason.MISSING_ANSWER])))
        if len(refused):
            answers.put(refused, self._documented(spec, rows[refused]))
        if not self._agrees(spec, rows, answers):
            self._stop_batching()
            return self._documented(spec, rows)
        return answers

    def _documented(self, spec: int, rows: Rows) -> Answers:
        return self._source.by_row(spec, self._membership, rows)

    def _agrees(self, spec: int, rows: Rows, answers: Answers) -> bool:
        """Compare answers of brokers that were not compared yet; return whether the documented call agrees."""
        assert self._batched is not None
        leader, good = self._membership.leader[rows], answers.reason == ANSWERED
        new = [broker for broker in np.unique(leader[good]).tolist() if (spec, broker) not in self._compared]
        if not new:
            return True
        places = np.concatenate([np.flatnonzero(good & (leader == broker))[:COMPARED] for broker in new])
        places.sort()
        first, documented = answers[places], self._documented(spec, rows[places])
        if _differing(first, documented).any():
            # The log may have moved in between: then the documented answer lies between two of the other call.
            last, _ = self._batched.ask(spec, self._membership, rows[places])
            moved = (first.offset <= documented.offset) & (documented.offset <= last.offset)
            wrong = np.flatnonzero(_differing(first, documented) & ~(moved & (last.reason == ANSWERED)))
            if len(wrong):
                key = self._membership.layout.key(rows[places][wrong[0]])
                log.warning(
                    "%s: offsets_for_times answers %s of partition %d of %s with %d, and list_offsets with %s: it is "
                    "not used again, and polls cost more; next step: report it with the versions of librdkafka and "
                    "broker",
                    self._source.client.bootstrap,
                    spec_name(spec),
                    key.partition,
                    key.topic,
                    first.offset[wrong[0]],
                    documented.offset[wrong[0]],
                )
                self._refused = True
                return False
        self._compared |= {(spec, broker) for broker in new}
        return True

    def _start_batching(self, membership: Membership) -> None:
        """Make a consumer where it pays and does no harm, and let it learn the present leaders."""
        if self._batched is not None and self._connection != self._source.client.connections:
            self._stop_batching()
        large = len(membership.layout) >= self._worth_batching
        if self._refused or not large or not self._source.reader.has_offsets_topic:
            self._stop_batching()
        elif self._batched is None:
            try:
                self._batched = self._source.batched()
            except (KafkaException, ValueError) as error:
                log.debug("%s: no consumer: %s", self._source.client.bootstrap, type(error).__name__)
                return
            self._connection = self._source.client.connections
            self._batched_knows = membership  # it reads leaders with its first call
        elif self._batched_knows is None or not np.array_equal(self._batched_knows.leader, membership.leader):
            self._batched.refresh()
            self._batched_knows = membership

    def _stop_batching(self) -> None:
        if self._batched is not None:
            self._counts += self._batched.counts
            self._batched.close()
            self._batched = None
            self._compared.clear()

    def _close_if_denied(self) -> None:
        if self._batched is not None and self._batched.is_denied():
            log.info(
                "%s: may not DESCRIBE groups: polls look up offsets by calls that take more CPU (see docs/security.md)",
                self._source.client.bootstrap,
            )
            self._refused = True
            self._stop_batching()


def _differing(one: Answers, other: Answers) -> Flags:
    """Return the rows in which two answers differ, except for temporary reasons."""
    passing = rows_with(one.reason, _PASSING) | rows_with(other.reason, _PASSING)
    same = (one.reason == other.reason) & (one.found == other.found) & (~one.found | (one.offset == other.offset))
    differ: Flags = ~passing & ~same
    return differ

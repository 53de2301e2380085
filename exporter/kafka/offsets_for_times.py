"""Looks up LATEST and EARLIEST of many partitions with ``Consumer.offsets_for_times``, at an eighth of the usual cost.

librdkafka (2.16.1) passes negative times on, and to brokers -1 and -2 are LATEST and EARLIEST. That is its behaviour,
not documented: so the answers of each consumer are first compared with those of the documented call.
"""

import logging
from collections.abc import Collection, Sequence
from operator import attrgetter

import confluent_kafka
import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException

from exporter.domain.arrays import Rows
from exporter.domain.polls.layout import NO_LEADER
from exporter.domain.polls.metadata import NO_PARTITIONS, Membership
from exporter.domain.polls.readings import ANSWERED, Answers, Reason, reason_code, reason_of_code, rows_with
from exporter.kafka.calls import Chunk, run_calls
from exporter.kafka.errors import reason_of
from exporter.kafka.list_offsets import EARLIEST, LATEST, Lookups, group_by_leader, spec_name

log = logging.getLogger(__name__)

GROUP = "topic-liveness"
"""librdkafka makes no consumer without a group, and looks up its coordinator. Nobody joins it: it is never made."""

COMPARED = 100
"""Partitions of a broker that are looked up by both calls when a consumer is made."""

_DENIED = (KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)

_FIELDS = attrgetter("offset", "leader_epoch", "error")


class OffsetsForTimes:
    """Looks up offsets by a consumer of one cluster, while it has one. Not for several threads at once.

    A consumer looks up the coordinator of its group, for which a broker creates ``__consumer_offsets`` where it is
    missing, and writes a line to its log twice a second where the right is missing. So no consumer is made where that
    topic is not listed, nor any more once a broker denied the right.
    """

    def __init__(self, lookups: Lookups) -> None:
        """``lookups`` make the documented call; they count these look-ups, and the leaders that do not answer."""
        self._lookups = lookups
        self._client = lookups.client
        self.consumer: Consumer | None = None
        """The present one."""
        self._refused = False
        """Whether no consumer is made any more: its answers differ, or it may not see groups."""
        self._connection = 0
        """The number of the admin connection when the consumer was made."""
        self._leaders = NO_PARTITIONS
        """The leaders at the last metadata."""
        self._compared: frozenset[int] = frozenset()
        """The brokers that were compared when the consumer was made, and answered ever since."""
        self._outdated = False
        """Whether the consumer asked an earlier leader."""
        self._latest: tuple[Membership, dict[int, list[Chunk]]] | None = None
        """The chunks of the last look-up of LATEST: each poll looks up the same partitions."""

    def follow(self, membership: Membership, *, wanted: bool, silent: Collection[int] = ()) -> None:
        """Have a consumer where it is ``wanted``: another one after leaders moved or the client connected again.

        A broker may have been upgraded meanwhile, so the answers of each new consumer are compared. Leaders that were
        ``silent`` are left to the documented call. Once one answers again, or a new broker leads, another consumer is
        made.
        """
        leaders = frozenset(np.unique(membership.leader).tolist()) - {NO_LEADER, *silent}
        self._compared -= set(silent)
        if not (wanted and leaders <= self._compared and self._is_current(membership)):
            self.stop()
        if wanted and leaders and self.consumer is None and not self._refused:
            try:
                self.consumer = self._client.make_consumer(GROUP)
            except (KafkaException, ValueError) as error:
                log.debug("%s: no consumer: %s", self._client.bootstrap, type(error).__name__)
                return
            self._connection, self._outdated, self._compared = self._client.connections, False, leaders
            # A comparison may notice a denied right, which also refuses.
            differs = any(self._differs(spec, membership) for spec in (LATEST, EARLIEST))
            self._refused |= differs
            if self._refused:
                self.stop()
        self._leaders = membership

    def ask(self, spec: int, membership: Membership) -> Answers:
        """Return LATEST or EARLIEST of partitions, which have leaders. No answer means: make the documented call.

        Only leaders that were compared are asked. One partition's error, such as another leader, may fail the call for
        its whole chunk.
        """
        answers = Answers.make_blank(len(membership.layout))
        if self.consumer is not None and self._is_denied(self.consumer):
            log.info(
                "%s: may not DESCRIBE groups: polls look up offsets by calls that take more CPU (see docs/security.md)",
                self._client.bootstrap,
            )
            self._refused = True
            self.stop()
        if self.consumer is None:
            return answers
        consumer = self.consumer

        def call(_: int, chunk: Chunk) -> set[Reason | None]:
            self._lookups.count(spec_name(spec), len(chunk[1]))
            try:
                found = consumer.offsets_for_times(list(chunk[1]), timeout=self._client.request_timeout)
            except KafkaException as error:
                answers.reason[chunk[0]] = reason_code(reason_of(error))
                return {reason_of(error)}
            return _put(answers, chunk[0], found)

        chunks = self._chunks(spec, membership)
        compared = {leader: chunks[leader] for leader in chunks.keys() & self._compared}
        # A consumer (2.16.1) makes one call after another; threads that wait for their turn keep asking for it.
        self._lookups.unreachable |= run_calls(compared, answers, call, in_flight=1)
        self._outdated |= bool(rows_with(answers.reason, [Reason.NOT_LEADER]).any())
        return answers

    def stop(self) -> None:
        """Close the consumer, if any."""
        if self.consumer is not None:
            self.consumer.close()
            self.consumer = None

    def _is_current(self, membership: Membership) -> bool:
        here, there = membership.layout.moves_from(self._leaders.layout)
        moved = bool((membership.leader[here] != self._leaders.leader[there]).any())
        return self._connection == self._client.connections and not self._outdated and not moved

    def _differs(self, spec: int, membership: Membership) -> bool:
        """Return whether the documented call disagrees, by partitions of each leader. A failed answer says nothing."""
        led = [np.flatnonzero(membership.leader == broker)[:COMPARED] for broker in self._compared]
        part = membership.part(np.sort(np.concatenate(led)))
        # Logs move in between: then an answer lies between those before and after it.
        before, answers, after = (
            look_up(spec, part) for look_up in (self._lookups.look_up, self.ask, self._lookups.look_up)
        )
        outside = (answers.offset < before.offset) | (answers.offset > after.offset)
        wrong = np.flatnonzero(before.found & answers.found & after.found & outside)
        if len(wrong):
            key = part.layout.key(wrong[0])
            log.warning(
                "%s: offsets_for_times answers %s of partition %d of %s with %d, and list_offsets with %d: it is not "
                "used again, and polls cost more; next step: report it with the versions of librdkafka and broker",
                self._client.bootstrap,
                spec_name(spec),
                key.partition,
                key.topic,
                answers.offset[wrong[0]],
                after.offset[wrong[0]],
            )
        return len(wrong) > 0

    @staticmethod
    def _is_denied(consumer: Consumer) -> bool:
        """Return whether a broker has refused to name the coordinator. librdkafka would repeat the request for ever.

        librdkafka sends it within a second after it has connected. To be called between look-ups.
        """
        # Not in a thread beside the look-ups: poll() and offsets_for_times() at once block each other (2.16.1).
        while (message := consumer.poll(0)) is not None:
            error = message.error()
            if error is not None and error.code() in _DENIED:
                return True
        return False

    def _chunks(self, spec: int, membership: Membership) -> dict[int, list[Chunk]]:
        if spec == LATEST and self._latest is not None and self._latest[0].matches(membership):
            return self._latest[1]
        chunks = group_by_leader(membership, np.arange(len(membership.layout)), spec)
        if spec == LATEST:
            self._latest = membership, chunks
        return chunks


def _put(answers: Answers, places: Rows, found: Sequence[confluent_kafka.TopicPartition]) -> set[Reason | None]:
    """Write a chunk's answers into the columns, and return the reasons among them.

    An offset below 0 without an error was never filled in: it is still the requested spec.
    """
    numbers, epochs, errors = zip(*map(_FIELDS, found), strict=True)
    offsets = np.array(numbers, dtype=np.int64)
    answers.epoch[places] = [-1 if epoch is None else epoch for epoch in epochs]
    reasons = np.where(offsets < 0, reason_code(Reason.MISSING_ANSWER), ANSWERED).astype(np.int8)
    if errors.count(None) < len(errors):
        for at, error in enumerate(errors):
            if error is not None:
                reasons[at] = reason_code(reason_of(error))
    answers.reason[places] = reasons
    good = reasons == ANSWERED
    answers.found[places], answers.offset[places] = good, np.where(good, offsets, 0)
    return {reason_of_code(code) for code in set(reasons.tolist())}

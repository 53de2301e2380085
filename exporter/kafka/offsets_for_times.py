"""Looks up LATEST and EARLIEST of many partitions with ``Consumer.offsets_for_times``, at an eighth of the usual cost.

librdkafka (2.16.1) passes negative times on, and to brokers -1 and -2 are LATEST and EARLIEST. That is its behaviour,
not documented: callers must compare it with the documented call.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from operator import attrgetter

import confluent_kafka
import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException

from exporter.domain.arrays import Rows
from exporter.domain.polls.metadata import Membership
from exporter.domain.polls.readings import ANSWERED, GONE, Answers, Reason, reason_code, reason_of_code
from exporter.kafka.client import Client
from exporter.kafka.errors import reason_of
from exporter.kafka.leader_calls import CALLS_IN_FLIGHT, Chunk, run_calls
from exporter.kafka.list_offsets import group_by_leader
from exporter.kafka.list_offsets_call import LATEST, spec_name

log = logging.getLogger(__name__)

GROUP = "topic-liveness"
"""librdkafka makes no consumer without a group, and looks up its coordinator. Nobody joins it: it is never made."""

_DENIED = (KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)

_FIELDS = attrgetter("offset", "leader_epoch", "error")


class OffsetsForTimes:
    """Looks up offsets at the leaders of one cluster, several chunks in flight. Not for several threads at once."""

    def __init__(self, client: Client) -> None:
        """Make it; no request is sent yet. Raises KafkaException or ValueError as the client does when it connects."""
        self._client = client
        self._consumer: Consumer = client.make_consumer(GROUP)
        self._pool = ThreadPoolExecutor(CALLS_IN_FLIGHT, "offsets for times")
        self._cached: tuple[Membership, Rows, dict[int, list[Chunk]]] | None = None
        self.counts: Counter[str] = Counter()
        """Look-ups sent so far, by spec."""
        self.unreachable: set[int] = set()
        """Leaders that gave no answer since this set was last emptied."""

    def is_denied(self) -> bool:
        """Return whether a broker has refused to name the coordinator. librdkafka would repeat the request for ever.

        librdkafka sends it within a second after it has connected. To be called between look-ups.
        """
        # Not in a thread beside the look-ups: poll() and offsets_for_times() at once block each other (2.16.1).
        while (message := self._consumer.poll(0)) is not None:
            error = message.error()
            if error is not None and error.code() in _DENIED:
                return True
        return False

    def refresh(self) -> None:
        """Let librdkafka learn the present leaders; where no broker answers, it keeps the old ones."""
        try:
            self._consumer.list_topics(timeout=self._client.request_timeout)
        except KafkaException as error:
            log.debug("%s: leaders could not be read: %s", self._client.bootstrap, error)

    def ask(self, spec: int, membership: Membership, rows: Rows) -> tuple[Answers, Rows]:
        """Return the answers of ``rows``, which have leaders, and the places in them that need another call.

        One partition's error, such as another leader, may fail the call for its whole chunk: those are the places.
        """
        answers = Answers.none(len(rows))
        refused: list[Rows] = []

        def start(_: int, chunk: Chunk) -> Future[list[confluent_kafka.TopicPartition]]:
            self.counts[spec_name(spec)] += len(chunk[0])
            timeout = self._client.request_timeout
            return self._pool.submit(self._consumer.offsets_for_times, list(chunk[1]), timeout=timeout)

        def take(_: int, chunk: Chunk, future: Future[list[confluent_kafka.TopicPartition]]) -> set[Reason | None]:
            try:
                found = future.result(timeout=0)
            except (KafkaException, TimeoutError) as error:
                reason = reason_of(error)
                if reason in GONE:
                    answers.reason[chunk[0]] = reason_code(reason)
                else:
                    refused.append(chunk[0])
                return {reason}
            return _put(answers, chunk[0], found)

        self.unreachable |= run_calls(
            self._chunks(spec, membership, rows),
            answers,
            start,
            take,
            patience=lambda: self._client.patience,
        )
        return answers, np.sort(np.concatenate(refused)) if refused else np.zeros(0, dtype=np.intp)

    def close(self) -> None:
        """Close connections after running calls have ended."""
        self._pool.shutdown(cancel_futures=True)
        self._consumer.close()

    def _chunks(self, spec: int, membership: Membership, rows: Rows) -> dict[int, list[Chunk]]:
        """Return the chunks of each leader. The last ones for LATEST are cached: each poll looks up the same rows."""
        is_latest = spec == LATEST
        if (
            is_latest
            and self._cached is not None
            and self._cached[0] is membership
            and np.array_equal(self._cached[1], rows)
        ):
            return self._cached[2]
        chunks = group_by_leader(membership, rows, spec)
        if is_latest:
            self._cached = membership, rows, chunks
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
    return {reason_of_code(code) for code in np.unique(reasons).tolist()}

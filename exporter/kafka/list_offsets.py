"""ListOffsets in bulk: chunks for each leader, several calls in flight, an answer for every partition."""

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, cast

import numpy as np
from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from exporter.domain.arrays import Offsets, Rows, runs
from exporter.domain.polls.metadata import Membership
from exporter.domain.polls.readings import Answers, Reason, reason_code, reason_of_code
from exporter.kafka.calls import Chunk, RateLimiter, run_calls
from exporter.kafka.client import Client
from exporter.kafka.errors import OffsetResult, answers_of, reason_of

OffsetResults = Mapping[TopicPartition, OffsetResult]
"""The result of each partition of a call that ended. A partition may be missing."""

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3

_NAMES = {LATEST: "latest", EARLIEST: "earliest", MAX_TIMESTAMP: "max-timestamp"}

_COMMITTED_OR_NOT = IsolationLevel.READ_UNCOMMITTED

CHUNK_SIZE = 250
"""Partitions of one call to a broker."""


class Lookups:
    """Looks up offsets, in chunks: the cost of a look-up in librdkafka grows with the size of its call.

    A chunk never spans two leaders, so that a dead leader costs only its own partitions. librdkafka answers these after
    the whole timeout, and other chunks for that leader then get the same answer without a request.
    """

    def __init__(self, client: Client, limiter: RateLimiter | None = None) -> None:
        self.client = client
        self._limiter = limiter
        self._counting = threading.Lock()
        self.counts: Counter[str] = Counter()
        """Look-ups sent so far, by spec."""
        self.unreachable: set[int] = set()
        """Leaders that gave no answer since this set was last emptied."""

    def look_up(self, targets: int | Offsets, membership: Membership, rows: Rows | None = None) -> Answers:
        """Answer one spec, or a time in milliseconds for each of ``rows`` [n], which have leaders, by their places.

        Without ``rows`` all are meant. Raises no Kafka error.
        """
        rows = np.arange(len(membership.layout)) if rows is None else rows
        answers, admin = Answers.make_blank(len(rows)), self.client.admin

        def call(leader: int, chunk: Chunk) -> set[Reason | None]:
            self.count(spec_name(chunk[1][0].offset), len(chunk[1]))
            started = list_offsets(admin, chunk[1], self.client.request_timeout)
            got = self._answers(leader, chunk[1], started)
            answers.put(chunk[0], got)
            return {reason_of_code(code) for code in np.unique(got.reason).tolist()}

        chunks = group_by_leader(membership, rows, targets)
        self.unreachable |= run_calls(chunks, answers, call, self._limiter)
        self.client.serve()
        return answers

    def count(self, spec: str, lookups: int) -> None:
        """Count look-ups that are sent. Safe from any thread."""
        with self._counting:
            self.counts[spec] += lookups

    def _answers(self, leader: int, partitions: Sequence[TopicPartition], call: Future[OffsetResults]) -> Answers:
        """Return the answers of a call, in the order of its partitions. A call that does not end in time gives none."""
        failed: KafkaException | TimeoutError | None = None
        found: list[OffsetResult | None] = []
        try:
            results = call.result(timeout=self.client.patience)
            found = [results.get(one) for one in partitions]
            answers = answers_of(found)
        except (KafkaException, TimeoutError) as error:
            failed, answers = error, Answers.make_failed(len(partitions), reason_of(error))
        for place in np.flatnonzero(answers.reason == reason_code(Reason.OTHER)).tolist():
            what = f"broker {leader}, asked for {spec_name(partitions[place].offset)} offsets"
            self.client.log_unexplained(what, failed or _unknown_answer(found[place]))
        return answers


def _unknown_answer(result: OffsetResult | None) -> BaseException | str:
    if isinstance(result, KafkaError):
        return KafkaException(result)
    return "nothing" if result is None else f"offset {result.offset}"


def group_by_leader(
    membership: Membership, rows: Rows, offsets: int | Offsets = OFFSET_INVALID
) -> dict[int, list[Chunk]]:
    """Return rows with leaders in chunks, by leader; each partition gets the offset of its place.

    Brokers refuse a partition named twice in one call (error 42): a row that is given again is in a later chunk.
    """
    layout, leader = membership.layout, membership.leader[rows]
    names, offset, turn = layout.topics, np.broadcast_to(offsets, rows.shape), _turns(rows)
    chunks: dict[int, list[Chunk]] = {}
    for broker in np.unique(leader).tolist():
        led = np.flatnonzero(leader == broker)
        led = led[np.argsort(turn[led], kind="stable")]
        chunks[broker] = []
        for of_turn in np.split(led, np.flatnonzero(np.diff(turn[led])) + 1):
            for at in range(0, len(of_turn), CHUNK_SIZE):
                places = of_turn[at : at + CHUNK_SIZE]
                columns = (layout.topic[rows[places]], layout.partition[rows[places]], offset[places])
                partitions = [
                    TopicPartition(names[topic], number, target)
                    for topic, number, target in zip(*(column.tolist() for column in columns), strict=True)
                ]
                chunks[broker].append((places, partitions))
    return chunks


def _turns(rows: Rows) -> Rows:
    """Return how often each row occurs earlier in ``rows``."""
    order = np.argsort(rows, kind="stable")
    first = runs(rows[order])
    turns = np.empty(len(rows), dtype=np.intp)
    turns[order] = np.arange(len(rows)) - np.repeat(first, np.diff(first, append=len(rows)))
    return turns


def list_offsets(admin: AdminClient, partitions: Sequence[TopicPartition], timeout: float) -> Future[OffsetResults]:
    """Start a call; the ``offset`` of each partition is its target: a spec (negative) or a time in milliseconds.

    ``AdminClient.list_offsets`` (2.16.1) makes a future for each partition, which is half the CPU of a look-up, around
    a method of its base class that needs one. ``timeout`` is in seconds. The future may raise KafkaException.
    """
    found: Future[OffsetResults] = Future()
    found.set_running_or_notify_cancel()
    cast("Any", super(AdminClient, admin)).list_offsets(
        list(partitions), found, isolation_level_value=_COMMITTED_OR_NOT.value, request_timeout=timeout
    )
    return found


def spec_name(offset: int) -> str:
    """Return the name of a target, which is the ``offset`` of a partition in a call."""
    return _NAMES.get(offset, "by-time")

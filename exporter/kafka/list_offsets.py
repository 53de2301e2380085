"""ListOffsets in bulk: chunks for each leader, several calls in flight, an answer for every partition."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import NamedTuple, TypeVar, cast

import confluent_kafka
import numpy as np
from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaException
from confluent_kafka.admin import ListOffsetsResultInfo, OffsetSpec

from exporter.domain import Answer, Reason, TopicPartition
from exporter.domain.answers import Answers, reason_code
from exporter.domain.arrays import Rows
from exporter.domain.metadata import Membership
from exporter.kafka.client import Client
from exporter.kafka.errors import ListedOffset, answer_of, reason_of
from exporter.kafka.leader_calls import Handlers, Started, run_calls
from exporter.kafka.rate_limiter import Pace

C = TypeVar("C")

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3

NAMES = {LATEST: "latest", EARLIEST: "earliest", MAX_TIMESTAMP: "max-timestamp"}

_SPECS: Mapping[int, OffsetSpec] = {
    LATEST: OffsetSpec.latest(),
    EARLIEST: OffsetSpec.earliest(),
    MAX_TIMESTAMP: OffsetSpec.max_timestamp(),
}


_LAGS_BEHIND = 1.0
"""All futures of a call are resolved within these seconds after the first."""


class Lookup(NamedTuple):
    """One look-up of one partition: ``target`` is a spec (negative) or a time in milliseconds."""

    partition: TopicPartition
    target: int


_Futures = Mapping[confluent_kafka.TopicPartition, Future[ListOffsetsResultInfo]]

Chunk = tuple[Rows, Sequence[confluent_kafka.TopicPartition]]
"""Places in the columns of answers, and their partitions."""


class Lookups:
    """Looks up offsets.

    The cost of a look-up in librdkafka grows with the size of its call. With 8,000 partitions on one broker 4.3.1: 20
    us of client CPU a partition in chunks of 250, 75 us in one call. A chunk never spans two leaders, so that a dead
    leader costs only its own partitions. librdkafka answers these after the whole timeout, and other chunks for that
    leader then get the same answer without a request.
    """

    def __init__(self, client: Client, *, chunk_size: int, calls_in_flight: int, pace: Pace | None = None) -> None:
        """Make it; nothing is asked yet. Without a ``pace`` only ``calls_in_flight`` limits how fast it asks."""
        self._client = client
        self._pace = pace
        self._chunk_size = chunk_size
        self._calls_in_flight = calls_in_flight
        self.counts: Counter[str] = Counter()
        """Look-ups asked so far, by spec."""
        self.unreachable: set[int] = set()
        """Leaders that gave no answer since this set was last emptied."""

    def ask(self, wanted: Iterable[Lookup], leaders: Mapping[TopicPartition, int]) -> dict[Lookup, Answer]:
        """Answer every look-up. Each partition must have a leader in ``leaders``. Raises no Kafka error."""
        answers: dict[Lookup, Answer] = {}

        def take(leader: int, chunk: Sequence[Lookup], futures: _Futures) -> set[Reason | None]:
            got = self._collect(leader, chunk, futures)
            answers.update(got)
            return {answer.reason for answer in got.values()}

        def give_up(chunk: Sequence[Lookup]) -> None:
            answers.update((lookup, Answer(reason=Reason.LEADER_UNREACHABLE)) for lookup in chunk)

        self._run(self._chunks(wanted, leaders), Handlers(self._start, take, give_up))
        return answers

    def by_row(self, spec: int, membership: Membership, rows: Rows) -> Answers:
        """Answer a spec for rows, each once and with a leader. Raises no Kafka error."""
        answers = Answers.none(len(rows))
        asking = _SPECS[spec]

        def start(leader: int, chunk: Chunk) -> Started[_Futures]:
            self.counts[NAMES[spec]] += len(chunk[1])
            return self._begun(leader, dict.fromkeys(chunk[1], asking))

        def take(leader: int, chunk: Chunk, futures: _Futures) -> set[Reason | None]:
            told = [self._told(leader, NAMES[spec], futures.get(each)) for each in chunk[1]]
            answers.put(chunk[0], Answers.of(told))
            return {answer.reason for answer in told}

        def give_up(chunk: Chunk) -> None:
            answers.reason[chunk[0]] = reason_code(Reason.LEADER_UNREACHABLE)

        self._run(by_leader(membership, rows, self._chunk_size), Handlers(start, take, give_up))
        return answers

    def _run(self, chunks: Mapping[int, Iterable[C]], handlers: Handlers[C, _Futures]) -> None:
        self.unreachable |= run_calls(
            chunks,
            handlers,
            calls_in_flight=self._calls_in_flight,
            patience=lambda: self._client.patience,
            pause=self._pause,
        )
        self._client.serve()

    def _chunks(self, wanted: Iterable[Lookup], leaders: Mapping[TopicPartition, int]) -> dict[int, list[list[Lookup]]]:
        # Brokers refuse a partition named twice in one call (error 42), and a dict would drop it silently:
        # the second look-up of a partition goes to a later chunk.
        rows: dict[tuple[int, int], list[Lookup]] = defaultdict(list)
        seen: Counter[TopicPartition] = Counter()
        for lookup in wanted:
            rows[leaders[lookup.partition], seen[lookup.partition]].append(lookup)
            seen[lookup.partition] += 1
        chunks: dict[int, list[list[Lookup]]] = defaultdict(list)
        for (leader, _), row in rows.items():
            chunks[leader].extend(row[at : at + self._chunk_size] for at in range(0, len(row), self._chunk_size))
        return dict(chunks)

    def _start(self, leader: int, chunk: Sequence[Lookup]) -> Started[_Futures]:
        for lookup in chunk:
            self.counts[NAMES.get(lookup.target, "by-time")] += 1
        return self._begun(
            leader,
            {
                confluent_kafka.TopicPartition(*lookup.partition): _SPECS.get(lookup.target)
                or OffsetSpec.for_timestamp(lookup.target)
                for lookup in chunk
            },
        )

    def _begun(self, leader: int, asked: dict[confluent_kafka.TopicPartition, OffsetSpec]) -> Started[_Futures]:
        if self._pace is not None:
            self._pace.spend(leader, len(asked))
        futures = self._client.admin.list_offsets(
            asked, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=self._client.request_timeout
        )
        # The futures of a call are resolved together, so one of them tells.
        return Started(next(iter(futures.values())), futures)

    def _pause(self, leader: int) -> float:
        return 0.0 if self._pace is None else self._pace.wait(leader)

    def _collect(self, leader: int, chunk: Sequence[Lookup], futures: _Futures) -> dict[Lookup, Answer]:
        return {
            lookup: self._told(
                leader,
                NAMES.get(lookup.target, "by-time"),
                futures.get(confluent_kafka.TopicPartition(*lookup.partition)),
            )
            for lookup in chunk
        }

    def _told(self, leader: int, spec: str, future: Future[ListOffsetsResultInfo] | None) -> Answer:
        """Return the answer in a future of a finished call."""
        if future is None:
            return Answer(reason=Reason.MISSING_ANSWER)
        said: BaseException | str
        try:
            listed = cast("ListedOffset", future.result(timeout=0 if future.done() else _LAGS_BEHIND))
            answer, said = answer_of(listed), f"offset {listed.offset}"
        except (KafkaException, TimeoutError) as error:
            answer, said = Answer(reason=reason_of(error)), error
        if answer.reason is Reason.OTHER:
            self._client.unexplained(f"broker {leader}, asked for {spec} offsets", said)
        return answer


def by_leader(
    membership: Membership, rows: Rows, chunk_size: int, offset: int = OFFSET_INVALID
) -> dict[int, list[Chunk]]:
    """Return rows with leaders in chunks, by leader; each partition gets the ``offset``."""
    layout, leader = membership.layout, membership.leader[rows]
    names = layout.topics
    chunks: dict[int, list[Chunk]] = {}
    for broker in np.unique(leader).tolist():
        led = np.flatnonzero(leader == broker)
        chunks[broker] = []
        for at in range(0, len(led), chunk_size):
            places = led[at : at + chunk_size]
            topics, numbers = layout.topic[rows[places]].tolist(), layout.partition[rows[places]].tolist()
            asked = [
                confluent_kafka.TopicPartition(names[topic], number, offset)
                for topic, number in zip(topics, numbers, strict=True)
            ]
            chunks[broker].append((places, asked))
    return chunks

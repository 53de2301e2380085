"""ListOffsets in bulk: chunks per leader, several calls in flight, every partition answered."""

from __future__ import annotations

import concurrent.futures
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import NamedTuple, cast

import confluent_kafka
from confluent_kafka import IsolationLevel, KafkaException
from confluent_kafka.admin import ListOffsetsResultInfo, OffsetSpec

from exporter.domain import Answer, Reason, TopicPartition
from exporter.kafka.client import Client
from exporter.kafka.errors import ListedOffset, answer_of, reason_of
from exporter.kafka.leader_calls import Handlers, Started, run_calls
from exporter.kafka.rate_limiter import Pace

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3

NAMES = {LATEST: "latest", EARLIEST: "earliest", MAX_TIMESTAMP: "max-timestamp"}

_SPECS: Mapping[int, OffsetSpec] = {
    LATEST: OffsetSpec.latest(),
    EARLIEST: OffsetSpec.earliest(),
    MAX_TIMESTAMP: OffsetSpec.max_timestamp(),
}


class Lookup(NamedTuple):
    """One question about one partition: ``target`` is a spec (negative) or a time in milliseconds."""

    partition: TopicPartition
    target: int


_Futures = Mapping[confluent_kafka.TopicPartition, Future[ListOffsetsResultInfo]]


class Lookups:
    """Asks for offsets. The cost of a look-up inside librdkafka grows with the size of its call.

    Measured with 8,000 partitions on one broker 4.3.1: 20 us of client CPU a partition in chunks of 250,
    75 us in one call. A chunk never spans two leaders, so that a dead leader takes only its own
    partitions with it: librdkafka answers them after the whole timeout, and what else is queued for that
    leader is then answered the same without asking.
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

        self.unreachable |= run_calls(
            self._chunks(wanted, leaders),
            Handlers(self._start, take, give_up),
            calls_in_flight=self._calls_in_flight,
            patience=lambda: self._client.patience,
            pause=self._pause,
        )
        self._client.serve()
        return answers

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
        if self._pace is not None:
            self._pace.spend(leader, len(chunk))
        futures = self._client.admin.list_offsets(
            {
                confluent_kafka.TopicPartition(*lookup.partition): _SPECS.get(lookup.target)
                or OffsetSpec.for_timestamp(lookup.target)
                for lookup in chunk
            },
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            request_timeout=self._client.request_timeout,
        )
        # The futures of a call are resolved together, so one of them tells.
        return Started(next(iter(futures.values())), futures)

    def _pause(self, leader: int) -> float:
        return 0.0 if self._pace is None else self._pace.wait(leader)

    def _collect(self, leader: int, chunk: Sequence[Lookup], futures: _Futures) -> dict[Lookup, Answer]:
        got: dict[Lookup, Answer] = {}
        concurrent.futures.wait(futures.values(), timeout=1.0)
        for lookup in chunk:
            future = futures.get(confluent_kafka.TopicPartition(*lookup.partition))
            if future is None:
                got[lookup] = Answer(reason=Reason.MISSING_ANSWER)
                continue
            said: BaseException | str
            try:
                listed = cast("ListedOffset", future.result(timeout=0))
                got[lookup], said = answer_of(listed), f"offset {listed.offset}"
            except (KafkaException, TimeoutError) as error:
                got[lookup], said = Answer(reason=reason_of(error)), error
            if got[lookup].reason is Reason.OTHER:
                spec = NAMES.get(lookup.target, "by-time")
                self._client.unexplained(f"broker {leader}, asked for {spec} offsets", said)
        return got
